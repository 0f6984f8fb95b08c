"""E2CL (arXiv 2409.03256): imitates plans, what comes of actions, and corrections of wrong ones.

L = -Σ log π over plans, what comes of actions, and better ones.

The policy acts through `foresight`: it drafts an action, says what the environment would answer, and where that is an
error it does something else. It imitates the expert first. Then it explores: at every step of the expert's episodes,
and in episodes of its own, its drafts are tried in the environment. Of an error it is taught what the environment says
of it (state, draft → feedback) and what the expert does there (state, draft, feedback → action), of another draft
that it is fine; the draft itself has no weight. With `onward` the expert goes on for so many actions after a
correction, in the same conversation, and is imitated there as well. All this is imitated together with the expert's
episodes; the learning rate falls to 0 over the updates of a round.

Differences to the paper: the three kinds of answer stand in one conversation (`quintain.agents.foresight`), where the
paper has a prompt for each with the state alone, in which what comes after a correction looks like any other step;
`onward` is for that: with 0 no draft after a correction is ever imitated. Drafts without an error are taught as well,
so that the word for them is not that of the expert's actions alone; the correction in episodes of its own is that of
the environment's expert where it is carried out, where the paper asks GPT-4o, and another model whether that would be
carried out; feedback is the first sentence that the environment says. Nothing is cut to eight tokens. Measured on
`house`; the paper has VirtualHome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from quintain.agents.deliberation import describe_action
from quintain.agents.foresight import FINE
from quintain.agents.protocol import Brief
from quintain.config.ranges import NonNegativeInt, PositiveInt
from quintain.data.pipeline import Pipeline, PipelineResult, Stage, name_of, weigh_turns
from quintain.environments.protocol import Environment
from quintain.errors import ConfigError, EnvironmentFault
from quintain.learning.train_config import ExploringConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Collected, OptimizerSteps, Rounds
from quintain.methods.method import Collector, Needs
from quintain.rollout.corrections import TriedProposal, lead_on, try_proposals
from quintain.types import (
    Action,
    Example,
    Group,
    Observation,
    Trajectory,
    Turn,
    as_content,
    as_text,
    flatten_scored,
)

HARNESS = "foresight"
"""The wrapper that asks what would come of a draft; the configuration's agent has it in front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ExploringConfig):
    """Configuration of E2CL."""

    environment: str = "house?kind=put&errors=typed"
    agent: str = f"{HARNESS}+text"
    tasks: NonNegativeInt = 32
    """Tasks of a round that the policy plays by itself, an episode each."""
    onward: NonNegativeInt = 20
    """Actions of the expert after a correction that are imitated, in the same conversation; the claim has none."""
    batch_size: PositiveInt = 30
    """Episodes of an optimizer step."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ExploringConfig.check(self)
        if self.agent.split("+")[0].split("?")[0] != HARNESS:
            raise ConfigError(
                f"agent: got {self.agent}, which foretells nothing; put {HARNESS}+ in front of it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A draft that was tried: ``Lesson(episode=t, turn=4, draft=a, feedback="closed", right=b)``."""

    episode: Trajectory
    turn: int
    """of the episode, the draft that this one stands for"""
    draft: Action
    feedback: str
    """what the environment says of it; `FINE` where it is carried out"""
    right: Action
    """what is done then: the draft itself, or what the expert does"""
    then: tuple[Action, ...] = ()
    """what the expert does after that, and is imitated in"""

    @property
    def place(self) -> tuple[str, tuple[str, ...]]:
        """The task, and what was done before."""
        return self.episode.task.id, list_actions(self.episode.turns[: self.turn])

    @property
    def said(self) -> tuple[Action, ...]:
        """The draft, what would come of it, and another action where that is an error."""
        if self.feedback == FINE:
            return self.draft, Action(text=FINE)
        return self.draft, Action(text=self.feedback), self.right


def method(config: Config) -> Rounds:
    """Return E2CL as `config` describes it."""
    return Rounds(
        collect=lambda collector, step: Explored(config).collect(collector, step),
        base=lambda collector: collector.demonstrations(),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        steps=OptimizerSteps(count=lambda _: config.updates, batch_size=config.batch_size, falls=True),
        needs=Needs(branches=True, expert=True, snapshots=True),
    )


