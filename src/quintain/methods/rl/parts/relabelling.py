"""The best answer of a task, put in the place of what failed episodes of it answered last.

The relabelling of muCode (arXiv 2502.20380). What an answer is says the environment: a turn with the reward term
``answer``, which is above 0 where the answer was right. Only answers that were right are imitated, and log-probs of
what was not sampled there are left empty.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from quintain.data.samples import whole_prompt
from quintain.types import ANSWER, Group, Score, Trajectory, Turn


def answers(trajectory: Trajectory) -> list[int]:
    """Return the numbers of the turns that answer."""
    return [number for number, turn in enumerate(trajectory.turns) if turn.is_answer]


def is_right_answer(trajectory: Trajectory, number: int) -> bool | None:
    """Return whether turn `number` is a right answer; None where it is none.

    A last answer is right where it also solved the task: one that is paid in part is not.
    """
    turn = trajectory.turns[number]
    if not turn.is_answer:
        return None
    is_last = number == len(trajectory.turns) - 1
    return turn.reward_terms[ANSWER] > 0 and (trajectory.is_success or not is_last)


def best_answer(group: Group, score: Callable[[Turn], float] | None) -> Turn | None:
    """Return the right answer with the highest `score`; without one, or among equals, the shortest and earliest.

    None where no episode of `group` has a right answer.
    """
    right = [t.turns[k] for t in group.scored for k in answers(t) if is_right_answer(t, k)]
    if not right:
        return None
    return min(
        right, key=lambda turn: (0.0 if score is None else -score(turn), len(turn.completion.token_ids))
    )


def relabel_groups(
    groups: Sequence[Group], score: Callable[[Turn], float] | None, *, count: int
) -> list[Group]:
    """Return for each task with a right answer its solved episodes, and up to `count` failed ones that end with it.

    A failed episode ends with its last answer, which the best one of the task replaces. They are taken worst first:
    those whose last answer has the highest `score` though it is wrong. Episodes without an answer are left out.
    """
    found: list[Group] = []
    for group in groups:
        best = best_answer(group, score)
        if best is None:
            continue
        solved = [t for t in group.scored if t.is_success]
        failed = [(t, places[-1]) for t in group.scored if not t.is_success and (places := answers(t))]
        failed.sort(key=lambda last: 0.0 if score is None else -score(last[0].turns[last[1]]))
        replaced = [with_answer(t, place, best) for t, place in failed[:count]]
        found.append(replace(group, trajectories=(*solved, *replaced)))
    return found


def with_answer(trajectory: Trajectory, place: int, answer: Turn) -> Trajectory:
    """Return `trajectory` up to turn `place`, which `answer` replaces; nothing before it is trained on."""
    before, last = trajectory.turns[:place], trajectory.turns[place]
    completion = replace(answer.completion, logprobs=())
    turn = replace(
        last,
        completion=completion,
        action=answer.action,
        reward=answer.reward,
        reward_terms=answer.reward_terms,
    )
    whole = replace(turn, prompt_ids=whole_prompt(before, last), starts_segment=True)
    return replace(trajectory, turns=(whole,), outcome=Score(value=answer.reward, is_success=True))
