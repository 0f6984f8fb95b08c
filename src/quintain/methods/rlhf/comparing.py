"""A reward out of comparisons, learned while the policy learns: query, label, reward models, turn rewards.

What was asked and answered stands in one file of labels (`quintain.data.labels`), by whoever it was answered: a
synthetic labeller, or people who run ``quintain label`` while the run waits. A step's questions depend on the run's
seed, its episodes and its members alone, so that a resumed run asks the same and finds the answers that were given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean

import numpy as np

from quintain.data.comparisons import Labeller, comparison_samples
from quintain.data.labels import Choice, Query
from quintain.data.messages import to_record
from quintain.environments.boundary import ask
from quintain.errors import ConfigError, DataError
from quintain.eval.reward_model import agreement, by_dispute, ensemble_rewards, refuse_constant
from quintain.learning.labelling import FILE, Session
from quintain.learning.policies import Policies
from quintain.learning.train_config import OnPolicyConfig, TrainConfig
from quintain.learning.update import Update, learn_in_epochs
from quintain.methods.loops.on_policy import Companion
from quintain.methods.loops.waiting import wait_for_answers
from quintain.models.families import longest_stream
from quintain.rollout.views import seats_of
from quintain.runs.context import TrainingContext
from quintain.text.chat import Chat
from quintain.types import Comparison, Group, Sample, Score, Trajectory, as_text, derive_seed
from quintain.types.plain import mean_of
from quintain.warm_start.demonstrations import teller

SYNTHETIC, ASK = "synthetic", "ask"
TERM = "learned"
"""Reward term of what the members pay."""
SOURCE = re.compile(r"(\d+)/(\d+)/(\d+)-(\d+)/(.*)", re.DOTALL)
"""How `Segment.source` names a segment."""

PLAIN = Labeller()
"""A labeller who never errs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedReward:
    """A reward that people teach while the policy learns: ``LearnedReward(members=("reward_1", "reward_2"), …)``.

    Segments of episodes are compared, an ensemble of reward models is fitted to the answers, and turns are paid what it
    says (Deep RL from Human Preferences, arXiv 1706.03741).
    """

    members: tuple[str, ...]
    """policies with a value head that are trained, see `Needs.others`"""
    queries: Callable[[int], int]
    """step → comparisons that are asked for before it; 1 or more at step 1"""
    update: Update
    """how members learn from the answers, in epochs of minibatches of `batch_size`"""
    labels: str = "synthetic"
    """who answers: ``synthetic``, ``ask`` (people, in the run's folder), or the file in which people do"""
    labeller: Labeller = PLAIN
    """answers by the environment's turn rewards, where nobody is asked"""
    patience: float = 24.0
    """hours that a step waits for people"""
    segment: int = 4
    """turns of a side"""
    sees_history: bool = False
    """whether a turn is scored after all that came before it; else by what was observed and done in it alone"""
    candidates: int = 8
    """pairs that are drawn for every one that is asked for, which are those that the members differ on most; 1: none is
    chosen"""
    memory: int = 512
    """newest episodes out of which segments are drawn"""
    batch_size: int = 16
    """comparisons of a minibatch"""
    rate: float = 1.0
    """factor on the learning rate"""

    @property
    def own_rates(self) -> tuple[str, ...]:
        """The reward models, which learn at rates of their own."""
        return self.members

    @property
    def has_teacher(self) -> bool:
        """Answers say which is better, and not what to do."""
        return False

    def start(self, context: TrainingContext, config: OnPolicyConfig) -> ComparedReward:
        """Return what a run asks and pays."""
        return ComparedReward(self, context)


@dataclass(frozen=True, slots=True)
class Segment:
    """Some turns of an episode: ``Segment(trajectory, 4, 8, step=3)`` are the fifth to the eighth of one of step 3."""

    trajectory: Trajectory
    start: int
    end: int
    step: int

    @property
    def source(self) -> str:
        """Where it comes from, as a question says it, the same in every run: step, index, turns and group."""
        return f"{self.step}/{self.trajectory.index}/{self.start}-{self.end}/{self.trajectory.group}"

    @property
    def turns(self) -> Trajectory:
        """The episode of these turns alone, which ends with what was seen after them."""
        t = self.trajectory
        seen = t.turns[self.end].observation if self.end < len(t.turns) else t.final_observation
        return replace(t, turns=t.turns[self.start : self.end], final_observation=seen)

    @property
    def reward(self) -> float:
        """What the environment paid in these turns."""
        return sum(turn.reward for turn in self.trajectory.turns[self.start : self.end])


