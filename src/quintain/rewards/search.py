"""Rewards for looking before answering: more thought, more turns, new information; with what keeps them honest.

RLSP's exploration reward 1 - c^length of a turn (arXiv 2502.06773), the turn bonus of "Demystifying agentic RL"
(2510.11701), a limit on the tokens of a turn (short thinking, more acting). Repeated text is no search.
"""

from collections import Counter
from collections.abc import Sequence

from quintain.errors import UsageError
from quintain.rewards.terms import Term, acts
from quintain.types import Trajectory


def repetition(token_ids: Sequence[int], width: int = 4) -> float:
    """Return the share of the `width`-token windows of `token_ids` that repeat an earlier one, in [0, 1).

    Example: 1 2 1 2 1 2 with width 2 has the windows 12, 21, 12, 21, 12: .6.
    """
    windows = Counter(tuple(token_ids[i : i + width]) for i in range(len(token_ids) - width + 1))
    num = windows.total()
    return (num - len(windows)) / num if num else 0.0


def search_bonus(
    *, base: float = 0.98, max_repetition: float = 0.5, has_gate: bool = True, weight: float = 1.0
) -> Term:
    """Return the term "search": 1 - `base`^tokens of a turn, right or wrong; 0 for text that repeats itself.

    It is the mean over the turns in which something was done, each with the thoughts that lead to it: thinking longer
    pays, going on for more turns does not. Without `has_gate` repeated text counts too, which a policy finds out.
    """
    if not 0 < base < 1:
        raise UsageError(f"base of the search bonus: got {base}; give a number between 0 and 1")

    def measure(trajectory: Trajectory) -> float:
        counts = [0]
        for turn in trajectory.turns:
            counts[-1] += len(turn.completion.token_ids)
            if not turn.is_internal:
                counts.append(0)
        ids = [i for turn in trajectory.turns for i in turn.completion.token_ids]
        if has_gate and repetition(ids) > max_repetition:
            return 0.0
        acted = counts[:-1] or counts
        return sum(1 - base**count for count in acted) / len(acted)

    return Term(name="search", measure=measure, weight=weight)


def turn_shaped(is_right: bool, num_rounds: int) -> float:
    """Return 1 if right, else min(-0.6, -1 + 0.1·rounds): a wrong answer after some search is less bad.

    A round is a call and its result. verl, whose code the paper trains with, writes 0.1·(turns - 2)/2 and counts turns
    of the user, of the assistant and one more: 2 for an answer without a call, 2 more for every round. Example: wrong
    after 0, 1, 4 and 9 rounds → -1, -.9, -.6, -.6.
    """
    return 1.0 if is_right else min(-0.6, -1 + 0.1 * num_rounds)


def turn_shaped_success(weight: float = 1.0) -> Term:
    """Return the term "shaped": `turn_shaped` of the outcome, on the last turn.

    The last action answers, each one before it is a round; thoughts, plans and drafts are none.
    """

    def measure(trajectory: Trajectory) -> float:
        return turn_shaped(trajectory.is_success, max(len(acts(trajectory)) - 1, 0))

    return Term(name="shaped", measure=measure, weight=weight)


def over_turn_budget(budget: int, weight: float = 0.1) -> Term:
    """Return the term "long_turn": for every turn minus the share by which its tokens are over `budget`, at most 1."""
    if budget < 1:
        raise UsageError(f"tokens of a turn: got {budget}; give 1 or more")

    def measure(trajectory: Trajectory) -> list[float]:
        lengths = [len(turn.completion.token_ids) for turn in trajectory.turns]
        return [-min(1.0, max(0.0, length - budget) / budget) for length in lengths]

    return Term(name="long_turn", measure=measure, weight=weight)
