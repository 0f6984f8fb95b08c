"""What agents are paid that search before they answer: for having searched, for the form, for the answer.

R1-Searcher (arXiv 2503.05592) and ReSearch (2503.19470). The answer's own score, exact match or F1, is the
environment's, told by the reward term ``answer``: it comes from the task, never from the wording of a question, so that
two tasks may ask the same. A search that finds nothing is a search: what pays for finding would be another reward.
"""

from collections.abc import Sequence

from quintain.errors import UsageError
from quintain.rewards.terms import Term, acts
from quintain.types import ANSWER, Trajectory

MAX_WORDS = 10
"""Words of an answer that has the right form (R1-Searcher)."""


def answer_score(trajectory: Trajectory) -> float:
    """Return what the environment gave for the answer, 0 where there was none."""
    return sum(turn.reward_terms.get(ANSWER, 0.0) for turn in trajectory.turns)


def has_searched(trajectory: Trajectory) -> bool:
    """Return whether a tool other than the answering one was called, and could be."""
    return any(turn.is_valid and len(turn.action.tool_calls) > turn.is_answer for turn in acts(trajectory))


def is_well_formed(trajectory: Trajectory) -> bool:
    """Return whether every turn could be read, was carried out and ended by itself, and the last one answers, briefly.

    Brief is `MAX_WORDS` words or fewer; there is one answer.
    """
    turns = trajectory.turns
    answers = [turn for turn in turns if turn.is_answer]
    if len(answers) != 1 or answers[0] is not turns[-1] or trajectory.stop.is_cut:
        return False
    if not all(t.action.error is None and t.is_valid and t.completion.stop == "stop" for t in turns):
        return False
    said = [str(value) for call in turns[-1].action.tool_calls for value in call.arguments.values()]
    return len(" ".join(said or [turns[-1].action.text]).split()) <= MAX_WORDS


def first_stage(searched: bool, formed: bool, right: float | None = None) -> float:
    """Return R1-Searcher's reward before answers count: ½ for searching, ½ for the form.

    With `right` it is that of the released code: ±1 for the answer besides. Example: (yes, no, None) → .5, (yes, yes,
    1) → 2, (no, no, 0) → -1.
    """
    answered = 0.0 if right is None else 1.0 if right > 0 else -1.0
    return answered + 0.5 * searched + 0.5 * formed


def second_stage(score: float, formed: bool, *, penalty: float = 2.0) -> float:
    """Return R1-Searcher's reward for answers: their score, less `penalty` where the form is broken."""
    return score - penalty * (not formed)


def with_floor(score: float, formed: bool, *, floor: float = 0.1, is_monotone: bool = False) -> float:
    """Return ReSearch's reward: 0 for a broken form, the answer's score where it is above 0, else `floor`.

    It is not monotone: a score of .05 is paid less than one of 0. With `is_monotone` it is max(score, floor).
    """
    if not formed:
        return 0.0
    if is_monotone:
        return max(score, floor)
    return score if score > 0 else floor


def pay_stages(*, is_first: bool, pays_answers: bool = False, penalty: float = 2.0) -> Term:
    """Return the term "staged": `first_stage`, with ±1 for the answer where it `pays_answers`, or `second_stage`."""
    if penalty < 0:
        raise UsageError(f"penalty of a broken form: got {penalty}; give 0 or more")

    def measure(trajectory: Trajectory) -> float:
        score, formed = answer_score(trajectory), is_well_formed(trajectory)
        if is_first:
            return first_stage(has_searched(trajectory), formed, score if pays_answers else None)
        return second_stage(score, formed, penalty=penalty)

    return Term(name="staged", measure=measure)


def pay_with_floor(*, floor: float = 0.1, is_monotone: bool = False) -> Term:
    """Return the term "floored": `with_floor` of the episode."""
    if not 0 <= floor <= 1:
        raise UsageError(f"floor of an answer's score: got {floor}; give 0 to 1")
    return Term(
        name="floored",
        measure=lambda t: with_floor(
            answer_score(t), is_well_formed(t), floor=floor, is_monotone=is_monotone
        ),
    )


def search_rate(trajectories: Sequence[Trajectory]) -> float:
    """Return the share of `trajectories` in which something was searched for; 0 without any."""
    return sum(map(has_searched, trajectories)) / len(trajectories) if trajectories else 0.0
