"""The stages that data is made of, each once: which episodes stay, and which of their tokens count.

Every function here returns a `Stage` for a `Pipeline`, named as the function is unless `name` says otherwise (a
pipeline may hold one twice). What follows from the data alone is decided by numbers; what takes a judgement (is this
turn critical, how likely is this text) is handed in as a function.

Only what an agent sampled is ever trained on: prompts, observations and tool results have no weight to begin with, and
no stage can give them one.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from quintain.data import filters
from quintain.data.pipeline import Stage, check_stage, filter_stage, name_of, remade, weigh_stage
from quintain.errors import DataError, InvariantError, UsageError
from quintain.types import Example, Group, Score, Task, Trajectory, Turn


def keep_solved(*, name: str = "solved") -> Stage:
    """Keep the episodes that solved their task."""
    return filter_stage(name, "did not solve its task", filters.successful)


def threshold(above: float, *, name: str = "threshold") -> Stage:
    """Keep the episodes whose outcome is above a number, not at it (ReST, arXiv 2308.08998)."""
    return check_stage(name, f"has an outcome of {above:g} or less", lambda e: outcome(e.trajectory) > above)


def quantile(share: float, *, per_task: bool = False, name: str = "quantile") -> Stage:
    """Keep the best share of episodes by outcome; whoever ties with the last one that is kept stays, too.

    The cut is the outcome that leaves `share` of the episodes at or above it, interpolated linearly; at least the best
    is kept. With `per_task` each task has a cut of its own.
    """
    _between("share of the best episodes", share)

    def keep(values: Sequence[float]) -> list[bool]:
        cut = float(np.quantile(values, 1 - share))
        return [value >= cut - _slack(cut) for value in values]

    where = "of its task" if per_task else "of all"
    return _rank_stage(name, f"is not among the best {share:.0%} {where}", outcome, keep, per_task=per_task)


def shortest(share: float = 0.2, *, per_task: bool = True, name: str = "shortest") -> Stage:
    """Keep the shortest share of episodes, in turns; whoever ties with the cut stays (PAE, arXiv 2412.13194).

    The cut is the quantile of the lengths, interpolated linearly: of 4, 6 and 10 turns the fifth is 4.8 and keeps the
    first. The only episode of a task always stays. Put `keep_solved` before it, or failures that gave up early are
    kept.
    """
    _between("share of the shortest episodes", share)

    def keep(lengths: Sequence[float]) -> list[bool]:
        cut = float(np.quantile(lengths, share))
        return [length <= cut + _slack(cut) for length in lengths]

    where = "of its task" if per_task else "of all"
    return _rank_stage(
        name,
        f"is not among the shortest {share:.0%} {where}",
        lambda t: len(t.turns),
        keep,
        per_task=per_task,
    )


def within(longest: int, *, name: str = "within") -> Stage:
    """Keep the episodes of at most `longest` tokens, what was read and what was said, whole."""

    def is_short(example: Example) -> bool:
        turns = example.trajectory.turns
        return sum(len(turn.prompt_ids) + len(turn.completion.token_ids) for turn in turns) <= longest

    return check_stage(name, f"is longer than {longest} tokens", is_short)


def best(count: int = 1, *, name: str = "best") -> Stage:
    """Keep the best of every task; of equal outcomes the fewest sampled tokens, then the first."""
    if count < 1:
        raise UsageError(f"best episodes of a task: got {count}; give at least 1")
    return filter_stage(
        name,
        f"is not among the best {count} of its task",
        lambda groups: filters.best_of_group(groups, count),
    )


def distinct(*, name: str = "distinct") -> Stage:
    """Keep the first of the episodes whose tokens, prompts included, are the same."""
    return filter_stage(name, "repeats another token by token", filters.distinct)


def distinct_states(
    of: Callable[[Trajectory], tuple[str, ...]] | None = None, *, name: str = "distinct_states"
) -> Stage:
    """Keep the first of the episodes of a task that went through the same states, whatever was said.

    `of` returns the states of an episode; without it they are those that were recorded.

    Raises:
        DataError: a turn has no state, when it is applied: its environment has no `state_key`.
    """
    find = states if of is None else of

    def apply(examples: Sequence[Example]) -> list[Example]:
        seen: dict[tuple[str, tuple[str, ...]], Example] = {}
        for example in examples:
            seen.setdefault((example.trajectory.task.id, find(example.trajectory)), example)
        return list(seen.values())

    return Stage(name=name, says="went through the states of another", apply=apply)


def keep_solved_share(low: float = 0.0, high: float = 1.0, *, name: str = "solved_share") -> Stage:
    """Keep whole tasks of which at least `low` and at most `high` of the episodes are solved."""
    if not 0 <= low <= high <= 1:
        raise UsageError(f"solved shares to keep: got {low} to {high}; give 0 <= low <= high <= 1")
    return filter_stage(
        name,
        f"belongs to a task that is not solved in {low:.0%} to {high:.0%} of its episodes",
        lambda groups: filters.keep_solved_between(groups, low, high),
    )


def group_spread(least: float = 0.0, *, name: str = "group_spread") -> Stage:
    """Keep whole tasks whose outcomes have a standard deviation above a number (population form, 0 of one episode)."""
    if least < 0:
        raise UsageError(f"standard deviation of a task's outcomes: got {least}; give 0 or more")
    return filter_stage(
        name,
        f"belongs to a task whose outcomes spread by {least:g} or less",
        lambda groups: [group for group in groups if filters.spread(group) > least + 1e-12],
    )


def widest(share: float = 0.25, *, name: str = "widest") -> Stage:
    """Keep the share of tasks with the widest outcomes, at least one; of equal widths the first (arXiv 2504.20073)."""
    _between("share of the widest tasks", share)
    return filter_stage(
        name,
        f"belongs to a task that is not among the {share:.0%} with the widest outcomes",
        lambda groups: filters.most_uncertain(groups, share),
    )


def keep_ended(*, name: str = "ended") -> Stage:
    """Keep the episodes that came to the task's own end, and were not cut by a limit of whoever collected them."""
    return filter_stage(name, "was cut before the end of its task", filters.without_truncated)


