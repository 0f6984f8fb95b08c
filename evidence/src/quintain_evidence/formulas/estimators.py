"""Prices, filters and small estimators that methods share, each beside a plain second version."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.credit.decomposition import describe_turn, describe_turns
from quintain.credit.outcome import outcome_return
from quintain.testing.episodes import TASK, episode_of, turn_of
from quintain.types import (
    Action,
    Batch,
    BatchExtra,
    Group,
    Score,
    Trajectory,
    Turn,
    derive_seed,
    flatten_scored,
)
from quintain_evidence.formulas.conduct import episodes, groups
from quintain_evidence.formulas.credit import Case, constant, draw
from quintain_evidence.formulas.formula import Formula, Rng, flatten

SIZE = 64
"""Features of the small estimators."""


def priced(module: ModuleType, case: Case) -> list[float]:
    """Return the KL as a reward of tokens, of episodes sampled with log-prob -½, and sums of it added to groups."""
    reference = [[np.array(turn) for turn in play.values] for play in case.plays]
    rewards = module.kl_rewards(case.groups, reference, coefficient=0.3)
    added = flatten_scored(module.add_token_rewards(case.groups, rewards))
    outcomes = [t.outcome.value for t in added if isinstance(t.outcome, Score)]
    return flatten([rewards, [[turn.reward for turn in t.turns] for t in added], outcomes])


def price(case: Case) -> list[float]:
    """Return -.3·(-½ - log π_ref) of each token, then turns and episodes with their sums."""
    tokens = [[[0.3 * (0.5 + x) for x in turn] for turn in play.values] for play in case.plays]
    turns = [
        [r + sum(own) for r, own in zip(p.rewards, row, strict=True)]
        for p, row in zip(case.plays, tokens, strict=True)
    ]
    return flatten([tokens, turns, [sum(row) for row in turns]])


def prepared(case: Case) -> Case:
    """Return `case` with references in single precision, as they are checked and stored."""
    plays = [
        replace(play, values=[[float(np.float32(x)) for x in turn] for turn in play.values])
        for play in case.plays
    ]
    return Case(groups=case.groups, plays=plays)


def large(module: ModuleType, case: Case) -> list[float]:
    """Return outcomes as advantages without the small ones."""
    return flatten(module.drop_small(outcome_return(case.groups), 0.5).advantages)


def kept(case: Case) -> list[float]:
    """Return the same by hand, in single precision."""
    totals = [float(np.float32(play.total)) for play in case.plays]
    return flatten([constant(case, [x if abs(x) >= 0.5 else 0.0 for x in totals])])


def adapted(module: ModuleType, case: Case) -> list[float]:
    """Return λ of each episode."""
    rule = module.length_adaptive(0.2)
    return [rule(t) for t in flatten_scored(case.groups)]


def to_go(rng: Rng) -> list[list[float]]:
    """Return the rewards of some episodes."""
    return [rng.normal(size=int(n)).tolist() for n in rng.integers(1, 8, 10)]


def spoken(rng: Rng, num: int) -> tuple[Turn, ...]:
    """Return turns of a few tokens out of few."""
    return tuple(
        turn_of(
            rng.integers(0, 6, int(rng.integers(1, 4))).tolist(),
            Action(text="abc"[int(rng.integers(0, 3))]),
            prompt_ids=tuple(rng.integers(0, 5, int(rng.integers(1, 5))).tolist()),
            is_valid=bool(rng.random() < 0.7),
        )
        for _ in range(num)
    )


def few(rng: Rng) -> list[Group]:
    """Return up to four episodes of up to three turns: as many rows as conjugate gradients solve exactly."""
    members: list[Trajectory] = []
    for index in range(int(rng.integers(2, 5))):
        value = round(float(rng.normal()), 2)
        turns = spoken(rng, int(rng.integers(1, 4)))
        members.append(episode_of(turns, value, is_success=value > 0, index=index))
    return [Group(task=TASK, trajectories=tuple(members))]


def contributed(module: ModuleType, case: Sequence[Group]) -> list[float]:
    """Return what the estimator predicts for the episodes that it learned from, and by how much sums miss."""
    estimator = module.Contributions(SIZE, ridge=10.0, discount=0.9)
    estimator.update(case)
    found = [[*estimator.predict(t), estimator.error(t)] for t in flatten_scored(case)]
    return flatten(found)


def hashed(name: str, key: object, *parts: int) -> int:
    """Return the feature of a key."""
    return derive_seed(name, *parts, repr(key)) % SIZE


def dense(
    turns: Sequence[Sequence[Sequence[object]]], fresh: Sequence[Sequence[object]]
) -> NDArray[np.float64]:
    """Return features [turns, size]: each group of keys has length 1, and what was met so far is one group."""
    found = np.zeros((len(turns), SIZE))
    met: list[object] = []
    for row, (parts, new) in enumerate(zip(turns, fresh, strict=True)):
        met += new
        for part in (*parts, met):
            for key in part:
                found[row, hashed("feature", key, 0)] += 1 / np.sqrt(len(part))
    return found


def decomposed(case: Sequence[Group]) -> list[float]:
    """Return the same by solving both ridge regressions exactly, and the two numbers that make sums fit."""
    trajectories = flatten_scored(case)
    told = [describe_turns(t.turns) for t in trajectories]
    states = [dense(s, f) for s, _, f in told]
    actions = [dense(a, [[] for _ in a]) for _, a, _ in told]
    outcomes = [t.outcome.value for t in trajectories if isinstance(t.outcome, Score)]
    targets = np.array(
        [y * 0.9 ** (len(s) - 1 - k) for y, s in zip(outcomes, states, strict=True) for k in range(len(s))]
    )

    def ridge(rows: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.linalg.solve(rows.T @ rows + 10.0 * np.eye(SIZE), rows.T @ wanted), np.float64)

    seen, done = np.concatenate(states), np.concatenate(actions)
    values = ridge(seen, targets - targets.mean())
    gains = ridge(done, targets - targets.mean() - seen @ values)
    raw: list[NDArray[np.float64]] = []
    for s, a in zip(states, actions, strict=True):
        v, g = targets.mean() + s @ values, a @ gains
        raw.append(
            np.array([g[k] + (0.9 * v[k + 1] - v[k] if k + 1 < len(g) else 0.0) for k in range(len(g))])
        )
    sums, counts = np.array([r.sum() for r in raw]), np.array([float(len(r)) for r in raw])
    gram = [[sums @ sums + 1, sums @ counts], [sums @ counts, counts @ counts + 1]]
    scale, shift = np.linalg.solve(np.array(gram), np.array([sums @ outcomes + 1, counts @ outcomes]))
    found: list[float] = []
    for r, y in zip(raw, outcomes, strict=True):
        parts = (max(scale, 0.0) * r + shift).tolist()
        found += [*parts, abs(sum(parts) - y)]
    return found


def is_right(trajectory: Trajectory, number: int) -> bool | None:
    """Label a turn by its action; some are no answers."""
    return {"a": True, "b": False}.get(trajectory.turns[number].action.text)


def verified(module: ModuleType, case: Sequence[Group]) -> list[float]:
    """Return the scores of all turns after two batches of evidence."""
    verifier = module.Verifier(is_right, size=SIZE, penalty=0.05, rounds=7)
    verifier.update(case)
    verifier.update(case)
    return [verifier.score(turn) for t in flatten_scored(case) for turn in t.turns]


def judged(case: Sequence[Group]) -> list[float]:
    """Return Bradley-Terry weights after seven steps of descent, pair by pair, times features."""

    def features(turn: Turn) -> NDArray[np.float64]:
        row = np.zeros(SIZE)
        for key in describe_turn(turn, is_first=False):
            row[hashed("verifier", key)] += 1
        return row / np.sqrt((row**2).sum())

    pairs: list[NDArray[np.float64]] = []
    for group in [*case, *case]:
        turns = [(t, k) for t in group.trajectories for k in range(len(t.turns))]
        right = [features(t.turns[k]) for t, k in turns if t.turns[k].action.text == "a"]
        wrong = [features(t.turns[k]) for t, k in turns if t.turns[k].action.text == "b"]
        if right:
            pairs += [right[number % len(right)] - other for number, other in enumerate(wrong)]
    weights = np.zeros(SIZE)
    for _ in range(7 if pairs else 0):
        step = np.zeros(SIZE)
        for pair in pairs:
            step += pair / (1 + exp(float(pair @ weights))) / len(pairs)
        weights = weights + step - 2 * 0.05 * weights
    return [float(features(turn) @ weights) for t in flatten_scored(case) for turn in t.turns]


def weighed(module: ModuleType, case: Sequence[Group]) -> list[float]:
    """Return CoSo's weights of the tokens of the episodes that its model learned from, as a batch has them."""
    found: list[Any] = []
    for window in (1, 2):
        model = module.ActionModel(window=window, max_actions=3, smoothing=0.2)
        model.update(case)
        weights = module.causal_weights(model)
        found += [weights(batch_of(t)) for t in episodes(case)]
    return flatten(found)


