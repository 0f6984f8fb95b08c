"""``quintain label RUN|FILE``: people compare two episodes, or two steps, of the same task, side by side.

What is asked and what was answered stands in one file, to which lines are only added. The page listens on this machine
only, at an address that nobody can guess.
"""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.cli.arguments import (
    Parser,
    one_of,
    resolve_folder,
    resolve_model,
    split_names,
    whole_number,
)
from quintain.cli.browser import require_server, serve_until_interrupted
from quintain.cli.playing import QUIT, ask
from quintain.data.files import TABLES, TEXTS
from quintain.data.labels import LEVELS, USUAL_COUNT
from quintain.errors import DataError, UsageError, suggestion
from quintain.types.terminal import spell_out, write_line

if TYPE_CHECKING:
    from quintain.data.labels import Labels, Query
    from quintain.learning.labelling import Session
    from quintain.pipelines.questions import Names, Sides
    from quintain.store import Run

PORT = 8200
CANDIDATES = 400
"""Pairs among which reward models name those on which they differ most."""
FILE_NAME = "labels.jsonl"


def label(argv: Sequence[str]) -> int:
    """Ask a person which of two sides is better, or export what people said."""
    parser = Parser("label", "Compare two episodes, or two steps, of the same task, side by side.")
    parser.add_argument(
        "source", metavar="RUN|FILE", help="a run, a file of conversations with tasks, or a file of labels"
    )
    parser.flag("--labeller", "who answers; stands beside every answer", "NAME")
    parser.flag(
        "--labels",
        "file of questions and answers, .jsonl (default labels.jsonl in the run, beside a file)",
        "FILE",
    )
    parser.flag(
        "--count", f"questions that the file shall ask (default: those it asks, or {USUAL_COUNT})", "N"
    )
    parser.flag(
        "--level", "episode (default), or step: the turn in which two episodes part", "LEVEL", "episode"
    )
    parser.flag(
        "--reward-models",
        "runs of reward_model, by commas, 2 or more: ask first on which pairs they differ most (of a run)",
        "RUNS",
    )
    parser.flag("--seed", "number that draws the pairs (default 0)", "N", "0")
    parser.switch("--terminal", "ask in the terminal instead of the browser")
    parser.flag("--port", f"port of the page on this machine (default {PORT}; 0: any)", "PORT", str(PORT))
    parser.switch("--open", "open the page in the browser")
    parser.flag("--export", "new file of preferences, .jsonl, for quintain train dpo --preferences", "FILE")
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    arguments = parser.read(argv)
    level = one_of(arguments.level, "--level", LEVELS)
    seed = whole_number(arguments.seed, "--seed")
    port = whole_number(arguments.port, "--port")
    count = None if arguments.count is None else whole_number(arguments.count, "--count", least=1)
    models = split_names(arguments.reward_models or "")
    source = Path(arguments.source)
    if source.suffix not in (*TEXTS, *TABLES):
        source = resolve_folder(arguments.source, arguments.runs)
    if arguments.reward_models is not None and (len(models) < 2 or not source.is_dir()):
        raise UsageError(
            f"--reward-models: got {arguments.reward_models!r} for {source}; name 2 runs of reward_model or more, "
            "which can differ, and compare the episodes of a run"
        )
    file = labels_file(source) if arguments.labels is None else Path(arguments.labels)

    from quintain.data.labels import read_labels

    if arguments.export is not None:
        return export(read_labels(file), file, Path(arguments.export))
    if not arguments.labeller:
        raise UsageError(
            "quintain label needs --labeller: got nothing; say who answers, such as --labeller ann"
        )

    from quintain.learning.labelling import Session

    session = Session(file, arguments.labeller)
    wanted = count if count is not None else (0 if session.labels.queries else USUAL_COUNT)
    folders = [resolve_model(name, arguments.runs) for name in models]
    session.ask_until(wanted, questions(source, level, seed, folders), of=f"{level}s of {source}")
    if arguments.terminal:
        in_terminal(session, ask)
    else:
        in_browser(session, port, opens=arguments.open)
    for line in summary(session.labels):
        write_line(line)
    return 0


