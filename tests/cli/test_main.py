"""The edges of the command line: help, unknown names, exit statuses, and how fast it starts."""

import errno
import importlib
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from quintain.cli.main import COMMANDS, GROUP, Command, main
from quintain.errors import (
    EXIT_CODES,
    INTERRUPTED_EXIT_CODE,
    EnvironmentFault,
    MissingExtra,
    ModelError,
    StoreError,
)

Cli = Callable[..., Any]
ENTRY = importlib.import_module("quintain.cli.main")
HEAVY = ("torch", "numpy", "pydantic", "tyro", "transformers", "rich", "matplotlib", "gymnasium")
MOST_SECONDS = 0.3


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Add a command ``stop`` that raises."""

    def install(error: BaseException) -> None:
        def stop(argv: list[str]) -> int:
            raise error

        module = ModuleType("quintain.cli.stopping")
        vars(module)["stop"] = stop
        monkeypatch.setitem(sys.modules, "quintain.cli.stopping", module)
        monkeypatch.setitem(COMMANDS, "stop", Command("stopping:stop", "stop"))

    return install


def test_help_names_every_command_and_exit_status(cli: Cli) -> None:
    for argv in (["--help"], ["-h"], ["help"]):
        found = cli(*argv)
        assert found.status == 0
        assert all(f"\n  {name} " in found.out for name in COMMANDS)
        assert all(f"{code:>3}  {meaning}" in found.out for code, meaning in EXIT_CODES.items())


def test_no_command_shows_the_help_and_is_an_error(cli: Cli) -> None:
    found = cli()
    assert (found.status, "commands:" in found.out) == (2, True)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_home_and_help(cli: Cli, name: str) -> None:
    module, _, function = COMMANDS[name].home.partition(":")
    assert callable(vars(importlib.import_module(f"quintain.cli.{module}"))[function])
    for argv in ([name, "--help"], ["help", name]):
        found = cli(*argv)
        assert (found.status, found.error) == (0, "")
        assert f"usage: quintain {name}" in found.out


def test_version(cli: Cli) -> None:
    assert cli("--version").out.startswith("quintain 0.")


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["trian"], "unknown command: got 'trian'; did you mean 'train'?"),
        (["xyzzy"], f"unknown command: got 'xyzzy'; choose from {', '.join(sorted([*COMMANDS, 'bench']))}"),
        (["--steps"], "unknown flag: got '--steps'; commands come first, see `quintain --help`"),
        (["methods", "--jsno"], "flag of quintain methods: got '--jsno'; did you mean '--json'?"),
        (["methods", "x"], "quintain methods: got 'x', which it has no use for; "
         "see `quintain methods --help`"),
        (["eval"], "quintain eval needs MODEL|RUN: got nothing; see `quintain eval --help`"),
        (["eval", "m", "--episodes"], "--episodes needs a value: got nothing; write --episodes VALUE"),
        (["eval", "m", "--json=1"], "quintain eval: argument --json: ignored explicit argument '1'; "
         "see `quintain eval --help`"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_one_line_with_status_2(cli: Cli, argv: list[str], line: str) -> None:
    found = cli(*argv)
    assert (found.status, found.out, found.line) == (2, "", line)


@pytest.mark.parametrize("kind", [EnvironmentFault, ModelError, StoreError, MissingExtra])
def test_an_error_of_ours_is_its_line_and_its_status(
    cli: Cli, stopping: Callable[[BaseException], None], kind: type[Any]
) -> None:
    stopping(kind("thing: got\nnothing; give one"))
    found = cli("stop")
    assert (found.status, found.line) == (kind.exit_code, "thing: got nothing; give one")


def test_an_unexpected_error_leaves_its_traceback_in_a_file(
    cli: Cli, stopping: Callable[[BaseException], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stopping(ZeroDivisionError("oh\nno"))
    found = cli("stop")
    assert found.status == 1
    assert found.line.startswith(
        "an error inside quintain: got ZeroDivisionError: oh no; please report it with "
    )
    text = Path(found.line.rpartition(" ")[2]).read_text()
    assert "Traceback" in text
    assert "raise error" in text


def test_an_unexpected_error_without_room_for_its_traceback_is_still_one_line(
    cli: Cli, stopping: Callable[[BaseException], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    stopping(ZeroDivisionError("oh"))
    assert cli("stop").line.endswith("got ZeroDivisionError: oh; set QUINTAIN_TRACEBACK=1 to see where")


def test_ctrl_c_that_an_import_made_another_error_of_is_an_interruption(
    cli: Cli, stopping: Callable[[BaseException], None]
) -> None:
    """As a module in C tells it, and as the missing of an optional package."""
    broken = ImportError("initialization failed")
    broken.__cause__ = KeyboardInterrupt()
    stopping(broken)
    assert (cli("stop").status, cli("stop").line) == (130, "interrupted")
    missing = MissingExtra("parquet needs the package pyarrow")
    missing.__context__ = broken
    stopping(missing)
    assert cli("stop").status == 130
    circle = ValueError("raised from itself")
    circle.__cause__ = circle
    stopping(circle)
    assert cli("stop").status == 1
    full = StoreError("saving: got a full disk")
    full.__context__ = KeyboardInterrupt()
    stopping(full)
    assert cli("stop").status == StoreError.exit_code, "what fails after Ctrl-C is told"


def test_too_many_open_files_are_no_error_inside(cli: Cli, stopping: Callable[[BaseException], None]) -> None:
    stopping(OSError(errno.EMFILE, "Too many open files", "x.toml"))
    found = cli("stop")
    assert (found.status, found.line) == (
        6,
        "writing or reading x.toml: got Too many open files; allow more open files (ulimit -n 4096)",
    )


def test_a_traceback_can_be_asked_for(
    cli: Cli, stopping: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUINTAIN_TRACEBACK", "1")
    stopping(ZeroDivisionError("oh"))
    with pytest.raises(ZeroDivisionError):
        cli("stop")


def test_a_full_disk_is_a_store_error(cli: Cli, stopping: Callable[[BaseException], None]) -> None:
    stopping(OSError(errno.ENOSPC, "No space left on device", "/x/y"))
    found = cli("stop")
    assert found.status == StoreError.exit_code
    assert found.line.startswith("writing or reading /x/y: got No space left on device; free space")


def test_no_place_for_temporary_files_is_said(cli: Cli, stopping: Callable[[BaseException], None]) -> None:
    stopping(FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"))
    found = cli("stop")
    assert found.status == StoreError.exit_code
    assert found.line.startswith("temporary files: got No usable temporary directory found in ['/tmp']; name")
    stopping(FileNotFoundError(errno.ENOENT, "No such file or directory", "/tmp/temporary directory"))
    assert cli("stop").status == 1


def test_ctrl_c_is_status_130(cli: Cli, stopping: Callable[[BaseException], None]) -> None:
    stopping(KeyboardInterrupt())
    found = cli("stop")
    assert (found.status, found.line) == (130, "interrupted")


def run(*argv: str, code: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "quintain.cli", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def seconds_of_children() -> float:
    """Return the processor time of all ended child processes: unlike the clock, it does not count waiting."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))


