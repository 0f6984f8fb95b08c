"""V, Q, A, J and ∇J of any policy on a world that can be enumerated, without sampling.

`enumerate_world` walks every state that can be reached from the given tasks, by snapshots, and writes down where each
action leads and what it pays. From that table the value of a policy is exact, by backward induction over (state, turns
left): V_h(s) = Σ_a π(a|s) Q_h(s, a), Q_h(s, a) = r + V_{h-1}(s'), V_0 = 0. The horizon belongs to the task: it ends the
episode, and nothing is left beyond it. ∇J is that of the policy's logits, by differentiating the induction.

A world whose step has chance beyond its `state_key` is refused, because no table describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.environments.protocol import Environment, Expert, Legal, Snapshot, StateKey, advance, begin
from quintain.errors import UsageError
from quintain.types import Action, Task

MAX_STATES = 100_000
"""States above which a world is not enumerated."""
END = -1
"""Where an action leads that ends the episode."""


@runtime_checkable
class Distance(Protocol):
    """The environment knows how many actions its goal is away."""

    def distance(self) -> int | None:
        """Return the actions of a shortest way to the goal; None in a dead end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """An enumerated world of P tasks, S states (those of different tasks are different) and A actions.

    Example: a bandit of one state and two arms has ``start`` (0,), ``next`` ((-1, -1),), ``reward`` ((0, 1),).
    """

    tasks: tuple[Task, ...]
    actions: tuple[str, ...]
    horizon: int
    """turns after which an episode ends"""
    start: NDArray[np.int64]
    """[P] first state of each task"""
    next: NDArray[np.int64]
    """[S, A] state that an action leads to, `END` where it ends the episode"""
    reward: NDArray[np.float64]
    """[S, A]; where an action pays at random (`chance`), its mean"""
    is_legal: NDArray[np.bool_]
    """[S, A] whether the policy can take the action"""
    is_success: NDArray[np.bool_]
    """[S, A] whether the action ends the episode with the task solved; where it pays at random, paying is solving"""
    task_of: NDArray[np.int64]
    """[S] number of the task that a state belongs to"""
    keys: tuple[str, ...]
    """[S] the environment's own name of the state; equal in two tasks it is two states"""
    expert: NDArray[np.int64]
    """[S] the expert's action, `END` where it has none"""
    distance: NDArray[np.float64]
    """[S] actions of a shortest way to the goal, inf in a dead end, NaN where the world does not know"""
    chance: NDArray[np.float64] | None = None
    """[S, A] probability of paying 1 (and solving the task) where pay is random; None: rewards are certain"""

    @property
    def num_states(self) -> int:
        """Number of states over all tasks."""
        return len(self.keys)

    @property
    def success(self) -> NDArray[np.float64]:
        """[S, A] probability that the action ends the episode with the task solved."""
        return self.is_success.astype(np.float64) if self.chance is None else self.chance


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """Exact values of a policy, by turns left h = 0 … H: ``values.v[h, state]``, ``values.q[h, state, action]``."""

    v: Tensor
    """float64 [H + 1, S]; row 0 is 0"""
    q: Tensor
    """float64 [H + 1, S, A]; row 0 is 0"""
    start: Tensor
    """int64 [P] first states"""

    @property
    def advantage(self) -> Tensor:
        """A = Q - V, [H + 1, S, A]."""
        return self.q - self.v[:, :, None]

    @property
    def by_task(self) -> Tensor:
        """Expected return of an episode of each task, [P]."""
        return self.v[-1][self.start]

    @property
    def objective(self) -> Tensor:
        """J, the mean of `by_task`: the expected return of an episode of a task drawn evenly."""
        return self.by_task.mean()


