"""The best answer of a task, put in the place of what failed episodes of it said last.

The relabelling of muCode (arXiv 2502.20380). The one rule: only answers that were right are imitated, and
log-probs of what was not sampled there are left empty.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from quintain.data.samples import whole_prompt
from quintain.types import Group, Score, Trajectory, Turn


def is_last_of_solved(trajectory: Trajectory, number: int) -> bool:
    """Return whether turn `number` is the one that solved the task."""
    return trajectory.is_success and number == len(trajectory.turns) - 1


def best_answer(group: Group, score: Callable[[Turn], float] | None) -> Turn | None:
    """Return the right answer with the highest `score`; without one, or among equals, the shortest and earliest.

    None where no episode of `group` solved the task.
    """
    right = [t.turns[-1] for t in group.scored if t.turns and is_last_of_solved(t, len(t.turns) - 1)]
    if not right:
        return None
    return min(
        right, key=lambda turn: (0.0 if score is None else -score(turn), len(turn.completion.token_ids))
    )


def relabelled(groups: Sequence[Group], score: Callable[[Turn], float] | None, *, count: int) -> list[Group]:
    """Return for each solved task its solved episodes, and up to `count` failed ones that end with its best answer.

    Failed episodes are taken worst first: those whose last answer has the highest `score` though it is wrong.
    """
    found: list[Group] = []
    for group in groups:
        best = best_answer(group, score)
        if best is None:
            continue
        solved = [t for t in group.scored if is_last_of_solved(t, len(t.turns) - 1)]
        failed = [t for t in group.scored if t not in solved and t.turns]
        failed.sort(key=lambda t: 0.0 if score is None else -score(t.turns[-1]))
        replaced = [with_last(t, best) for t in failed[:count]]
        found.append(replace(group, trajectories=(*solved, *replaced)))
    return found


def with_last(trajectory: Trajectory, answer: Turn) -> Trajectory:
    """Return `trajectory` with what was said last replaced by `answer`; nothing before it is trained on."""
    *before, last = trajectory.turns
    completion = replace(answer.completion, logprobs=())
    turn = replace(last, completion=completion, action=answer.action, reward=answer.reward)
    whole = replace(turn, prompt_ids=whole_prompt(before, last), starts_segment=True)
    return replace(trajectory, turns=(whole,), outcome=Score(value=answer.reward, is_success=True))
