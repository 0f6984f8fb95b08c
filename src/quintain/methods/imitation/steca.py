"""STeCa (arXiv 2502.14276): finds steps that cost success, and imitates the way out of them.

L = -Σ r Σ_t log π(a_t | h_t).

The policy takes each step of the expert's episodes once in its own way (arXiv 2502.14276). What a step is worth is the
mean return of a few episodes that the policy plays on from there. Imitated are, with all that stood before as context:

- calibrated, the expert's way out of a deviation: from the second step on, the policy's step is worth no more than the
  expert's step before it, its episode failed, and its action is another, not only in words. Its mistake has no weight;
- shown, the rest of the expert's episode, where its step is worth more than the policy's;
- explored, the rest of the policy's own, where it succeeded and its step is worth as much as the expert's.

r is 1 + .01·d for the first two and 1 - .01·d for the last, d the distance of what is imitated from what was not, by
dynamic time warping. Every token counts alike, as in a sum of log-probs. The published loss adds a DPO term with β = 0,
which is log 2 whatever the policy does: the side that is called rejected has no gradient, so it is left out.

Differences to the paper: the way out is what the expert does where the mistake led, since the rest of an episode that
was shown for another state can mostly not be carried out there; every example is carried out again and left out where
it does not repeat. Nobody writes a thought of reflection. Actions are alike by the cosine of their words, not of BERT's
vectors, and a pair of them costs 1 - cosine. Measured on `web`; the paper has ALFWorld and VirtualHome.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean
from typing import Literal

import numpy as np

from quintain.agents.deliberation import describe_action
from quintain.config.ranges import PositiveInt, Share
from quintain.data.pipeline import Pipeline, Stage, name_of, remade, weigh_turns
from quintain.data.seats import split_seats
from quintain.data.stages import outcome
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment
from quintain.errors import DataError
from quintain.learning.train_config import ExploringConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Collected, OptimizerSteps, Rounds
from quintain.methods.method import Collector, Needs
from quintain.rollout.corrections import executable
from quintain.types import Example, Group, Trajectory

MIN_GAIN = 0.01
"""By how much the expert's step must be worth more than the policy's, so that it is shown."""
SCALE = 0.01
"""What a distance of 1 adds to r, or takes from it."""
Kind = Literal["calibrated", "shown", "explored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ExploringConfig):
    """Configuration of STeCa."""

    environment: str = "web"
    episodes: PositiveInt = 64
    """Episodes of the expert that are explored in a round."""
    samples: PositiveInt = 5
    """Episodes that are played on from a step, to find out what it is worth."""
    alike: Share = 0.95
    """Cosine of their words from which on two actions are the same."""
    batch_size: PositiveInt = 15
    """Episodes of an optimizer step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of the expert's that the policy took its own way: ``Step(shown=t, number=2, explored=u, …)``."""

    shown: Trajectory
    """the expert's episode"""
    number: int
    """of the step, from 0"""
    explored: Trajectory
    """the same turns before it, then the policy's"""
    before: float
    """what the expert's step before it is worth"""
    expert: float
    """what the expert's step is worth"""
    own: float
    """what the policy's step is worth"""
    way_out: Trajectory | None = None
    """the policy's episode up to its step, then the expert's; None where the episode was over"""


def method(config: Config) -> Rounds:
    """Return STeCa as `config` describes it."""

    def collect(collector: Collector, step: int) -> Collected:
        shown = [t for t in collector.demonstrations() if t.is_success]
        if not shown:
            raise DataError(
                f"exploring {config.demonstrations} demonstrations: got none that solved its task; raise "
                "demonstrations, or give the environment an expert that does"
            )
        found, drawn = Found(), draw_shown(shown, collector.seed("shown", step), config.episodes)
        groups = found.explore(collector, step, drawn, config.samples)
        build = pipeline(found, find(config.environment), config.alike)
        return Collected(groups=groups, data=[build(split_seats(groups))])

    return Rounds(
        collect=collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        steps=OptimizerSteps(count=lambda _: config.updates, batch_size=config.batch_size),
        needs=Needs(branches=True, expert=True),
    )


@dataclass(slots=True)
class Found:
    """The steps of the round that is explored, by the name of the policy's episode."""

    steps: dict[str, Step] = field(default_factory=dict[str, Step])

    def explore(
        self, collector: Collector, step: int, shown: Sequence[Trajectory], samples: int
    ) -> list[Group]:
        """Return the policy's episode from each step of `shown` on, a group each; remember those that differ there."""
        walks = collector.replay_episodes(shown)
        places = [(k, number) for k, t in enumerate(shown) for number in range(len(t.turns))]
        begun = collector.continue_from(
            step,
            [walks[k].prefix(number) for k, number in places],
            size=samples,
            seed=collector.seed("explored", step),
        )
        worth = {place: worth_of(group) for place, group in zip(places, begun, strict=True)}
        worth |= {(k, len(t.turns)): outcome(t) for k, t in enumerate(shown)}
        tried = [
            (place, group.scored[0])
            for place, group in zip(places, begun, strict=True)
            if group.scored and len(group.scored[0].turns) > place[1]
        ]
        other = [
            (place, t)
            for place, t in tried
            if write_turn(t, place[1]) != write_turn(shown[place[0]], place[1])
        ]
        going = [(number + 1, t) for (_, number), t in other if len(t.turns) > number + 1]
        ahead = [
            walk.prefix(number)
            for walk, (number, _) in zip(collector.replay_episodes([t for _, t in going]), going, strict=True)
        ]
        played = collector.continue_from(
            step, ahead, size=samples, seed=collector.seed("worth", step), phase="worth"
        )
        saved = collector.continue_from(
            step, ahead, size=1, seed=collector.seed("way out", step), phase="way out", teacher=noisy(0.0)
        )
        after = {
            name_of(t): (worth_of(own), next(iter(out.scored), None))
            for (_, t), own, out in zip(going, played, saved, strict=True)
        }
        self.steps = {
            name_of(t): Step(
                shown=shown[k],
                number=number,
                explored=t,
                before=worth[k, number],
                expert=worth[k, number + 1],
                own=after[name_of(t)][0] if name_of(t) in after else outcome(t),
                way_out=after[name_of(t)][1] if name_of(t) in after else None,
            )
            for (k, number), t in other
        }
        return [Group(task=t.task, trajectories=(t,)) for _, t in tried]

    def step_of(self, example: Example) -> Step | None:
        """Return the step at which the policy's episode leaves the expert's, None where it does the same."""
        return self.steps.get(name_of(example.trajectory))