def labels_file(source: Path) -> Path:
    """Return the file of labels that belongs to `source`: itself, one in the run, or one beside the conversations."""
    if source.is_dir():
        return source / FILE_NAME
    return source if is_labels_file(source) else source.with_name(f"{source.stem}.{FILE_NAME}")


def is_labels_file(source: Path) -> bool:
    """Whether `source` is a file of labels."""
    from quintain.data.files import read_objects
    from quintain.data.labels import is_labels

    return is_labels(next(read_objects(source)))


def questions(source: Path, level: str, seed: int, models: Sequence[str]) -> Iterator[Query]:
    """Yield the questions that can be asked about the run or the conversations `source`, drawn by `seed`.

    Of a run those come first on which the reward models in the folders `models` differ most.
    """
    if source.is_dir():
        from quintain.pipelines.questions import run_questions
        from quintain.store import Run

        with Run.open(source, writable=False) as run:
            order = partial(find_disputed, run, models) if models else None
            yield from run_questions(run, level, seed, order=order)
    elif is_labels_file(source):
        return
    elif level == "step":
        raise UsageError(f"--level: got step for the file {source}; steps are of a run, give episode")
    else:
        yield from of_file(source, seed)


def find_disputed(
    run: Run, models: Sequence[str], pairs: Iterator[Names], sides_of: Sides
) -> Iterator[Names]:
    """Yield the first `CANDIDATES` of `pairs`, those first on which the reward models in `models` differ most.

    Raises:
        UsageError: a model reads other tokens than those of the run.
    """
    from quintain.eval.reward_model import by_dispute
    from quintain.learning.policies import build_policies
    from quintain.learning.saved import find_model
    from quintain.learning.train_config import PolicySpec, TrainConfig
    from quintain.models.load import load_tokenizer
    from quintain.runs.context import make_engine
    from quintain.warm_start.demonstrations import tokenizer_of

    folders = [find_model(name) for name in models]
    for name, folder in zip(models, folders, strict=True):
        if load_tokenizer(Path(folder)).get_vocab() != tokenizer_of(run.folder).get_vocab():
            raise UsageError(
                f"--reward-models: got {name}, whose tokenizer is not that of {run.folder}; train it on the same model"
            )
    specs = {f"reward_{k}": PolicySpec(head="value", model=folder) for k, folder in enumerate(folders, 1)}
    policies = build_policies(
        TrainConfig(), Path(folders[0]), specs, has_critic=False, make_engine=make_engine
    )
    chosen = [(names, sides) for names in islice(pairs, CANDIDATES) if (sides := sides_of(names))]
    scores = [
        policies[name].episode_scores([side for _, sides in chosen for side in sides]) for name in specs
    ]
    differences = [[one - other for one, other in zip(own[::2], own[1::2], strict=True)] for own in scores]
    yield from (chosen[place][0] for place in (by_dispute(differences) if chosen else []))


def of_file(source: Path, seed: int) -> Iterator[Query]:
    """Yield questions about the conversations of `source` that name the same task."""
    from quintain.data.files import read_objects
    from quintain.data.labels import Query, draw_pairs
    from quintain.data.records import as_object, read_record
    from quintain.pipelines.questions import hide_judgement

    records: dict[str, dict[str, Any]] = {}
    tasks: dict[str, list[str]] = {}
    for found in read_objects(source):
        value = as_object(found.value, found.place)
        read_record(value, found)
        if not isinstance(value.get("messages"), list) or not isinstance(value.get("task"), str):
            raise DataError(
                f"{found.place}: got the keys {sorted(value)}; give messages and the task, by which two are compared"
            )
        records[found.place] = hide_judgement(value)
        tasks.setdefault(value["task"], []).append(found.place)
    for one, other in draw_pairs(list(tasks.values()), seed=seed):
        if records[one]["messages"] != records[other]["messages"]:
            yield Query.of(records[one], records[other], (one, other))


