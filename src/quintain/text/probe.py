"""Whether a chat template ends, and in how much memory: found out in a process of its own, once per template.

A template is a program that came with a model: Jinja's sandbox keeps it from objects that it must not touch, but not
from looping or growing for ever. So small chats are rendered first where that does no harm. This file is also the
program that renders them; it needs nothing but jinja2, so that it starts at once.
"""

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn, cast

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

SECONDS = 5.0
"""Time of the processor that rendering the chats may take."""
MEMORY_BYTES = 1 << 30
"""Memory that the process may hold."""
PATIENCE = 120.0
"""Seconds on the clock after which it is given up, however little of the processor it had."""
ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template raises that refuses a chat; jinja2's own errors include those of its sandbox."""


@lru_cache(maxsize=64)
def hazard(source: str, chats: str) -> str:
    """Return what is wrong with rendering `chats` with the template `source`, or an empty text where all is well.

    `chats` is a JSON list of what the template is given for each chat: an object with ``messages``, ``tools``,
    ``add_generation_prompt`` and more. A chat that the template refuses by an error is no hazard.
    """
    request = f"[{SECONDS}, {MEMORY_BYTES}, {json.dumps(source)}, {chats}]"
    command = [sys.executable, "-P", "-X", "utf8", __file__]
    try:
        done = subprocess.run(command, input=request.encode(), capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"no end within {PATIENCE:g} s"
    except OSError as error:
        return f"no process to try it in ({error})"
    if done.returncode == -signal.SIGPROF:
        return f"no end within {SECONDS:g} s of work"
    said = done.stderr.decode(errors="replace").splitlines() or ["a crash"]
    return said[-1][:200] if done.returncode else ""


def main() -> None:
    """Render the chats of the request on standard input, within its bounds; its end says how it went."""
    seconds, memory_bytes, source, chats = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal ends the process
    try:
        render(source, chats)
    except (jinja2.TemplateSyntaxError, MemoryError, RecursionError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


def render(source: str, chats: Sequence[Mapping[str, Any]]) -> None:
    """Render each of `chats` with the template `source`, in surroundings like those that transformers gives it.

    Raises:
        jinja2.TemplateSyntaxError: it is no template.
        MemoryError: it takes too much.
        RecursionError: it is nested too deeply to be read.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = as_json
    known = cast("dict[str, Any]", environment.globals)
    known.update(raise_exception=refuse, strftime_now=datetime.now().strftime)
    template = environment.from_string(source)
    for chat in chats:
        with suppress(*ERRORS):
            template.render(chat)


class Generation(Extension):
    """The tag ``{% generation %}``, which marks answers and shows what is within."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 asks for it)

    def parse(self, parser: Parser) -> list[Node]:
        """Return what stands between the tag and its end."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def as_json(value: object, ensure_ascii: bool = False, **form: Any) -> str:
    """Return `value` as JSON, in the `form` that a template asks for."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **form)


def refuse(why: str) -> NoReturn:
    """Refuse a chat, as templates do for roles that they do not know.

    Raises:
        jinja2.TemplateError: always.
    """
    raise jinja2.TemplateError(why)


if __name__ == "__main__":
    main()