def num_turns(least: int = 1, most: int | None = None, *, name: str = "num_turns") -> Stage:
    """Keep the episodes of at least `least` turns, and of at most `most` where that is given."""
    high = math.inf if most is None else most
    if not 1 <= least <= high:
        raise UsageError(f"turns of an episode: got {least} to {most}; give 1 <= least <= most")
    says = f"has fewer than {least} turns" + (f" or more than {most}" if most is not None else "")
    return check_stage(name, says, lambda e: least <= len(e.trajectory.turns) <= high)


def perplexity(
    low: float = 1.0,
    high: float = math.inf,
    *,
    score: Callable[[Trajectory], float] | None = None,
    name: str = "perplexity",
) -> Stage:
    """Keep the episodes that `score` finds neither too likely nor too unlikely: from `low` up to `high`.

    Without `score` it is the perplexity under whoever sampled the episode, by its recorded log-probs.
    """
    if not low <= high:
        raise UsageError(f"perplexities to keep: got {low:g} to {high:g}; give low <= high")
    of = sampling_perplexity if score is None else score
    return check_stage(
        name, f"has a perplexity below {low:g} or above {high:g}", lambda e: low <= of(e.trajectory) <= high
    )


def keep_verified(
    check: Callable[[Trajectory], bool], *, says: str = "is refused by the verifier", name: str = "verified"
) -> Stage:
    """Keep the episodes that a verifier accepts: an answer check, a judge, a replay."""
    return check_stage(name, says, lambda example: check(example.trajectory))


def training_tasks(
    is_held_out: Callable[[Task], bool] = lambda task: task.is_held_out, *, name: str = "training_tasks"
) -> Stage:
    """Keep the episodes of tasks that are not held out, by their split or by what `is_held_out` says of them."""
    return check_stage(
        name, "belongs to a held-out task", lambda example: not is_held_out(example.trajectory.task)
    )


def without_overlap(
    texts: Iterable[str], of: Callable[[Trajectory], str], size: int = 10, *, name: str = "without_overlap"
) -> Stage:
    """Keep the episodes that share no run of `size` words with held-out texts (AgentTuning, arXiv 2310.12823).

    Words are compared in lower case and without punctuation; a text of fewer words shares nothing.
    """
    if size < 1:
        raise UsageError(f"words in a row that are compared: got {size}; give at least 1")
    known = {run for text in texts for run in runs_of_words(text, size)}
    return check_stage(
        name,
        f"shares {size} words in a row with a held-out text",
        lambda example: known.isdisjoint(runs_of_words(of(example.trajectory), size)),
    )


