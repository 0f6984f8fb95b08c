"""Episodes of files and runs as examples for a pipeline, and what came out of it as lines of messages.

Every example names what it came from: ``chats.jsonl:17``, or a run and the journal's name of an episode. Conversations
keep their own words: a line that is written is the line that was read, with what the pipeline decided as weights of its
answers, unless a stage made another text of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from quintain.agents.catalog import AUTO
from quintain.agents.roles import one_transcript
from quintain.agents.transcripts import Rules, Transcriber, choose_trained
from quintain.data.calls import messages_of
from quintain.data.files import FileValue, read_objects
from quintain.data.messages import OpeningPrompt, message_rows, to_record, was_unusable, write_tool
from quintain.data.negatives import preference_record
from quintain.data.pipeline import Stage, as_example, name_of, remade, weigh_turns
from quintain.data.records import Record, Unusable, read_record, read_records
from quintain.data.searched import follow_searches
from quintain.data.seats import by_seat
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.tools import Shapes, find_clash
from quintain.errors import DataError, UsageError
from quintain.learning.saved import admit_run
from quintain.rollout.corrections import CorrectedEpisode, imitate_splice, join_splice
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.roles import Activation, write_roles
from quintain.types import Completion, Example, Score, ToolSpec, Trajectory, Turn, as_content, as_text
from quintain.warm_start.demonstrations import (
    COLLECT,
    HELD_OUT,
    find_source,
    harness_of,
    lines_of,
    openings_in,
    place_of,
    tokenizer_of,
)
from quintain.warm_start.start import build_agent

T = TypeVar("T")
PLACE = re.compile(r".+/(train|eval)/(\d{1,9})")
"""The name of a task in a world: split and number."""


@dataclass(slots=True)
class Origin:
    """A file or run that examples came from."""

    name: str
    chat: Chat
    told: Callable[[Trajectory], OpeningPrompt]
    acting: Callable[[], tuple[str, str]] | None = None
    """of a run: its environment and what its policy acted through, once somebody is to act as it did; see `admit`"""
    records: dict[str, tuple[Record, Trajectory]] = field(
        default_factory=dict[str, "tuple[Record, Trajectory]"]
    )
    """name of a conversation → what was read, and the episode that was made of it"""
    transcriber: Transcriber | None = None
    """writes conversations as tokens; None of a run, whose tokens are there"""
    parts: dict[str, tuple[Trajectory, Trajectory]] = field(
        default_factory=dict[str, "tuple[Trajectory, Trajectory]"]
    )
    """of a run: name of an episode, of one seat where there are several → it, and the episode of all seats"""
    _writer: Transcriber | None = None

    @property
    def is_run(self) -> bool:
        """Whether it is a run, whose episodes were played."""
        return self.acting is not None

    @property
    def environment(self) -> str:
        """Of a run: its environment.

        Raises:
            ConfigError: it is code of somebody else's.
        """
        return self.acting()[0] if self.acting else ""

    @property
    def harness(self) -> str:
        """Of a run: what its policy acted through; raises as `environment`."""
        return self.acting()[1] if self.acting else ""

    def harness_writer(self) -> Transcriber:
        """Return what writes conversations as the harness of this run would have lived through them."""
        if self._writer is None:
            self._writer = harness_writer(self.chat, self.environment, self.harness)
        return self._writer


def harness_writer(chat: Chat, environment: str, harness: str) -> Transcriber:
    """Return what writes conversations as `harness` would have lived through them in `environment`."""
    agent = None
    if environment != NO_ENVIRONMENT:
        agent = build_agent(chat.tokenizer, find(environment), temperature=1.0, agent=harness)
    return Transcriber(chat, Rules(), place=place_of(environment, agent))


class EpisodeSet:
    """What several files and runs hold: ``EpisodeSet.of(["chats.jsonl", "runs/first"], chat)``."""

    def __init__(
        self, origins: Sequence[Origin], examples: Sequence[Example], *, root: Path | None = None
    ) -> None:
        self.root = root
        """folder of runs, which are known by their names in it"""
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

    def differing_tools(self) -> str:
        """Return which tools have other arguments in other conversations, and where; empty where none has."""
        shapes = Shapes()
        for origin in self.origins.values():
            for record, _ in origin.records.values():
                shapes.add(record.place, record.tools)
        return str(shapes)

    def notes(self) -> list[str]:
        """Return what people should know of the files that were read, a line each."""
        own = [each.transcriber for each in self.origins.values() if each.transcriber is not None]
        return [line for transcriber in own for line in lines_of(transcriber.notes)]

    def told(self, trajectory: Trajectory) -> OpeningPrompt:
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
            if not (named or origin.is_run):
                raise UsageError(
                    f"stage {asked}: got conversations without an environment; say {asked}?environment=E"
                )
            says = make(named or origin.environment, origin)
            known[origin.name] = says if origin.is_run else in_world(named, says)
        return lambda trajectory: known[self.part_of(trajectory)](trajectory)

    def conversation(self, example: Example) -> Record:
        """Return `example` as a conversation: the one that was read, or the messages that a run's episode is."""
        origin, name = self.origin(example), example.sources[0]
        known, trajectory = origin.records.get(name, (None, None))
        if known is not None and (origin.transcriber is not None or trajectory is example.trajectory):
            return known
        own = example.trajectory
        value = to_record(own, origin.chat.text, told=origin.told(own), is_compared=True)
        found = FileValue(file=origin.name, line=0, value=None)
        return replace(read_record(value, found, keeps_text=True), place=name)

    def retelling(
        self,
        name: str,
        says: str,
        change: Callable[[Example, Record], Record | None],
        *,
        counts: Counter[str] | None = None,
    ) -> Stage:
        """Return the stage that tells examples in other words: those of `change`, which drops one by None.

        `change` keeps the answers in their number and order, and of a run's episode all messages. Episodes of a run are
        told again through its harness.

        Raises:
            DataError: the harness of a run does not write the prompts again as they were recorded, when the stage is
                applied.
        """
        done: dict[int, tuple[Trajectory, Example]] = {}

        def make(example: Example) -> Iterator[Example]:
            known = done.get(id(example.trajectory))
            if known is not None:
                yield replace(known[1], weights=carry_source(example, known[1].trajectory))
                return
            record = change(example, self.conversation(example))
            if record is not None:
                made = self.retold(name, example, record)
                done[id(example.trajectory)] = example.trajectory, made
                yield made

        return remade(name, says, make, counts=counts)

    def retold(self, asked: str, example: Example, record: Record) -> Example:
        """Return `example` in the words of `record`, with the weights that its turns had; remember the record.

        Raises:
            DataError: it is an episode of a run, whose harness does not write its prompts again as they were.
        """
        origin, name = self.origin(example), example.sources[0]
        if origin.transcriber is not None:
            made = transcribe_record(origin, record, name)
            assert made is not None, "the same answers are trained as before"
            return replace(
                example, trajectory=made.trajectory, weights=carry_source(example, made.trajectory)
            )
        before = self.rewrite_turns(asked, example)
        after = origin.harness_writer().turns(record)
        turns = tuple(
            rewrite_prompt(*each) for each in zip(example.trajectory.turns, before, after, strict=True)
        )
        trajectory = replace(example.trajectory, turns=turns)
        said = iter(turns)
        marked = tuple(
            replace(each, is_trained=False if was_unusable(next(said)) else None)
            if each.message.role == "assistant"
            else each
            for each in record.said
        )
        origin.records[name] = replace(record, said=marked), trajectory
        return replace(example, trajectory=trajectory, weights=carry_source(example, trajectory))

    def name_record(self, example: Example, record: Record, mark: str) -> Example:
        """Return `record`, which was made of the conversation `example`, as one of its own: ``chats.jsonl:3-refused``.

        A line of it names the source that `example` has.
        """
        origin = self.origin(example)
        name = f"{example.sources[0]}-{mark}"
        while name in origin.records:
            name += "'"
        record = replace(record, fields={**record.fields, "sources": self.episodes(example)})
        made = transcribe_record(origin, record, name)
        assert made is not None, "it has an answer that is trained"
        return made

    def episodes(self, example: Example) -> list[str]:
        """Return the names of the episodes and conversations that `example` came from in the first place."""
        origin = self.origin(example)
        return list(dict.fromkeys(first for name in example.sources for first in self._first(origin, name)))

    def answers(self, example: Example, record: Record) -> list[int]:
        """Return the places in `record`, which tells `example`, of the answers that are its turns, turn by turn."""
        is_all = self.origin(example).transcriber is None
        trained = choose_trained(record.said, "all")
        return [
            place
            for place, each in enumerate(record.said)
            if each.message.role == "assistant" and (is_all or (place and trained[place]))
        ]

    def one_transcript(self, asked: str, names: Mapping[str, str]) -> Stage:
        """Return the stage that puts one transcript of all seats in the place of the examples of each.

        Raises:
            DataError: an earlier stage weighed or changed what is put together, when the stage is applied.
        """
        counts: Counter[str] = Counter()

        def apply(examples: Sequence[Example]) -> list[Example]:
            counts.clear()
            there = {name for example in examples for name in example.sources}
            done: set[int] = set()
            parts_of: dict[int, list[str]] = {}
            for source in self.origins.values():
                for part, (_, its) in source.parts.items():
                    parts_of.setdefault(id(its), []).append(part)
            made: list[Example] = []
            for example in examples:
                origin, name = self.origin(example), example.sources[0]
                if origin.transcriber is not None:
                    found = name_results(self.conversation(example), names)
                    if found is None:
                        counts["name no speakers"] += 1
                    else:
                        made.append(self.retold(asked, example, found))
                    continue
                own, whole = origin.parts[name]
                if own is not example.trajectory or example.weights is not None:
                    raise DataError(
                        f"stage {asked} of {name}: got an episode that an earlier stage weighed or changed; put it "
                        "behind filters and before masks"
                    )
                if id(whole) in done:
                    continue
                done.add(id(whole))
                parts = parts_of[id(whole)]
                if len({turn.seat for turn in whole.turns}) == 1:
                    counts["have one speaker"] += 1
                elif not there.issuperset(parts):
                    counts["miss a seat"] += 1
                else:
                    made.append(transcript_of(origin, whole, parts, names))
            return made

        return Stage(name=asked, says="has no roles that one agent could play", apply=apply, counts=counts)

    def whole(self, example: Example) -> Trajectory:
        """Return the episode of `example` with all that was said in it; of conversations what is not trained, too."""
        origin = self.origin(example)
        if origin.transcriber is None:
            return example.trajectory
        return replace(example.trajectory, turns=origin.transcriber.turns(self.conversation(example)))

    def splice_example(self, example: Example, splice: CorrectedEpisode) -> Example:
        """Return `splice` of the episode of `example` (`whole`), which takes its name; a conversation stays one.

        Of a conversation the first messages stay as they were read, and the others are those of the tail.
        """
        origin, name = self.origin(example), example.sources[0]
        if origin.transcriber is None:
            made = imitate_splice(splice)
            return replace(made, trajectory=replace(made.trajectory, id=name), sources=example.sources)
        head, tail = self.conversation(example), join_splice(splice)
        answers = [place for place, each in enumerate(head.said) if each.message.role == "assistant"]
        kept = [
            replace(each, is_trained=False) if each.message.role == "assistant" else each
            for each in head.said[: answers[splice.until - 1] + 1]
        ]
        value = to_record(replace(tail, turns=splice.tail.turns[splice.begin :]), origin.chat.text)
        more = read_record(value, FileValue(file=head.file, line=head.line, value=None)).said
        if kept[-1].message.tool_calls:
            more = (replace(more[0], message=replace(more[0].message, role="tool")), *more[1:])
        fields = {**head.fields, **{key: value[key] for key in ("reward", "is_success")}}
        record = replace(head, said=(*kept, *more), fields=fields)
        made = transcribe_record(origin, record, name)
        assert made is not None, "the way out is trained"
        return replace(made, sources=example.sources)

    def rewrite_turns(self, asked: str, example: Example) -> tuple[Turn, ...]:
        """Return the turns of a run's episode as its harness writes them again.

        Raises:
            DataError: its prompts are not those that were recorded.
        """
        origin = self.origin(example)
        turns = origin.harness_writer().turns(self.conversation(example))
        prompts = [(turn.prompt_ids, turn.starts_segment) for turn in turns]
        if prompts != [(turn.prompt_ids, turn.starts_segment) for turn in example.trajectory.turns]:
            raise DataError(
                f"stage {asked} of {example.sources[0]}: got an episode whose prompts the harness {origin.harness} "
                "does not write again as they were recorded, so its text is fixed; write it as messages first: "
                "quintain export RUN --to messages"
            )
        return turns

    def lines(self, examples: Iterable[Example]) -> Iterator[str]:
        """Yield a line of JSON for each of `examples`: messages with weights, tools, task, outcome and `sources`.

        Raises:
            DataError: weights that messages cannot hold: within an answer, or neither 0 nor 1.
        """
        for example in examples:
            origin = self.origin(example)
            written = self._write_example(origin, example)
            answers = [m for m in written["messages"] if m["role"] == "assistant" and m.get("weight") != 0]
            if example.weights is not None:
                kept = [turn_weight(example, number) for number in self._weighable(origin, example)]
                for message, weight in zip(answers, kept, strict=True):
                    message |= {} if weight else {"weight": 0}
            yield json.dumps({**written, "sources": self.episodes(example)}, ensure_ascii=False) + "\n"

    def preferences(self, examples: Iterable[Example]) -> Iterator[str]:
        """Yield a line of JSON for each of `examples`: what mended a wrong call, and the call that it is preferred to.

        Raises:
            DataError: one does not end with a wrong call and what mended it.
        """
        for example in examples:
            origin, own = self.origin(example), example.trajectory
            written = preference_record(own, origin.chat.text, told=origin.told(own))
            yield json.dumps({**written, "sources": list(example.sources)}, ensure_ascii=False) + "\n"

    def _first(self, origin: Origin, name: str) -> Sequence[str]:
        """Return the sources of the conversation `name` as its line has them, itself where it has none."""
        record = origin.records[name][0] if name in origin.records else None
        known = record.fields.get("sources") if record else None
        if not isinstance(known, list) or not known:
            return (name,)
        return [str(each) for each in cast("list[object]", known)]

    def _write_example(self, origin: Origin, example: Example) -> dict[str, Any]:
        record, trajectory = origin.records.get(example.sources[0], (None, None))
        if record is not None and trajectory is example.trajectory:
            return record_as_json(record)
        return to_record(example.trajectory, origin.chat.text, told=origin.told(example.trajectory))

    def _weighable(self, origin: Origin, example: Example) -> list[int]:
        """Return the turns whose answers are written without a weight of 0."""
        record, trajectory = origin.records.get(example.sources[0], (None, None))
        if record is not None and trajectory is example.trajectory:
            trained = choose_trained(record.said, "all")
            return [number for number, place in enumerate(self.answers(example, record)) if trained[place]]
        return [n for n, turn in enumerate(example.trajectory.turns) if not was_unusable(turn)]


