"""Where the episodes of an expert come from: the environment's expert plays them, or somebody recorded them.

Recorded ones are those of a file, or of a run, that `demonstrations` names. They are matched with the tasks of the
environment by the id that each says (``task``, else ``id``), and carried out there through the policy's harness: what
was shown is what the environment shows, and the outcome is its own. Kept is what solves its task or earns what its
record says; all else is left out and counted. In an environment with a recorded expert (`expert_environment`) whatever
asks an expert for its next action asks the recording.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from quintain.agents.catalog import AUTO, HARNESSES, is_outside
from quintain.agents.protocol import Agent
from quintain.agents.transcripts import Rules, Transcriber, longest_stream
from quintain.curriculum.streams import Fixed, TaskStream
from quintain.data.files import digest, read_objects
from quintain.data.messages import answer_of
from quintain.data.records import Record, read_records
from quintain.data.searched import follow_searches
from quintain.environments.boundary import ask, has_expert, tasks_of
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.protocol import Factory
from quintain.environments.recorded import RecordedAction, Recordings, WithRecordedExpert
from quintain.errors import DataError, UsageError
from quintain.learning.sections import DataSection
from quintain.rollout.collect import OnEpisode, Rollout
from quintain.rollout.request import Limits
from quintain.rollout.views import seats_of
from quintain.store.creation import JOURNAL
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.types import (
    Action,
    Message,
    Score,
    Split,
    Task,
    Trajectory,
    Turn,
    as_content,
    as_text,
    derive_seed,
)
from quintain.warm_start.demonstrations import Demonstrations, place_of, tokenizer_of
from quintain.warm_start.start import build_agent, demonstrate_on, expert_action

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NUMBERED = re.compile(r".+/(train|eval)/(\d{1,9})")
"""The id of a task that says its split and number."""
MAX_TASKS = 20_000
"""Tasks of a split that are looked through for ids, where these do not say their number."""
TOLERANCE = 1e-6
"""Of rewards, in which rounding is no difference."""
NUM_SHOWN = 2
"""Ids of each side that an error names."""


class ExpertSource(Protocol):
    """Shows how tasks are done."""

    @property
    def make_environment(self) -> Factory:
        """What makes an environment whose `expert_action` is this expert's."""
        ...

    def tasks(self, step: int, count: int) -> list[Task]:
        """Return at most `count` training tasks of `step` that it can show."""
        ...

    def episodes(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """Return the scored ones of its episodes of `tasks`, as the policy's tokens."""
        ...


@dataclass(frozen=True, slots=True)
class ActingExpert:
    """The expert of the environment: ``ActingExpert(agent, find("craft"), curriculum, seed=0)``."""

    agent: Agent
    make_environment: Factory
    curriculum: TaskStream
    seed: int
    has_state_keys: bool = False
    """whether states are recorded"""

    def tasks(self, step: int, count: int) -> list[Task]:
        """See `ExpertSource.tasks`: any."""
        return list(self.curriculum.draw(step, count))

    def episodes(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """See `ExpertSource.episodes`."""
        return demonstrate_on(
            self.agent, self.make_environment, tasks, seed=self.seed, has_state_keys=self.has_state_keys
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """How a task was done once: ``Recording(source="chats.jsonl:3", tasks=("craft/train/3",), record=record)``."""

    source: str
    """where it stands, for errors"""
    ids: tuple[str, ...]
    """what it calls its task, first what is asked first"""
    reward: float | None
    """what it says that it earned"""
    is_success: bool
    record: Record | None = None
    """of a file"""
    turns: tuple[tuple[Action, Message | None], ...] = ()
    """of a run: what was done, and the answers that it was read from"""


class RecordedExpert:
    """An expert whose episodes are recorded; `load` carries them out, and then it shows them.

    Args:
        config: names the recordings and the environment.
        make_environment: makes the environment.

    Raises:
        DataError: they cannot be read, or none is of a training task of the environment.
        UsageError: several seats act in it.
    """

    def __init__(self, config: DataSection, make_environment: Factory) -> None:
        assert isinstance(config.demonstrations, str), "recordings are data"
        self.config, self.source = config, Path(config.demonstrations)
        self._make = make_environment
        seats = ask(make_environment, seats_of)
        if len(seats) > 1:
            raise UsageError(
                f"recorded experts in {config.environment}: got the seats {', '.join(seats)}; take an environment in "
                "which one agent acts"
            )
        found, self.digest = read_recordings(self.source)
        solved = [each for each in found if each.is_success]
        known = match_tasks([name for each in solved for name in each.ids], make_environment)
        self.by_task: dict[str, list[Recording]] = {}
        self.all_tasks: dict[str, Task] = {}
        self.left_out = {
            "that failed": len(found) - len(solved),
            "of held-out tasks": 0,
            f"of tasks that {config.environment} does not have": 0,
            "without the id of a task": 0,
        }
        held_out, foreign, nameless = list(self.left_out)[1:]
        for each in solved:
            task = next((known[name] for name in each.ids if name in known), None)
            if task is not None and task.split == "train":
                self.by_task.setdefault(task.id, []).append(each)
                self.all_tasks[task.id] = task
            else:
                self.left_out[held_out if task is not None else foreign if each.ids else nameless] += 1
        for own in self.by_task.values():
            own.sort(key=lambda each: -1.0 if each.reward is None else -each.reward)
        if not self.by_task:
            raise DataError(self._lacks(found))
        self._recordings = Recordings({})
        self._episodes: dict[str, Trajectory] | None = None
        self._tasks: Fixed | None = None
        self._long: set[str] = set()
        self._num_unsolved = 0

    @property
    def make_environment(self) -> Factory:
        """See `ExpertSource.make_environment`."""
        return WithRecordedExpert(self._make, self._recordings)

    def load(
        self,
        agent: Agent,
        tokenizer: PreTrainedTokenizerBase,
        run: Run | None = None,
        *,
        max_length: int,
        on_episode: OnEpisode | None = None,
    ) -> None:
        """Carry out what was recorded through `agent`; done once. A run that goes on takes what its journal has.

        Episodes of more than `max_length` tokens are left out.

        Raises:
            DataError: nothing solves its task when it is carried out.
        """
        if self._episodes is not None:
            return
        read = Reader(self.config, self._make, tokenizer)
        known = {} if run is None or run.next_step == 0 else read_journal(run, self.all_tasks)
        kept: dict[str, Trajectory] = dict(known)
        for task, episode in known.items():
            done = tuple(turn.action for turn in episode.turns if not turn.is_internal)
            self._recordings.change(task, done)
        waiting = {
            task: [(each, actions) for each in own for actions in read.candidates(each)]
            for task, own in self.by_task.items()
            if task not in known
        }
        while waiting := {task: own for task, own in waiting.items() if own}:
            tried = {task: own.pop(0) for task, own in waiting.items()}
            for task, (_, actions) in tried.items():
                self._recordings.change(task, actions)
            for episode in self.play(agent, [self.all_tasks[task] for task in tried], on_episode):
                if is_as_recorded(episode, tried[episode.task.id][0]):
                    kept[episode.task.id] = episode
            self._long |= {task for task, episode in kept.items() if longest_stream(episode) > max_length}
            waiting = {task: own for task, own in waiting.items() if task not in kept}
        for task in set(self.all_tasks) - set(kept):
            self._recordings.change(task, ())
        self._num_unsolved = len(self.all_tasks) - len(kept)
        self._episodes = {
            task: kept[task] for task in self.all_tasks if task in kept and task not in self._long
        }
        if kept and not self._episodes:
            raise DataError(
                f"recorded episodes of {self.source.name}: got {len(kept)} that are all longer than {max_length:,} "
                "tokens; raise max_context and tokens_per_microbatch, or record shorter ones"
            )
        if not kept:
            first = next(iter(self.by_task))
            raise DataError(
                f"recorded episodes of {self.source.name}: got {len(self.by_task)} that are of tasks of "
                f"{self.config.environment}, and carried out there none of them solves its task (the first {first}); "
                "check that they were recorded in this environment, with these options"
            )
        self._tasks = Fixed([self.all_tasks[task] for task in self._episodes], shuffle=True)

    def play(
        self, agent: Agent, tasks: Sequence[Task], on_episode: OnEpisode | None = None
    ) -> list[Trajectory]:
        """Return the scored ones of the recorded episodes of `tasks`, carried out through `agent`."""
        limits = Limits(max_failure_share=1.0, attempts=1, has_state_keys=True)
        with closing(Rollout(agent, self.make_environment, None, limits=limits)) as rollout:
            seed = derive_seed(self.config.seed, "recorded")
            groups = rollout.demonstrations(tasks, expert_action, seed=seed, on_episode=on_episode)
        return [trajectory for group in groups for trajectory in group.scored]

    def tasks(self, step: int, count: int) -> list[Task]:
        """See `ExpertSource.tasks`: those of which there is an episode, over and over, each pass in another order."""
        assert self._tasks is not None, "loaded before it is asked"
        drawn = self._tasks.draw(step, min(count, len(self._tasks.tasks)))
        return list({task.id: task for task in drawn}.values())

    def episodes(self, tasks: Sequence[Task]) -> list[Trajectory]:
        """See `ExpertSource.episodes`."""
        found = self.demonstrations.data
        wanted = {task.id for task in tasks}
        return [each for each in found if isinstance(each, Trajectory) and each.task.id in wanted]

    @property
    def demonstrations(self) -> Demonstrations:
        """All of its episodes."""
        assert self._episodes is not None, "loaded before it is asked"
        return Demonstrations(data=list(self._episodes.values()), digest=self.digest, summary=str(self))

    def __str__(self) -> str:
        """Return what is shown, and what is left out, in words."""
        counts = dict(self.left_out)
        more = sum(map(len, self.by_task.values())) - len(self.by_task)
        counts["more of the same tasks"] = more
        counts["that do not solve their task when they are carried out"] = self._num_unsolved
        counts["longer than the context"] = len(self._long)
        gone = ", ".join(f"{count:,} {why}" for why, count in counts.items() if count)
        said = f"; left out: {gone}" if gone else ""
        num = len(self.by_task if self._episodes is None else self._episodes)
        return f"{num:,} recorded episodes of {self.source.name} in the place of an expert{said}"

    def _lacks(self, found: Sequence[Recording]) -> str:
        """Return what is wrong with recordings none of which is of a training task."""
        own = [ask(self._make, lambda environment: environment.task("train", 0)).id]
        ids = list(dict.fromkeys(name for each in found for name in each.ids))[:NUM_SHOWN]
        why = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items() if count)
        asked = (
            f"recorded episodes of {self.source.name}: got {len(found):,} without one of a training task of "
        )
        named = f"they name {', '.join(ids)}, its first is {own[0]}" if ids else f"its first task is {own[0]}"
        return (
            f"{asked}{self.config.environment} ({why}; {named}); give each the id of its task, as task or id"
        )


def with_recordings(config: DataSection, make_environment: Factory) -> RecordedExpert | None:
    """Return the expert that `config` has recordings of; None where it has none, or nowhere to carry them out.

    An environment with an expert of its own keeps it where no recording is of one of its tasks: conversations that
    name none. Such that name the tasks of another environment are a mistake.

    Raises:
        DataError: see `RecordedExpert`.
    """
    if (
        not isinstance(config.demonstrations, str)
        or config.environment == NO_ENVIRONMENT
        or is_outside(config.agent)
    ):
        return None
    try:
        return RecordedExpert(config, make_environment)
    except (DataError, UsageError):
        if has_expert(make_environment) and not any(
            each.record is not None and "task" in each.record.fields
            for each in read_recordings(Path(config.demonstrations))[0]
        ):
            return None
        raise


def read_recordings(source: Path) -> tuple[list[Recording], str]:
    """Return what a file, a folder or a run holds, with its digest.

    Raises:
        DataError: it cannot be read.
    """
    if (source / JOURNAL).is_file():
        return list(read_episodes(source)), f"run {source.name}"
    return [
        Recording(
            source=record.place,
            ids=tuple(
                str(record.fields[key]) for key in ("task", "id") if record.fields.get(key) is not None
            ),
            reward=reward_of(record.fields),
            is_success=record.fields.get("is_success", True) is not False,
            record=record,
        )
        for record in read_records(read_objects(source))
    ], digest(source)


def read_episodes(folder: Path) -> Iterator[Recording]:
    """Yield the training episodes of the run `folder` that were scored."""
    decode = Chat(tokenizer_of(folder)).text
    with Run.open(folder, writable=False) as run:
        for place, episode in enumerate(follow_searches(run.trajectories())):
            if episode.task.is_held_out or not isinstance(episode.outcome, Score):
                continue
            has_thoughts = any(turn.is_internal for turn in episode.turns)
            yield Recording(
                source=f"{folder.name}:{episode.id or place}",
                ids=(episode.task.id,),
                reward=episode.outcome.value,
                is_success=episode.is_success,
                turns=tuple(
                    (turn.action, None if has_thoughts else message_of(turn, decode))
                    for turn in episode.turns
                    if not turn.is_internal and turn.action.error is None
                ),
            )


def message_of(turn: Turn, decode: Callable[[Sequence[int]], str]) -> Message:
    """Return the answer that was sampled in `turn`."""
    text, calls = answer_of(turn, decode)
    return Message(role="assistant", content=as_content(text), tool_calls=calls)


def reward_of(fields: Mapping[str, object]) -> float | None:
    """Return the reward that a record says; None where it says none."""
    reward = fields.get("reward")
    return float(reward) if isinstance(reward, int | float) and not isinstance(reward, bool) else None


def match_tasks(ids: Collection[str], make: Factory) -> dict[str, Task]:
    """Return the tasks of the environment, of either split, that are called one of `ids`."""
    source, wanted = tasks_of(make)(), set(ids)
    found: dict[str, Task] = {}
    splits: tuple[Split, ...] = ("train", "eval")
    for split in splits:
        first = source.task(split, 0)
        named = NUMBERED.fullmatch(first.id)
        if named is not None and named[1] == split and named[2] == "0":
            numbers = [(name, found_name) for name in wanted if (found_name := NUMBERED.fullmatch(name))]
            for name, parts in numbers:
                if parts[1] == split and (task := source.task(split, int(parts[2]))).id == name:
                    found[name] = task
            continue
        seen: set[str] = set()
        for index in range(MAX_TASKS):
            task = source.task(split, index)
            if task.id in seen or wanted <= set(found):
                break
            seen.add(task.id)
            if task.id in wanted:
                found.setdefault(task.id, task)
    return found


class Reader:
    """Reads what was done out of recordings, as the policy's harness does."""

    def __init__(self, config: DataSection, make: Factory, tokenizer: PreTrainedTokenizerBase) -> None:
        self._config, self._make, self._tokenizer = config, make, tokenizer
        self._transcriber: Transcriber | None = None

    def candidates(self, recording: Recording) -> list[tuple[Action, ...]]:
        """Return what may have been done, the likeliest first: every answer, or those alone that are to be trained."""
        if recording.record is None:
            return [tuple(as_recorded(action, message) for action, message in recording.turns)]
        turns = self._turns(recording.record)
        answers = [each for each in recording.record.said if each.message.role == "assistant"]
        done = [
            (as_recorded(turn.action, said.message), said.is_trained is not False)
            for turn, said in zip(turns, answers[len(answers) - len(turns) :], strict=True)
            if turn.action.error is None
        ]
        every, trained = (
            tuple(action for action, _ in done),
            tuple(action for action, is_on in done if is_on),
        )
        return [each for each in (every, trained if len(trained) < len(every) else ()) if each]

    def _turns(self, record: Record) -> tuple[Turn, ...]:
        if self._transcriber is None:
            self._transcriber = self._make_session(harness_name(self._config.agent))
            try:
                return self._transcriber.turns(record)
            except (
                UsageError
            ):  # a harness that holds no plain conversation: what fits the environment reads it
                self._transcriber = self._make_session(AUTO)
        return self._transcriber.turns(record)

    def _make_session(self, harness: str) -> Transcriber:
        agent = build_agent(self._tokenizer, self._make, temperature=1.0, agent=harness)
        place = place_of(self._config.environment, agent)
        return Transcriber(Chat(self._tokenizer), Rules(takes_unlisted=True), place=place)


def harness_name(agent: str) -> str:
    """Return the harness that acts in the spec `agent`, without what it is wrapped in. Example: plan+react: react."""
    last = agent.split("+")[-1]
    return last if last.partition("?")[0] in HARNESSES else AUTO


def as_recorded(action: Action, message: Message | None) -> RecordedAction:
    """Return `action` with the answer that it was read from, where there is more in that than the action."""
    is_more = False
    if message is not None:
        words = as_text(message.content).strip()
        is_more = bool(message.reasoning or (words if action.tool_calls else words != action.text.strip()))
    return RecordedAction(
        text=action.text,
        tool_calls=action.tool_calls,
        error=action.error,
        message=message if is_more else None,
    )


def is_as_recorded(episode: Trajectory, recording: Recording) -> bool:
    """Whether `episode` solves its task, or earns what its recording says that it did."""
    if episode.is_success:
        return True
    earned = episode.outcome.value if isinstance(episode.outcome, Score) else 0.0
    return recording.reward is not None and 0 < recording.reward <= earned + TOLERANCE


def read_journal(run: Run, tasks: Mapping[str, Task]) -> dict[str, Trajectory]:
    """Return the demonstrations of `tasks` that the journal of `run` has."""
    found = run.trajectories(step=0, phase="demonstrations")
    return {t.task.id: replace(t, id="") for t in found if t.task.id in tasks}
