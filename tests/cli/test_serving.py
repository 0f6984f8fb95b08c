"""``quintain environments serve``: a world over either protocol, from the command line to the end by Ctrl-C."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from quintain.environments.baselines import play, random_policy
from quintain.environments.catalog import find
from quintain.errors import INTERRUPTED_EXIT_CODE, EnvironmentFault, MissingExtra, UsageError
from quintain.worlds.keydoor.game import KeyDoor

Cli = Callable[..., Any]
SOURCES = Path(__file__).resolve().parents[2] / "src"
PROTOCOLS = ["openenv", "agentgym"]
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
sys.path.insert(0, sys.argv.pop(1))
from quintain.cli.main import main
raise SystemExit(main(sys.argv[1:]))
"""


@contextmanager
def served(*argv: str) -> Generator[tuple[str, "subprocess.Popen[str]"]]:
    """Serve in a process; the line that it printed, and the process."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(SOURCES), "environments", "serve", *argv, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline(), process
    finally:
        process.kill()
        process.communicate()


def address_in(line: str) -> str:
    found = re.search(r"http://(\S+:\d+)", line)
    assert found is not None, line
    return found[1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_served_world_is_played_until_ctrl_c(protocol: str) -> None:
    with served("keydoor?rooms=2", "--protocol", protocol) as (line, process):
        assert f"keydoor?rooms=2 over {protocol} at http://127.0.0.1:" in line
        assert line.endswith("; Ctrl-C stops it\n")
        with closing(find(f"{protocol}/{address_in(line)}")()) as far:
            near = KeyDoor(rooms=2)
            one = play(near, near.task("eval", 1), random_policy(3), 10)
            other = play(far, far.task("eval", 1), random_policy(3), 10)
            assert (one.observations, one.rewards) == (other.observations, other.rewards)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=100)
        assert process.returncode == INTERRUPTED_EXIT_CODE and "Traceback" not in told


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    with served("guess", "--token-file", str(tmp_path / "token")) as (line, _):
        assert ", a token is needed; Ctrl-C" in line
        with pytest.raises(EnvironmentFault, match="401"):
            find(f"openenv/{address_in(line)}")()
        with closing(find(f"openenv/{address_in(line)}?key_file={tmp_path / 'token'}")()) as world:
            assert world.name.startswith("openenv/")


def test_what_cannot_be_served_is_told_in_one_line(cli: Cli) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for argv, what in (
            ((), "needs E"),
            (("gues",), "did you mean 'guess'"),
            (("guess", "--protocol", "openev"), "did you mean 'openenv'"),
            (("guess", "--port", "many"), "--port must be an integer: got 'many'"),
            (("guess", "--instances", "0"), "--instances must be at least 1: got 0"),
            (("guess", "--host", ".".join("0000")), "give a token with --token-file"),
            (("guess", "--token-file", "no-such-file"), "no-such-file"),
            (("guess", "--port", port), port),
        ):
            found = cli("environments", "serve", *argv)
            assert found.status == UsageError.exit_code and what in found.line, argv


def test_a_missing_package_is_one_line_with_the_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    found = cli("environments", "serve", "guess")
    assert found.status == MissingExtra.exit_code
    assert (
        "environments serve needs the package uvicorn: it is not installed; in a clone of quintain: "
        'pip install -e ".[serve]"' in (found.line)
    )
