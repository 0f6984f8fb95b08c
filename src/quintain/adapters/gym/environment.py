"""Gymnasium's environments with discrete actions, as text; see `gym_text` for how they are told.

Rewards, ends and limits are the package's own: `terminated` is an end, `truncated` a limit. Where the package
publishes its transition table, value iteration on it is the expert.
"""

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from quintain.adapters.gym.text import in_numbers, wording_of
from quintain.environments.extras import extra_module
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.types import Action, StepResult, Task

if TYPE_CHECKING:
    import gymnasium

TABULAR = ("FrozenLake", "Taxi", "CliffWalking")
"""Families whose transition table ``P`` is complete, so that an expert can be computed."""
DISCOUNT = 0.999
TOLERANCE = 1e-9
UNCHANGING = ("P", "action_space", "observation_space", "desc", "initial_state_distrib", "spec", "metadata")


class Gymnasium(Environment):
    """Reach a high reward."""

    tags: ClassVar[frozenset[str]] = frozenset({"planning"})

    def __new__(cls, id: str = "FrozenLake-v1", **_options: Any) -> Self:
        """Return an environment with an expert where one can be computed."""
        has_table = cls is Gymnasium and id.rpartition("/")[2].startswith(TABULAR) and "/" not in id
        return super().__new__(cast("type[Self]", Tabular) if has_table else cls)

    def __init__(self, id: str = "FrozenLake-v1", *, random_map: int = 0, **options: Any) -> None:
        """Make the environment `id`; `options` go to ``gymnasium.make``.

        `random_map` gives FrozenLake a map of that many rows and columns of its own for every task.

        Raises:
            MissingExtra: gymnasium is not installed.
            UsageError: there is no such environment, its actions are not discrete, or an option does not fit.
        """
        if random_map and not id.startswith("FrozenLake"):
            raise UsageError(f"random_map of {id}: got {random_map}; only FrozenLake has maps")
        if random_map < 0 or random_map == 1:
            raise UsageError(f"random_map of {id}: got {random_map}; give the number of rows, 2 or more")
        self.name = f"gymnasium/{id}"
        self._id, self._options, self._random_map = id, options, random_map
        self._adopt(_make(id, options))
        wording, space = wording_of(self._world), cast(Any, self._env.action_space)
        names = wording.actions if len(wording.actions) == space.n else ()
        self._words = names or tuple(f"action {number}" for number in range(int(space.n)))
        self._numbers = {word: number + int(space.start) for number, word in enumerate(self._words)}
        self._wording = wording
        limit = self._env.spec.max_episode_steps if self._env.spec is not None else None
        self.max_turns = limit or 100
        self.return_range = _return_range(self._world, self.max_turns)

    def reset(self, task: Task) -> str:
        """Start the episode of the task's seed."""
        if self._random_map:
            from gymnasium.envs.toy_text.frozen_lake import generate_random_map

            board = generate_random_map(self._random_map, seed=task.seed)
            self._adopt(_make(self._id, {**self._options, "desc": board}))
        observation, _ = self._env.reset(seed=task.seed)
        self._shown = self._text(observation)
        introduction = self._wording.introduce(self._world) if self._wording.introduce else ""
        return f"{introduction}\n{self._shown}" if introduction else self._shown

    def step(self, action: Action) -> StepResult:
        """Take the action that `action` names; anything else changes nothing."""
        number = self._numbers.get(action.text.strip().lower()) if action.error is None else None
        if number is None:
            said = action.error or f"unknown action; say one of {', '.join(self._words)}"
            return StepResult(observation=f"Error: {said}\n{self._shown}", is_valid=False)
        observation, reward, is_terminated, is_truncated, _ = self._env.step(number)
        self._shown = self._text(observation)
        is_over = bool(is_terminated or is_truncated)
        succeeds = self._wording.succeeds
        return StepResult(
            observation=self._shown,
            reward=float(reward),
            is_terminated=bool(is_terminated),
            is_truncated=bool(is_truncated) and not is_terminated,
            is_success=bool(is_terminated) and succeeds(float(reward)) if is_over and succeeds else None,
        )

    def close(self) -> None:
        """Close the package's environment."""
        self._env.close()

    def instructions(self) -> str:
        """Return what the environment asks for."""
        actions = "" if self._wording.actions else f" Act: {', '.join(self._words)}."
        return self._wording.instructions + actions

    def legal_actions(self) -> tuple[str, ...]:
        """Return the names of the actions; the package accepts each in every state."""
        return self._words

    def snapshot(self) -> tuple[Any, str]:
        """Return a deep copy of the package's environment.

        Raises:
            EnvironmentFault: it cannot be copied.
        """
        return _copy(self.name, self._env), self._shown

    def restore(self, state: tuple[Any, str]) -> None:
        """Continue from a snapshot."""
        self._adopt(_copy(self.name, state[0]))
        self._shown = state[1]

    def _adopt(self, env: "gymnasium.Env[Any, Any]") -> None:
        """Use `env` from now on."""
        self._env = env
        self._world = cast(Any, env.unwrapped)

    def _text(self, observation: Any) -> str:
        """Return `observation` as text."""
        return (self._wording.observe or in_numbers)(self._world, observation)


