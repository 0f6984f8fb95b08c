"""AgentBank (arXiv 2410.07706): imitates what a teacher solved, with forced actions for what it failed.

L = -Σ log π(a_t | h_t).

A teacher that errs solves easy tasks more often than hard ones, so what it solved teaches what is easy. For tasks that
it failed in all its tries, the actions come first: those of the environment's expert (a search, an official solution,
an answer that was given). They are carried out in the environment, which must say that the task is solved. Turns in
which the teacher did what the expert would not have no weight. An episode that says the answer before anybody told it
is left out.

Differences to the paper: agents act without the rationales that the paper has GPT-4 write for given actions, so that
the check for leaks reads what is said; general data and code are mixed in by `agent_tuning`. Samoyed is the model that
the paper trains so. Measured on `collab`, where details that are not told make a task hard.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import ClassVar

from quintain.config.ranges import PositiveInt, Share
from quintain.data import stages
from quintain.data.pipeline import (
    Pipeline,
    PipelineResult,
    Stage,
    check_stage,
    weigh_stage,
)
from quintain.environments.noisy import noisy
from quintain.errors import DataError
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector
from quintain.methods.rl.parts.contexts import ExpertLabels, agreement, ask_expert
from quintain.types import ANSWER, Trajectory, Turn, as_text

CALLS = re.compile(r"<tool_call>|\[TOOL_CALLS\]|\bAction:|\{\s*\"(?:name|function)\"")
"""Where the calls of a turn begin in its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of AgentBank."""

    renamed: ClassVar[Mapping[str, str]] = {"tries": "group_size", "teacher_mistakes": "teacher_noise"}
    """earlier names of options"""

    environment: str = "collab"
    demonstrations: int | str | None = 200
    """Tasks that the teacher tries; or a file, folder, run or data set of conversations, to which nothing is added."""
    teacher_noise: Share = 0.25
    """Share of the teacher's turns in which it does something else than the expert."""
    group_size: PositiveInt = 4
    """Times that the teacher tries a task."""
    forced: bool = True
    """Whether the expert's actions are shown for tasks that the teacher never solved."""


def method(config: Config) -> Offline:
    """Return AgentBank as `config` describes it."""

    def data(collector: Collector) -> PipelineResult:
        if isinstance(config.demonstrations, str):
            tried, shown = collector.demonstrations(), list[Trajectory]()
        else:
            teachers = [noisy(config.teacher_noise)] * config.group_size
            found = collector.demonstrations(*teachers, *[noisy(0.0)] * config.forced)
            tried = [t for t in found if t.index < config.group_size]
            shown = [t for t in found if t.index == config.group_size]
        made = pipeline(sound_in(config.environment), lambda t: leaks(t, collector.decode))
        return choose_trajectories(
            (*tried, *find_needed(tried, shown)), made, "imitating a teacher, and what it failed"
        )

    return imitate_data(
        config,
        data,
        batch_size=config.batch_size,
    )


def pipeline(sound: Callable[[Trajectory], Sequence[float]], leaks: Callable[[Trajectory], bool]) -> Pipeline:
    """Return solved → without what was not to be known → turns that the expert would have taken."""
    return Pipeline(
        stages.keep_solved(),
        check_stage("honest", "says the answer before anybody told it", lambda e: not leaks(e.trajectory)),
        sound_turns(sound),
    )


def sound_turns(sound: Callable[[Trajectory], Sequence[float]]) -> Stage:
    """Return the stage in which turns have the weights `sound`."""
    return weigh_stage("sound", "has no turn that the expert would have taken", sound)


def find_needed(tried: Sequence[Trajectory], shown: Sequence[Trajectory]) -> list[Trajectory]:
    """Return those of `shown` whose tasks no episode of `tried` solved."""
    known = {t.task.id for t in tried if t.is_success}
    return [t for t in shown if t.task.id not in known]


def sound_in(environment: str) -> Callable[[Trajectory], list[float]]:
    """Return what says of each turn whether it is what the expert of `environment` would have done, 1 or 0.

    Where the expert gives up, or the episode cannot be carried out again, the turn counts.
    """
    labels = ExpertLabels(environment, ask_expert)

    def sound(trajectory: Trajectory) -> list[float]:
        return [
            float(right is None or agreement(turn.action, right) == 1)
            for turn, right in zip(trajectory.turns, labels.labels(trajectory), strict=True)
        ]

    return sound


def leaks(trajectory: Trajectory, decode: Callable[[Sequence[int]], str]) -> bool:
    """Return whether a thought of `trajectory`, what is said beside its action, names the answer too early.

    Without an answer (`answers_of`) nothing can leak.
    """
    said = [
        (as_text(turn.observation), read_thought(turn, decode(turn.completion.token_ids)))
        for turn in trajectory.turns
    ]
    return any(tells_early(said, gold) for gold in answers_of(trajectory))


def answers_of(trajectory: Trajectory) -> list[str]:
    """Return what the episode was to find out: the task's ``answer``, and what its last action answers.

    An action answers that the environment calls an answer, or that calls the tool ``answer`` or begins with that word.
    A move, such as the last one of a walk, is none.
    """
    known = trajectory.task.data.get(ANSWER)
    found = [] if known is None else [str(known)]
    if not trajectory.turns:
        return found
    last = trajectory.turns[-1]
    calls = [call for call in last.action.tool_calls if call.name == ANSWER or last.is_answer]
    first, _, rest = last.action.text.strip().partition(" ")
    if calls:
        found += [str(value) for value in calls[-1].arguments.values()]
    elif not last.action.tool_calls and (first.lower() == ANSWER or last.is_answer):
        found.append(rest if first.lower() == ANSWER else last.action.text)
    return found


def read_thought(turn: Turn, text: str) -> str:
    """Return what stands beside the action of `turn` in its `text`: before its calls, or around its words."""
    if turn.action.tool_calls:
        begun = CALLS.search(text)
        return text if begun is None else text[: begun.start()]
    return text.replace(turn.action.text, " ") if turn.action.text else text


def tells_early(turns: Sequence[tuple[str, str]], gold: str) -> bool:
    """Return whether `gold` is said in a turn before it was read: words, not letters, so that 10 is not in 100.

    Args:
        turns: (what was read, what was then said) of each turn.
        gold: the answer; nothing tells an empty one.
    """
    wanted = words_of(gold)
    seen: list[str] = []
    for read, said in turns:
        seen += words_of(read)
        if wanted and stands_in(wanted, words_of(said)) and not stands_in(wanted, seen):
            return True
    return False


def words_of(text: str) -> list[str]:
    """Return the words and numbers of `text` in lower case, without marks."""
    return "".join(c if c.isalnum() else " " for c in text.lower()).split()


def stands_in(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether `wanted` stands in `words`, in one piece."""
    size = len(wanted)
    return any(list(words[k : k + size]) == list(wanted) for k in range(len(words) - size + 1))


def difficulty_gap(train: Sequence[Hashable], tasks: Sequence[Hashable]) -> float:
    """Return KL(difficulties of `train` ‖ of `tasks`) in nats: how far what is shown is from what is asked.

    Raises:
        DataError: there is nothing, or what is shown is of a difficulty that no task has.
    """
    shown, asked = Counter(train), Counter(tasks)
    if not shown or not shown.keys() <= asked.keys():
        raise DataError(
            f"difficulties: got {len(train)} shown, not all of which occur among {len(tasks)} tasks; give those of the "
            "tasks that were tried"
        )
    return sum(
        count / len(train) * log(count / len(train) / (asked[level] / len(tasks)))
        for level, count in shown.items()
    )