def strip_hints(
    strip: Callable[[Turn], Turn], has_hint: Callable[[Turn], bool], *, name: str = "stripped"
) -> Stage:
    """Take a hint out of what an agent was shown, and drop the episodes in which it still stands (STaR, 2203.14465).

    `strip` returns a turn with another observation and other prompt tokens; `has_hint` looks at all of a turn, also at
    what was sampled: a rationale that speaks of its hint is no rationale.

    Raises:
        InvariantError: `strip` changed what was sampled, when the stage is applied.
    """

    def make(example: Example) -> list[Example]:
        made = _with_turns(example, [strip(turn) for turn in example.trajectory.turns])
        return [] if any(map(has_hint, made.trajectory.turns)) else [made]

    return remade(name, "still speaks of its hint", make)


def relabel_tasks(of: Callable[[Trajectory], Trajectory | None], *, name: str = "relabelled") -> Stage:
    """Put an episode under the task that it did solve, in hindsight; `of` returns None where it solved none.

    What was sampled stays, up to the turn that solved the other task; task, outcome and what the agent was told of the
    task are those of the other task.

    Raises:
        InvariantError: `of` changed what was sampled, when the stage is applied.
    """

    def make(example: Example) -> list[Example]:
        found = of(example.trajectory)
        if found is None:
            return []
        num, weights = len(found.turns), example.weights
        cut = replace(
            example,
            trajectory=replace(example.trajectory, turns=example.trajectory.turns[:num]),
            weights=None if weights is None else weights[:num],
        )
        return [replace(_with_turns(cut, found.turns), trajectory=found)]

    return remade(name, "did nothing that another task asks for", make)


def seat(of: str, *, name: str = "seat") -> Stage:
    """Let the turns of one seat count: ``seat("buyer")``; turns of its roles (``buyer/plan``) count as its own."""
    return weigh_stage(
        name, f"has no turn of {of}", lambda t: [float(turn.speaker == of) for turn in t.turns]
    )


def role(of: str, *, name: str = "role") -> Stage:
    """Let the turns of one role count: ``role("plan")`` those of ``agent/plan``, ``role("act")`` those that act."""
    return weigh_stage(
        name, f"has no turn of the role {of}", lambda t: [float(turn.has_role(of)) for turn in t.turns]
    )


def last_turn(*, name: str = "last_turn") -> Stage:
    """Let the last turn count alone."""
    return weigh_stage(name, "has no last turn", lambda t: [0.0] * (len(t.turns) - 1) + [1.0])


def valid_turns(*, name: str = "valid_turns") -> Stage:
    """Let the turns count whose action could be read and carried out; the others stay as context."""
    return weigh_stage(
        name,
        "has no turn that could be carried out",
        lambda t: [float(turn.is_valid and turn.action.error is None) for turn in t.turns],
    )


def critical(of: Callable[[Trajectory], Collection[int]], *, name: str = "critical") -> Stage:
    """Let the critical turns count alone, by their numbers from 0 (ATLaS, arXiv 2503.02197).

    `of` is an oracle that knows the world, or a judge that read the episode. The loss is divided by what counts, so
    that fewer turns do not mean smaller steps. An episode without a critical turn goes.

    Raises:
        DataError: `of` names a turn that there is not, when the stage is applied.
    """

    def weigh(trajectory: Trajectory) -> list[float]:
        numbers, total = set(of(trajectory)), len(trajectory.turns)
        if wrong := sorted(number for number in numbers if not 0 <= number < total):
            raise DataError(
                f"critical turns of {name_of(trajectory)}: got turn {wrong[0]} of {total}; count turns from 0"
            )
        return [float(number in numbers) for number in range(total)]

    return weigh_stage(name, "has no critical turn", weigh)


def turn_discount(by: float, *, name: str = "turn_discount") -> Stage:
    """Let a turn weigh `by` to the power of the turns that follow it: the last 1, the one before `by`."""
    _between("discount of a turn", by)
    return weigh_stage(
        name,
        f"weighs {by:g} less each turn before the last",
        lambda t: [by ** (len(t.turns) - 1 - number) for number in range(len(t.turns))],
    )


def segment_score(of: Callable[[Sequence[Turn]], float], *, name: str = "segment_score") -> Stage:
    """Let the turns of a segment weigh what `of` says of it; below 0 counts as 0.

    A segment is a token stream of its own: it begins with the first turn and wherever `Turn.starts_segment` is true.
    """

    def weigh(trajectory: Trajectory) -> list[float]:
        begun = (bool(number) and turn.starts_segment for number, turn in enumerate(trajectory.turns))
        place = list(accumulate(map(int, begun)))
        parts: defaultdict[int, list[Turn]] = defaultdict(list)
        for number, turn in zip(place, trajectory.turns, strict=True):
            parts[number].append(turn)
        scores = {number: max(0.0, of(own)) for number, own in parts.items()}
        return [scores[number] for number in place]

    return weigh_stage(name, "has no segment that scores above 0", weigh)


