"""RRO (arXiv 2505.20737): draws ways on until one raises the reward, and prefers it.

L = -log σ(β [log π/π_ref (best) - log π/π_ref (worst)]).

A step is worth the mean outcome of `rollouts` episodes that begin with it. In every state the policy draws next steps
one at a time, until one is worth more than the step before it, or `cap` are drawn. It goes on along the one that rose,
or along the best where none did. Of the steps that were drawn in a state the best and the worst are a pair, unless
they are worth the same; a state in which the first one rose has none. The reference is the starting policy. Without
`stops` as many are drawn in every state: the exploration of fixed size that the paper compares with.

Differences to the paper: what the first step has to rise above is the mean outcome of `rollouts` episodes from the
start; the episode that follows a drawn step is one of those that value it, so that a step costs `rollouts` episodes in
all; the preferred side is imitated as well (RPO, 2404.19733), unless `imitation_weight` is 0 as published, since both
sides tend to become unlikely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import fmean

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from quintain.data.pairs import extremes
from quintain.data.stages import outcome
from quintain.learning.train_config import PreferenceRoundsConfig
from quintain.methods.loops.rounds import Collected, Rounds
from quintain.methods.method import Collector, Needs
from quintain.methods.preference.updating import dpo_or_rpo, update_on_pairs
from quintain.rollout.views import Prefix
from quintain.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(PreferenceRoundsConfig):
    """Configuration of RRO."""

    rollouts: PositiveInt = 5
    """Episodes that a step's worth is the mean of."""
    cap: PositiveInt = 5
    """Most steps that are drawn in a state."""
    is_strict: bool = True
    """Whether a step rises only where it is worth more than the one before it, not as much."""
    stops: bool = True
    """Whether drawing ends with the first step that rises; else `cap` are drawn and the best is followed."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting policy."""
    imitation_weight: NonNegativeFloat = 1.0
    """Weight of imitating the better side as well; 0 is as published."""


@dataclass(slots=True)
class Climb:
    """A task, where the policy has come in it, and what it drew there: ``Climb(prefix=p, before=0.4)``."""

    prefix: Prefix
    before: float
    """what the step that led here was worth"""
    drawn: list[tuple[Trajectory, float]] = field(default_factory=list[tuple[Trajectory, float]])
    """episodes that begin with the steps that were drawn here, and what the steps are worth"""

    @property
    def values(self) -> list[float]:
        """What the steps that were drawn are worth."""
        return [value for _, value in self.drawn]


def method(config: Config) -> Rounds:
    """Return RRO as `config` describes it."""

    def collect(collector: Collector, step: int) -> Collected:
        return Rising(config, collector, step).collect()

    return Rounds(
        collect=collect,
        update=update_on_pairs(dpo_or_rpo(config.beta, config.imitation_weight)),
        needs=Needs(branches=True, reference=True),
    )


