"""Templates are tried in another process: what does not end or grows too much is told, and all else is let through."""

import io
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jinja2
import pytest

from quintain.text import probe

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "tools": None}
CHATS = json.dumps([CHAT])
Call = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the commands that are run from here on; nothing is remembered from before."""
    commands: list[list[str]] = []
    original: Call = subprocess.run

    def run(command: list[str], **named: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return original(command, **named)

    probe.hazard.cache_clear()
    monkeypatch.setattr(subprocess, "run", run)
    return commands


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content }}{% if loop.first %}{% break %}{% endif %}{% endfor %}",
        "{% generation %}{{ messages | tojson(indent=2) }}{% endgeneration %}",
        "{{ strftime_now('%Y') }}{{ raise_exception('no') }}",
        "{{ messages[0].content.__class__.mro() }}",
        "{{ absent.more }}",
        "{{ 1 / 0 }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_ends_is_let_through_and_tried_once(source: str, runs: list[list[str]]) -> None:
    assert probe.hazard(source, CHATS) == probe.hazard(source, CHATS) == ""
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "no end within 0.2 s of work",
        ),
        ("{{ 7 ** (7 ** 9) }}", "no end within 0.2 s of work"),
        ("{% set x = 'a' * 500000000 %}{{ x[:1] }}", "MemoryError: "),
        ("{{ 'a' * 500000000 if messages else '' }}", "MemoryError: "),
        ("{{ messages", "TemplateSyntaxError: "),
        ("{{ " + "(" * 20_000, "RecursionError: "),
    ],
)
def test_what_does_not_is_told(
    source: str, problem: str, monkeypatch: pytest.MonkeyPatch, runs: list[list[str]]
) -> None:
    monkeypatch.setattr(probe, "SECONDS", 0.2)
    monkeypatch.setattr(probe, "MEMORY_BYTES", 300 << 20)
    started = time.monotonic()
    assert probe.hazard(source, CHATS).startswith(problem)
    assert time.monotonic() - started < 30 and len(runs) == 1


def test_a_process_that_does_not_come_back_or_start_is_a_hazard(
    monkeypatch: pytest.MonkeyPatch, runs: list[list[str]]
) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 0.0)
    assert probe.hazard("a", CHATS) == "no end within 0 s"
    monkeypatch.setattr(sys, "executable", "/absent/python")
    assert probe.hazard("b", CHATS).startswith("no process to try it in (")


def test_the_program_sets_its_bounds_before_it_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[Any, ...]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda *given: done.append(given))
    monkeypatch.setattr(signal, "setitimer", lambda *given: done.append(given))
    monkeypatch.setattr(probe, "render", lambda *given: done.append(given))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps([1.5, 1 << 20, "x", [CHAT]])))
    probe.main()
    assert (resource.RLIMIT_AS, (1 << 20, 1 << 20)) in done[:3] and (signal.ITIMER_PROF, 1.5) in done[:3]
    assert done[3:] == [("x", [CHAT])]


def test_the_program_says_in_a_line_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps([1.5, 1 << 20, "{{", []])))
    with pytest.raises(SystemExit, match="TemplateSyntaxError: unexpected"):
        probe.main()


def test_templates_have_what_transformers_gives_them() -> None:
    probe.render("{{ raise_exception(messages | tojson) }}", [CHAT])
    with pytest.raises(jinja2.TemplateSyntaxError):
        probe.render("{% generation %}", [CHAT])
    with pytest.raises(jinja2.TemplateSyntaxError):
        probe.render("{{ messages | absent }}", [CHAT])
    probe.render("{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}", [CHAT])
