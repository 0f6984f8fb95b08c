"""``quintain view RUN``: the report of a run, and its curve in the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.cli.arguments import Parser, resolve_folder
from quintain.types.terminal import write_line

if TYPE_CHECKING:
    from quintain.store import Run


def view(argv: Sequence[str]) -> int:
    """Write the report of a run anew, draw its curve and say where the report lies."""
    parser = Parser(
        "view", "Write the report of a run (report.html, to open in a browser) and draw its curve."
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name")
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.switch("--open", "open the report in the browser")
    arguments = parser.read(argv)
    folder = resolve_folder(arguments.run, arguments.runs)

    from quintain.dashboard.funnel import funnel_text
    from quintain.store import Run

    with Run.open(folder, writable=False) as run:
        report = write_report(run)
        funnel = funnel_text(run.metrics())
    for line in funnel:
        write_line(line)
    if report is None:
        write_line(
            f"quintain: note: {run.folder} cannot be written to, so that there is no new report",
            is_error=True,
        )
        return 0
    write_line(report)
    if arguments.open:
        import webbrowser

        webbrowser.open(report.resolve().as_uri())
    return 0


def write_report(run: "Run") -> Path | None:
    """Write the report of `run`, print its curve if a policy was trained, and return the report.

    Where nothing can be written there is none.
    """
    if (run.folder / "start").is_dir():
        from quintain import api as launch

        return run.folder / "report.html" if launch.conclude(run, must_write=False) else None
    from quintain.store.files import can_write

    if not can_write(run.folder):
        return None
    from quintain.dashboard.report import write_report
    from quintain.text.chat import Chat
    from quintain.warm_start.demonstrations import TOKENIZERS, tokenizer_of

    has_tokenizer = any((run.folder / name).is_dir() for name in TOKENIZERS)
    return write_report(run, Chat(tokenizer_of(run.folder)).text if has_tokenizer else None)