def in_browser(session: Session, port: int, *, opens: bool) -> None:
    """Show the questions in a page until interrupted."""
    require_server("quintain label in the browser (or --terminal)")
    from quintain.dashboard.label_server import label_app
    from quintain.serve.listener import Listener

    key = secrets.token_urlsafe(24)
    listener = Listener(label_app(session, key), port=port).start()
    address = f"{listener.url}/{key}/"
    write_line(f"{session.progress}: {address}\n(this machine only; Ctrl-C stops it)")
    try:
        serve_until_interrupted(listener, address, opens=opens)
    finally:
        listener.close()


def in_terminal(session: Session, read: Callable[[], str | None]) -> None:
    """Ask in the terminal until nothing is left or the person leaves."""
    from quintain.dashboard.labelling import KEYS, MEANINGS, UNDO_KEY

    offer = " · ".join(f"{key} {meaning}" for key, meaning in MEANINGS.items())
    offer += " · words behind a key are a remark"
    while (query := session.next()) is not None:
        print_query(query)
        write_line(f"{session.progress}\n({offer} · q leaves)")
        while True:
            line = read()
            if line is None or line.lower() in QUIT:
                return
            key, _, remark = line.partition(" ")
            if key in KEYS:
                session.answer(query.id, KEYS[key], remark.strip())
                break
            if line == UNDO_KEY:
                taken = session.undo()
                write_line("nothing to undo" if taken is None else f"taken back: the answer to {taken.id}")
                break
            write_line(f"answer: got {line!r}; {suggestion(line, MEANINGS)}")


def print_query(query: Query) -> None:
    """Print both sides of `query` beside each other."""
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from quintain.dashboard.labelling import words
    from quintain.types import Message

    def write(messages: Sequence[Message]) -> Group:
        parts: list[Text] = []
        for message in messages:
            parts.append(Text(f"[{message.role}]", style="dim"))
            parts.append(Text(spell_out(words(message)), style="bold" if message.role == "assistant" else ""))
        return Group(*parts)

    shared, first, second = query.parts
    console = Console(file=sys.stdout, width=shutil.get_terminal_size().columns, highlight=False)
    if shared:
        console.print(Text("both begin with", style="underline"), write(shared))
    table = Table(show_lines=False, expand=True)
    table.add_column("1: first", ratio=1, overflow="fold")
    table.add_column("2: second", ratio=1, overflow="fold")
    table.add_row(write(first), write(second))
    console.print(table)


def summary(labels: Labels) -> list[str]:
    """Return who answered how many questions, how far they agree, and which answers contradict each other."""
    from quintain.data.labels import agreements

    names = dict.fromkeys(each.labeller for each in labels.given)
    lines = [f"{name}: {len(labels.of(name))} of {len(labels.queries)} answered" for name in names]
    for each in agreements(labels):
        one, other = each.labellers
        lines.append(
            f"{one} and {other} agree on {each.share:.1%} of {each.num} questions, Cohen's kappa {each.kappa:.2f}"
        )
    if labels.contradicting:
        lines.append(
            f"opposite answers to {', '.join(labels.contradicting[:3])} ({len(labels.contradicting)} in all)"
        )
    return [spell_out(line) for line in lines]


def export(labels: Labels, file: Path, out: Path) -> int:
    """Write the preferences that `labels` say to `out`."""
    import json

    from quintain.cli.episodes import write_lines
    from quintain.data.labels import export_preferences

    if out.suffix != ".jsonl" or out.exists():
        state = "which exists" if out.exists() else "which is no .jsonl"
        raise UsageError(f"--export: got {str(out)!r}, {state}; give a new file that ends in .jsonl")
    found = export_preferences(labels)
    lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in found.lines)
    if not found.lines:
        raise DataError(f"preferences of {file}: got {found}; label more")
    write_lines(lines, out, nothing=f"preferences of {file}: got none")
    for line in summary(labels):
        write_line(line)
    write_line(f"{out}: {found}")
    return 0
