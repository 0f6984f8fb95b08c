"""``quintain data RUN|FILE…``: which episodes and which of their answers are learned from, stage by stage.

It prints the funnel on one screen, shows examples as they would be trained, and writes them with the names of the
episodes that they came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from quintain.cli.arguments import TRUST, Parser, new_folder, one_of, whole_number
from quintain.data.records import Unusable
from quintain.errors import DataError, UsageError
from quintain.types.terminal import write_line

if TYPE_CHECKING:
    from quintain.data.pipeline import PipelineResult
    from quintain.pipelines.episode_sources import EpisodeSet
    from quintain.text.chat import Chat


def data(argv: Sequence[str]) -> int:
    """Make data of recorded episodes and conversations."""
    if "--list" in argv:
        return list_stages()
    parser = Parser(
        "data",
        "Make data of runs and conversations, stage by stage: what goes in, what comes out, and why not the rest.",
    )
    parser.add_argument(
        "sources", metavar="RUN|FILE", nargs="*", help="runs, files and folders of conversations"
    )
    parser.flags.append("--stage")
    parser.add_argument(
        "--stage",
        action="append",
        default=[],
        metavar="NAME?OPTION=VALUE",
        help="a step, in order; several are given one by one (--list shows all)",
    )
    parser.flag("--out", "file to write, .jsonl: messages that --demonstrations takes", "FILE")
    parser.flag(
        "--as",
        "messages (default), or preferences: what --stage negatives made, for --preferences of dpo",
        "FORM",
        "messages",
    )
    parser.flag(
        "--unusable",
        "lines that cannot be used: error (default), or drop (left out and named)",
        "RULE",
        "error",
    )
    parser.flag("--show", "examples to print as they would be trained (default 0)", "N", "0")
    parser.flag("--model", "whose tokens and template conversations are written in", "MODEL")
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.switch("--trust-run", TRUST)
    parser.switch("--list", "list the stages and their options")
    arguments = parser.read(argv)
    num_shown = whole_number(arguments.show, "--show")
    if not arguments.sources:
        raise UsageError("quintain data needs RUN|FILE: got nothing; name a run or a file of conversations")
    out = None if arguments.out is None else new_folder(arguments.out, "--out")
    form = one_of(vars(arguments)["as"], "--as", ("messages", "preferences"))
    if out is None and form != "messages":
        raise UsageError(f"--as: got {form} without --out; name a file that ends in .jsonl")
    if out is not None and out.suffix != ".jsonl":
        raise UsageError(f"--out: got {arguments.out!r}; give a file that ends in .jsonl")

    from quintain.cli.episodes import write_lines
    from quintain.cli.stages import read_stages
    from quintain.data.pipeline import Pipeline, refuse_empty
    from quintain.data.stages import training_tasks
    from quintain.pipelines.episode_sources import gather

    unusable = one_of(arguments.unusable, "--unusable", get_args(Unusable))
    root = Path(arguments.runs)
    given = gather(
        arguments.sources,
        root,
        lambda files: chat_of(files, arguments.model, root),
        unusable=cast("Unusable", unusable),
        is_trusted=arguments.trust_run,
    )
    line = Pipeline(training_tasks(), *read_stages(arguments.stage, given))
    made = line.run(given.examples)
    what = ", ".join(arguments.sources)
    if not made.examples:
        write_line(made.funnel)
    refuse_empty(made, what)
    written = given.lines if form == "messages" else given.preferences
    lines = list(written(made.examples)) if out is not None else []
    for number, example in enumerate(made.examples[:num_shown], start=1):
        show(number, example, given)
    for text in report(made, given):
        write_line(text)
    if out is not None:
        what = "conversations" if form == "messages" else form
        write_line(f"{out}: {write_lines(lines, out, nothing=f'{out}: got nothing')} {what}")
    return 0


def list_stages() -> int:
    """Print every stage with its options."""
    from quintain.cli.stages import stage_rows
    from quintain.cli.tables import show as show_table

    show_table(("stage", "options", "what it does"), stage_rows())
    return 0


def report(made: PipelineResult, given: EpisodeSet) -> Iterator[str]:
    """Yield the funnel, what is trained, and where it came from."""
    from quintain.data.mixtures import measure_shares

    yield from (f"note: {note}" for note in given.notes())
    if differing := given.differing_tools():
        yield f"note: tools {differing}"
    yield str(made.funnel)
    sources = {name for example in made.examples for name in given.episodes(example)}
    yield (
        f"{len(made.examples):,} examples of {len(sources):,} episodes, {made.funnel.num_tokens:,} tokens to train"
    )
    shares = measure_shares(made.examples, given.part)
    if len(given.origins) > 1:
        for part, (samples, tokens) in shares.items():
            yield f"{part}: {samples:.0%} of the samples, {tokens:.0%} of the tokens"


def show(number: int, example: object, given: EpisodeSet) -> None:
    """Print an example as it would be trained, with its sources."""
    from quintain.cli.preflight import show_stream
    from quintain.data.pipeline import example_samples
    from quintain.runs.preflight import pieces
    from quintain.types import Example

    assert isinstance(example, Example), "examples come out of a pipeline"
    chat = given.origin(example).chat
    for sample in example_samples([example]):
        show_stream(f"example {number}, of {', '.join(example.sources)}", list(pieces(sample, chat)))


def chat_of(files: Sequence[Path], model: str | None, root: Path = Path("runs")) -> Chat:
    """Return the chat format of `model` (of a run: by its name under `root`), or a small one of the conversations."""
    from quintain.learning.saved import tokenizer_folder
    from quintain.models.load import load_tokenizer
    from quintain.text.chat import Chat
    from quintain.text.tokenizer import train_tokenizer
    from quintain.warm_start.demonstrations import texts_of

    if model is not None:
        return Chat(load_tokenizer(tokenizer_folder(model, root)))

    def texts() -> Iterator[str]:
        yield "User Assistant"
        for file in files:
            try:
                yield from texts_of(file)
            except DataError:
                return

    return Chat(train_tokenizer(texts()))