def enumerate_world(
    make_environment: Callable[[], Environment],
    tasks: Sequence[Task],
    *,
    horizon: int,
    actions: Sequence[str] | None = None,
    max_states: int = MAX_STATES,
) -> World:
    """Return the table of all states that can be reached from `tasks`.

    Args:
        make_environment: makes an environment with snapshots and state keys.
        tasks: each has states of its own.
        horizon: turns after which an episode ends.
        actions: what the policy can do in every state, whether the world carries it out or not; None: the actions
            that the world calls legal in a state.
        max_states: give up above this.

    Raises:
        UsageError: the environment has no snapshots, state keys or, without `actions`, legal actions; there are too
            many states; or the same action in the same state had two results.
    """
    environment = make_environment()
    needed = (Snapshot, StateKey) if actions else (Snapshot, StateKey, Legal)
    missing = [kind.__name__ for kind in needed if not isinstance(environment, kind)]
    if missing:
        raise UsageError(
            f"a world to enumerate: got {type(environment).__name__} without {', '.join(missing)}; "
            "take one that has them"
        )
    walk = _Walk(environment, tuple(actions) if actions else None, max_states)
    try:
        start = [walk.explore(place, task) for place, task in enumerate(tasks)]
    finally:
        environment.close()
    return walk.world(tuple(tasks), horizon, start)


class _Walk:
    """Goes through the states of each task, breadth first."""

    def __init__(self, environment: Environment, actions: tuple[str, ...] | None, max_states: int) -> None:
        self.environment, self.given, self.max_states = environment, actions, max_states
        self.names: dict[str, int] = {name: n for n, name in enumerate(actions or ())}
        self.keys: list[str] = []
        self.task_of: list[int] = []
        self.expert: list[int] = []
        self.distance: list[float] = []
        self.edges: list[tuple[int, int, int, float, bool]] = []

    def explore(self, place: int, task: Task) -> int:
        """Add the states of `task` and return the first."""
        environment = self.environment
        assert isinstance(environment, Snapshot) and isinstance(environment, StateKey)
        begin(environment, task)
        first = len(self.keys)
        found = {environment.state_key(): first}
        snapshots = [environment.snapshot()]
        self._add(place)
        number = first
        while number < len(self.keys):
            saved = snapshots[number - first]
            environment.restore(saved)
            for name in self._choices():
                environment.restore(saved)
                result = advance(environment, Action(text=name))
                after = END
                if not result.is_terminated:
                    key = environment.state_key()
                    if key not in found:
                        found[key] = len(self.keys)
                        snapshots.append(environment.snapshot())
                        self._add(place)
                    after = found[key]
                self.edges.append((number, self.names[name], after, result.reward, result.is_success is True))
            number += 1
        self._check_chance(task, first, snapshots)
        return first

    def _choices(self) -> tuple[str, ...]:
        """Return what can be done here."""
        if self.given is not None:
            return self.given
        assert isinstance(self.environment, Legal)
        names = self.environment.legal_actions()
        for name in names:
            self.names.setdefault(name, len(self.names))
        return names

    def _add(self, place: int) -> None:
        """Write down the state that the environment is in."""
        environment = self.environment
        assert isinstance(environment, StateKey)
        if len(self.keys) >= self.max_states:
            raise UsageError(
                f"a world to enumerate: got more than {self.max_states} states; take a smaller one, or fewer tasks"
            )
        self.keys.append(environment.state_key())
        self.task_of.append(place)
        word = environment.expert_action().text if isinstance(environment, Expert) else ""
        if word and self.given is None:
            self.names.setdefault(word, len(self.names))
        self.expert.append(self.names.get(word, END))
        away = environment.distance() if isinstance(environment, Distance) else float("nan")
        self.distance.append(float("inf") if away is None else away)

    def _check_chance(self, task: Task, first: int, snapshots: Sequence[object]) -> None:
        """Play the task again, and see that its second state is reached as before."""
        environment = self.environment
        assert isinstance(environment, Snapshot) and isinstance(environment, StateKey)
        begin(environment, task)
        for number, action, after, reward, _ in [edge for edge in self.edges if edge[0] == first]:
            environment.restore(snapshots[number - first])
            result = advance(environment, Action(text=list(self.names)[action]))
            is_same = result.reward == reward and (
                result.is_terminated if after == END else environment.state_key() == self.keys[after]
            )
            if not is_same:
                raise UsageError(
                    f"a world to enumerate: got two results of one action in {task.id}; take one whose chance is in "
                    "its state"
                )

    def world(self, tasks: tuple[Task, ...], horizon: int, start: Sequence[int]) -> World:
        """Return the table."""
        shape = (len(self.keys), len(self.names))
        following, reward = np.full(shape, END, np.int64), np.zeros(shape)
        is_legal, is_success = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        for number, action, after, paid, solved in self.edges:
            following[number, action], reward[number, action] = after, paid
            is_legal[number, action], is_success[number, action] = True, solved
        return World(
            tasks=tasks,
            actions=tuple(self.names),
            horizon=horizon,
            start=np.array(start, np.int64),
            next=following,
            reward=reward,
            is_legal=is_legal,
            is_success=is_success,
            task_of=np.array(self.task_of, np.int64),
            keys=tuple(self.keys),
            expert=np.array(self.expert, np.int64),
            distance=np.array(self.distance),
        )


