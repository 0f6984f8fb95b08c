"""δ = r + γ·V(who speaks next) - V, A = δ + γ·λ·A(who speaks next): advantages along the order of agents (MARFT).

arXiv 2504.16129. Agents of a team act one after the other, and the value of each is of what it sees, words of those
before it in it: Σ_i A_i(· | a_<i) is the advantage of the joint action. So a chain goes through all turns of an episode
in the order of speaking, whoever speaks, and an agent whose word changes nothing has an advantage near 0 although the
episode ends well. A step is the turns until an agent speaks again: γ between its agents, between steps and between
tokens are three. One agent is `gae_turns`, or with level token `gae_tokens`. The value behind the end is the last
speaker's, as there. Unit: none, nothing is normalised. Singleton rule: none needed.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from quintain.credit.gae import final_value, gae, sum_discounted, values_of, with_returns
from quintain.credit.layout import Critic, turn_rewards
from quintain.errors import UsageError, suggestion
from quintain.types import Credit, Group, Trajectory, flatten_scored

Level = Literal["action", "token"]
Pays = Literal["last", "each", "own"]
Order = Sequence[tuple[int, int]]
"""(trajectory, turn) of the parts of one episode, in the order of speaking; see `quintain.data.seats.order_turns`."""


def gae_agents(
    groups: Sequence[Group],
    critic: Critic,
    orders: Sequence[Order],
    *,
    level: Level = "action",
    pays: Pays = "last",
    turn_discount: float = 1.0,
    agent_discount: float = 1.0,
    token_discount: float = 1.0,
    gae_lambda: float = 0.95,
) -> Credit:
    """Estimate per turn, with V at its first token, or per token; `orders` of the scored parts in `groups`.

    `pays` places what a step paid the team: ``last``, on its last agent's turn; ``each``, on the turn of every agent,
    discounted by `agent_discount` for each that comes after; or ``own``: each turn has what its seat was paid. Turns
    without a sampled token are no part of the chain; what they paid goes to the turn before.

    Example: r 0, 1 of two agents and V .2, .5, λ .95, step γ .99 → .76525 with γ .99 between agents, .775 with 1.

    Raises:
        UsageError: `level` or `pays` is another word.
    """
    for asked, got, known in (("level", level, get_args(Level)), ("pays", pays, get_args(Pays))):
        if got not in known:
            raise UsageError(f"{asked} of advantages over agents: got {got!r}; {suggestion(got, known)}")
    trajectories = flatten_scored(groups)
    values = values_of(trajectories, critic)
    states = [[_state(array, level) for array in turns] for turns in values]
    advantages = [[np.zeros(len(array)) for array in turns] for turns in values]
    outcomes = [[np.zeros(len(array)) for array in turns] for turns in values]
    for order in orders:
        steps = _steps([place for place in order if len(values[place[0]][place[1]])])
        chain = [place for step in steps for place in step]
        if not chain:
            continue
        paid = _pay(trajectories, order, steps, pays, agent_discount)
        rewards, discounts = list[float](), list[float]()
        for step in steps:
            for place in step:
                more = 0 if level == "action" else len(values[place[0]][place[1]]) - 1
                rewards += [*[0.0] * more, paid[place]]
                discounts += [
                    *[token_discount] * more,
                    turn_discount if place is step[-1] else agent_discount,
                ]
        before = [states[i][k][:1] if level == "action" else states[i][k] for i, k in chain]
        last = chain[-1][0]
        found = gae(
            rewards,
            np.concatenate(before).tolist(),
            discounts=discounts,
            gae_lambda=gae_lambda,
            final=final_value(critic, last, trajectories[last]),
        )
        ends = np.cumsum([len(array) for array in before])[:-1]
        for kept, numbers in ((advantages, found), (outcomes, sum_discounted(rewards, discounts))):
            for (i, k), own in zip(chain, np.split(np.array(numbers), ends), strict=True):
                kept[i][k] = own if level == "token" else np.full(len(values[i][k]), own[0])
    return with_returns(trajectories, advantages, states, outcomes)


def _state(values: NDArray[np.float64], level: Level) -> NDArray[np.float64]:
    """Return the value that stands before each token: its own, or that before the first."""
    return values if level == "token" or not len(values) else np.full(len(values), values[0])


def _steps(order: Order) -> list[list[tuple[int, int]]]:
    """Return `order` in steps, which end where an agent speaks again."""
    steps: list[list[tuple[int, int]]] = []
    for place in order:
        if not steps or place[0] in {agent for agent, _ in steps[-1]}:
            steps.append([])
        steps[-1].append(place)
    return steps


def _pay(
    trajectories: Sequence[Trajectory],
    order: Order,
    steps: Sequence[Sequence[tuple[int, int]]],
    pays: Pays,
    discount: float,
) -> dict[tuple[int, int], float]:
    """Return what each turn of `steps` is paid."""
    found = dict.fromkeys([place for step in steps for place in step], 0.0)
    acting = steps[0][0]
    for i, k in order:
        acting = (i, k) if (i, k) in found else acting
        own = turn_rewards(trajectories[i])[k]
        found[acting] += (
            own if pays == "own" else (trajectories[i].turn_rewards or turn_rewards(trajectories[i]))[k]
        )
    if pays == "own":
        return found
    for step in steps:
        total = sum(found[place] for place in step)
        for behind, place in enumerate(reversed(step)):
            found[place] = total * discount**behind if pays == "each" or not behind else 0.0
    return found
