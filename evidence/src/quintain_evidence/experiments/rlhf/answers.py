"""A world of short answers, a reward model that was fitted to comparisons of them, and PPO on what it says.

An answer is one to four of three tokens. What it is worth is linear in what a reward model sees of it (which tokens
stand where, which follow each other, how long it is), and another such function for answers that the starting policy
hardly gives. The reward model is fitted to comparisons of answers of that policy, through the samples and the loss that
ship: where the policy never went, it knows nothing. PPO runs on tables of logits and values, by the credit and the
losses of the method itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.data.comparisons import Comparisons, Labeller, comparison_samples, label_groups
from quintain.data.pack import pack
from quintain.losses.compose import combine
from quintain.losses.reward_model import bradley_terry
from quintain.losses.value import value
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Needs
from quintain.types import Credit, Group, Outputs, Task, Trajectory, flatten_scored
from quintain_evidence.labs.exact import END, World
from quintain_evidence.labs.tabular import TablePolicy, TabularRun, actions_of, train_table

TOKENS, LONGEST = 3, 4
STOP = TOKENS
"""the action that ends an answer before its longest"""
RIDGE = 0.01

Answer = tuple[int, ...]


@dataclass(frozen=True)
class Answers:
    """All answers, as a world of one task."""

    world: World
    """pays what an answer is worth when it ends"""
    texts: tuple[Answer, ...]
    features: NDArray[np.float64]
    """[answer, feature], of mean 0 and deviation 1 over answers"""
    worth: NDArray[np.float64]
    """[answer]"""

    def index(self, trajectory: Trajectory) -> int:
        """Return the number of the answer that an episode is."""
        said = tuple(a for a in actions_of(trajectory, self.world) if a != STOP)
        return self.texts.index(said)


def answers(
    rng: np.random.Generator, *, rare: float, worse: float, spread: float
) -> tuple[Answers, TablePolicy]:
    """Return a world and its starting policy, whose logits have the deviation `spread`.

    The worth of the answers that the start gives is linear in their features. Of those that it gives with a chance
    below `rare` each it is another such function, lower by `worse` on average, which no comparison tells of.
    """
    prefixes = [p for length in range(LONGEST) for p in product(range(TOKENS), repeat=length)]
    place = {prefix: number for number, prefix in enumerate(prefixes)}
    texts = tuple(p for length in range(1, LONGEST + 1) for p in product(range(TOKENS), repeat=length))
    features = normal(np.array([seen(text) for text in texts]))
    start = torch.from_numpy(rng.normal(0, spread, (len(prefixes), TOKENS + 1)))
    usual, other = (normal(features @ rng.normal(size=features.shape[1])) for _ in range(2))
    number = {text: at for at, text in enumerate(texts)}
    after = np.full((len(prefixes), TOKENS + 1), END)
    ends = np.full(after.shape, -1)
    for prefix, state in place.items():
        for action in range(TOKENS + 1):
            longer = prefix if action == STOP else (*prefix, action)
            if action != STOP and len(longer) < LONGEST:
                after[state, action] = place[longer]
            elif longer:
                ends[state, action] = number[longer]
    legal = np.ones(after.shape, np.bool_)
    legal[0, STOP] = False
    empty = World(
        tasks=(Task(id="answers", environment="answers", seed=0),),
        actions=(*map(str, range(TOKENS)), "stop"),
        horizon=LONGEST,
        start=np.zeros(1, np.int64),
        next=after,
        reward=np.zeros(after.shape),
        is_legal=legal,
        is_success=np.zeros(after.shape, np.bool_),
        task_of=np.zeros(len(prefixes), np.int64),
        keys=tuple(map(str, prefixes)),
        expert=np.full(len(prefixes), END),
        distance=np.full(len(prefixes), np.nan),
    )
    unpaid = Answers(empty, texts, features, usual)
    worth = np.where(chances(unpaid, TablePolicy(empty, start)) < rare, other - worse, usual)
    world = replace(empty, reward=np.where(ends >= 0, worth[ends], 0.0))
    return Answers(world, texts, features, worth), TablePolicy(world, start)


def seen(text: Answer) -> list[float]:
    """Return what a reward model sees of an answer."""
    places = [float(at < len(text) and text[at] == token) for at in range(LONGEST) for token in range(TOKENS)]
    follows = [
        float(sum((a, b) == pair for a, b in pairwise(text))) for pair in product(range(TOKENS), repeat=2)
    ]
    return [*places, *follows, float(len(text))]


def normal(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `numbers` with mean 0 and deviation 1 over their rows."""
    return (numbers - numbers.mean(0)) / np.maximum(numbers.std(0), 1e-12)


