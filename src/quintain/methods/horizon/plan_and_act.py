"""Plan-and-Act (arXiv 2503.09572): imitates plans that were read off successful episodes, and who acts on them.

L = -Σ log π(plan_k | task, pages ≤ k) - Σ log π(a_k | plan_k, page_k).

A plan is made of what the expert did: each of its steps covers the actions up to a change of progress, in order, and is
said by the last of them, in words of the task and the pages so far. It is written anew after every action, by the page
that is new (``replan_every=1``). Episodes that failed are not imitated. The planner and the executor are one model, or
two policies, one of the seat ``agent/plan``. Plans of one step would be actions by another name, and are refused.

Differences to the paper: steps are cut by the environment's progress, where a language model annotates; tasks are drawn
from the world, where it writes further ones like those it has, and more of those that were failed; no thoughts stand
before plans or actions. Measured on `web`; the paper has WebArena-Lite.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from quintain.agents.plan import Plan, edit
from quintain.data.pipeline import PipelineResult
from quintain.errors import DataError
from quintain.methods.imitation.supervised import DemonstrationsConfig, choose_demonstrations, imitate_data
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector
from quintain.types import Trajectory

PLAN = "agent/plan"
LEAST = 2.0
"""Mean steps of the first plan of an episode below which plans are actions by another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(DemonstrationsConfig):
    """Configuration of Plan-and-Act."""

    environment: str = "web?goal=order"
    agent: str = "plan?replan_every=1&demonstrates=steps"


def method(config: Config) -> Offline:
    """Return Plan-and-Act as `config` describes it."""

    def data(collector: Collector) -> PipelineResult:
        made = choose_demonstrations(config, collector)
        refuse_short([example.trajectory for example in made.examples])
        return made

    return imitate_data(config, data, batch_size=config.batch_size)


def first_steps(trajectories: Sequence[Trajectory]) -> list[int]:
    """Return the number of steps of the first plan of each of `trajectories` that has one."""
    plans = [next((t for t in trajectory.turns if t.seat == PLAN), None) for trajectory in trajectories]
    return [len(edit(Plan(), turn.action.text).steps) for turn in plans if turn is not None]


def refuse_short(trajectories: Sequence[Trajectory]) -> None:
    """Refuse demonstrations without plans, or whose plans say little more than the next action.

    Raises:
        DataError: the first plans have fewer than `LEAST` steps on average, or there is none.
    """
    steps = first_steps(trajectories)
    mean = sum(steps) / len(steps) if steps else 0.0
    if mean < LEAST:
        raise DataError(
            f"plans of {len(trajectories)} demonstrations: got {mean:.1f} steps on average in the first plan, at least "
            f"{LEAST:g} are needed; take agent=plan?replan_every=1&demonstrates=steps, or a world with longer tasks"
        )
