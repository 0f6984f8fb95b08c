"""How tasks begin, as an agent is shown it: what a critic reads of a task that nobody has played."""

from collections.abc import Callable, Sequence
from contextlib import closing

from quintain.agents.protocol import Agent, equip
from quintain.environments.protocol import Environment, begin
from quintain.rollout.views import EnvironmentReader
from quintain.types import Action, Completion, Score, Stop, Task, Trajectory, Turn, as_content, as_text


def read_initial_states(
    make: Callable[[], Environment], agent: Agent, tasks: Sequence[Task]
) -> list[Trajectory]:
    """Return an episode of one turn for each of `tasks`: its first prompt, after which nothing is said or done.

    One token stands where the answer of `agent` would begin; nothing is sampled, and nothing of it may be trained on.
    """
    looks = EnvironmentReader(has_state_keys=False)
    with closing(equip(agent, make())) as environment:
        return [read_initial_state(looks, environment, agent, task) for task in tasks]


def read_initial_state(
    looks: EnvironmentReader, environment: Environment, agent: Agent, task: Task
) -> Trajectory:
    """Return how `task` begins."""
    start = looks.start(environment, task)
    view = start.views[0]
    prompt = agent.open(start.brief).observe(view.observation, view.legal_actions)
    turn = Turn(
        seat=view.seat,
        observation=as_content(view.observation),
        prompt_ids=prompt.token_ids,
        completion=Completion(token_ids=(0,), logprobs=(), stop="length"),
        action=Action(),
        starts_segment=True,
    )
    outcome = Score(value=0.0, is_success=False)
    return Trajectory(
        task=task, turns=(turn,), outcome=outcome, stop=Stop.CUT, seed=0, group=task.id, index=0
    )


def first_observation(make: Callable[[], Environment], task: Task) -> str:
    """Return what an agent sees first in `task`, as text."""
    with closing(make()) as environment:
        return as_text(begin(environment, task))
