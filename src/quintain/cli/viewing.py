"""``quintain view RUN``: the report of a run, and its curve in the terminal."""

from collections.abc import Sequence

from quintain.cli.arguments import Parser, named_folder


def view(argv: Sequence[str]) -> int:
    """Write the report of a run anew, draw its curve and say where the report lies."""
    parser = Parser(
        "view", "Write the report of a run (report.html, to open in a browser) and draw its curve."
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name")
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.switch("--open", "open the report in the browser")
    arguments = parser.read(argv)
    folder = named_folder(arguments.run, arguments.runs)

    from quintain.recipes import launch
    from quintain.store import Run

    with Run.open(folder, writable=False) as run:
        launch.conclude(run)
    report = folder / "report.html"
    print(report)
    if arguments.open:
        import webbrowser

        webbrowser.open(report.resolve().as_uri())
    return 0
