"""B_i = ½ Σ_a |p(a | y) - p(a | y without y_i)|: how much each token decides the action, for weighted entropy (CoSo).

Counterfactual soft RL (arXiv 2505.03792) explores in tokens that change the parsed action and leaves filler alone. p
predicts the action from the tokens of a turn and is learned from episodes: the paper trains a small encoder, here it is
naive Bayes with smoothing over tokens and their places, p(a | y) ∝ n_a Π_d (n_{a,d,y_d} + s)/(n_a + 2s), d the place
counted from the turn's end. Only the end of a turn is looked at, from which alone an action can be told: one token more
than two turns of a step ever share at their ends though their actions differ. So a thought that names what is then done
explains nothing away, and of two equal tokens each has its place. A token is nullified by leaving its place empty.
Weights are numbers without gradient, and a token that changes nothing has weight 0.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quintain.types import Batch, Group, Turn, derive_seed

if TYPE_CHECKING:
    from torch import Tensor

OTHER = "other"
"""Name of all actions beyond those that are told apart."""
LONGEST = 64
"""Tokens of a turn's end that are looked at at most."""
Placed = tuple[int, int]
"""(place from the end, the last token's is 0; token)"""


class ActionModel:
    """Predicts the action from the tokens of a turn: ``model.update(groups)``, then ``model.weights(token_ids)``."""

    def __init__(
        self,
        *,
        window: int = 1,
        max_actions: int = 32,
        label: Callable[[Turn], str] | None = None,
        smoothing: float = 0.1,
    ) -> None:
        """Nullify `window` tokens around each (the official code: 4); tell `max_actions` actions apart.

        `label` names the action of a turn: by default its tool with what it is given, or else its text.
        """
        self.window, self.max_actions, self.smoothing = window, max_actions, smoothing
        self.label = label or action_name
        self._actions: dict[str, int] = {}
        self._seen: Counter[int] = Counter()
        self._tokens: dict[int, Counter[Placed]] = {}
        self._known: dict[tuple[int, ...], list[float]] = {}
        self._logs: dict[Placed, NDArray[np.float64]] = {}
        self.num_deciding = 0
        """tokens of a turn's end that tell its action"""
        self._totals = np.zeros(0)
        """how often each action was seen, [actions]"""

    def update(self, groups: Sequence[Group]) -> None:
        """Count which tokens stand where in which actions; what could not be read is no action."""
        self._known.clear()
        self._logs.clear()
        ends: dict[tuple[int, ...], set[int]] = {}
        for group in groups:
            for trajectory in group.scored:
                for turn in trajectory.turns:
                    if turn.action.error is None and turn.completion.token_ids:
                        end = turn.completion.token_ids[: -LONGEST - 1 : -1]
                        ends.setdefault(end, set()).add(self._count(self.label(turn), end))
        self.num_deciding = max(self.num_deciding, min(deciding(ends), LONGEST))
        self._totals = np.array(
            [self._seen[action] for action in range(len(self._actions))], dtype=np.float64
        )

    def probabilities(self, placed: Iterable[Placed]) -> NDArray[np.float64]:
        """Return p(action | tokens at their places), [actions]."""
        if not self._actions:
            return np.zeros(0)
        logs = np.log(self._totals) + sum(map(self._evidence, placed), np.zeros(len(self._actions)))
        weights = np.exp(logs - logs.max())
        return weights / weights.sum()

    def weights(self, token_ids: Sequence[int]) -> list[float]:
        """Return B of each token, in [0, 1]; all 0 while fewer than two actions are known."""
        key = tuple(token_ids)
        if key not in self._known:
            self._known[key] = self._weights(key)
        return self._known[key]

    def _weights(self, ids: tuple[int, ...]) -> list[float]:
        if len(self._actions) < 2:
            return [0.0] * len(ids)
        last = len(ids) - 1
        looked_at = range(max(0, len(ids) - self.num_deciding), len(ids))
        whole = self.probabilities((last - k, ids[k]) for k in looked_at)
        found: list[float] = []
        for place in range(len(ids)):
            start = max(0, place - (self.window - 1) // 2)
            rest = ((last - k, ids[k]) for k in looked_at if not start <= k < start + self.window)
            found.append(0.5 * float(np.abs(whole - self.probabilities(rest)).sum()))
        return found

    def _evidence(self, token: Placed) -> NDArray[np.float64]:
        """Return log p(token at its place | action), [actions]."""
        if token not in self._logs:
            found = np.array([self._tokens[action][token] for action in range(len(self._actions))])
            self._logs[token] = np.log((found + self.smoothing) / (self._totals + 2 * self.smoothing))
        return self._logs[token]

    def _count(self, name: str, end: Sequence[int]) -> int:
        """Count a turn that ends with `end`, the last token first, and return the number of its action."""
        if name not in self._actions and len(self._actions) >= self.max_actions - 1:
            name = OTHER
        action = self._actions.setdefault(name, len(self._actions))
        self._seen[action] += 1
        self._tokens.setdefault(action, Counter()).update(enumerate(end))
        return action


def deciding(ends: Mapping[tuple[int, ...], set[int]]) -> int:
    """Return by how many tokens two of the `ends` (last token first → actions) can be told apart whose actions differ.

    Of ends in order the longest common beginning of two with different actions is that of two neighbours. 0 where all
    have one action; the same end of two actions can be told apart by no number of tokens and counts nothing.
    """
    shared = [
        next(
            (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
        )
        for one, other in pairwise(sorted(ends))
        if len(ends[one] | ends[other]) > 1
    ]
    return max(shared, default=-1) + 1


def action_name(turn: Turn) -> str:
    """Return the tool that `turn` calls with its arguments, ``guess {"number": 4}``, or else the text of its action."""
    if not turn.action.tool_calls:
        return turn.action.text
    call = turn.action.tool_calls[0]
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True)}" if call.arguments else call.name


def causal_weights(model: ActionModel, *, is_permuted: bool = False) -> Callable[[Batch], Tensor]:
    """Return the weights B [N] of the sampled tokens of a batch, 0 elsewhere, for `entropy_bonus`.

    With `is_permuted` the tokens of a turn exchange their weights, each turn's tokens always in the same way: as much
    weight in all, but no longer where the action is decided.
    """

    def weights(batch: Batch) -> Tensor:
        ids, turns = batch.token_ids.tolist(), batch.turn_id.tolist()
        places = list(zip(batch.sequence_id.tolist(), turns, strict=True))
        found = [0.0] * len(ids)
        sampled = (at for at, turn in enumerate(turns) if turn >= 0)
        for _, run in groupby(sampled, key=places.__getitem__):
            turn = list(run)
            tokens = [ids[at] for at in turn]
            own = list(model.weights(tokens))
            if is_permuted:
                random.Random(derive_seed("permuted", *tokens)).shuffle(own)
            for at, weight in zip(turn, own, strict=True):
                found[at] = weight
        return batch.loss_weight.new_tensor(found)

    return weights
