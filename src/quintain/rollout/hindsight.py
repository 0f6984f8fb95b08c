"""Episodes under the task that they did solve: hindsight relabelling (HER, arXiv 1707.01495), token by token.

An environment with `Hindsight` says of a finished episode what other task it solved. What was sampled is carried out
once more under that task, so that the prompts say the other goal, the outcome is the environment's own, and the episode
ends with the turn that solved it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

from quintain.agents.protocol import Agent, equip
from quintain.environments.protocol import Environment, Hindsight, environment_name
from quintain.errors import EnvironmentFault, UsageError
from quintain.rollout.replay import replay_to_end
from quintain.rollout.views import EnvironmentReader
from quintain.types import ALONE, Score, StepResult, Stop, Task, Trajectory, Turn, as_content


def hindsight(make: Callable[[], Environment], agent: Agent) -> Callable[[Trajectory], Trajectory | None]:
    """Return what puts an episode of `agent` under the task that it solved; None where it solved or repeats none.

    An episode that solved its own task is returned as it is. The new task has the name of the old one with the goal
    behind it, so that episodes of one goal in one start are a group.

    Raises:
        UsageError: the environment has no `Hindsight`, or lets several seats act.
    """
    with closing(equip(agent, make())) as environment:
        if not isinstance(environment, Hindsight):
            raise UsageError(
                f"hindsight in {environment_name(environment)}: got an environment that cannot say what an episode "
                "achieved; give it a method achieved()"
            )
    looks = EnvironmentReader(has_state_keys=False)

    def relabel(trajectory: Trajectory) -> Trajectory | None:
        if trajectory.is_success:
            return trajectory
        if not isinstance(trajectory.outcome, Score):
            return None
        with closing(equip(agent, make())) as environment:
            try:
                task = task_solved(looks, environment, trajectory)
                return None if task is None else replay_as(looks, environment, agent, trajectory, task)
            except EnvironmentFault:
                return None

    return relabel


def task_solved(looks: EnvironmentReader, environment: Environment, trajectory: Trajectory) -> Task | None:
    """Return the task that `trajectory` solved in hindsight, by what `environment` says at its end; None for none.

    Raises:
        EnvironmentFault: the episode does not repeat.
    """
    replay_to_end(looks, environment, trajectory)
    found = cast(Hindsight, environment).achieved()
    return None if found is None else asking(trajectory.task, found)


def asking(task: Task, data: Mapping[str, Any]) -> Task:
    """Return `task` with `data` in the place of what was drawn with it, and that behind its name."""
    told = ",".join(f"{key}={value}" for key, value in sorted(data.items()))
    return replace(task, id=f"{task.id}?{told}", data={**task.data, **data})


def replay_as(
    looks: EnvironmentReader, environment: Environment, agent: Agent, trajectory: Trajectory, task: Task
) -> Trajectory | None:
    """Return what was sampled in `trajectory` as an episode of `task`, up to its end; None where it does not solve it.

    The harness reads the same completions and writes the prompts anew. Episodes in which it speaks to itself, or in
    which it reads something else under the other goal, are not told again.
    """
    start = looks.start(environment, task)
    (view,) = start.views
    session = agent.open(start.brief)
    turns: list[Turn] = []
    for turn in trajectory.turns:
        prompt = session.observe(view.observation, view.legal_actions)
        action = session.read(turn.completion)
        if turn.seat != ALONE or action != turn.action:
            return None
        answer = looks.act(environment, {ALONE: action})
        result = answer.result
        turns.append(
            replace(
                turn,
                observation=as_content(view.observation),
                prompt_ids=prompt.token_ids,
                starts_segment=prompt.starts_segment,
                reward=result.reward,
                reward_terms=dict(result.reward_terms),
                is_valid=result.is_valid and action.error is None,
                tool_errors=result.tool_errors,
            )
        )
        if not answer.views:
            return end_as(trajectory, task, turns, result)
        (view,) = answer.views
    return None


def end_as(
    trajectory: Trajectory, task: Task, turns: Sequence[Turn], result: StepResult
) -> Trajectory | None:
    """Return `trajectory` as `turns` of `task` that ended with `result`; None where that is no success."""
    value = sum(turn.reward for turn in turns)
    if not (value > 0 if result.is_success is None else result.is_success):
        return None
    return replace(
        trajectory,
        task=task,
        turns=tuple(turns),
        outcome=Score(value=value, is_success=True),
        stop=Stop.TERMINATED,
        final_observation=as_content(result.observation),
    )
