"""``quintain COMMAND …``: finds the command, and turns whatever stops it into one line and an exit status.

Nothing leaves here as a traceback. An error inside quintain writes its own to a file and names it; with
QUINTAIN_TRACEBACK=1 it is raised as it is.
"""

import contextlib
import importlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from importlib.metadata import EntryPoint, entry_points
from types import FrameType
from typing import NamedTuple, cast

from quintain.errors import (
    EXIT_CODES,
    INTERRUPTED_EXIT_CODE,
    MORE_DESCRIPTORS,
    NO_DESCRIPTOR,
    PROBLEM_OF_THE_DISK,
    MemoryShortage,
    QuintainError,
    StoreError,
    UsageError,
    is_out_of_memory,
    suggestion,
)
from quintain.types.terminal import spell_out, spell_out_line, write_line

TRACEBACK_VARIABLE = "QUINTAIN_TRACEBACK"
GROUP = "quintain.commands"
"""Entry points by which other distributions bring commands: functions of the arguments that return the exit status."""


class Command(NamedTuple):
    """Where a command lives and what it does, in a line."""

    home: str
    summary: str


COMMANDS: dict[str, Command] = {
    "train": Command("training:train", "train an agent: quintain train grpo --environment guess"),
    "resume": Command("training:resume", "continue a run where its newest checkpoint ends"),
    "eval": Command("evaluation:evaluate", "measure a model or a run on held-out tasks"),
    "compare": Command("evaluation:compare", "compare runs task by task, with intervals and p-values"),
    "collect": Command(
        "evaluation:collect", "write down episodes of an expert, of random actions or of a model"
    ),
    "data": Command("pipelines:data", "make data of runs and conversations: filters, masks, mixtures"),
    "attack": Command("attacking:attack", "attack an agent by what it reads, under a guard and without one"),
    "policy": Command("policies:policy", "have a model write a policy for an environment's tools"),
    "check": Command(
        "checking:check", "check an environment, a model folder, a run or what a method would train on"
    ),
    "serve": Command(
        "serving:serve_model",
        "serve a model to agents of yours, and record what they ask: quintain serve RUN",
    ),
    "retrieve": Command(
        "retrieving:retrieve", "search a corpus, over HTTP or once: quintain retrieve FOLDER --kind bm25"
    ),
    "play": Command("playing:play", "act in an environment yourself, in the terminal"),
    "label": Command("labelling:label", "compare episodes side by side, and say which is better"),
    "export": Command("exporting:export", "take a model or episodes out of a run: hf, messages, parquet"),
    "import": Command(
        "importing:read_foreign",
        "read settings of verl, TRL, OpenRLHF or ms-swift, and say what they are here",
    ),
    "view": Command("viewing:view", "show runs in a browser, live while they train: quintain view RUN"),
    "top": Command("watching:top", "show how a run goes in the terminal, over SSH: quintain top RUN"),
    "verify": Command(
        "time_travel:verify", "make the steps of a run again from its journal, and say which does not follow"
    ),
    "replay": Command("time_travel:replay", "make one step of a run again and show what it was made of"),
    "bisect": Command(
        "time_travel:bisect", "find where a metric of a run falls for good, and by which groups"
    ),
    "lab": Command("lab:lab", "compare ideas of credit and losses on one batch: quintain lab grpo|RUN"),
    "doctor": Command("doctor:doctor", "say what this machine can do, what is missing and how to get it"),
    "methods": Command("listing:methods", "list the published methods and how far each has come"),
    "environments": Command("listing:environments", "list the environments"),
}

EVIDENCE = Command(
    "", "methods against their baselines, over seeds, at equal budget, where evidence/ is installed"
)
"""`quintain bench`, which the distribution in ``evidence/`` brings."""


class PlainFormatter(logging.Formatter):
    """Writes a record of the log as a terminal may be given it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return `record` as text, spelled out."""
        return spell_out(super().format(record))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (the process's own arguments unless given) and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if logging.lastResort is not None:  # what writes a log that nobody has set up
        logging.lastResort.setFormatter(PlainFormatter())
    try:
        with terminable():
            status = dispatch(arguments)
        sys.stdout.flush()
        return status
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED_EXIT_CODE)
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try to flush the rest.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if is_interrupted(error):
            return complain("interrupted", INTERRUPTED_EXIT_CODE)
        if isinstance(error, QuintainError):
            return complain(str(error), error.exit_code)
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        if isinstance(error, OSError) and error.errno in PROBLEM_OF_THE_DISK | NO_DESCRIPTOR:
            return complain(problem_of_the_disk(error), StoreError.exit_code)
        if isinstance(error, FileNotFoundError) and "temporary directory" in str(error.strerror):
            line = f"temporary files: got {error.strerror}; name a folder that can be written to as TMPDIR"
            return complain(line, StoreError.exit_code)
        if is_out_of_memory(error):
            return complain(f"{out_of_memory(error)}", MemoryShortage.exit_code)
        return complain(report_crash(error), QuintainError.exit_code)