@dataclass(slots=True)
class Rising:
    """The steps that are drawn in a round: ``Rising(config, collector, step).collect()``."""

    config: Config
    collector: Collector
    step: int
    families: list[list[tuple[Trajectory, float]]] = field(
        default_factory=list["list[tuple[Trajectory, float]]"]
    )
    """steps drawn in one state, each as an episode up to its own turn"""
    num_states: int = 0
    num_rollouts: int = 0
    """episodes that were played to value steps, those from the starts as well"""

    def collect(self) -> Collected:
        """Return the episodes that value the starts; steps are drawn from each of these to an end, and compared."""
        config, collector, step = self.config, self.collector, self.step
        groups = collector.sample(step, collector.tasks(step, config.tasks), size=config.rollouts)
        begun = [group.scored[0] for group in groups if group.scored]
        climbs = [
            Climb(prefix=walk.prefix(0), before=fmean(group.returns))
            for walk, group in zip(
                collector.replay_episodes(begun), [g for g in groups if g.scored], strict=True
            )
        ]
        self.num_rollouts = sum(len(group.trajectories) for group in groups)
        turn = 0
        while climbs:
            for place in range(config.cap):
                drawing = [each for each in climbs if not has_stopped(each, config)]
                if drawing:
                    self._draw(drawing, turn, turn * config.cap + place)
            self.num_states += len(climbs)
            self.families += [
                [(replace(t, turns=t.turns[: turn + 1]), value) for t, value in each.drawn] for each in climbs
            ]
            climbs = self._further(climbs, turn)
            turn += 1
        return Collected(groups=groups, data=[extremes(self.families)], metrics=self._measure())

    def _draw(self, climbs: Sequence[Climb], turn: int, again: int) -> None:
        """Draw one more step from where each of `climbs` is, and value it; `again` counts the times."""
        collector, step = self.collector, self.step
        first = collector.continue_from(
            step,
            [each.prefix for each in climbs],
            size=1,
            seed=collector.seed("drawn", step, again),
            phase="drawn",
            again=again,
        )
        self.num_rollouts += len(first)
        drawn = [
            (each, group.scored[0])
            for each, group in zip(climbs, first, strict=True)
            if group.scored and len(group.scored[0].turns) > turn
        ]
        ahead = [(each, t) for each, t in drawn if len(t.turns) > turn + 1]
        rest: dict[int, list[float]] = {}
        if ahead and self.config.rollouts > 1:
            walks = collector.replay_episodes([t for _, t in ahead])
            played = collector.continue_from(
                step,
                [walk.prefix(turn + 1) for walk in walks],
                size=self.config.rollouts - 1,
                seed=collector.seed("valued", step, again),
                phase="valued",
                again=again,
            )
            self.num_rollouts += sum(len(group.trajectories) for group in played)
            rest = {id(each): list(group.returns) for (each, _), group in zip(ahead, played, strict=True)}
        for each, t in drawn:
            each.drawn.append((t, fmean([outcome(t), *rest.get(id(each), [])])))

    def _further(self, climbs: Sequence[Climb], turn: int) -> list[Climb]:
        """Return where `climbs` come to by the steps that they follow, those that go on."""
        followed = [each.drawn[find_followed(each, self.config)] for each in climbs if each.drawn]
        going = [(t, value) for t, value in followed if len(t.turns) > turn + 1]
        walks = self.collector.replay_episodes([t for t, _ in going])
        return [
            Climb(prefix=walk.prefix(turn + 1), before=value)
            for walk, (_, value) in zip(walks, going, strict=True)
        ]

    def _measure(self) -> Mapping[str, float]:
        """Return how many states there were, how many steps were drawn in one, and what valuing them cost."""
        drawn = sum(map(len, self.families))
        return {
            "rro/states": float(self.num_states),
            "rro/drawn": drawn / max(self.num_states, 1),
            "rro/rollouts": float(self.num_rollouts),
        }


def has_stopped(climb: Climb, config: Config) -> bool:
    """Return whether nothing more is drawn from where `climb` is."""
    return len(climb.drawn) >= config.cap or (
        config.stops and has_risen(climb.values, climb.before, is_strict=config.is_strict)
    )


def find_followed(climb: Climb, config: Config) -> int:
    """Return the place of the drawn step that `climb` goes on along."""
    before = climb.before if config.stops else inf  # above which nothing rises: the best is followed
    return choose_followed(climb.values, before, is_strict=config.is_strict)


def has_risen(values: Sequence[float], before: float, *, is_strict: bool = True) -> bool:
    """Return whether the last of `values` is more than `before`, or as much where that is not `is_strict`."""
    return bool(values) and (values[-1] > before or (values[-1] == before and not is_strict))


def num_drawn(values: Sequence[float], before: float, *, is_strict: bool = True) -> int:
    """Return after how many of `values` drawing ends: with the first that rises, or with the last.

    Example: .3, .4, .55 after .4: 3; where it need not be strict, 2.
    """
    return next(
        (
            num
            for num in range(1, len(values) + 1)
            if has_risen(values[:num], before, is_strict=is_strict)
        ),
        len(values),
    )  # fmt: skip


def choose_followed(values: Sequence[float], before: float, *, is_strict: bool = True) -> int:
    """Return the place of what is followed of the drawn `values`: the last where it rises, else the first best."""
    last = len(values) - 1
    return (
        last
        if has_risen(values, before, is_strict=is_strict)
        else max(range(last + 1), key=lambda k: values[k])
    )