class Tabular(Gymnasium):
    """An environment of Gymnasium with a transition table."""

    is_variant = True

    _policy: tuple[object, NDArray[np.int64]] | None = None

    def expert_action(self) -> Action:
        """Return an action of greatest value, by value iteration on the package's table.

        The value is the discounted reward, not the chance to succeed within the turn limit: on slippery ice
        the expert falls now and then, or is cut off.
        """
        if self._policy is None or self._policy[0] is not self._world.P:
            self._policy = (self._world.P, best_actions(self._world.P))
        return Action(text=self._words[int(self._policy[1][int(self._world.s)])])

    def state_key(self) -> str:
        """Return the number of the state, on the map it belongs to."""
        board = "".join(self._wording.introduce(self._world).split()) if self._wording.introduce else ""
        return f"{board} {int(self._world.s)}".strip()


def best_actions(table: dict[int, dict[int, list[tuple[float, int, float, bool]]]]) -> NDArray[np.int64]:
    """Return the greedy action of each state [S] after value iteration on `table`.

    `table` is Gymnasium's: state → action → [(probability, next state, reward, is_terminated)].
    """
    num_states, num_actions = len(table), len(table[0])
    num_outcomes = max(len(outcomes) for actions in table.values() for outcomes in actions.values())
    outcomes = np.zeros((num_states, num_actions, num_outcomes, 4))
    for state, actions in table.items():
        for action, found in actions.items():
            outcomes[state, action, : len(found)] = found
    probability, following, reward, is_terminated = np.moveaxis(outcomes, -1, 0)
    following = following.astype(np.int64)
    kept = probability * DISCOUNT * (1 - is_terminated)
    immediate = (probability * reward).sum(-1)
    values = np.zeros(num_states)
    while True:
        of_actions = immediate + (kept * values[following]).sum(-1)
        new_values = of_actions.max(-1)
        if np.abs(new_values - values).max() < TOLERANCE:
            # Rounding breaks ties differently on different machines; the first of the equally good ones wins.
            return np.argmax(of_actions > new_values[:, None] - 1e-6, axis=-1)
        values = new_values


def _make(id: str, options: dict[str, Any]) -> "gymnasium.Env[Any, Any]":
    """Return ``gymnasium.make(id, **options)``, its errors told as ours."""
    gymnasium = extra_module(
        "gymnasium", package="gymnasium", extra="gym", feature="the environment gymnasium"
    )
    try:
        env = gymnasium.make(id, disable_env_checker=True, **options)
    except gymnasium.error.UnregisteredEnv as error:
        near = suggestion(id, gymnasium.registry)
        raise UsageError(
            f"Gymnasium environment: got {id!r}; {near if len(near) < 80 else 'check its name'}"
        ) from error
    except (gymnasium.error.Error, TypeError, ValueError, KeyError, AssertionError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"Gymnasium environment: got {id!r} with {options}, which fails: {reason}; mend it"
        ) from error
    if not isinstance(env.action_space, gymnasium.spaces.Discrete):
        env.close()
        raise UsageError(
            f"Gymnasium environment: got {id!r} with actions {env.action_space}; choose a discrete one"
        )
    return env


def _copy(who: str, env: "gymnasium.Env[Any, Any]") -> "gymnasium.Env[Any, Any]":
    """Return a deep copy of `env` that shares what never changes."""
    facts = vars(env.unwrapped)
    try:
        return copy.deepcopy(env, {id(facts[name]): facts[name] for name in UNCHANGING if name in facts})
    except (TypeError, AttributeError, copy.Error) as error:
        raise EnvironmentFault(
            f"snapshot of {who}: got {error}; it cannot be copied, use it without snapshots"
        ) from error


def _return_range(world: Any, max_turns: int) -> tuple[float, float]:
    """Return the smallest and largest total reward of `max_turns` turns, where the transition table tells."""
    table = vars(world).get("P")
    if table is None:
        return float("-inf"), float("inf")
    rewards = [
        reward for actions in table.values() for found in actions.values() for _, _, reward, _ in found
    ]
    return min(0.0, float(min(rewards)) * max_turns), max(0.0, float(max(rewards)))
