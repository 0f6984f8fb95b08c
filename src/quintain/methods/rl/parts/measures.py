"""What a step says of the policy beside success: signs of collapse, greediness, and how undecided it is where it acts.

Each measure reads the recorded episodes of a step, before any filter, and some the words in them.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import numpy as np

from quintain.credit.layout import outcome_of
from quintain.eval.greediness import coverage, frequency_bias, greedy_share, knowing_doing
from quintain.rewards.terms import mean_terms
from quintain.types import Group, Trajectory, Turn
from quintain.worlds.bandit.game import RATIONALE

Decode = Callable[[Sequence[int]], str]


class CollapseSigns:
    """Signs that a policy is collapsing into one answer, RAGEN's "echo trap" (arXiv 2504.20073).

    Before rewards fall, three things change: outcomes within a group stop differing, the same text comes again and
    again, and the gradient spikes (``train/grad_norm``, which every step logs). It is a state of a method, and its
    measure: ``OnPolicy(state=CombinedState(signs), measure=signs)``.
    """

    def __init__(self) -> None:
        self._rows: list[Mapping[str, float]] = []

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Keep the curve of the steps so far."""
        if "collapse/reward_std" in metrics:
            self._rows.append(metrics)

    def __call__(self, groups: Sequence[Group], _: Decode) -> Mapping[str, float]:
        """Return `signals` of `groups`, and ``collapse/has_collapsed``: 1 where the steps before show a collapse."""
        return {**signals(groups), "collapse/has_collapsed": float(has_collapsed(self._rows))}


def signals(groups: Sequence[Group]) -> dict[str, float]:
    """Return the mean deviation of outcomes within groups and the share of turns that repeat another of the step.

    A turn repeats another when both were sampled with the same tokens; 1 - 1/num is the most there can be.
    """
    widths = [float(np.std([outcome_of(t) for t in group.scored])) for group in groups if group.scored]
    texts = [turn.completion.token_ids for g in groups for t in g.scored for turn in t.turns]
    return {
        "collapse/reward_std": float(np.mean(widths)) if widths else 0.0,
        "collapse/repetition": 1 - len(set(texts)) / len(texts) if texts else 0.0,
    }


def has_collapsed(rows: Sequence[Mapping[str, float]], *, window: int = 5) -> bool:
    """Return whether the last `window` rows of a curve show a collapse against the first `window`.

    That is: entropy and the deviation of outcomes both fell below a quarter of what they were, while success did
    not rise. False with fewer than 2 · `window` rows.
    """
    if len(rows) < 2 * window:
        return False

    def means(name: str) -> tuple[float, float]:
        parts = (rows[:window], rows[-window:])
        first, last = (float(np.mean([row.get(name, 0.0) for row in part])) for part in parts)
        return first, last

    spread, entropy = means("collapse/reward_std"), means("policy/entropy")
    success = means("train/success")
    return spread[1] < spread[0] / 4 and entropy[1] < entropy[0] / 4 and success[1] <= success[0]


TOLD = ("coverage", "regret")
"""What environments may say of each turn."""


def probe_greediness(groups: Sequence[Group], decode: Decode) -> Mapping[str, float]:
    """Return coverage, greedy share and bias; regret where it is told, the gap where rationales name options.

    The bias is how much likelier an action is chosen again that stood two or more times in the history than one
    that stood there once; the gap is the share of right rationales that were not acted on.
    """
    episodes = [t for group in groups for t in group.scored if t.turns]
    if not episodes:
        return {}
    options = sorted({choice(turn) for t in episodes for turn in t.turns})
    played = [([choice(u) for u in t.turns], [u.reward for u in t.turns]) for t in episodes]
    told = mean_terms(episodes)
    found = {
        "greedy/coverage": fmean(coverage(chosen, len(options))[-1] for chosen, _ in played),
        **{f"greedy/{name}": told[name] for name in TOLD if name in told},
        "greedy/share": fmean(greedy_share(chosen, paid) for chosen, paid in played),
        "greedy/bias": bias([chosen for chosen, _ in played]),
    }
    named = [name_options(t, options, decode) for t in episodes]
    if not any(name is not None for names in named for name in names):
        return found
    done = [knowing_doing(n, c, r, options) for n, (c, r) in zip(named, played, strict=True)]
    knew = [each for each in done if each.did_not_know < 1]
    return found | {
        "greedy/known": 1 - fmean(each.did_not_know for each in done),
        "greedy/gap": fmean(each.gap for each in knew) if knew else 0.0,
    }


def name_options(trajectory: Trajectory, options: Sequence[str], decode: Decode) -> list[str | None]:
    """Return for each turn the option that stands last in what was sampled before the action, None without one.

    An option is named by all its words, or by its last: ``best: gold`` names "pull gold".
    """
    found: list[str | None] = []
    for turn in trajectory.turns:
        thought = decode(turn.completion.token_ids).rpartition(choice(turn))[0]
        places = {option: thought.rfind(option) for option in options if option in thought}
        if not places:
            words = {option: option.rpartition(" ")[2] for option in options}
            places = {option: thought.rfind(word) for option, word in words.items() if word in thought}
        found.append(max(places, key=lambda option: (places[option], len(option))) if places else None)
    return found


def choice(turn: Turn) -> str:
    """Return what was done in `turn`, as a text; a reason that stands before it, ``best: gold; ``, is left out."""
    return RATIONALE.sub("", turn.action.text) or repr(turn.action.tool_calls)


def bias(histories: Sequence[Sequence[str]]) -> float:
    """Return how much more often options were chosen again that stood there often, than such that stood there once.

    0 where no option occurs twice before a choice. Example: a, a, a, b → mean of 1 (twice) and 0 (three times), less
    1 (once): -.5.
    """
    gaps: list[float] = []
    for chosen in histories:
        again = frequency_bias(chosen)
        often = [share for count, share in again.items() if count > 1]
        if often and 1 in again:
            gaps.append(fmean(often) - again[1])
    return fmean(gaps) if gaps else 0.0


def measure_entropy_of_actions(groups: Sequence[Group], decode: Decode) -> Mapping[str, float]:
    """Return ``entropy/action`` and ``entropy/filler``, in nats per token; without what no turn has."""
    turns = [turn for group in groups for t in group.scored for turn in t.turns if turn.action.error is None]
    filler: list[float] = []
    action: list[float] = []
    for turn in turns:
        start = acts_from(turn, decode)
        filler += turn.completion.logprobs[:start]
        action += turn.completion.logprobs[start:]
    found = {"entropy/filler": filler, "entropy/action": action}
    return {name: -fmean(logprobs) for name, logprobs in found.items() if logprobs}


def acts_from(turn: Turn, decode: Decode) -> int:
    """Return at which token of `turn` its action begins; the last place from which all its words are still there.

    Example: in ``Thought: hm. Action: go left`` it is the token ``go``; 0 where the words are not found.
    """
    ids, words = turn.completion.token_ids, turn.action.text
    start, end = 0, len(ids)
    while end - start > 1:  # the words are there from `start` on (or nowhere), and not from `end` on
        middle = (start + end) // 2
        start, end = (middle, end) if words and words in decode(ids[middle:]) else (start, middle)
    return start