@dataclass(slots=True)
class Explored:
    """The drafts of a round that were tried: ``Explored(config).collect(collector, step)``."""

    config: Config
    lessons: list[Lesson] = field(default_factory=list[Lesson])
    examples: list[Example] = field(default_factory=list[Example])
    num_drafts: int = 0

    def collect(self, collector: Collector, step: int) -> Collected:
        """Return a step of the policy's at each of the expert's, and episodes of its own; try all drafts."""
        shown = [t for t in collector.demonstrations() if t.is_success]
        tasks = self.config.tasks
        own = collector.sample(step, collector.tasks(step, tasks), size=1) if tasks else []
        groups = [*self.explore(collector, step, shown, flatten_scored(own)), *own]
        return Collected(groups=groups, data=[self.build()], metrics=self.measure())

    def explore(
        self, collector: Collector, step: int, shown: Sequence[Trajectory], own: Sequence[Trajectory] = ()
    ) -> list[Group]:
        """Let the policy draft at each step that was `shown`, try these drafts and those of its `own`, write lessons.

        What the policy did at the steps is returned.
        """
        groups: list[Group] = []
        drafted: dict[int, dict[int, Action]] = {}
        places = [(t, turn) for t in shown for turn in drafts_of(t)]
        for again, length in enumerate(sorted({turn for _, turn in places})):
            same = [t for t, turn in places if turn == length]
            found = collector.continue_from(
                step,
                [walk.prefix(length) for walk in collector.replay_episodes(same)],
                size=1,
                seed=collector.seed("explored", step, length),
                max_turns=num_done(same[0], length) + 1,
                phase="drafts",
                again=again,
            )
            for t, group in zip(same, found, strict=True):
                for each in group.scored:
                    drafted.setdefault(id(t), {})[length] = each.turns[length].action
            groups += found
        for t in own:
            drafted[id(t)] = {turn: t.turns[turn].action for turn in drafts_of(t)}
        self.num_drafts = sum(map(len, drafted.values()))
        make, known = collector.expert_environment, dict[tuple[str, tuple[str, ...]], Lesson]()
        is_recorded = isinstance(self.config.demonstrations, str)
        for t in (*shown, *own):
            for lesson in lessons_of(make, t, drafted.get(id(t), {})):
                # Beside its own way a recorded expert gives no advice but what solves the task from there.
                if not is_recorded or is_borne_out(make, lesson):
                    known.setdefault(lesson.place, lesson)
        self.lessons = [go_on(make, lesson, self.config.onward) for lesson in known.values()]
        self.examples = self._write_lessons(collector, step)
        return groups

    def _write_lessons(self, collector: Collector, step: int) -> list[Example]:
        """Return the lessons as the policy would have written them."""
        examples: list[Example] = []
        lengths = {id(x): (x.turn, num_done(x.episode, x.turn), len(x.then)) for x in self.lessons}
        for again, length in enumerate(sorted(set(lengths.values()))):
            turn, done, after = length
            same = [x for x in self.lessons if lengths[id(x)] == length]
            written = collector.continue_from(
                step,
                [walk.prefix(turn) for walk in collector.replay_episodes([x.episode for x in same])],
                size=1,
                max_turns=done + 1 + after,
                phase="lessons",
                teacher=Told.of(same),
                again=again,
            )
            for lesson, group in zip(same, written, strict=True):
                examples += [example_of(lesson, t) for t in group.scored]
        return examples

    def build(self) -> PipelineResult:
        """Return what is imitated beside the expert's episodes."""
        return Pipeline(
            Stage(name="lessons", says="are drafts that were tried", apply=lambda examples: examples)
        ).run(self.examples)

    def measure(self) -> Mapping[str, float]:
        """Return how many drafts were tried, and how many of what is taught are errors."""
        errors = sum(lesson.feedback != FINE for lesson in self.lessons)
        return {
            "e2cl/drafts": float(self.num_drafts),
            "e2cl/lessons": float(len(self.lessons)),
            "e2cl/errors": float(errors),
        }