@pytest.mark.usefixtures("on_path")
def test_help_lists_and_errors_import_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "import quintain\n"
        "from quintain.cli.main import main\n"
        "for argv in (['--help'], ['methods'], ['methods', '--json'], ['trian'], ['train', '--help'],\n"
        "             ['train', 'grop'], ['eval', '--help'], ['--version'], ['collect', 'guess']):\n"
        "    main(argv)\n"
        f"print(sorted({set(HEAVY)!r} & set(sys.modules)))\n"
    )
    found = run(code=code)
    assert found.stdout.splitlines()[-1] == "[]"
    assert found.returncode == 0


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize("argv", [["--help"], ["methods"], ["trian"]])
def test_it_starts_fast(argv: list[str]) -> None:
    seconds: list[float] = []
    for _ in range(3):
        before = seconds_of_children()
        run(*argv)
        seconds.append(seconds_of_children() - before)
    assert min(seconds) <= MOST_SECONDS


@pytest.mark.usefixtures("on_path")
def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m quintain.cli methods --json | head -c 1"
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("[", "")


@pytest.mark.usefixtures("on_path")
def test_a_terminal_that_knows_ascii_only_gets_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    found = run("--help")
    assert (found.returncode, found.stderr) == (0, "")
    assert "usage: quintain COMMAND ?" in found.stdout


def test_argv_is_the_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["quintain", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("quintain ")


class Point:
    """An entry point of another distribution, whose command returns how many arguments it got."""

    name, value, dist = "other", "elsewhere:run", None

    def load(self) -> Callable[[Sequence[str]], int]:
        return len


def test_other_distributions_bring_commands(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.cli.main.entry_points", lambda group: [Point()] if group == GROUP else [])
    assert cli("other", "a", "--b").status == 2
    assert re.search(r"\n  other +elsewhere:run\n", cli("--help").out)
    assert cli("othre").line == "unknown command: got 'othre'; did you mean 'other'?"


def test_bench_says_in_a_line_how_it_is_installed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.cli.main.entry_points", lambda group: [])
    found = cli("bench", "methods")
    assert (found.status, found.out) == (2, "")
    assert found.line.endswith(
        "got no evidence, a distribution of its own; from a clone: pip install ./evidence"
    )


def test_sigterm_ends_a_command_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_: object) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr(ENTRY, "dispatch", stop)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert main(["serve"]) == INTERRUPTED_EXIT_CODE
    assert "quintain: error: interrupted" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "it is given back"


def test_a_handler_of_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def note(_: object) -> int:
        seen.append(signal.getsignal(signal.SIGTERM))
        return 0

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        monkeypatch.setattr(ENTRY, "dispatch", note)
        assert main([]) == 0 and seen == [signal.getsignal(signal.SIGTERM)]
    finally:
        signal.signal(signal.SIGTERM, before)
