"""``quintain export RUN --to FORM --out PATH``, and the mean of several runs' models."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from quintain.cli.arguments import ACCEPT, Parser, one_of, resolve_folder, resolve_policy
from quintain.data.neighbours import NEIGHBOURS, Neighbour
from quintain.errors import UsageError
from quintain.types.terminal import write_line

MODEL_FORM = "hf"


def export(argv: Sequence[str]) -> int:
    """Take a model or episodes out of a run."""
    parser = Parser(
        "export",
        "Take the model (hf) or the episodes (messages, parquet, rows of other trainers) out of a run.",
    )
    parser.add_argument(
        "run",
        metavar="RUN|DATA",
        help="folder of a run (trained or collected), or its name; the model of a step that is kept: RUN@best, RUN@75",
    )
    parser.flag(
        "--to",
        "hf: model folder · messages: chat as JSON lines · atif, verifiers: with tokens, too · inspect: the last "
        "evaluation as a log of inspect-ai · parquet: every token · trl, openrlhf, swift (.jsonl), verl (.parquet): "
        "what these train on",
        "FORM",
    )
    parser.flag("--out", "file or folder to write, which must be new", "PATH")
    parser.flag(
        "--with", "runs from the same start, by commas: the mean of all their models is taken (hf)", "RUNS"
    )
    parser.flag(
        "--weights", "weight of each model of that mean, the first run's first (default equal)", "NUMBERS"
    )
    parser.flag(
        "--environment",
        "of a run of an earlier release, which did not record instructions and tools: the environment that tells them",
        "E",
        "",
    )
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.switch("--accept-changes", ACCEPT)
    arguments = parser.read(argv)
    form = None if arguments.to is None else one_of(arguments.to, "--to", (*FORMS, MODEL_FORM))
    if form is None or arguments.out is None:
        flag = "--to" if form is None else "--out"
        raise UsageError(f"quintain export needs {flag}: got nothing; see `quintain export --help`")
    out = Path(arguments.out)
    suffixes = {**dict.fromkeys(NEIGHBOURS, ".jsonl"), "verl": ".parquet"}
    if form in suffixes and out.suffix != suffixes[form]:
        raise UsageError(
            f"--out: got {arguments.out!r} for {form}; give a new file that ends in {suffixes[form]}"
        )
    if out.exists():
        raise UsageError(f"--out: got {arguments.out!r}, which exists; choose another name")
    named = resolve_policy if form == MODEL_FORM else resolve_folder
    folder = named(arguments.run, arguments.runs)
    others = vars(arguments)["with"]
    if others is None and arguments.weights is not None:
        raise UsageError(f"--weights: got {arguments.weights!r} for one model; name others --with it")
    if form == MODEL_FORM and arguments.environment:
        raise UsageError(f"--environment: got {arguments.environment!r} for the model alone; leave it out")
    more = (
        [] if others is None else [resolve_policy(name.strip(), arguments.runs) for name in others.split(",")]
    )
    if more and form != MODEL_FORM:
        raise UsageError(f"--with: got {others!r} for {form}; models are merged with --to hf")

    from quintain.learning.saved import check_files

    for place in (folder, *more):
        check_files(place, accepts_changes=arguments.accept_changes, to="exporting")
    if others is None:
        is_model = form == MODEL_FORM
        said = export_model(folder, out) if is_model else FORMS[form](folder, out, arguments.environment)
        write_line(f"{out}: {said}")
        return 0
    write_line(f"{out}: {export_mean([folder, *more], shares(arguments.weights, len(more) + 1), out)}")
    return 0


def shares(text: str | None, num: int) -> list[float]:
    """Return the weights in `text`, equal ones without; `quintain.models.merge` says what they must be."""
    try:
        return [1 / num] * num if text is None else [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--weights: got {text!r}; give numbers, separated by commas") from error


def export_mean(folders: Sequence[Path], weights: Sequence[float], out: Path) -> str:
    """Write the weighted mean of the models of the runs `folders`: specialists as one (UI-TARS-2, arXiv 2509.02544)."""
    from quintain import api as launch
    from quintain.models.merge import merge_states
    from quintain.models.save import save

    first, *others = [launch.policy_of(folder) for folder in folders]
    for folder, other in zip(folders[1:], others, strict=True):
        if other.tokenizer.get_vocab() != first.tokenizer.get_vocab():
            raise UsageError(f"--with: got {folder}, whose tokenizer is another; merge runs with one start")
    states = [loaded.model.state_dict() for loaded in (first, *others)]
    first.model.load_state_dict(merge_states(states, weights))
    save(first.model, first.tokenizer, out)
    return f"{first.model.num_parameters():,} parameters, the mean of {len(states)} models"


def export_model(folder: Path, out: Path) -> str:
    """Write the model of the run `folder` as a Hugging Face folder."""
    from quintain import api as launch
    from quintain.models.save import save
    from quintain.store.creation import read_settings
    from quintain.store.names import split_step

    read_settings(Path(split_step(str(folder))[0]))
    loaded = launch.policy_of(folder)
    save(loaded.model, loaded.tokenizer, out)
    return f"{loaded.model.num_parameters():,} parameters"


def export_messages(folder: Path, out: Path, environment: str) -> str:
    """Write the episodes of the run `folder` as chat messages, one episode a line."""
    from quintain.cli.episodes import write_messages
    from quintain.store import Run
    from quintain.warm_start.demonstrations import openings_in, tokenizer_of

    with Run.open(folder, writable=False) as run:
        written = write_messages(run.trajectories(), tokenizer_of(folder), out, openings_in(run, environment))
    return f"{written} episodes"


def export_atif(folder: Path, out: Path, environment: str) -> str:
    """Write the episodes of the run `folder` in the Agent Trajectory Interchange Format, one a line."""
    from quintain.cli.episodes import write_atif
    from quintain.store import Run
    from quintain.warm_start.demonstrations import openings_in, tokenizer_of

    with Run.open(folder, writable=False) as run:
        written = write_atif(run.trajectories(), tokenizer_of(folder), out, openings_in(run, environment))
    return f"{written} episodes"


def export_verifiers(folder: Path, out: Path, environment: str) -> str:
    """Write the scored episodes of the run `folder` as verifiers saves its rollouts (``results.jsonl``)."""
    from quintain.cli.episodes import write_verifiers
    from quintain.store import Run
    from quintain.warm_start.demonstrations import openings_in, tokenizer_of

    with Run.open(folder, writable=False) as run:
        written = write_verifiers(
            run.trajectories(), tokenizer_of(folder), out, openings_in(run, environment)
        )
    return f"{written} episodes"


def export_inspect(folder: Path, out: Path, environment: str) -> str:
    """Write the last evaluation of the run `folder` as a log of inspect-ai."""
    from quintain.api import evaluation_of
    from quintain.eval.inspect_log import write_log
    from quintain.store import Run

    if environment:
        raise UsageError(f"--environment: got {environment!r} for a log, which has no prompts; leave it out")
    with Run.open(folder, writable=False) as run:
        episodes = evaluation_of(run)
        write_log(
            episodes,
            out,
            model=run.name,
            created=datetime.fromtimestamp(run.created, UTC).isoformat(),
        )
    return f"{len(episodes)} episodes"


def export_rows(folder: Path, out: Path, environment: str) -> str:
    """Write the episodes of the run `folder` as Parquet, with every token, and as messages where it has a tokenizer."""
    from quintain.pipelines.questions import chat_writer
    from quintain.store import Run
    from quintain.store.export import export_parquet

    with Run.open(folder, writable=False) as run:
        return f"{export_parquet(run, out, chat=chat_writer(run, environment=environment))} episodes"


def export_for(form: Neighbour) -> Callable[[Path, Path, str], str]:
    """Return what writes the episodes of a run as rows that the trainer `form` reads."""

    def write(folder: Path, out: Path, environment: str) -> str:
        from quintain.cli.episodes import write_rows
        from quintain.store import Run
        from quintain.warm_start.demonstrations import openings_in, tokenizer_of

        with Run.open(folder, writable=False) as run:
            told = openings_in(run, environment)
            written, left = write_rows(form, run.trajectories(), tokenizer_of(folder), out, told)
        more = (
            f"; {left} left out, of which an answer is not to be trained, which it cannot say" if left else ""
        )
        return f"{written} conversations{more}"

    return write


FORMS: dict[str, Callable[[Path, Path, str], str]] = {
    "atif": export_atif,
    "inspect": export_inspect,
    "messages": export_messages,
    "parquet": export_rows,
    "verifiers": export_verifiers,
    **{form: export_for(form) for form in NEIGHBOURS},
}
