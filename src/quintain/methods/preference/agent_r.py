"""Agent-R (arXiv 2501.11425): imitates the way back from its own mistakes, and what comes after.

L = -Σ log π(a_t | h_t).

For each task of a round a tree of episodes is grown by MCTS: Q + c·√(ln N / n) selects, and every way on is played to
its end. An episode stands beside the good one that parts from it last, where that is worth more by over `gap`. Its
first bad step after they part ends what is kept of it; then come the actions that lead back to where they parted, and
the good episode's rest. What was done wrong stays in the context without weight; the way back and the rest are
imitated, beside good episodes. An episode is good above `good`, which rises from round to round.

Differences to the paper: what follows a mistake is carried out in the environment and left out where it shows anything
else than the good episode, or where no way of `undo_turns` legal actions leads back; the paper puts the rest behind a
thought and an action ``wait``, as if nothing had happened, which is ``undo_turns=0``. The tree judges a step, by the
mean outcome of the episodes that went on from there, where the paper asks the policy for a verdict in words. An
episode has one partner, not all; there are no general conversations in the mixture. Children that nobody visited do not
occur. Measured on `web`; the paper has WebShop, ScienceWorld and TextCraft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, sqrt
from statistics import fmean
from typing import Literal

from quintain.agents.deliberation import describe_action
from quintain.agents.protocol import Brief
from quintain.config.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.data.pipeline import Pipeline, PipelineResult, Stage, filter_stage, name_of, weigh_turns
from quintain.data.seats import split_seats
from quintain.data.stages import outcome
from quintain.environments.catalog import find
from quintain.errors import DataError, EnvironmentFault
from quintain.learning.train_config import RoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, Needs
from quintain.rollout.corrections import states_in, way_back
from quintain.search.episodes import Episodes, trees_of
from quintain.search.tree import Seen, ValueTree
from quintain.search.tree_search import Budget, TreeSearch
from quintain.types import Action, Example, Group, Observation, Trajectory, Turn

Verdict = Literal["good", "bad", "uncertain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RoundsConfig):
    """Configuration of Agent-R."""

    environment: str = "web?goal=open&depth=2&popups=0&dead_ends=3"
    steps: int = 3
    """Rounds."""
    learning_rate: float = 1e-3
    eval_every: int = 1
    tasks: PositiveInt = 32
    """Tasks of a round, a tree each."""
    branches: PositiveInt = 4
    """Ways on from a state."""
    expansions: PositiveInt = 4
    """Times that a tree is grown, the first one from its root included."""
    exploration: PositiveFloat = 0.25
    """c of Q + c·√(ln N / n)."""
    good: tuple[float, ...] = (0.5, 0.7, 0.9)
    """α: outcome above which an episode is good, round by round; the last one stays."""
    gap: NonNegativeFloat = 0.2
    """β: by how much more it is worth than the one that it is to put right."""
    drop: Share = 0.5
    """A step is bad where the state after it is worth less than that before it by over this share."""
    undo_turns: NonNegativeInt = 1
    """Most actions of a way back; 0: none, as published."""
    keep: PositiveInt = 2
    """Good episodes of a task that are imitated as well, different ones of fewest turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A failure up to its first bad step, and how it is put right: ``Revision(failed=f, until=2, good=g, begin=1)``."""

    failed: Trajectory
    until: int
    """turns of it that are kept, the last one bad"""
    good: Trajectory
    begin: int
    """turns that both have in common"""
    back: tuple[Action, ...] = ()
    """what leads back to where they parted"""

    @property
    def beginning(self) -> tuple[str, tuple[str, ...]]:
        """The task, and what was done up to the mistake."""
        return self.failed.task.id, actions_of(self.failed)[: self.until]

    @property
    def script(self) -> tuple[Action, ...]:
        """What is done after the mistake."""
        return (*self.back, *(turn.action for turn in self.good.turns[self.begin :]))


def method(config: Config) -> Rounds:
    """Return Agent-R as `config` describes it."""
    has_way_back = config.undo_turns > 0
    return Rounds(
        collect=lambda collector, step: Revisions(config, good_at(config, step)).collect(collector, step),
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        needs=Needs(
            branches=True, snapshots=has_way_back, state_keys=has_way_back, legal_actions=has_way_back
        ),
    )


def good_at(config: Config, step: int) -> float:
    """Return the outcome above which an episode is good in round `step`."""
    return config.good[min(step, len(config.good)) - 1]


@dataclass(slots=True)
class Revisions:
    """What of a round's failures is put right, carried out: ``Revisions(config, 0.5).collect(collector, step)``."""

    config: Config
    good: float
    """outcome above which an episode is good in this round"""
    examples: list[Example] = field(default_factory=list[Example])
    num_failures: int = 0
    """episodes that have a good one beside them"""
    num_lost: int = 0
    """of which no step is bad, or the last one, or from where no way leads back"""
    num_other: int = 0
    """after which the environment showed something else"""

    def collect(self, collector: Collector, step: int) -> Collected:
        """Return the episodes of a tree for each task of a round, and put right what failed in it."""
        config = self.config
        trees = [
            ValueTree(
                Seen(key=task.id, text="", place=task),
                lambda _: 0.0,
                exploration=config.exploration / sqrt(2),
                mixing=1.0,
                gate=inf,
            )
            for task in collector.tasks(step, config.tasks)
        ]
        ground = Episodes(player=collector, step=step, size=config.branches)
        TreeSearch(trees=trees, ground=ground, budget=Budget(rounds=config.expansions)).run()
        groups = trees_of(ground.groups)
        self.put_right(collector, step, groups)
        return Collected(groups=groups, data=[self.build(split_seats(groups))], metrics=self.measure())

    def put_right(self, collector: Collector, step: int, groups: Sequence[Group]) -> None:
        """Carry out how the failures of `groups` are put right, and keep what repeats."""
        found = self._find_revisions(groups)
        walks = collector.replay_episodes([each.failed for each in found])
        played = collector.continue_from(
            step,
            [walk.prefix(each.until) for walk, each in zip(walks, found, strict=True)],
            size=1,
            seed=collector.seed("revised", step),
            phase="revised",
            teacher=Scripted.of(found),
        )
        made = [
            (each, t)
            for each, group in zip(found, played, strict=True)
            for t in group.scored
            if repeats(each, t)
        ]
        self.num_other = len(found) - len(made)
        self.examples = [example_of(each, t) for each, t in made]

    def _find_revisions(self, groups: Sequence[Group]) -> list[Revision]:
        """Return how failures are put right, no beginning twice."""
        config, make = self.config, find(self.config.environment)
        states = states_in(make)
        self.num_failures = self.num_lost = 0
        found: dict[tuple[str, tuple[str, ...]], Revision] = {}
        for tree in trees_of(groups):
            for failed, good in partners(tree.scored, good=self.good, gap=config.gap):
                self.num_failures += 1
                begin = num_common(failed, good)
                until = first_bad(verdicts(tree.scored, failed, config.drop), begin)
                if until is None or until >= len(failed.turns):
                    self.num_lost += 1
                    continue
                back: tuple[Action, ...] | None = ()
                if config.undo_turns:
                    try:
                        back = way_back(make, failed, until, states(good)[begin], most=config.undo_turns)
                    except (DataError, EnvironmentFault):  # an episode that does not repeat
                        back = None
                if back is None:
                    self.num_lost += 1
                    continue
                each = Revision(failed=failed, until=until, good=good, begin=begin, back=back)
                found.setdefault(each.beginning, each)
        return list(found.values())

    def build(self, groups: Sequence[Group]) -> PipelineResult:
        """Return what is imitated: good episodes, and failures put right."""
        return Pipeline(
            filter_stage(
                "good",
                f"is worth {self.good:g} or less, repeats another, or is not among the {self.config.keep} shortest",
                lambda given: [
                    replace(tree, trajectories=shortest(tree.scored, self.good, self.config.keep))
                    for tree in trees_of(given)
                ],
            ),
            Stage(
                name="revised",
                says="stays, and failures that were put right come to it",
                apply=lambda examples: [*examples, *self.examples],
            ),
        )(groups)

    def measure(self) -> Mapping[str, float]:
        """Return how many failures stood beside a good episode, and what became of them."""
        return {
            "agent_r/failures": float(self.num_failures),
            "agent_r/revised": float(len(self.examples)),
            "agent_r/no_way_back": float(self.num_lost),
            "agent_r/shows_other": float(self.num_other),
        }


