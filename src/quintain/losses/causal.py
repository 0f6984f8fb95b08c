"""B_i = ½ Σ_a |p(a | y) - p(a | y without y_i)|: how much each token decides the action, for weighted entropy (CoSo).

Counterfactual soft RL (arXiv 2505.03792) explores in tokens that change the parsed action and leaves filler alone. p
predicts the action from the tokens of a turn and is learned from episodes: the paper trains a small encoder, here it is
naive Bayes with smoothing, which only counts, so the order of episodes means nothing. A token is nullified by leaving
it out. Weights are numbers without gradient, and a token that changes nothing has weight 0.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quintain.types import Batch, Group, Turn, derive_seed

if TYPE_CHECKING:
    from torch import Tensor

OTHER = "other"
"""Name of all actions beyond those that are told apart."""


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
        self._tokens: dict[int, Counter[int]] = {}
        self._known: dict[tuple[int, ...], list[float]] = {}
        self._logs: dict[int, NDArray[np.float64]] = {}
        self._totals = np.zeros(0)
        """how often each action was seen, [actions]"""

    def update(self, groups: Sequence[Group]) -> None:
        """Count which tokens stand in which actions; what could not be read is no action."""
        self._known.clear()
        self._logs.clear()
        for group in groups:
            for trajectory in group.scored:
                for turn in trajectory.turns:
                    if turn.action.error is None and turn.completion.token_ids:
                        self._count(self.label(turn), turn.completion.token_ids)
        self._totals = np.array(
            [self._seen[action] for action in range(len(self._actions))], dtype=np.float64
        )

    def probabilities(self, counts: Counter[int]) -> NDArray[np.float64]:
        """Return p(action | tokens), [actions], for the set of tokens in `counts`."""
        if not self._actions:
            return np.zeros(0)
        logs = np.log(self._totals) + sum(map(self._evidence, counts), np.zeros(len(self._actions)))
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
        whole = self.probabilities(Counter(ids))
        found: list[float] = []
        for place in range(len(ids)):
            start = max(0, place - (self.window - 1) // 2)
            rest = Counter(ids[:start] + ids[start + self.window :])
            found.append(0.5 * float(np.abs(whole - self.probabilities(rest)).sum()))
        return found

    def _evidence(self, token: int) -> NDArray[np.float64]:
        """Return log p(token | action), [actions]."""
        if token not in self._logs:
            found = np.array([self._tokens[action][token] for action in range(len(self._actions))])
            self._logs[token] = np.log((found + self.smoothing) / (self._totals + 2 * self.smoothing))
        return self._logs[token]

    def _count(self, name: str, ids: Sequence[int]) -> None:
        if name not in self._actions and len(self._actions) >= self.max_actions - 1:
            name = OTHER
        action = self._actions.setdefault(name, len(self._actions))
        self._seen[action] += 1
        self._tokens.setdefault(action, Counter()).update(set(ids))


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
