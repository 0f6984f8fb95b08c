"""UI-R1 (arXiv 2503.21620): GRPO on a few hard tasks of pointing, with a KL.

R = type + place + format.

Of a pool of tasks, those are taken that the starting policy mostly fails, as different in kind as there are.
One action each: the right kind of action, inside the right box, readable (`quintain.rewards.pointing`). Actions
that do not point are not marked down for it.

Differences to the paper: what is wanted is the expert's action, and the box is the environment's, or where it knows
none, what lies `tolerance` around the expert's point; the length reward of its later, "efficient" variant is left
out. Readable stands for the paper's tags around thought and answer. Measured on other boxes of text (`screen`) than
those of the 128 tasks it learned from, where the paper has screenshots.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from statistics import fmean

from quintain.config.ranges import NonNegativeFloat, PositiveInt
from quintain.credit.group import group_relative
from quintain.credit.layout import outcome_of
from quintain.curriculum.streams import Fixed
from quintain.environments.protocol import Environment, PointsAt
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import clip_ratio
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.method import Collector, Needs
from quintain.methods.rl.parts.contexts import ExpertLabels, ask_expert
from quintain.rewards.pointing import Box, Target, as_call, pointing_score
from quintain.rewards.terms import Term, apply_all
from quintain.types import Action, Group, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupConfig):
    """Configuration of UI-R1."""

    pool: PositiveInt = 64
    """Tasks that are tried by the starting policy."""
    chosen: PositiveInt = 32
    """Hard and different ones of them that are trained on; as many as the pool for all, and none is tried."""
    tolerance: NonNegativeFloat = 0.0
    """How far from the expert's point still counts as inside, both ways, where the environment knows no box."""
    kl_coef: NonNegativeFloat = 0.01
    """Weight of the KL (k3) to the starting policy in the loss."""


def method(config: Config) -> OnPolicy:
    """Return UI-R1 as `config` describes it."""
    gold = ExpertLabels(config.environment, partial(ask_target, tolerance=config.tolerance))
    term = Term(name="action", measure=gold.measure(score))
    reward = partial(apply_all, terms=(term,))
    chosen: list[Fixed] = []

    def prepare(collector: Collector) -> None:
        if config.chosen >= config.pool:
            chosen.append(Fixed(collector.tasks(0, config.pool), shuffle=True))
            return
        groups = reward(collector.starting_groups(tasks=config.pool, size=config.group_size))
        chosen.append(Fixed(hard_and_diverse(groups, kind, count=config.chosen), shuffle=True))

    def kind(group: Group) -> str:
        wanted = gold.labels(group.scored[0])[0]
        return wanted.kind if wanted is not None else ""

    def collect(collector: Collector, step: int) -> list[Group]:
        tasks = chosen[-1].draw(step, config.tasks)
        return collector.sample(step, tasks, size=config.group_size, max_turns=1)

    loss = combine((clip_ratio(), 1.0), (kl_penalty("k3"), config.kl_coef))
    return OnPolicy(
        prepare=prepare,
        collect=collect,
        reward=reward,
        credit=lambda groups, _: group_relative(groups),
        update=Update(loss=loss, keeps_zeros=True, has_reference=True),
        needs=Needs(expert=True, expert_anywhere=True, reference=True),
    )


def ask_target(environment: Environment, *, tolerance: float) -> Target | None:
    """Return what the expert would do and where it points: into the environment's own box, where it knows one.

    Else the box lies `tolerance` around the expert's point. None where the expert gives up.
    """
    wanted = ask_expert(environment)
    if wanted is None:
        return None
    call = as_call(wanted).tool_calls[0]
    x, y = call.arguments.get("x"), call.arguments.get("y")
    box: Box | None = None
    if isinstance(x, int | float) and isinstance(y, int | float):
        own = environment.expert_box() if isinstance(environment, PointsAt) else None
        box = own or (x - tolerance, y - tolerance, x + tolerance, y + tolerance)
    return Target(kind=call.name, box=box)


def score(action: Action, wanted: Target) -> float:
    """Return the share of the points of `wanted` that `action` earns; see `pointing_score`."""
    return pointing_score(as_call(action), wanted)


def hard_and_diverse(
    groups: Sequence[Group], kind: Callable[[Group], Hashable], *, count: int, max_outcome: float = 0.999
) -> list[Task]:
    """Return up to `count` tasks whose mean outcome is below `max_outcome`, hardest first within a kind, kinds in turn.

    Where no task is hard enough all of them may be taken: a selection never leaves nothing.
    """
    means = {id(group): fmean(map(outcome_of, group.scored)) for group in groups if group.scored}
    tried = [group for group in groups if id(group) in means]
    hard = [group for group in tried if means[id(group)] < max_outcome] or tried
    kinds: dict[Hashable, list[Group]] = {}
    for group in sorted(hard, key=lambda group: means[id(group)]):
        kinds.setdefault(kind(group), []).append(group)
    turns = [group for row in zip_longest(*kinds.values()) for group in row if group is not None]
    return [group.task for group in turns[:count]]
