"""SWEET-RL: does a critic that is told what the policy does not see order turns better than one told of another task?

`collab` as a table: three slots of four values, of which a user tells some at once and the others when asked. The
policy is an expert who errs in half of its turns: it hands in guesses, and asks for what it knows. The critic is linear
in pairs of a word that it reads (what is known of a slot, and the hidden value of each slot) and a word of the action;
what it adds to the policy's log-probs is learned from whole episodes, the best of a task against those of lower
outcome, through the pairs, samples and loss that ship. In held-out tasks it ranks 16 actions of the policy at states
that the policy visits. The number is the share of pairs of submissions that A orders as the exact Q does. The control
is told what another task hides, in training and in ranking. In the null world nothing is hidden any more: the share is
that of states in which the user has said all, where a submission stands against a question that is not needed.

Beside it: the same where one of the two actions asks, at all states. Nobody who asks sees more than the policy does, so
there a submission is worth its mean over what may be hidden. And both for a critic that is told nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quintain.credit_lab.permute import derange
from quintain.data.pack import pack
from quintain.data.pairs import Pairs, best_and_lower
from quintain.data.samples import pair_samples
from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.losses.preference import dpo
from quintain.testing.pupil import tasks_from
from quintain.types import Outputs, derive_seed, flatten_scored
from quintain.worlds.collab.game import Collab
from quintain_evidence.experiments.preference.blocks import table_of
from quintain_evidence.labs.exact import World, enumerate_world, exact_values
from quintain_evidence.labs.tabular import TablePolicy, states_of

SPEC = "collab?slots=3&values=4&told=0.5&graded=dense&patience=5"
LEAST = 0.02
"""Difference of exact values above which one of two actions is the better one."""


@dataclass(frozen=True, eq=False)
class Talks:
    """An enumerated world of talks with what can be read in it."""

    world: World
    known: NDArray[np.bool_]
    """[S, slots] whether the value of a slot was said"""
    wish: NDArray[np.int64]
    """[S, slots] the value that is wanted, hidden or not"""
    asks: NDArray[np.int64]
    """[A] the slot that an action asks for, -1 of submissions"""
    submits: NDArray[np.int64]
    """[A, slots] the value that a submission has, -1 of questions"""
    values: int

    @property
    def words(self) -> NDArray[np.float64]:
        """Return [A, words] of actions: the slot asked for, the values submitted, and that they are."""
        asked = np.eye(self.known.shape[1] + 1)[self.asks][:, :-1]
        said = np.eye(self.values + 1)[self.submits][:, :, :-1].reshape(len(self.asks), -1)
        return np.hstack([asked, said, (self.asks < 0)[:, None]])  # pyright: ignore[reportReturnType] # adds as 0 and 1

    def read(self, hidden: NDArray[np.int64] | None) -> NDArray[np.float64]:
        """Return [S, words] of states: of each slot its value or that it is not known, and what is `hidden` [S, slots].

        None: nothing is told beside the state.
        """
        seen = np.where(self.known, self.wish, self.values)
        shown = np.eye(self.values + 1)[seen].reshape(len(seen), -1)
        told = np.zeros((len(seen), self.wish.shape[1] * self.values))
        if hidden is not None:
            told = np.eye(self.values)[hidden].reshape(len(seen), -1)
        return np.hstack([np.ones((len(seen), 1)), shown, told])


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with tasks of its own."""
    return [replication(options, derive_seed(seed, number)) for number in range(int(options["seeds"]))]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return what critics come to that learned from some tasks, on others."""
    num, held = int(options.get("tasks", 128)), int(options.get("held_out", 32))
    talks = talks_of(num + held, derive_seed("sweet_rl", seed) % 1_000_000)
    policy = table_of(talks.world, erring(talks, float(options.get("mistakes", 0.5))))
    shown = policy.sample(size=8, seed=derive_seed(seed, "shown"), tasks=range(num))
    pairs = best_and_lower(shown)
    seen = sorted(
        {s for t in flatten_scored(policy.sample(size=8, seed=derive_seed(seed, "seen"), tasks=range(num, num + held)))
         for s in states_of(t)}
    )  # fmt: skip
    drawn = ways_on(policy, seen, int(options.get("candidates", 16)), seed)
    order = orders(talks, policy, drawn)
    other = foreign(talks, num, seed)

    def shares(hidden: NDArray[np.int64] | None) -> list[float]:
        read = talks.read(hidden)
        worth = read @ learned(talks, read, policy, pairs, options) @ talks.words.T
        return [share(worth, part) for part in order]

    method, control, absent = shares(talks.wish), shares(other), shares(None)
    return {
        "method": method[0],
        "control": control[0],
        "null_method": method[2],
        "null_control": control[2],
        "extra.asking": method[1],
        "extra.asking_gap": method[1] - control[1],
        "extra.absent": absent[0],
        "extra.absent_asking": absent[1],
        "extra.success": policy.objective("success"),
        "extra.pairs": float(len(pairs)),
        "extra.submissions": float(len(order[0])),
        "extra.questions": float(len(order[1])),
        "extra.open": float(len(order[2])),
    }


def talks_of(num: int, first: int) -> Talks:
    """Return the talks of `num` tasks from number `first` on."""
    tasks = tasks_from(SPEC, num, first=first)
    environment = find(SPEC)()
    assert isinstance(environment, Collab), "the world of the claim"
    world = enumerate_world(find(SPEC), tasks, horizon=environment.max_turns)
    wishes: list[list[str]] = []
    for task in tasks:
        begin(environment, task)
        wishes.append(environment.privileged().split(", "))
    shape = environment.shape
    names = [shape.options(slot) for slot in range(shape.slots)]
    wish = np.array([[own.index(value) for own, value in zip(names, told, strict=True)] for told in wishes])
    known = np.zeros((world.num_states, shape.slots), np.bool_)
    for state, key in enumerate(world.keys):
        known[state, [int(slot) for slot in re.findall(r"\d+", key.split(":")[1])]] = True
    asks = np.full(len(world.actions), -1)
    submits = np.full((len(world.actions), shape.slots), -1)
    for place, action in enumerate(world.actions):
        word, _, rest = action.partition(" ")
        if word == "ask":
            asks[place] = shape.names.index(rest)
        else:
            submits[place] = [own.index(value) for own, value in zip(names, rest.split(", "), strict=True)]
    return Talks(world, known, wish[world.task_of], asks, submits, shape.values)


def erring(talks: Talks, rate: float) -> NDArray[np.float64]:
    """Return the probabilities [S, A] of an expert whose mistakes, at a share `rate` of turns, are those of the world.

    Half of these are questions about any slot, half are submissions with a guess of what is not known.
    """
    is_ask = talks.asks >= 0
    fits = np.where(talks.known[:, None], talks.submits[None] == talks.wish[:, None], 1 / talks.values).prod(
        -1
    )
    mistake = np.where(is_ask, 0.5 / is_ask.sum(), 0.5 * fits)
    expert = np.eye(len(talks.asks))[talks.world.expert]
    return (1 - rate) * expert + rate * mistake


def foreign(talks: Talks, num: int, seed: int) -> NDArray[np.int64]:
    """Return [S, slots] what another task wants, one of the first `num` for these and one of the rest for the rest."""
    total = len(talks.world.tasks)
    first = derange(num, derive_seed(seed, "taught"))
    rest = [num + place for place in derange(total - num, derive_seed(seed, "held out"))]
    by_task = talks.wish[talks.world.start]
    return by_task[[*first, *rest]][talks.world.task_of]


def learned(
    talks: Talks, read: NDArray[np.float64], policy: TablePolicy, pairs: Pairs, options: Mapping[str, Any]
) -> NDArray[np.float64]:
    """Return the weights [words of a state, words of an action] of a critic that learned from `pairs`."""
    batch = pack(pair_samples(list(pairs)))
    targets = (batch.turn_id >= 0).nonzero().squeeze(1)
    states, place = batch.token_ids[targets - 1].unique(return_inverse=True)
    actions = batch.token_ids[targets] - talks.world.num_states
    before = policy.logs().detach().double()[states]
    words, seen = torch.from_numpy(talks.words), torch.from_numpy(read)[states]
    empty = torch.zeros(len(batch.token_ids), dtype=torch.float64)

    def said(weights: Tensor) -> Tensor:
        logs = (before + seen @ weights @ words.T).log_softmax(-1)
        return empty.index_copy(0, targets, logs[place, actions])

    weights = torch.zeros(read.shape[1], talks.words.shape[1], dtype=torch.float64)
    reference = said(weights)
    batch = replace(batch, extra=replace(batch.extra, reference_logprobs=reference))
    loss = dpo(float(options.get("critic_beta", 1.0)), by_turn=True)
    weights.requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=float(options.get("rate", 0.05)))
    for _ in range(int(options.get("updates", 100))):
        optimizer.zero_grad()
        loss(Outputs(logprobs=said(weights), entropy=empty), batch).loss.backward()
        optimizer.step()
    return weights.detach().numpy()


def ways_on(policy: TablePolicy, states: Sequence[int], count: int, seed: int) -> list[tuple[int, list[int]]]:
    """Return each of `states` with the different ones of `count` actions that `policy` draws there."""
    rng = np.random.default_rng(derive_seed(seed, "ways on") % (1 << 63))
    odds = policy.probabilities().numpy()
    found: list[tuple[int, list[int]]] = []
    for state in states:
        own = odds[state] / odds[state].sum()
        found.append((state, sorted(set(rng.choice(len(own), count, p=own).tolist()))))
    return found


Order = list[tuple[int, int, int]]
"""(state, better action, worse action)"""


def orders(
    talks: Talks, policy: TablePolicy, drawn: Sequence[tuple[int, list[int]]]
) -> tuple[Order, Order, Order]:
    """Return the pairs of two submissions by their exact worth, those with a question by what can be seen, and which
    of the latter are at states that hide nothing.
    """
    exact = exact_values(talks.world, policy.probabilities()).q[-1].numpy()
    right = talks.submits[None] == talks.wish[:, None]
    seen = np.where(talks.known[:, None], right, 1 / talks.values).mean(-1)
    expected = np.where(talks.asks >= 0, exact, seen)

    def ordered(is_wanted: Callable[[int, int], bool], worth: NDArray[np.float64]) -> Order:
        return [
            (state, a, b) if worth[state, a] > worth[state, b] else (state, b, a)
            for state, actions in drawn
            for a, b in combinations(actions, 2)
            if is_wanted(a, b) and abs(worth[state, a] - worth[state, b]) > LEAST
        ]

    def submit(a: int, b: int) -> bool:
        return max(talks.asks[a], talks.asks[b]) < 0

    with_question = ordered(lambda a, b: not submit(a, b), expected)
    return (
        ordered(submit, exact),
        with_question,
        [each for each in with_question if talks.known[each[0]].all()],
    )


def share(worth: NDArray[np.float64], order: Order) -> float:
    """Return the share of pairs that `worth` [S, A] orders rightly, equal ones a half."""
    gaps = np.array([worth[state, better] - worth[state, worse] for state, better, worse in order])
    return float(np.mean(0.5 + 0.5 * np.sign(np.where(np.abs(gaps) > 1e-9, gaps, 0.0))))