def gather(
    names: Sequence[str],
    root: Path,
    chat: Callable[[Sequence[Path]], Chat],
    *,
    unusable: Unusable = "error",
    is_trusted: bool = False,
) -> EpisodeSet:
    """Return the training episodes of the files and runs `names`; `chat` makes the format of conversations.

    A line that cannot be used is an error, or is left out and named by `EpisodeSet.notes`. What runs name of somebody
    else's is used, where a stage needs it, only if it `is_trusted`.

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
            origin, own = from_run(source.path, is_trusted=is_trusted)
        else:
            assert made is not None, "there are files"
            origin, own = from_file(source.path, made, unusable)
        if origin.name in {other.name for other in origins}:
            raise DataError(f"data {name}: got a second source that is called {origin.name}; rename one")
        origins.append(origin)
        examples += own
    found = EpisodeSet(origins, examples, root=root)
    refuse_clash(found)
    return found


def from_file(path: Path, chat: Chat, unusable: Unusable = "error") -> tuple[Origin, list[Example]]:
    """Return the conversations of a file or folder; episodes of one ``task`` are a group."""
    origin = Origin(name=path.name, chat=chat, told=lambda t: read_opening(origin.records[name_of(t)][0]))
    # Calls of tools that are not listed are for a stage to find.
    origin.transcriber = Transcriber(chat, Rules(takes_unlisted=True, unusable=unusable))
    notes = origin.transcriber.notes
    examples: list[Example] = []
    for record in read_records(read_objects(path), left_out=notes.left_out(origin.transcriber.rules)):
        notes.see(record)
        name = f"{path.name}:{record.file.partition('/')[2]}{record.line}"
        while name in origin.records:
            name += "'"
        example = transcribe_record(origin, record, name)
        examples += [] if example is None else [example]
    return origin, examples


def read_opening(record: Record) -> OpeningPrompt:
    """Return what a conversation begins with: its system text and its tools."""
    first = record.messages[0]
    return OpeningPrompt(system=as_text(first.content) if first.role == "system" else "", tools=record.tools)


def transcribe_record(origin: Origin, record: Record, name: str | None = None) -> Example | None:
    """Return `record` as an example, and remember it; None where nothing in it is to be trained."""
    assert origin.transcriber is not None, "conversations are transcribed"
    if name is None:
        name = next(own for own, (known, _) in origin.records.items() if known.place == record.place)
    trajectory = origin.transcriber.trajectory(record)
    if trajectory is None:
        return None
    id = str(record.fields.get("task") or trajectory.task.id)
    task = replace(trajectory.task, id=id, split="eval" if HELD_OUT.fullmatch(id) else "train")
    trajectory = replace(trajectory, task=task, group=task.id, id=name)
    origin.records[name] = record, trajectory
    return as_example(trajectory)


def from_run(folder: Path, *, is_trusted: bool = False) -> tuple[Origin, list[Example]]:
    """Return the episodes of a run, each seat by itself, in the order of the journal."""

    def acting() -> tuple[str, str]:
        """Return where and through what the run acted, if that is this user's to use."""
        to = "acting as"
        config = admit_run(folder, is_trusted=is_trusted, to=to, fields=("environment", "agent", "harness"))
        agent = str(config.get("agent", AUTO))
        if is_collected:
            agent = str(config.get("harness", "")) or harness_of(agent, is_trusted=is_trusted, to=to)
        return str(config.get("environment", NO_ENVIRONMENT)), agent

    with Run.open(folder, writable=False) as run:
        is_collected = run.recipe == COLLECT
        origin = Origin(
            name=folder.name, chat=Chat(tokenizer_of(folder)), told=openings_in(run), acting=acting
        )
        examples: list[Example] = []
        for place, trajectory in enumerate(follow_searches(run.trajectories())):
            for number, part in enumerate(by_seat(trajectory)):
                name = f"{folder.name}:{trajectory.id or place}{f'/{number}' if number else ''}"
                examples.append(as_example(replace(part, id=name)))
                origin.parts[name] = examples[-1].trajectory, trajectory
    return origin, examples


