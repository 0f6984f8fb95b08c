"""What the episodes of a step say of the health of a run, as metrics under ``monitor/``.

Signs of collapse follow RAGEN (arXiv 2504.20073) and RAGEN-2 (2604.06268): entropy may stay where it was while the
episodes of different tasks become the same. Everything is measured on the recorded episodes, before any filter, and
what cannot be measured is left out rather than 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from quintain.data.seats import comparable_groups
from quintain.safety.guard import REFUSED
from quintain.types import Failure, Group, Score, Trajectory, is_constant

N = 4
"""Length of the n-grams that are looked at for repetition."""
MAX_TOKENS = 16_384
"""Tokens of a step that are looked at for repetition; of more, every second (third, …) completion is."""
Retry = tuple[str, int, Failure]
"""Group and number of an episode that was begun anew, and what broke."""
FILE_ARGUMENTS = frozenset(["path", "file", "filename", "file_path"])
MIN_SPREAD = 0.05
"""Standard deviation of lengths within groups, as a share of the mean length, below which they hardly differ."""


def measures(
    groups: Sequence[Group], tools: Collection[str] = (), retries: Sequence[Retry] = ()
) -> dict[str, float]:
    """Return the metrics of a step's `groups` in an environment with `tools`; {} without episodes.

    - ``monitor/failures`` and ``monitor/failures/OWNER``: shares of all episodes.
    - ``monitor/retries`` and ``monitor/retries/OWNER``: shares of all attempts that were begun anew, whatever came of
      it; ``monitor/retried_groups``: share of the groups with such an attempt; ``monitor/retry_bias``: how much higher
      the episodes score that were begun anew than the others, for what breaks when it goes badly flatters the policy.
    - ``monitor/zero_variance``: share of the groups of two or more whose episodes all score the same, each seat on its
      own where seats are paid apart.
    - ``monitor/solved``, ``monitor/boundary``, ``monitor/beyond``: shares of the groups of two or more of which all,
      some or no episodes are solved: what the policy knows, what it can learn, and what is beyond it.
    - ``monitor/unreadable``: share of the turns whose answer could not be read as an action.
    - ``monitor/entropy``: nats per sampled token, estimated by the mean of -log-prob.
    - ``monitor/repeated_ngrams``: share of 4-grams that occurred before in their completion.
    - ``monitor/prompt_information``: nats that a token tells about its task, from the use of tokens per task.
    - ``monitor/length_advantage``: correlation of sampled tokens with reward, both less their group's mean; not told
      where lengths hardly differ, for then one answer of many that broke off early, and earned nothing, makes it 1.
    - ``monitor/tool_coverage``: share of `tools` that were called; ``monitor/files``: distinct files named in calls.
    - ``monitor/share/TERM``: share of a reward term in the absolute size of all terms.
    - ``monitor/tokens_per_success``, ``monitor/turns_per_success``: cost of a solved task.
    """
    episodes = [t for group in groups for t in group.trajectories]
    if not episodes:
        return {}
    found: dict[str, float | None] = {
        **_failures(episodes),
        **_retries(groups, retries),
        "zero_variance": _zero_variance(groups),
        **_boundary(groups),
        "unreadable": _unreadable(episodes),
        "entropy": _entropy(episodes),
        "repeated_ngrams": _measure_repeats(episodes),
        "prompt_information": _prompt_information(groups),
        "length_advantage": _length_advantage(groups),
        **_coverage(episodes, tools),
        **_shares(episodes),
        **_cost(episodes),
    }
    return {f"monitor/{name}": float(value) for name, value in found.items() if value is not None}


def _failures(episodes: Sequence[Trajectory]) -> Mapping[str, float]:
    """Return the share of failed episodes, in all and by owner."""
    owners = Counter(t.outcome.owner for t in episodes if isinstance(t.outcome, Failure))
    shares = {f"failures/{owner}": num / len(episodes) for owner, num in sorted(owners.items())}
    return {"failures": owners.total() / len(episodes), **shares}


def _retries(groups: Sequence[Group], retries: Sequence[Retry]) -> Mapping[str, float]:
    """Return how often episodes were begun anew, by owner, and how they compare with the others."""
    scored = [(t, t.outcome.value) for g in groups for t in g.scored if isinstance(t.outcome, Score)]
    num = len(retries) + sum(len(group.trajectories) for group in groups)
    owners = Counter(failure.owner for _, _, failure in retries)
    again = {(group, index) for group, index, _ in retries}
    names = {name for name, _ in again}
    touched = sum(any(t.group in names for t in group.trajectories) for group in groups)
    parts = [
        [value for t, value in scored if ((t.group, t.index) in again) is side] for side in (True, False)
    ]
    bias = {"retry_bias": sum(parts[0]) / len(parts[0]) - sum(parts[1]) / len(parts[1])} if all(parts) else {}
    shares = {f"retries/{owner}": count / num for owner, count in sorted(owners.items())}
    return {"retries": owners.total() / num, "retried_groups": touched / len(groups), **shares, **bias}


def _zero_variance(groups: Sequence[Group]) -> float | None:
    """Return the share of groups without a difference."""
    several = [group.returns for group in comparable_groups(groups) if len(group.returns) > 1]
    return sum(map(is_constant, several)) / len(several) if several else None


def _boundary(groups: Sequence[Group]) -> Mapping[str, float]:
    """Return the shares of groups that are solved always, sometimes and never; {} without groups of two or more."""
    claims = [[t.is_success for t in group.scored] for group in groups]
    several = [solved for solved in claims if len(solved) > 1]
    if not several:
        return {}
    always, never = sum(map(all, several)), sum(not any(solved) for solved in several)
    counts = {"solved": always, "boundary": len(several) - always - never, "beyond": never}
    return {name: count / len(several) for name, count in counts.items()}


def _completions(episodes: Sequence[Trajectory]) -> Iterator[tuple[int, ...]]:
    """Yield what was sampled, turn by turn."""
    return (turn.completion.token_ids for t in episodes for turn in t.turns if turn.completion.token_ids)


def _unreadable(episodes: Sequence[Trajectory]) -> float | None:
    """Return the share of turns without an action that could be read; None without a turn."""
    turns = [turn for t in episodes for turn in t.turns]
    return sum(turn.action.error is not None for turn in turns) / len(turns) if turns else None


def _entropy(episodes: Sequence[Trajectory]) -> float | None:
    """Return the mean of -log-prob over sampled tokens."""
    parts = chain.from_iterable(turn.completion.logprobs for t in episodes for turn in t.turns)
    logprobs = np.fromiter(parts, dtype=np.float64)
    return -float(logprobs.mean()) if logprobs.size else None


def _measure_repeats(episodes: Sequence[Trajectory]) -> float | None:
    """Return the share of n-grams that repeat an earlier one of their completion; 0 where all are too short."""
    completions = list(_completions(episodes))
    stride = 1 + sum(map(len, completions)) // MAX_TOKENS
    total = distinct = 0
    for ids in completions[::stride]:
        grams = list(zip(*(ids[start:] for start in range(N)), strict=False))
        total += len(grams)
        distinct += len(set(grams))
    if not completions:
        return None
    return 1 - distinct / total if total else 0.0


def _prompt_information(groups: Sequence[Group]) -> float | None:
    """Return the mutual information of task and token in nats: 0 where all tasks get the same answers."""
    by_task: dict[str, list[tuple[int, ...]]] = {}
    for group in groups:
        by_task.setdefault(group.task.id, []).extend(_completions(group.trajectories))
    rows = [np.fromiter(chain.from_iterable(parts), dtype=np.int64) for parts in by_task.values()]
    rows = [row for row in rows if row.size]
    if len(rows) < 2:
        return None
    _, places = np.unique(np.concatenate(rows), return_inverse=True)
    counts = [
        np.bincount(p, minlength=places.max() + 1)
        for p in np.split(places, np.cumsum([row.size for row in rows])[:-1])
    ]
    joint = np.stack(counts) / len(places)
    expected = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log(joint[there] / expected[there])).sum())


def _length_advantage(groups: Sequence[Group]) -> float | None:
    """Return the correlation within groups, None where rewards do not differ, or lengths hardly do."""
    lengths: list[float] = []
    rewards: list[float] = []
    for group in comparable_groups(groups):
        values = group.returns
        tokens = [t.num_sampled for t in group.scored]
        rewards += [value - sum(values) / len(values) for value in values]
        lengths += [num - sum(tokens) / len(tokens) for num in tokens]
    x, y = np.array(lengths), np.array(rewards)
    if not len(x) or x.std() < MIN_SPREAD * np.mean([t.num_sampled for g in groups for t in g.scored]):
        return None
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale > 1e-12 else None


def _coverage(episodes: Sequence[Trajectory], tools: Collection[str]) -> Mapping[str, float]:
    """Return the share of `tools` that were called, and how many files the calls named."""
    calls = [call for t in episodes for turn in t.turns for call in turn.action.tool_calls]
    used = {call.name for call in calls} & set(tools)
    files = {str(value) for call in calls for name, value in call.arguments.items() if name in FILE_ARGUMENTS}
    named = {"files": float(len(files))} if files else {}
    return {"tool_coverage": len(used) / len(tools), **named} if tools else named


def _shares(episodes: Sequence[Trajectory]) -> Mapping[str, float]:
    """Return the share of each reward term in the sum of absolute values."""
    sizes: dict[str, float] = {}
    for turn in (turn for t in episodes for turn in t.turns):
        for name, value in turn.reward_terms.items():
            if name == REFUSED and value > 0:
                continue  # what a guard counts is no reward; what is taken for it is below 0
            sizes[name] = sizes.get(name, 0.0) + abs(value)
    total = sum(sizes.values())
    return {f"share/{name}": size / total for name, size in sorted(sizes.items())} if total else {}


def _cost(episodes: Sequence[Trajectory]) -> Mapping[str, float]:
    """Return tokens and turns of all episodes for each that succeeded; {} where none did."""
    solved = sum(t.is_success for t in episodes)
    if not solved:
        return {}
    return {
        "tokens_per_success": sum(t.num_sampled for t in episodes) / solved,
        "turns_per_success": sum(len(t.turns) for t in episodes) / solved,
    }
