"""``quintain view [RUN|FOLDER]``: runs in a browser, live while they train; with ``--static`` a page to keep."""

import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.cli.arguments import TRUST, Parser, resolve_folder, whole_number
from quintain.cli.browser import open_browser, require_server, serve_until_interrupted
from quintain.errors import MissingExtra, UsageError
from quintain.types.terminal import write_line

if TYPE_CHECKING:
    from quintain.store import Run

PORT = 8300
KEY = re.compile(r"[\w-]{16,}", re.ASCII)


def view(argv: Sequence[str]) -> int:
    """Show runs in a browser until interrupted, or write the report of one anew and say where it lies."""
    parser = Parser(
        "view",
        "Show a run, or all of a folder, in a browser, live while they train. Nothing but labels is written to them.",
    )
    parser.add_argument(
        "place",
        metavar="RUN|FOLDER",
        nargs="?",
        help="a run, its name, or a folder of runs (default: that of --runs)",
    )
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.flag("--port", f"port to listen at (default {PORT}; 0: any)", "PORT", str(PORT))
    parser.flag(
        "--host", "address to listen at (default 127.0.0.1); others need --token-file", "HOST", "127.0.0.1"
    )
    parser.flag("--allow-host", "further names that the Host header may have, by commas", "NAMES", "")
    parser.flag(
        "--token-file",
        "a file whose first word is the key in the address; without one a key is made",
        "FILE",
        "",
    )
    parser.switch("--open", "open it in the browser")
    parser.switch(
        "--static", "write report.html, a page without scripts to keep and send, and draw the curve here"
    )
    parser.switch("--trust-run", TRUST)
    arguments = parser.read(argv)
    port = whole_number(arguments.port, "--port")
    if arguments.static:
        if arguments.place is None:
            raise UsageError("quintain view --static: got no run; name one")
        return show_report(resolve_folder(arguments.place, arguments.runs), opens=arguments.open)
    place = find_place(arguments.place, arguments.runs)
    try:
        require_server("quintain view in the browser (or --static)")
    except MissingExtra as error:
        if arguments.place is None or not (place / "run.db").is_file():
            raise
        write_line(
            f"quintain: note: {error}; until then this is the report, which does not move", is_error=True
        )
        return show_report(place, opens=arguments.open)
    return serve_pages(
        place, port=port, host=arguments.host, also=arguments.allow_host, token_file=arguments.token_file,
        opens=arguments.open, is_trusted=arguments.trust_run,
    )  # fmt: skip


def find_place(name: str | None, root: str) -> Path:
    """Return the folder that is to be shown: a run, or one with runs in it.

    Raises:
        UsageError: there is no such folder.
    """
    if name is None:
        if not Path(root).is_dir():
            raise UsageError(
                f"quintain view: got no run, and there is no folder {root}; name a run or a folder"
            )
        return Path(root)
    if Path(name).is_dir() and not (Path(name) / "run.db").is_file():
        return Path(name)
    return resolve_folder(name, root)


def serve_pages(
    place: Path, *, port: int, host: str, also: str, token_file: str, opens: bool, is_trusted: bool
) -> int:
    """Show `place` until interrupted, and return the exit status.

    Raises:
        UsageError: the port is taken, or others could reach `host` and there is no token.
    """
    from quintain.dashboard.viewer.server import view_app
    from quintain.dashboard.viewer.viewed import find_viewer
    from quintain.processes.http_json import key_in
    from quintain.serve.listener import Listener

    token = key_in(token_file)
    if token and not KEY.fullmatch(token):
        raise UsageError(
            f"--token-file: got a word of {len(token)} signs; give 16 letters, digits, - or _ and more, "
            "as it is a part of the address"
        )
    key = token or secrets.token_urlsafe(18)
    viewer = find_viewer(place, is_trusted=is_trusted)
    app = view_app(viewer, key)
    listener = Listener(app, host=host, port=port, also=also, asks_key=bool(token))
    viewer.start()
    listener.start()
    shown = f"{listener.url}/{key}/"
    told = f"{listener.url}/WORD/, where WORD is the word in {token_file}" if token else shown
    write_line(f"{place}: {told}\n(nothing but labels is written to the runs; Ctrl-C stops it)")
    try:
        serve_until_interrupted(listener, shown, opens=opens)
    finally:
        listener.close()
        app.state.replays.close()
        viewer.close()
    return 0


def show_report(folder: Path, *, opens: bool) -> int:
    """Write the report of a run anew, draw its curve and say where the report lies."""
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
    if opens:
        open_browser(report.resolve().as_uri())
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