def log_policy(world: World, theta: Tensor) -> Tensor:
    """Return log π(a|s) [S, A] of the logits `theta` [S, A]; -inf for what is not legal."""
    legal = torch.as_tensor(world.is_legal)
    return torch.log_softmax(theta.masked_fill(~legal, float("-inf")), -1)


def exact_values(world: World, policy: Tensor, *, discount: float = 1.0, outcome: str = "return") -> Values:
    """Return V and Q of `policy`, probabilities [S, A] or [H + 1, S, A] by turns left; differentiable in it.

    Args:
        world: where it acts.
        policy: π(a|s); row h of three dimensions is that with h turns left.
        discount: γ per turn.
        outcome: "return", or "success" for the probability of solving the task.

    Raises:
        UsageError: the policy is not that of the world's states and actions.
    """
    num_states, num_actions = world.is_legal.shape
    if policy.shape[-2:] != (num_states, num_actions):
        raise UsageError(
            f"a policy of {num_states} states and {num_actions} actions: got shape {tuple(policy.shape)}; "
            "give probabilities [states, actions]"
        )
    following = torch.as_tensor(world.next)
    goes_on = (following != END).to(torch.float64)
    paid = torch.as_tensor(world.reward if outcome == "return" else world.success)
    places = following.clamp(min=0)
    v, q = [torch.zeros(num_states, dtype=torch.float64)], [torch.zeros_like(paid)]
    for left in range(1, world.horizon + 1):
        own = policy if policy.dim() == 2 else policy[left]
        q.append(paid + discount * goes_on * v[-1][places])
        v.append((own * q[-1]).sum(-1))
    return Values(v=torch.stack(v), q=torch.stack(q), start=torch.as_tensor(world.start))


def exact_gradient(world: World, theta: Tensor, *, outcome: str = "return") -> tuple[float, Tensor]:
    """Return J of the softmax policy with logits `theta` [S, A], and its gradient ∇J [S, A] in float64."""
    logits = theta.detach().to(torch.float64).requires_grad_()
    objective = exact_values(world, log_policy(world, logits).exp(), outcome=outcome).objective
    (gradient,) = torch.autograd.grad(objective, logits)
    return float(objective.detach()), gradient


def visits(world: World, policy: Tensor) -> Tensor:
    """Return the probability of being in each state with h turns left, [H + 1, S], under an even draw of tasks."""
    num_states = world.num_states
    found = torch.zeros(world.horizon + 1, num_states, dtype=torch.float64)
    found[world.horizon].index_add_(
        0,
        torch.as_tensor(world.start),
        torch.full((len(world.start),), 1 / len(world.start), dtype=torch.float64),
    )
    following = torch.as_tensor(world.next)
    goes_on = following != END
    for left in range(world.horizon, 0, -1):
        mass = found[left][:, None] * (policy if policy.dim() == 2 else policy[left])
        found[left - 1].index_add_(0, following[goes_on], mass[goes_on])
    return found