def partners(tree: Sequence[Trajectory], *, good: float, gap: float) -> list[tuple[Trajectory, Trajectory]]:
    """Return each episode with the one above `good` that parts from it last, worth more by over `gap`.

    One with an invalid action puts nothing right. Of those that part at the same turn the best, then the shortest,
    then the first.
    """
    found: list[tuple[Trajectory, Trajectory]] = []
    sound = [t for t in tree if outcome(t) > good and all(turn.is_valid for turn in t.turns)]
    for failed in tree:
        better = [t for t in sound if outcome(t) - outcome(failed) > gap]
        if better:
            nearest = max(better, key=lambda t: (num_common(failed, t), outcome(t), -len(t.turns)))
            found.append((failed, nearest))
    return found


def verdicts(tree: Sequence[Trajectory], path: Trajectory, drop: float) -> list[Verdict]:
    """Return what the episodes of a tree say of each step of `path`, one of them.

    A state is worth the mean outcome of the episodes that went through it. A step is bad where it loses over `drop` of
    that, good where it loses nothing. Example, drop .5: worths .5, .5, .2, 0 → good, bad, bad.
    """
    own = actions_of(path)
    said = [(actions_of(t), outcome(t)) for t in tree]
    worth = [
        fmean(value for actions, value in said if actions[:turns] == own[:turns])
        for turns in range(len(own) + 1)
    ]
    return [
        "bad" if after < (1 - drop) * before else "good" if after >= before else "uncertain"
        for before, after in pairwise(worth)
    ]


