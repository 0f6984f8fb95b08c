"""``quintain view``: what is served, at which address, and what is said where nothing can be."""

import http.client
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.build import make_episode, make_turn
from tests.cli.conftest import Cli

from quintain.errors import MissingExtra
from quintain.store import Run

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(/[\w-]+/)")


@pytest.fixture
def run(cli: Cli) -> Path:
    with Run.create(Path("runs/a"), recipe="grpo", config={}) as made:
        made.append([make_episode(make_turn((1,), shows="x"))], step=1)
        made.commit(1, {"train/success": 1.0})
    return Path("runs/a")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["a", ""])
def test_it_serves_until_it_is_interrupted(
    run: Path, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    command = [sys.executable, "-m", "quintain", "view", *([place] if place else []), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = ADDRESS.search(line)
        assert found is not None, (line, process.communicate(timeout=60))
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        connection.request("GET", f"{found[2]}api/runs")
        assert '"name":"a"' in connection.getresponse().read().decode()
        connection.close()
        process.terminate()
        _, error = process.communicate(timeout=60)
    assert "Traceback" not in error


def test_without_what_serves_it_writes_the_report(
    cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_feature: str) -> None:
        raise MissingExtra.for_package("starlette", "serve", "quintain view")

    monkeypatch.setattr("quintain.cli.viewing.require_server", refuse)
    found = cli("view", "a")
    assert found.status == 0 and found.out == "runs/a/report.html\n"
    assert "the report, which does not move" in found.error
    assert cli("view").status == 10, "a folder has no report"


def test_what_cannot_be_shown(cli: Cli, run: Path) -> None:
    assert cli("view", "nothing").status == cli("view", "--static").status == 2
    assert "there is no folder elsewhere" in cli("view", "--runs", "elsewhere").line
    Path("empty").mkdir()
    assert "in which there is no run" in cli("view", "empty").line
    Path("key").write_text("short")
    assert "give 16 letters" in cli("view", "a", "--token-file", "key").line
    assert "give a token with --token-file" in cli("view", "a", "--host", "192.0.2.1").line
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"127.0.0.1:{port} (Address already in use" in cli("view", "a", "--port", port).line