@contextlib.contextmanager
def terminable() -> Generator[None]:
    """Within it SIGTERM, which service managers and containers send, ends a command as Ctrl-C does.

    Where somebody has a handler of their own, or there is no main thread, nothing changes.
    """
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_ours:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal as Python handles Ctrl-C."""
    raise KeyboardInterrupt


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command that the first argument names with the rest."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        if len(arguments) > 1 and arguments[0] == "help":
            return dispatch([arguments[1], "--help"])
        write_line(help_text())
        return 0 if arguments else UsageError.exit_code
    name, *rest = arguments
    if name in ("--version", "-V"):
        write_line(f"quintain {version()}")
        return 0
    if name not in COMMANDS:
        return find_command(name)(rest)
    module, _, function = COMMANDS[name].home.partition(":")
    found = vars(importlib.import_module(f"quintain.cli.{module}"))[function]
    return cast(Callable[[Sequence[str]], int], found)(rest)


def find_command(name: str) -> Callable[[Sequence[str]], int]:
    """Return the command `name` of another distribution.

    Raises:
        UsageError: there is none.
    """
    found = commands_of_others()
    if name in found:
        return cast(Callable[[Sequence[str]], int], found[name].load())
    if name == "bench":
        raise UsageError(
            "quintain bench: got no evidence, a distribution of its own; from a clone: pip install ./evidence"
        )
    what = "flag" if name.startswith("-") else "command"
    known = {*COMMANDS, *found, "bench"}
    hint = "commands come first, see `quintain --help`" if what == "flag" else suggestion(name, known)
    raise UsageError(f"unknown {what}: got {name!r}; {hint}")


def commands_of_others() -> dict[str, EntryPoint]:
    """Return the commands that other distributions bring, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def version() -> str:
    """Return the version of quintain."""
    return str(vars(importlib.import_module("quintain"))["__version__"])


def help_text() -> str:
    """Return what ``quintain --help`` prints."""
    others = {
        name: Command("", f"of {point.dist.name}" if point.dist else point.value)
        for name, point in commands_of_others().items()
    }
    known = {**others, **COMMANDS, "bench": EVIDENCE}
    width = max(map(len, known))
    commands = [f"  {name:<{width}}  {command.summary}" for name, command in known.items()]
    codes = [f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()]
    return "\n".join(
        [
            "usage: quintain COMMAND …          quintain COMMAND --help says more",
            "",
            "Train LLM agents: models that act over many turns, call tools and talk to users.",
            "",
            "commands:",
            *commands,
            "",
            "exit status:",
            *codes,
        ]
    )


def complain(message: str, status: int) -> int:
    """Print `message` as the one line that ends a command, and return `status`."""
    write_line(f"quintain: error: {spell_out_line(message)}", is_error=True)
    return status


def is_interrupted(error: BaseException) -> bool:
    """Whether `error` is what a module that was being imported made of Ctrl-C."""
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and all(
        found is not each for each in seen
    ):  # one raised from itself is its own cause
        seen.append(found)
        found = found.__cause__ or found.__context__
    names = [isinstance(each, ImportError) for each in seen]
    return any(isinstance(each, KeyboardInterrupt) and any(names[:place]) for place, each in enumerate(seen))


def problem_of_the_disk(error: OSError) -> str:
    """Return the line about a disk that is full, read-only or forbidden, or about too many open files."""
    where = f" {error.filename}" if error.filename else ""
    advice = MORE_DESCRIPTORS if error.errno in NO_DESCRIPTOR else "free space or choose another place"
    return f"writing or reading{where}: got {error.strerror}; {advice}"


def out_of_memory(error: Exception) -> str:
    """Return the line about memory that ran out where nobody knows what for."""
    said = " ".join(str(error).split())[:200] or type(error).__name__
    return f"memory ran out: got {said}; take a smaller model, shorter streams or fewer at once"


def report_crash(error: Exception) -> str:
    """Write the traceback of `error` to a file and return the line that names it."""
    import tempfile
    import traceback

    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    lines = "".join(traceback.format_exception(error))
    try:
        number, name = tempfile.mkstemp(prefix="quintain-error-", suffix=".txt")
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(lines)
    except OSError:
        return f"an error inside quintain: got {reason}; set {TRACEBACK_VARIABLE}=1 to see where"
    return f"an error inside quintain: got {reason}; please report it with {name}"