@dataclass(frozen=True, slots=True)
class Told:
    """The teacher who drafts what the policy drafted, says what comes of it, and goes on: ``Told.of(lessons)``."""

    following: Mapping[tuple[str, tuple[str, ...]], Lesson]
    after: Mapping[str, Lesson]
    """the lesson of each task"""

    @classmethod
    def of(cls, lessons: Sequence[Lesson]) -> Told:
        """Return the teacher of `lessons`, each of a task of its own."""
        return cls({lesson.place: lesson for lesson in lessons}, {x.episode.task.id: x for x in lessons})

    def answer(self, brief: Brief, turns: Sequence[Turn], observation: Observation) -> Action:
        """See `DialogueTeacher`."""
        done = list_actions(turns)
        if (lesson := self.following.get((brief.task.id, done))) is not None:
            return lesson.said[since_done(turns)]
        lesson = self.after[brief.task.id]
        return lesson.then[len(done) - num_done(lesson.episode, lesson.turn) - 1]


def lessons_of(
    make: Callable[[], Environment], episode: Trajectory, drafts: Mapping[int, Action]
) -> list[Lesson]:
    """Return what `drafts`, by the turns of an episode that they stand for, teach; nothing where it does not repeat."""
    try:
        outcomes = try_proposals(make, episode, drafts)
    except EnvironmentFault:
        return []
    found = (lesson_of(episode, turn, drafts[turn], each) for turn, each in outcomes.items())
    return [lesson for lesson in found if lesson is not None]


def is_borne_out(make: Callable[[], Environment], lesson: Lesson) -> bool:
    """Return whether a draft is fine, or the task is solved by what is to be done instead and the expert after it."""
    return lesson.feedback == FINE or lead_on(make, lesson.episode, lesson.turn, lesson.right) is not None


def go_on(make: Callable[[], Environment], lesson: Lesson, onward: int) -> Lesson:
    """Return `lesson` with what the expert does after its correction, `onward` actions at most.

    Nothing follows where the draft is fine, or where the expert does not solve the task from there.
    """
    if lesson.feedback == FINE or not onward:
        return lesson
    way = lead_on(make, lesson.episode, lesson.turn, lesson.right) or ()
    return replace(lesson, then=way[1 : onward + 1])


def lesson_of(episode: Trajectory, turn: int, draft: Action, each: TriedProposal) -> Lesson | None:
    """Return what a draft teaches; None where it cannot be read, or where nothing right is known instead.

    A correction must be another action than the draft, and what is said of it other words: the harness takes a draft
    that is said again to be in order.
    """
    if draft.error is not None:
        return None
    feedback = feedback_of(each.result.observation, is_valid=each.result.is_valid)
    if feedback == describe_action(draft):
        return None
    if feedback == FINE:
        return Lesson(episode=episode, turn=turn, draft=draft, feedback=FINE, right=draft)
    right = each.right
    if right is None or describe_action(right) == describe_action(draft):
        return None
    return Lesson(episode=episode, turn=turn, draft=draft, feedback=feedback, right=right)


def feedback_of(observation: Observation, *, is_valid: bool) -> str:
    """Return what is said of an action: `FINE`, or the first sentence of the answer to one without effect.

    Example: "Hands full. table: mug" → "hands full".
    """
    return FINE if is_valid else as_text(as_content(observation)).partition(". ")[0].rstrip(".").lower()


def example_of(lesson: Lesson, written: Trajectory) -> Example:
    """Return what is imitated of a written lesson: what came of the draft, what was done instead, and what after."""
    example = Example(trajectory=written, sources=(name_of(lesson.episode),))
    taught = len(written.turns) - lesson.turn - 1
    return weigh_turns(example, [0.0] * (lesson.turn + 1) + [1.0] * taught)


def drafts_of(trajectory: Trajectory) -> list[int]:
    """Return the turns of an episode that are drafts."""
    return [number for number, turn in enumerate(trajectory.turns) if turn.seat.endswith("/draft")]


def list_actions(turns: Sequence[Turn]) -> tuple[str, ...]:
    """Return what was carried out in `turns`."""
    return tuple(describe_action(turn.action) for turn in turns if not turn.is_internal)


def num_done(trajectory: Trajectory, turns: int) -> int:
    """Return how many of the first `turns` turns were carried out."""
    return len(list_actions(trajectory.turns[:turns]))


def since_done(turns: Sequence[Turn]) -> int:
    """Return how many turns there were since something was carried out."""
    count = 0
    for turn in reversed(turns):
        if not turn.is_internal:
            break
        count += 1
    return count
