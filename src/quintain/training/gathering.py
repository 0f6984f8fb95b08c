"""Episodes of files and runs as examples for a pipeline, and what came out of it as lines of messages.

Every example names what it came from: ``chats.jsonl:17``, or a run and the journal's name of an episode. Conversations
keep their own words: a line that is written is the line that was read, with what the pipeline decided as weights of its
answers, unless a stage made another text of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from quintain.agents.transcripts import Rules, Transcriber, chosen, unknown_tools
from quintain.data.calls import messages_of
from quintain.data.files import read_objects
from quintain.data.messages import Told, to_record, was_unusable, write_call, write_tool
from quintain.data.pipeline import Stage, as_example, name_of, remade
from quintain.data.records import Record, read_records
from quintain.data.seats import by_seat
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.tools import find_clash
from quintain.errors import DataError, UsageError
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.training.demonstrations import COLLECT, find_source, harness_of, teller, tokenizer_of
from quintain.types import Example, Text, ToolSpec, Trajectory, as_text

T = TypeVar("T")


@dataclass(slots=True)
class Origin:
    """A file or run that examples came from."""

    name: str
    chat: Chat
    told: Callable[[Trajectory], Told]
    environment: str = ""
    """of a run"""
    harness: str = ""
    """of a run: what its policy acted through"""
    records: dict[str, tuple[Record, Trajectory]] = field(
        default_factory=dict[str, "tuple[Record, Trajectory]"]
    )
    """name of a conversation → what was read, and the episode that was made of it"""
    transcriber: Transcriber | None = None
    """writes conversations as tokens; None of a run, whose tokens are there"""


class Gathered:
    """What several files and runs hold: ``Gathered.of(["chats.jsonl", "runs/first"], chat)``."""

    def __init__(self, origins: Sequence[Origin], examples: Sequence[Example]) -> None:
        self.origins = {origin.name: origin for origin in origins}
        self.examples = tuple(examples)

    def origin(self, example: Example) -> Origin:
        """Return where `example` came from, by the first of its sources."""
        return self.origins[self.part(example)]

    def part(self, example: Example) -> str:
        """Return the name of the file or run that `example` came from."""
        return example.sources[0].rpartition(":")[0]

    def part_of(self, trajectory: Trajectory) -> str:
        """Return the name of the file or run that an episode came from."""
        return name_of(trajectory).rpartition(":")[0]

    def told(self, trajectory: Trajectory) -> Told:
        """Return what an episode began with."""
        return self.origins[self.part_of(trajectory)].told(trajectory)

    def text(self, trajectory: Trajectory) -> str:
        """Return all that was told, shown and said in an episode."""
        chat = self.origins[self.part_of(trajectory)].chat
        shown, _ = messages_of(trajectory, self.told(trajectory))
        said = (chat.text(turn.completion.token_ids) for turn in trajectory.turns)
        return "\n".join((*(as_text(message.content) for message in shown), *said))

    def by_world(
        self, asked: str, named: str, make: Callable[[str, Origin], Callable[[Trajectory], T]]
    ) -> Callable[[Trajectory], T]:
        """Return what says of an episode what `make`(environment, origin) says of those from where it came.

        The environment is the one `named`, else a run's own.

        Raises:
            UsageError: there is neither, and `asked` needs one.
        """
        known: dict[str, Callable[[Trajectory], T]] = {}
        for origin in self.origins.values():
            if not (named or origin.environment):
                raise UsageError(
                    f"stage {asked}: got conversations without an environment; say {asked}?environment=E"
                )
            known[origin.name] = make(named or origin.environment, origin)
        return lambda trajectory: known[self.part_of(trajectory)](trajectory)

    def retelling(
        self, name: str, says: str, change: Callable[[str], str], is_refused: Callable[[str], bool]
    ) -> Stage:
        """Return the stage that changes the texts of conversations, and drops those in which `is_refused` of an answer.

        Only what an agent was shown is changed.

        Raises:
            DataError: an example is an episode of a run, whose tokens are there, when the stage is applied.
        """

        def make(example: Example) -> Iterator[Example]:
            origin = self.origin(example)
            if origin.transcriber is None or example.sources[0] not in origin.records:
                raise DataError(
                    f"stage {name} of {example.sources[0]}: got an episode in tokens, whose text is fixed; write it as "
                    "messages first: quintain export RUN --to messages"
                )
            record, _ = origin.records[example.sources[0]]
            texts = [as_text(each.message.content) for each in record.said]
            answers = [each.message.role == "assistant" for each in record.said]
            if any(is_refused(text) for text, is_own in zip(texts, answers, strict=True) if is_own):
                return
            said = [
                each
                if is_own
                else replace(each, message=replace(each.message, content=(Text(text=change(text)),)))
                for each, text, is_own in zip(record.said, texts, answers, strict=True)
            ]
            yield self._take(origin, replace(record, said=tuple(said)))

        return remade(name, says, make)

    def _take(self, origin: Origin, record: Record) -> Example:
        found = transcribed(origin, record)
        assert found is not None, "the same answers are trained as before"
        return found

    def lines(self, examples: Iterable[Example]) -> Iterator[str]:
        """Yield a line of JSON for each of `examples`: messages with weights, tools, task, outcome and `sources`.

        Raises:
            DataError: weights that messages cannot hold: within an answer, or neither 0 nor 1.
        """
        for example in examples:
            origin = self.origin(example)
            written = self._written(origin, example)
            answers = [m for m in written["messages"] if m["role"] == "assistant" and m.get("weight") != 0]
            if example.weights is not None:
                kept = [turn_weight(example, number) for number in self._weighable(origin, example)]
                for message, weight in zip(answers, kept, strict=True):
                    message |= {} if weight else {"weight": 0}
            sources = dict.fromkeys(first for name in example.sources for first in self._first(origin, name))
            yield json.dumps({**written, "sources": list(sources)}, ensure_ascii=False) + "\n"

    def _first(self, origin: Origin, name: str) -> Sequence[str]:
        """Return the sources of the conversation `name` as its line has them, itself where it has none."""
        record = origin.records[name][0] if name in origin.records else None
        known = record.fields.get("sources") if record else None
        if not isinstance(known, list) or not known:
            return (name,)
        return [str(each) for each in cast("list[object]", known)]

    def _written(self, origin: Origin, example: Example) -> dict[str, Any]:
        record, trajectory = origin.records.get(example.sources[0], (None, None))
        if record is not None and trajectory is example.trajectory:
            return record_as_json(record)
        return to_record(example.trajectory, origin.chat.text, told=origin.told(example.trajectory))

    def _weighable(self, origin: Origin, example: Example) -> list[int]:
        """Return the turns whose answers are written without a weight of 0."""
        if example.sources[0] in origin.records:
            return list(range(len(example.trajectory.turns)))
        return [n for n, turn in enumerate(example.trajectory.turns) if not was_unusable(turn)]


def gather(names: Sequence[str], root: Path, chat: Callable[[Sequence[Path]], Chat]) -> Gathered:
    """Return the training episodes of the files and runs `names`; `chat` makes the format of conversations.

    Raises:
        DataError: a source is not there, cannot be read, or its tools clash with those of another.
    """
    sources = {name: find_source(name, root) for name in names}
    files = [source.path for source in sources.values() if not source.is_run]
    made = chat(files) if files else None
    origins: list[Origin] = []
    examples: list[Example] = []
    for name, source in sources.items():
        if source.is_run:
            origin, own = from_run(source.path)
        else:
            assert made is not None, "there are files"
            origin, own = from_file(source.path, made)
        if origin.name in {other.name for other in origins}:
            raise DataError(f"data {name}: got a second source that is called {origin.name}; rename one")
        origins.append(origin)
        examples += own
    found = Gathered(origins, examples)
    refuse_clash(found)
    return found


def from_file(path: Path, chat: Chat) -> tuple[Origin, list[Example]]:
    """Return the conversations of a file or folder; episodes of one ``task`` are a group."""
    origin = Origin(name=path.name, chat=chat, told=lambda t: told_in(origin.records[name_of(t)][0]))
    origin.transcriber = Transcriber(chat, Rules())
    examples: list[Example] = []
    for record in read_records(read_objects(path)):
        name = f"{path.name}:{record.file.partition('/')[2]}{record.line}"
        while name in origin.records:
            name += "'"
        example = transcribed(origin, record, name)
        examples += [] if example is None else [example]
    return origin, examples


def told_in(record: Record) -> Told:
    """Return what a conversation begins with: its system text and its tools."""
    first = record.messages[0]
    return Told(system=as_text(first.content) if first.role == "system" else "", tools=record.tools)


def transcribed(origin: Origin, record: Record, name: str | None = None) -> Example | None:
    """Return `record` as an example, and remember it; None where nothing in it is to be trained."""
    assert origin.transcriber is not None, "conversations are transcribed"
    if name is None:
        name = next(own for own, (known, _) in origin.records.items() if known.place == record.place)
    # Calls of tools that are not listed are for a stage to find; the tokens of the prompt have the tools as listed.
    strange = [
        ToolSpec(name=tool, description="", parameters={})
        for tool in unknown_tools(record.said, record.tools, is_closed=False)
    ]
    trajectory = origin.transcriber.trajectory(replace(record, tools=(*record.tools, *strange)))
    if trajectory is None:
        return None
    task = replace(trajectory.task, id=str(record.fields.get("task") or trajectory.task.id))
    trajectory = replace(trajectory, task=task, group=task.id, id=name)
    origin.records[name] = record, trajectory
    return as_example(trajectory)


def from_run(folder: Path) -> tuple[Origin, list[Example]]:
    """Return the episodes of a run, each seat by itself, in the order of the journal."""
    with Run.open(folder, writable=False) as run:
        environment = str(run.config.get("environment", NO_ENVIRONMENT))
        origin = Origin(
            name=folder.name,
            chat=Chat(tokenizer_of(folder)),
            told=teller(environment),
            environment=environment,
            harness=harness_of(str(run.config.get("agent")) if run.recipe == COLLECT else folder),
        )
        examples: list[Example] = []
        for place, trajectory in enumerate(run.trajectories()):
            for number, part in enumerate(by_seat(trajectory)):
                name = f"{folder.name}:{trajectory.id or place}{f'/{number}' if number else ''}"
                examples.append(as_example(replace(part, id=name)))
    return origin, examples


def refuse_clash(found: Gathered) -> None:
    """Raise where two sources list a tool of one name with other arguments: what is learned of one breaks the other.

    Raises:
        DataError: naming the tool and both sources.
    """
    listed: list[tuple[str, Sequence[ToolSpec]]] = []
    for origin in found.origins.values():
        first = next((e for e in found.examples if found.part(e) == origin.name), None)
        records = [record.tools for record, _ in origin.records.values()]
        own = records or ([origin.told(first.trajectory).tools] if first else [])
        listed += [(origin.name, tools) for tools in own]
    if clash := find_clash(listed):
        tool, one, other = clash
        raise DataError(
            f"mixture of {one} and {other}: got the tool {tool!r} with other arguments in each; "
            "rename it in one of them, or train them apart"
        )


def turn_weight(example: Example, number: int) -> bool:
    """Return whether the turn `number` of `example` counts.

    Raises:
        DataError: its tokens have different weights, or one between 0 and 1.
    """
    assert example.weights is not None, "it is weighed"
    own = np.unique(example.weights[number])
    if len(own) > 1 or (len(own) and own[0] not in (0, 1)):
        told = ", ".join(f"{weight:g}" for weight in own.tolist()[:3])
        raise DataError(
            f"weights of answer {number} of {example.sources[0]}: got {told}, and messages hold 0 or 1 for a whole "
            "answer; leave turn_discount, segment_score and without_end to a method's own pipeline"
        )
    return bool(len(own) and own[0])


def record_as_json(record: Record) -> dict[str, Any]:
    """Return `record` as OpenAI messages with tools and what else stood in it."""
    messages: list[dict[str, Any]] = []
    trained = chosen(record.said, "all")
    for each, is_on in zip(record.said, trained, strict=True):
        message: dict[str, Any] = {"role": each.message.role, "content": as_text(each.message.content)}
        if each.message.tool_calls:
            message["tool_calls"] = [write_call(call) for call in each.message.tool_calls]
        if each.message.role == "assistant" and not is_on:
            message["weight"] = 0
        messages.append(message)
    tools: Mapping[str, Any] = {"tools": [write_tool(tool) for tool in record.tools]} if record.tools else {}
    rest = {key: value for key, value in record.fields.items() if key not in ("sources", "messages", "tools")}
    return {"messages": messages, **tools, **rest}
