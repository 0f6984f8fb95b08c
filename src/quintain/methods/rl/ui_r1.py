"""R = type + place + format on a few hard tasks, GRPO with a KL in the loss: UI-R1 (arXiv 2503.21620).

Of a pool of tasks, those are taken that the starting policy mostly fails, as different in kind as there are.
One action each: the right kind of action, inside the right box, readable (`quintain.rewards.pointing`). Actions
that do not point are not marked down for it.

Differences to the paper: what is wanted is the expert's action, and the box lies `tolerance` around its point; the
length reward of its later, "efficient" variant is left out. Readable stands for the paper's tags around thought and
answer. Measured on smaller boxes of text (`screen`) than those of the 128 tasks it learned from, where the paper has
screenshots.
"""

from dataclasses import dataclass
from functools import partial

from quintain.credit.group import group_relative
from quintain.curriculum.streams import Fixed
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import clipped
from quintain.methods.loops.method import Method, Needs
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.collecting import within_turns
from quintain.methods.rl.parts.gold import Gold
from quintain.methods.rl.parts.group_job import GroupJob
from quintain.methods.rl.parts.selection import hard_and_diverse
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.rewards.pointing import Box, Target, as_call, pointing_score
from quintain.rewards.terms import Term, apply_all
from quintain.rollout.request import USUAL, Options
from quintain.store.run import Run
from quintain.training.work import Work
from quintain.types import Action, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(GroupJob):
    """Configuration of UI-R1."""

    pool: int = 64
    """Tasks that are tried by the starting policy."""
    chosen: int = 32
    """Hard and different ones of them that are trained on; as many as the pool for all, and none is tried."""
    tolerance: float = 0.0
    """How far from the expert's point still counts as inside, in both directions."""
    kl: float = 0.01
    """Weight of the KL (k3) to the starting policy in the loss."""


def method(config: Config) -> Method:
    """Return UI-R1 as `config` describes it."""
    gold = Gold(config.environment)
    term = Term(name="action", measure=gold.measure(partial(score, tolerance=config.tolerance)))
    reward = partial(apply_all, terms=(term,))
    chosen: list[Fixed] = []

    def prepare(work: Work) -> None:
        if config.chosen >= config.pool:
            chosen.append(Fixed(work.curriculum.draw(0, config.pool), shuffle=True))
            return
        groups = reward(work.starting_groups(tasks=config.pool, size=config.group_size))
        chosen.append(Fixed(hard_and_diverse(groups, kind, count=config.chosen), shuffle=True))

    def kind(group: Group) -> str:
        wanted = gold.actions(group.scored[0])[0]
        return as_call(wanted).tool_calls[0].name if wanted is not None else ""

    def collect(work: Work, step: int, /, options: Options = USUAL) -> list[Group]:
        tasks = chosen[-1].draw(step, config.tasks)
        return work.sampled(step, tasks, size=config.group_size, options=options)

    loss = combine((clipped(), 1.0), (kl_penalty("k3"), config.kl))
    return Method(
        prepare=prepare,
        collect=within_turns(collect, lambda step: 1),
        reward=reward,
        credit=lambda work, groups: group_relative(groups),
        update=policy_update(loss, Plan(keeps_zeros=True), has_reference=True),
        needs=Needs(expert=True, reference=True),
    )


def score(action: Action, wanted: Action, *, tolerance: float) -> float:
    """Return the points of `action` where the expert's is `wanted`, whose point is in the middle of the box."""
    call = as_call(wanted).tool_calls[0]
    x, y = call.arguments.get("x"), call.arguments.get("y")
    box: Box | None = None
    if isinstance(x, int | float) and isinstance(y, int | float):
        box = (x - tolerance, y - tolerance, x + tolerance, y + tolerance)
    return pointing_score(as_call(action), Target(kind=call.name, box=box))


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