def in_world(world: str, says: Callable[[Trajectory], T]) -> Callable[[Trajectory], T]:
    """Return `says` of conversations of `world`, whose tasks are known by name alone: ``craft/train/3``."""
    tasks = tasks_of(find(world))()

    def of(trajectory: Trajectory) -> T:
        place = PLACE.fullmatch(trajectory.task.id)
        if place is None:
            return says(trajectory)
        own = tasks.task("eval" if place[1] == "eval" else "train", int(place[2]))
        return says(replace(trajectory, task=own) if own.id == trajectory.task.id else trajectory)

    return of


def refuse_clash(found: EpisodeSet) -> None:
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


def name_results(record: Record, names: Mapping[str, str]) -> Record | None:
    """Return `record` with each answer in marks of the names of who spoke; None where one does not say who."""
    answers = [each for each in record.said if each.message.role == "assistant"]
    if any(not each.spoken or each.message.tool_calls for each in answers):
        return None
    said = tuple(
        replace(
            each,
            message=replace(
                each.message,
                content=as_content(
                    write_roles([Activation(names.get(who, who), text) for who, text in each.spoken])
                ),
                reasoning="",
            ),
        )
        if each.spoken
        else each
        for each in record.said
    )
    return replace(record, said=said)


def transcript_of(
    origin: Origin, whole: Trajectory, parts: Sequence[str], names: Mapping[str, str]
) -> Example:
    """Return an episode of a run as one transcript of all its seats, which `parts` name; remember it."""
    told = origin.told(whole)
    system = [{"role": "system", "content": told.system}] if told.system else []
    said = one_transcript(whole, lambda turn: origin.chat.text(turn.completion.token_ids), names)
    value: dict[str, Any] = {"messages": [*system, *said], "tools": list(map(write_tool, told.tools))}
    value |= {"task": whole.task.id}
    if isinstance(whole.outcome, Score):
        value |= {"reward": whole.outcome.value, "is_success": whole.outcome.is_success}
    name = parts[0]
    record = replace(read_record(value, FileValue(file=origin.name, line=0, value=None)), place=name)
    turns = Transcriber(origin.chat, Rules()).turns(record)
    trajectory = replace(whole, turns=turns, id=name)
    origin.records[name] = record, trajectory
    weights = [float(message.get("weight", 1)) for message in said if message["role"] == "assistant"]
    example = Example(trajectory=trajectory, sources=tuple(parts))
    return example if all(weights) else weigh_turns(example, weights)