def pipeline(found: Found, make: Callable[[], Environment], alike: float) -> Pipeline:
    """Return episodes of the policy → what is learned from the step at which each differs → what can be carried out."""
    return Pipeline(calibrate_steps(found.step_of, alike), executable(make))


def calibrate_steps(step_of: Callable[[Example], Step | None], alike: float) -> Stage:
    """Return the stage that puts what is imitated of a step in the place of the policy's episode."""

    def make(example: Example) -> Iterable[Example]:
        step = step_of(example)
        return [imitate_step(step, kind) for kind in kinds_of(step, alike)] if step is not None else []

    says = "does as the expert, or is worth less than its step before without failing, or more without succeeding"
    return remade("calibrated", says, make)


def kinds_of(step: Step, alike: float) -> list[Kind]:
    """Return what is learned from `step`."""
    found: list[Kind] = []
    texts = write_turn(step.explored, step.number), write_turn(step.shown, step.number)
    if (
        step.way_out is not None
        and step.way_out.is_success
        and is_deviation(
            step.number + 1,
            step.own,
            step.before,
            is_success=step.explored.is_success,
            texts=texts,
            alike=alike,
        )
    ):
        found.append("calibrated")
    if step.expert - step.own > MIN_GAIN:
        found.append("shown")
    if step.explored.is_success and step.own >= step.expert:
        found.append("explored")
    return found


def is_deviation(
    number: int, own: float, before: float, *, is_success: bool, texts: tuple[str, str], alike: float
) -> bool:
    """Return whether step `number`, from 1, leads away: worth no more than the expert's step before it was.

    Args:
        number: of the step; before the first one there is no other.
        own: what the policy's step is worth.
        before: what the expert's step before it is worth, not that which the expert took in its place.
        is_success: whether the policy's episode succeeded.
        texts: actions of the policy and of the expert.
        alike: cosine from which on they are the same.
    """
    return (
        number >= 2
        and own <= before
        and not is_success
        and texts[0] != texts[1]
        and cosine(texts[0], texts[1]) < alike
    )


def imitate_step(step: Step, kind: Kind) -> Example:
    """Return what of `step` is imitated, r on every token of it; what stood before it has no weight."""
    own, expert, number = step.explored, step.shown, step.number
    if kind == "calibrated":
        assert step.way_out is not None, "asked before"
        whole, first, other, sources = step.way_out, number + 1, own, (own, expert)
    elif kind == "shown":
        whole, first, other, sources = expert, number, own, (expert, own)
    else:
        whole, first, other, sources = own, number, expert, (own, expert)
    far = distance(actions(whole)[first:], actions(other)[first:])
    weight = 1 - SCALE * far if kind == "explored" else 1 + SCALE * far
    example = Example(trajectory=whole, sources=tuple(map(name_of, sources)))
    return weigh_turns(example, [0.0] * first + [weight] * (len(whole.turns) - first))


def distance(left: Sequence[str], right: Sequence[str]) -> float:
    """Return from 0 to 1 how far two ways are apart: the cost of dynamic time warping by the longer one's length.

    A pair of actions costs 1 - their cosine; 1 where one side has nothing. Example: "go", "take" and "go", "go", "take"
    → 0.
    """
    if not left or not right:
        return float(bool(left) or bool(right))
    best: dict[tuple[int, int], float] = {}
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            ways = [best[at] for at in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if at in best]
            best[i, j] = min(ways, default=0.0) + 1 - cosine(a, b)
    return best[len(left) - 1, len(right) - 1] / max(len(left), len(right))


def cosine(left: str, right: str) -> float:
    """Return the cosine of the words of two texts; 0 where one has none, 1 where they are the same."""
    a, b = Counter(left.lower().split()), Counter(right.lower().split())
    if a == b:
        return 1.0
    norm = sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return sum(n * b[word] for word, n in a.items()) / norm if norm else 0.0


def worth_of(group: Group) -> float:
    """Return the mean return of the episodes of `group`; NaN where none of them came to an end."""
    return fmean(map(outcome, group.scored)) if group.scored else float("nan")


def write_turn(trajectory: Trajectory, number: int) -> str:
    """Return the action of turn `number` in words."""
    return describe_action(trajectory.turns[number].action)


def actions(trajectory: Trajectory) -> list[str]:
    """Return all actions of `trajectory` in words."""
    return [write_turn(trajectory, number) for number in range(len(trajectory.turns))]


def draw_shown(shown: Sequence[Trajectory], seed: int, count: int) -> list[Trajectory]:
    """Return `count` of `shown`, or all, in an order drawn from `seed`."""
    order = np.random.default_rng(seed).permutation(len(shown))[:count]
    return [shown[place] for place in order.tolist()]