def batch_of(trajectory: Trajectory) -> Batch:
    """Return an episode as a batch of one stream, an untrained token before each turn."""
    ids, turns = list[int](), list[int]()
    for number, turn in enumerate(trajectory.turns):
        ids += [99, *turn.completion.token_ids]
        turns += [-1, *[number] * len(turn.completion.token_ids)]
    zeros = torch.zeros(len(ids), dtype=torch.float64)
    return Batch(
        token_ids=torch.tensor(ids),
        sequence_id=torch.zeros(len(ids), dtype=torch.long),
        position_ids=torch.arange(len(ids)),
        lengths=(len(ids),),
        loss_weight=zeros,
        logprobs=zeros,
        advantages=zeros,
        returns=zeros,
        turn_id=torch.tensor(turns),
        extra=BatchExtra(
            num_trained=len(ids),
            turn_end=torch.zeros(len(ids), dtype=torch.bool),
            trajectory=torch.zeros(1, dtype=torch.long),
            pair=torch.zeros(1, dtype=torch.long),
            is_chosen=torch.zeros(1, dtype=torch.bool),
        ),
    )


def caused(case: Sequence[Group]) -> list[float]:
    """Return ½ Σ_a |p(a | end) - p(a | end without a window)| by naive Bayes, counting everything again for each.

    The end of a turn is as long as it takes to tell any two turns apart whose actions differ, counted from behind.
    """
    read = [u for t in episodes(case) for u in t.turns if u.action.error is None]
    names: list[str] = []
    labels: list[str] = []
    for turn in read:
        name = turn.action.tool_calls[0].name if turn.action.tool_calls else turn.action.text
        if name not in names and len(names) >= 2:
            name = "other"
        names += [name] if name not in names else []
        labels.append(name)

    backwards = [turn.completion.token_ids[::-1] for turn in read]
    length = 0
    for one, name in zip(backwards, labels, strict=True):
        for two, other in zip(backwards, labels, strict=True):
            if name != other and one != two:
                while one[:length] == two[:length]:
                    length += 1

    def odds(placed: Sequence[tuple[int, int]]) -> list[float]:
        logs: list[float] = []
        for name in names:
            own = [ids for ids, label in zip(backwards, labels, strict=True) if label == name]
            total = log(len(own))
            for back, token in placed:
                total += log((sum(ids[back : back + 1] == (token,) for ids in own) + 0.2) / (len(own) + 0.4))
            logs.append(total)
        shares = [exp(x - max(logs)) for x in logs]
        return [x / sum(shares) for x in shares]

    found: list[float] = []
    for window in (1, 2):
        for t in episodes(case):
            for turn in t.turns:
                ids = turn.completion.token_ids
                found.append(0.0)
                end = [(len(ids) - 1 - k, k) for k in range(len(ids)) if len(ids) - k <= length]
                for place in range(len(ids)):
                    first = max(0, place - (window - 1) // 2)
                    whole = [(back, ids[k]) for back, k in end]
                    rest = [(back, ids[k]) for back, k in end if not first <= k < first + window]
                    pairs = zip(odds(whole), odds(rest), strict=True) if len(names) > 1 else []
                    found.append(0.5 * sum(abs(a - b) for a, b in pairs))
    return found


def small(rng: Rng) -> list[Group]:
    """Return one of the groups of episodes that rewards are tried on."""
    return groups(rng)[:1]


FORMULAS: tuple[Formula, ...] = (
    Formula("credit.kl_rewards", "credit.penalty", ("kl_rewards", "add_token_rewards"),
        lambda rng: prepared(draw(rng)), priced, price),
    Formula("credit.drop_small", "credit.baseline", ("drop_small",), draw, large, kept, aside=("_other_metrics",)),
    Formula("credit.length_adaptive", "credit.gae", ("length_adaptive",), draw, adapted,
        lambda c: [max(0.0, (sum(p.tokens) - 5) / sum(p.tokens)) for p in c.plays]),
    Formula("credit.returns_to_go", "credit.discounted", ("returns_to_go",), to_go,
        lambda m, case: flatten([m.returns_to_go(row, 0.8) for row in case]),
        lambda case: [sum(0.8 ** (k - i) * row[k] for k in range(i, len(row)))
                                    for row in case for i in range(len(row))]),
    Formula("credit.contributions", "credit.decomposition", ("Contributions",), few, contributed, decomposed,
        aside=("describe_turns",)),
    Formula("credit.verifier", "credit.verifier", ("Verifier",), few, verified, judged),
    Formula("losses.causal_weights", "losses.causal", ("causal_weights", "ActionModel"), small, weighed,
        caused),
)  # fmt: skip