def first_bad(found: Sequence[Verdict], begin: int) -> int | None:
    """Return how many turns end with the first bad one from turn `begin` on, which is kept; None without one."""
    return next((turn + 1 for turn in range(begin, len(found)) if found[turn] == "bad"), None)


def shortest(tree: Sequence[Trajectory], good: float, count: int) -> tuple[Trajectory, ...]:
    """Return up to `count` episodes above `good` that differ in what was done, those of fewest turns."""
    different: dict[tuple[str, ...], Trajectory] = {}
    for t in sorted(tree, key=lambda t: len(t.turns)):
        if outcome(t) > good:
            different.setdefault(actions_of(t), t)
    return tuple(different.values())[:count]


def actions_of(trajectory: Trajectory) -> tuple[str, ...]:
    """Return what was done in each turn."""
    return tuple(describe_action(turn.action) for turn in trajectory.turns)


def num_common(one: Trajectory, other: Trajectory) -> int:
    """Return how many turns both begin with."""
    same = [a == b for a, b in zip(actions_of(one), actions_of(other), strict=False)]
    return same.index(False) if False in same else len(same)


@dataclass(frozen=True, slots=True)
class Scripted:
    """The teacher who does after each mistake what puts it right, and no more: ``Scripted.of(revisions)``."""

    following: Mapping[tuple[str, tuple[str, ...]], Action]
    """task and what was done in it so far → what is done next"""

    @classmethod
    def of(cls, revisions: Sequence[Revision]) -> Scripted:
        """Return the teacher of `revisions`; where two go on differently from the same, the first counts."""
        found: dict[tuple[str, tuple[str, ...]], Action] = {}
        for each in revisions:
            task, done = each.beginning
            for action in each.script:
                found.setdefault((task, done), action)
                done = (*done, describe_action(action))
        return cls(found)

    def answer(self, brief: Brief, turns: Sequence[Turn], observation: Observation) -> Action:
        """See `DialogueTeacher`."""
        done = tuple(describe_action(turn.action) for turn in turns if not turn.is_internal)
        return self.following.get((brief.task.id, done), Action(text=(*brief.legal_actions, "")[0]))


def repeats(revision: Revision, made: Trajectory) -> bool:
    """Return whether `made` shows after the way back what the good episode showed, and is worth the same."""
    tail = made.turns[revision.until + len(revision.back) :]
    good = revision.good
    rest = good.turns[revision.begin :]
    return (
        len(tail) == len(rest)
        and outcome(made) == outcome(good)
        and made.final_observation == good.final_observation
        and all(one.observation == other.observation for one, other in zip(tail[1:], rest[1:], strict=True))
    )


def example_of(revision: Revision, made: Trajectory) -> Example:
    """Return what is imitated of `made`: all but what was done wrong."""
    example = Example(trajectory=made, sources=(name_of(revision.failed), name_of(revision.good)))
    return weigh_turns(example, [0.0] * revision.until + [1.0] * (len(made.turns) - revision.until))