def split_turns(trajectory: Trajectory) -> Trajectory:
    """Return `trajectory` with every turn as a stream of its own: what was observed and done in it, and no history."""
    return replace(trajectory, turns=tuple(replace(turn, starts_segment=True) for turn in trajectory.turns))


def draw_segments(
    episodes: Sequence[tuple[int, Trajectory]], *, size: int, count: int, rng: np.random.Generator
) -> list[tuple[Segment, Segment]]:
    """Return `count` pairs of segments of exactly `size` turns, drawn with equal chances from all of `episodes`.

    These are (step, episode).

    Raises:
        DataError: no episode is so long.
    """
    places = [(k, start) for k, (_, t) in enumerate(episodes) for start in range(len(t.turns) - size + 1)]
    if len(places) < 2:
        longest = max((len(t.turns) for _, t in episodes), default=0)
        raise DataError(
            f"segments of {size} turns: got {len(episodes)} episodes of at most {longest}; lower segment"
        )

    def draw() -> Segment:
        k, start = places[int(rng.integers(len(places)))]
        step, trajectory = episodes[k]
        return Segment(trajectory, start, start + size, step)

    return [(draw(), draw()) for _ in range(count)]


class Members:
    """The reward models of an ensemble, fitted to comparisons: ``Members(policies, plan, config).fit(found, …)``."""

    def __init__(self, policies: Policies, plan: LearnedReward, config: TrainConfig) -> None:
        self.policies, self.plan, self.config = policies, plan, config
        self.compared: list[list[float]] = []
        """[member] → what it says of every turn that was compared, since they were fitted last"""

    def fit(self, comparisons: Sequence[Comparison], *, step: int, seed: int) -> dict[str, float]:
        """Fit every member anew to as many of `comparisons` as there are, drawn with replacement; return how it went.

        Every member begins with its starting weights: what it believed of earlier answers is not kept. Agreement is
        measured out of the bag, on comparisons that a member has not learned from.
        """
        plan = self.plan
        update = replace(plan.update, num_minibatches=max(1, round(len(comparisons) / plan.batch_size)))
        losses, agree = list[float](), list[float]()
        for name in plan.members:
            policy = self.policies[name]
            policy.start_over()
            bag = np.random.default_rng(derive_seed(seed, name, "bag")).integers(
                len(comparisons), size=len(comparisons)
            )
            report = learn_in_epochs(
                self.policies,
                self._samples([comparisons[k] for k in bag.tolist()], name),
                update,
                self.config,
                step=step,
                seed=derive_seed(seed, name),
                policy=name,
                rate=plan.rate,
            )
            assert report is not None, "there is something to learn from"
            losses.append(report.loss)
            out = [
                c
                for k, c in enumerate(comparisons)
                if k not in set(bag.tolist()) and c.ranks[0] != c.ranks[1]
            ]
            if out:
                agree.append(agreement(self._sums(name, out), out))
        self.look(comparisons)
        return {
            "reward_model/loss": mean_of(losses),
            **({"reward_model/agreement": fmean(agree)} if agree else {}),
        }

    def look(self, comparisons: Sequence[Comparison]) -> None:
        """Note what the members say of the turns of `comparisons`, by which rewards are normalised.

        Raises:
            ModelError: one of them says the same of all.
        """
        sides = [side for comparison in comparisons for side in comparison.answers]
        self.compared = [
            [score for turns in self.scores(name, sides) for score in turns] for name in self.plan.members
        ]
        for name, scores in zip(self.plan.members, self.compared, strict=True):
            refuse_constant(scores, of=f"reward model {name}")

    def pay(self, groups: Sequence[Group]) -> list[Group]:
        """Return `groups` whose scored episodes are paid by turn what the members say; whether they succeeded stays."""
        trajectories = [t for group in groups for t in group.scored]
        scores = [
            [score for turns in self.scores(name, trajectories) for score in turns]
            for name in self.plan.members
        ]
        rewards = iter(ensemble_rewards(scores, self.compared) if trajectories else [])
        paid = {id(t): pay_turns(t, list(islice(rewards, len(t.turns)))) for t in trajectories}
        return [replace(g, trajectories=tuple(paid.get(id(t), t) for t in g.trajectories)) for g in groups]

    def differences(self, pairs: Sequence[tuple[Segment, Segment]]) -> list[list[float]]:
        """Return by how much the sum over the first side is above that over the second, [member][pair]."""
        asked = [Comparison(answers=(one.turns, other.turns), ranks=(0.0, 0.0)) for one, other in pairs]
        return [[first - second for first, second in self._sums(name, asked)] for name in self.plan.members]

    def scores(self, name: str, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Return what the member `name` says of each turn, [trajectory][turn]."""
        read = trajectories if self.plan.sees_history else [split_turns(t) for t in trajectories]
        return self.policies[name].turn_scores(read)

    def _sums(self, name: str, comparisons: Sequence[Comparison]) -> list[list[float]]:
        sides = [side for comparison in comparisons for side in comparison.answers]
        sums = iter([sum(turns) for turns in self.scores(name, sides)])
        return [list(islice(sums, len(comparison.answers))) for comparison in comparisons]

    def _samples(self, comparisons: Sequence[Comparison], name: str) -> list[Sample]:
        if not self.plan.sees_history:
            comparisons = [replace(c, answers=tuple(map(split_turns, c.answers))) for c in comparisons]
        return comparison_samples(
            comparisons, by="turn", max_length=longest_stream(self.policies[name].model)
        )


def pay_turns(trajectory: Trajectory, rewards: Sequence[float]) -> Trajectory:
    """Return `trajectory` with `rewards` of its turns, and their sum as its outcome."""
    turns = tuple(
        replace(turn, reward=reward, reward_terms={**turn.reward_terms, TERM: reward})
        for turn, reward in zip(trajectory.turns, rewards, strict=True)
    )
    return replace(
        trajectory, turns=turns, outcome=Score(value=sum(rewards), is_success=trajectory.is_success)
    )


class ComparedReward(Companion):
    """What a run asks, what it was answered, and what it pays; a `State`.

    Raises:
        ConfigError: several seats act, whose turns nobody compares.
    """

    def __init__(self, plan: LearnedReward, context: TrainingContext) -> None:
        self.plan, self.context = plan, context
        if len(seats := ask(context.make_environment, seats_of)) > 1:
            raise ConfigError(
                f"environment {context.config.environment}: got the seats {', '.join(seats)}, whose turns cannot be "
                "compared; use one of one seat"
            )
        self.members = Members(context.policies, plan, context.config)
        is_ours = plan.labels in (SYNTHETIC, ASK)
        self.session = Session(context.run.folder / FILE if is_ours else Path(plan.labels), SYNTHETIC)
        self.recent: list[tuple[int, Trajectory]] = []
        """(step, episode)"""
        self._step = 0
        self._known: dict[int, dict[tuple[int, str], Trajectory]] = {}
        chat, told = Chat(context.tokenizer), teller(context.config.environment)

        def write(segment: Segment) -> Mapping[str, object]:
            own = segment.turns
            record = to_record(own, chat.text, told=told(own), is_compared=True)
            kept = {key: record[key] for key in ("messages", "tools", "task") if key in record}
            return {**kept, "end": as_text(own.final_observation)}

        self._write = write

    def update(self, groups: Sequence[Group]) -> None:
        """Take in the recorded groups of the next step."""
        self._step += 1
        fresh = [(self._step, t) for group in groups for t in group.scored]
        self.recent = [*self.recent, *fresh][-self.plan.memory :]

    def pay(self, step: int, groups: Sequence[Group]) -> tuple[list[Group], dict[str, float]]:
        """Ask what is due at `step`, fit the members to all answers, and return `groups` paid by them, and metrics."""
        found: dict[str, float] = {}
        if count := self.plan.queries(step):
            queries = self._draw(step, count)
            self.session.ask(queries)
            if self.plan.labels == SYNTHETIC:
                self._answer(queries)
            else:
                wanted = {query.id for query in queries}
                wait_for_answers(self.context, self.session, wanted, step=step, hours=self.plan.patience)
            comparisons = self._comparisons(step)
            if not comparisons:
                raise DataError(
                    f"labels of step {step} in {self.session.file}: got none by which one of two sides is better, or "
                    "as good; label more, and compare what can be compared"
                )
            found = self.members.fit(comparisons, step=step, seed=self.context.seed("fit", step))
            found["labels/asked"] = float(len(queries))
        elif not self.members.compared:
            self.members.look(self._comparisons(step))
        labels = self.session.labels
        paid = self.members.pay(groups)
        return paid, {
            **found,
            **correlation(groups, paid),
            "labels/used": float(len(self._comparisons(step))),
            "labels/contradicting": float(len(labels.contradicting)),
        }

    def _draw(self, step: int, count: int) -> list[Query]:
        """Return `count` questions of `step`: of many pairs those on which the members differ most; at first any."""
        rng = np.random.default_rng(self.context.seed("queries", step))
        pairs = draw_segments(
            self.recent, size=self.plan.segment, count=count * max(self.plan.candidates, 2), rng=rng
        )
        if self.plan.candidates > 1 and self.members.compared:
            pairs = [pairs[place] for place in by_dispute(self.members.differences(pairs))]
        note, known = f"step {step}", self.session.labels.queries
        found: dict[str, Query] = {}
        for one, other in pairs:
            first, second = self._write(one), self._write(other)
            if first["messages"] == second["messages"]:
                continue
            query = Query.of(first, second, (one.source, other.source), note=note)
            if query.id not in known or known[query.id].note == note:
                found.setdefault(query.id, query)
            if len(found) == count:
                break
        return list(found.values())

    def _answer(self, queries: Sequence[Query]) -> None:
        """Let the synthetic labeller answer `queries` by what the environment paid."""
        choices: dict[str, Choice] = {}
        for query in queries:
            one, other = (self._segment(source) for source in query.sources)
            ranks = self.plan.labeller.rank((one.reward, other.reward), self.context.config.seed, query.id)
            choices[query.id] = (
                "tie" if ranks[0] == ranks[1] else "first" if ranks[0] > ranks[1] else "second"
            )
        self.session.answer_all(choices)

    def _comparisons(self, step: int) -> list[Comparison]:
        """Return what was answered to the questions of all steps until `step`; opposite answers are left out."""
        labels = self.session.labels
        found: list[Comparison] = []
        for id, share in labels.shares.items():
            query = labels.queries[id]
            asked = query.note.removeprefix("step ")
            if asked.isdecimal() and int(asked) <= step:
                sides = tuple(self._segment(source).turns for source in query.sources)
                found.append(Comparison(answers=sides, ranks=(share, 1 - share)))
        return found

    def _segment(self, source: str) -> Segment:
        """Return the segment that `source` names."""
        found = SOURCE.fullmatch(source)
        step, index, start, end = (int(part) for part in found.groups()[:4]) if found else (0, 0, 0, 0)
        if step not in self._known:
            played = self.context.run.trajectories(step=step, phase="train")
            self._known[step] = {(t.index, t.group): t for t in played}
        trajectory = self._known[step].get((index, found[5])) if found else None
        if trajectory is None or not start < end <= len(trajectory.turns):
            raise DataError(
                f"source {source!r} of a question in {self.session.file}: got no turns of an episode of this run; give "
                "the labels of a run with the same seed and settings, or leave --labels out"
            )
        return Segment(trajectory, start, end, step)


def correlation(before: Sequence[Group], after: Sequence[Group]) -> dict[str, float]:
    """Return how the rewards of turns `after` go with those that the environment paid; {} where either never varies."""
    told, paid = (
        np.array([turn.reward for group in groups for t in group.scored for turn in t.turns])
        for groups in (before, after)
    )
    if len(told) < 2 or not np.ptp(told) or not np.ptp(paid):
        return {}
    return {"reward_model/correlation": float(np.corrcoef(told, paid)[0, 1])}