def rewrite_prompt(turn: Turn, before: Turn, after: Turn) -> Turn:
    """Return `turn`, which the harness writes as `before`, with what differs from that in `after`.

    What is said in other words has no log-probs: nobody sampled it.
    """
    changed = replace(turn, prompt_ids=after.prompt_ids, starts_segment=after.starts_segment)
    if after.observation != before.observation:
        changed = replace(changed, observation=after.observation)
    if after.completion.token_ids != before.completion.token_ids:
        completion = Completion(
            token_ids=after.completion.token_ids, logprobs=(), stop="stop", policy=turn.completion.policy
        )
        changed = replace(changed, completion=completion)
    return changed


def carry_source(example: Example, made: Trajectory) -> tuple[NDArray[np.float32], ...] | None:
    """Return the weights of `example` for the turns of `made`, which has as many: those of a turn, however long it is.

    Raises:
        DataError: the tokens of a turn that is said in other words have different weights.
    """
    if example.weights is None:
        return None
    found: list[NDArray[np.float32]] = []
    for number, (own, turn) in enumerate(zip(example.weights, made.turns, strict=True)):
        size, kinds = len(turn.completion.token_ids), np.unique(own)
        if len(own) != size and len(kinds) > 1:
            raise DataError(
                f"weights of answer {number} of {example.sources[0]}: got several within an answer that is told in "
                "other words; put without_end behind what changes words"
            )
        found.append(own if len(own) == size else np.full(size, kinds[0] if len(kinds) else 1, np.float32))
    return tuple(found)


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
    messages = message_rows(record.messages, makes_ids=False)
    for row, is_on in zip(messages, choose_trained(record.said, "all"), strict=True):
        if row["role"] == "assistant" and not is_on:
            row["weight"] = 0
    tools: Mapping[str, Any] = {"tools": [write_tool(tool) for tool in record.tools]} if record.tools else {}
    rest = {key: value for key, value in record.fields.items() if key not in ("sources", "messages", "tools")}
    return {"messages": messages, **tools, **rest}