def without_end(*, name: str = "without_end") -> Stage:
    """Let the token that ends a turn not count; turns that were cut at a limit have none."""

    def weigh(trajectory: Trajectory) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
        weights = [np.ones(len(turn.completion.token_ids), np.float32) for turn in trajectory.turns]
        for own, turn in zip(weights, trajectory.turns, strict=True):
            if turn.completion.stop == "stop":
                own[-1:] = 0
        return weights

    return weigh_stage(name, "says nothing but the end of a turn", weigh)


def outcome(trajectory: Trajectory) -> float:
    """Return the return of `trajectory`; minus infinity where something broke."""
    return trajectory.outcome.value if isinstance(trajectory.outcome, Score) else -math.inf


def states(trajectory: Trajectory) -> tuple[str, ...]:
    """Return the states before the turns of `trajectory`.

    Raises:
        DataError: a turn has none.
    """
    found = [turn.state_key for turn in trajectory.turns if turn.state_key is not None]
    if len(found) < len(trajectory.turns):
        raise DataError(
            f"states of {name_of(trajectory)} ({trajectory.task.environment}): got {len(found)} of "
            f"{len(trajectory.turns)} turns with one; collect with state keys, or use distinct"
        )
    return tuple(found)


def sampling_perplexity(trajectory: Trajectory) -> float:
    """Return exp of the mean negative log-prob of the sampled tokens, as they were sampled.

    Raises:
        DataError: a turn has no log-probs.
    """
    found = [logprob for turn in trajectory.turns for logprob in turn.completion.logprobs]
    if len(found) < trajectory.num_sampled or not found:
        raise DataError(
            f"perplexity of {name_of(trajectory)}: got {len(found)} log-probs of {trajectory.num_sampled} tokens, as "
            "in demonstrations; measure it with another model (by=FOLDER), or leave the stage out"
        )
    return perplexity_of(found, name_of(trajectory))


def perplexity_of(logprobs: Sequence[float], name: str) -> float:
    """Return exp of the mean negative of `logprobs`; infinity where that is too large for a number.

    Raises:
        DataError: there are none of what is called `name`.
    """
    if not logprobs:
        raise DataError(f"perplexity of {name}: got no token that was said; leave it out")
    mean = -sum(logprobs) / len(logprobs)
    return math.exp(mean) if mean < 700 else math.inf


def runs_of_words(text: str, size: int) -> set[tuple[str, ...]]:
    """Return every run of `size` words in `text`."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[place : place + size]) for place in range(len(words) - size + 1)}


def _rank_stage(
    name: str,
    says: str,
    of: Callable[[Trajectory], float],
    keep: Callable[[Sequence[float]], Sequence[bool]],
    *,
    per_task: bool,
) -> Stage:
    """Return the stage that keeps what `keep` keeps of the numbers `of` episodes, of each task or of all."""

    def keep_ranked(groups: Sequence[Group]) -> list[Group]:
        found: list[Group] = []
        pools = _by_task(groups) if per_task else [list(groups)]
        for pool in pools:
            own = [t for group in pool for t in group.scored]
            marks = keep([of(t) for t in own]) if own else []
            left = {id(t) for t, mark in zip(own, marks, strict=True) if mark}
            found += [
                replace(group, trajectories=tuple(t for t in group.trajectories if id(t) in left))
                for group in pool
            ]
        return found

    return filter_stage(name, says, keep_ranked)


def _by_task(groups: Sequence[Group]) -> list[list[Group]]:
    found: defaultdict[str, list[Group]] = defaultdict(list)
    for group in groups:
        found[group.task.id].append(group)
    return list(found.values())


def _between(what: str, share: float) -> None:
    if not 0 < share <= 1:
        raise UsageError(f"{what}: got {share}; give a number above 0 and at most 1")


def _slack(cut: float) -> float:
    """Return by how much a number may miss `cut` through rounding and still be at it."""
    return 1e-9 * max(1.0, abs(cut))


def _with_turns(example: Example, turns: Sequence[Turn]) -> Example:
    """Return `example` with other turns, in which the same tokens were sampled."""
    before = [turn.completion.token_ids for turn in example.trajectory.turns]
    if [turn.completion.token_ids for turn in turns] != before:
        raise InvariantError(
            f"turns of {name_of(example.trajectory)}: got other sampled tokens; change what was shown, never what was "
            "said"
        )
    return replace(example, trajectory=replace(example.trajectory, turns=tuple(turns)))