def compared(groups: Sequence[Group], *, size: int, temperature: float) -> Comparisons:
    """Return what a labeller says of the answers of `groups`."""
    return label_groups(groups, Labeller(temperature=temperature), size=size)


def scaled(made: Answers, policy: TablePolicy, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `scores` [answer] with mean 0 and deviation 1 over the answers of `policy`, as in arXiv 1909.08593."""
    chance = chances(made, policy)
    mean = chance @ scores
    return (scores - mean) / np.sqrt(chance @ (scores - mean) ** 2)


def fitted(made: Answers, comparisons: Comparisons) -> NDArray[np.float64]:
    """Return the scores [answer] of a linear reward model that is fitted to `comparisons`."""
    batch = pack(comparison_samples(comparisons))
    numbers = [made.index(answer) for each in comparisons for answer in each.answers]
    marks = (batch.turn_id >= 0).nonzero().squeeze(1)
    inputs = torch.from_numpy(made.features)[numbers]
    weights = torch.zeros(inputs.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")
    loss = bradley_terry()

    def closure() -> float:
        optimizer.zero_grad()
        values = weights.new_zeros(len(batch.token_ids)).index_copy(0, marks, inputs @ weights)
        said = Outputs(logprobs=values, entropy=values, values=values)
        total = loss(said, batch).loss + RIDGE * weights.square().sum()
        total.backward()
        return float(total.detach())

    optimizer.step(closure)
    return made.features @ weights.detach().numpy()


Price = Callable[[Sequence[Trajectory], Estimates], Estimates]
"""(episodes, what is known of them) → the same with other log-probs of the reference"""


def same_price(_: Sequence[Trajectory], estimates: Estimates) -> Estimates:
    """Return `estimates`: the price of the method itself."""
    return estimates


def scored_by(
    method: OnPolicy, made: Answers, scores: NDArray[np.float64], price: Price = same_price
) -> OnPolicy:
    """Return `method` for tables: its reward model says `scores` [answer], its critic learns in the same update."""

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        trajectories = flatten_scored(groups)
        said = [float(scores[made.index(trajectory)]) for trajectory in trajectories]
        return method.credit(groups, price(trajectories, replace(estimates, scores=said)))

    return replace(
        method,
        credit=credit,
        update=replace(method.update, loss=combine((method.update.loss, 1.0), (value(), 1.0))),
        needs=Needs(critic=True, reference_logprobs=method.needs.reference_logprobs),
    )


def trained(
    method: OnPolicy, start: TablePolicy, *, batches: int, episodes: int, rate: float, epochs: int, seed: int
) -> TabularRun:
    """Return what PPO comes to from `start`."""
    return train_table(
        TablePolicy(start.world, start.theta, torch.zeros(start.world.num_states)),
        method,
        num_batches=batches,
        size=episodes,
        seed=seed,
        rate=rate,
        num_epochs=epochs,
        optimizer=lambda parameters, step: torch.optim.Adam(parameters, step),
    )


def expected(made: Answers, policy: TablePolicy, scores: NDArray[np.float64]) -> float:
    """Return the exact mean of `scores` [answer] over the answers of `policy`."""
    return float(chances(made, policy) @ scores)


def chances(made: Answers, policy: TablePolicy) -> NDArray[np.float64]:
    """Return the exact probability of each answer."""
    each = policy.probabilities().numpy()
    prefixes = {key: number for number, key in enumerate(made.world.keys)}
    found = np.ones(len(made.texts))
    for number, text in enumerate(made.texts):
        said = text if len(text) == LONGEST else (*text, STOP)
        for at, action in enumerate(said):
            found[number] *= each[prefixes[str(text[:at])], action]
    return found
