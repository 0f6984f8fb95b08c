"""``quintain export RUN --to hf|messages|parquet --out PATH``."""

from collections.abc import Callable, Sequence
from pathlib import Path

from quintain.cli.arguments import Parser, named_folder, one_of
from quintain.errors import UsageError


def export(argv: Sequence[str]) -> int:
    """Take a model or episodes out of a run."""
    parser = Parser("export", "Take the model (hf) or the episodes (messages, parquet) out of a run.")
    parser.add_argument("run", metavar="RUN|DATA", help="folder of a run (trained or collected), or its name")
    parser.flag("--to", "hf: model folder · messages: chat as JSON lines · parquet: every token", "FORM")
    parser.flag("--out", "file or folder to write, which must be new", "PATH")
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    arguments = parser.read(argv)
    for flag, value in (("--to", arguments.to), ("--out", arguments.out)):
        if value is None:
            raise UsageError(f"quintain export needs {flag}: got nothing; see `quintain export --help`")
    form = one_of(arguments.to, "--to", FORMS)
    out = Path(arguments.out)
    if out.exists():
        raise UsageError(f"--out: got {arguments.out!r}, which exists; choose another name")
    print(f"{out}: {FORMS[form](named_folder(arguments.run, arguments.runs), out)}")
    return 0


def export_model(folder: Path, out: Path) -> str:
    """Write the model of the run `folder` as a Hugging Face folder."""
    from quintain.cli import launch
    from quintain.models.save import save
    from quintain.store.creation import read_settings

    read_settings(folder)
    loaded = launch.policy_of(folder)
    save(loaded.model, loaded.tokenizer, out)
    return f"{loaded.model.num_parameters():,} parameters"


def export_messages(folder: Path, out: Path) -> str:
    """Write the episodes of the run `folder` as chat messages, one episode a line."""
    from quintain.cli.episodes import tokenizer_of, write_messages
    from quintain.store import Run

    with Run.open(folder, writable=False) as run:
        written = write_messages(run.trajectories(), tokenizer_of(folder), out, run.config["environment"])
    return f"{written} episodes"


def export_rows(folder: Path, out: Path) -> str:
    """Write the episodes of the run `folder` as Parquet, with every token."""
    from quintain.store import Run
    from quintain.store.export import export_parquet

    with Run.open(folder, writable=False) as run:
        return f"{export_parquet(run, out)} episodes"


FORMS: dict[str, Callable[[Path, Path], str]] = {
    "hf": export_model,
    "messages": export_messages,
    "parquet": export_rows,
}
