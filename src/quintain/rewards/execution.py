"""Did it do what it should? Unit tests that pass, and a final state that is the right one.

Rewards of AppWorld (LOOP, arXiv 2502.01600) and of state-hash graders (tau-bench, 2406.12045). What runs code or
rebuilds a state is given by the caller, who knows the sandbox. The one rule: a grader that broke is a failure of the
judge, never a wrong answer; and a task that doing nothing would solve is refused.
"""

from collections.abc import Callable, Sequence

from quintain.errors import DataError
from quintain.rewards.terms import Term
from quintain.types import Task, Trajectory


def passed_tests(
    run: Callable[[Trajectory], Sequence[bool] | None], *, is_partial: bool = True, weight: float = 1.0
) -> Term:
    """Return the term "tests": the share of tests that pass (all or nothing without `is_partial`).

    `run` returns whether each test passed, or None where the tests could not be run. No tests at all cannot say
    anything either: both are failures of the judge.
    """

    def measure(trajectory: Trajectory) -> float:
        results = run(trajectory)
        if not results:
            return float("nan")
        share = sum(bool(result) for result in results) / len(results)
        return share if is_partial else float(share == 1)

    return Term(name="tests", measure=measure, weight=weight)


def state_reached(
    reached: Callable[[Trajectory], str],
    wanted: Callable[[Task], str],
    initial: Callable[[Task], str],
    *,
    weight: float = 1.0,
) -> Term:
    """Return the term "state": 1 where the state that an episode `reached` is the `wanted` one, compared by hash.

    Raises `DataError`, when applied, for a task whose `initial` state is already the wanted one.
    """

    def measure(trajectory: Trajectory) -> float:
        task = trajectory.task
        goal = wanted(task)
        if goal == initial(task):
            raise DataError(
                f"wanted state of {task.id}: got the initial one, which doing nothing reaches; give it a goal that "
                "has to be worked for, or grade what was said instead"
            )
        return float(reached(trajectory) == goal)

    return Term(name="state", measure=measure, weight=weight)
