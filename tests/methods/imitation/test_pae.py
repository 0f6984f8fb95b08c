"""PAE: the shortest fifth of each task, ties, single successes, and what an evaluator takes for solved."""

from dataclasses import replace
from typing import Any, cast

import pytest

from quintain.data.pipeline import as_example
from quintain.engines.judge import Judge
from quintain.errors import ConfigError, DataError, FailureRateError
from quintain.methods.imitation.pae import (
    Config,
    Evaluator,
    errs,
    keep_accepted,
    measure_agreement,
    method,
    pay_verdict,
    shortest,
)
from quintain.methods.proposals import collect_proposals
from quintain.testing.episodes import Lived, record_cases
from quintain.types import Example, Failure, Group, Score, Trajectory, flatten_scored


def examples(*lengths: tuple[int, int], value: float = 1.0) -> list[Example]:
    lived = [Lived(task=task, value=value, is_success=True, num_turns=num) for task, num in lengths]
    return [as_example(t) for group in record_cases(lived) for t in group.trajectories]


def kept(*lengths: tuple[int, int], share: float = 0.2) -> list[int]:
    return [len(e.trajectory.turns) for e in shortest(share).apply(examples(*lengths))]


def test_of_four_six_and_ten_turns_four_is_kept() -> None:
    assert kept((0, 4), (0, 6), (0, 10)) == [4]
    assert kept((0, 4), (0, 6), (0, 10), share=1.0) == [4, 6, 10]


def test_a_single_success_stays_and_ties_at_the_cut_do() -> None:
    assert kept((0, 9)) == [9]
    assert kept((0, 4), (0, 4), (0, 4), (0, 7)) == [4, 4, 4]


def test_each_task_has_a_cut_of_its_own() -> None:
    assert kept((0, 2), (0, 3), (1, 8), (1, 9)) == [2, 8]


def test_only_what_is_paid_is_accepted() -> None:
    assert keep_accepted().apply(examples((0, 1), value=0.0)) == []
    assert len(keep_accepted().apply(examples((0, 1), value=0.01))) == 1


def test_newest_steps_are_trained_on_again() -> None:
    assert method(Config(memory=3)).memory == 3


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_all_of_one_length_are_kept(share: float) -> None:
    assert kept((0, 2), (0, 2), (0, 2), share=share) == [2, 2, 2]


def told(*outcomes: tuple[float, bool]) -> list[Group]:
    """Episodes of one task with these values and truths, each with a seed of its own."""
    lived = [Lived(task=0, value=value, is_success=truth, num_turns=1) for value, truth in outcomes]
    return [
        replace(
            group,
            trajectories=tuple(replace(t, seed=1000 + place) for place, t in enumerate(group.trajectories)),
        )
        for group in record_cases(lived)
    ]


def outcomes(groups: Any) -> list[tuple[float, bool]]:
    return [(t.outcome.value, t.outcome.is_success) for group in groups for t in group.trajectories]


class Says(Judge):
    """A judge that says what it is told to of episodes in turn, and who was asked."""

    def __init__(self, *scores: float | Failure) -> None:
        self.scores_told, self.asked = list(scores), list[Trajectory]()

    def prepare(self, trajectories: Any) -> None:
        self.asked += trajectories

    def measure(self, trajectory: Trajectory) -> float | Failure:
        return self.scores_told[[t.seed for t in self.asked].index(trajectory.seed)]


def test_the_outcome_accepts_what_pays_and_the_truth_stays() -> None:
    evaluator = Evaluator(None)
    found = evaluator.judged(told((0.25, False), (1.0, True), (0.0, False), (0.0, True)))
    assert outcomes(found) == [(1.0, False), (1.0, True), (0.0, False), (0.0, True)]
    metrics = evaluator.measure(told((1.0, True)), lambda _: "")
    assert metrics["evaluator/agreement"] == 0.5 and metrics["evaluator/false_accepts"] == 0.5
    assert metrics["evaluator/accepted"] == 0.5 and metrics["evaluator/unread"] == 0


def test_agreement_by_hand() -> None:
    found = measure_agreement([(True, True), (True, False), (False, False), (False, True), (True, True)])
    assert found["evaluator/agreement"] == pytest.approx(0.6)
    assert found["evaluator/error"] == pytest.approx((0.6 * 0.4 / 5) ** 0.5)
    assert found["evaluator/false_accepts"] == 0.5 and found["evaluator/accepted"] == 0.6
    assert measure_agreement([]) == {} and measure_agreement([(True, True)])["evaluator/false_accepts"] == 0


def test_mistakes_are_a_share_of_verdicts_of_both_kinds_and_follow_the_seed_of_the_episode() -> None:
    groups = told(*[(1.0, True)] * 300, *[(0.0, False)] * 300)
    evaluator = Evaluator(None, mistakes=0.1)
    found = evaluator.judged(groups)
    assert outcomes(found) == outcomes(evaluator.judged(groups)), "a resumed run repeats it"
    wrong = [value != truth for value, truth in outcomes(found)]
    assert 0.05 < sum(wrong[:300]) / 300 < 0.16 and 0.05 < sum(wrong[300:]) / 300 < 0.16
    agrees = evaluator.measure(groups, lambda _: "")["evaluator/agreement"]
    assert agrees == pytest.approx(1 - sum(wrong) / 600)
    episodes = flatten_scored(groups)
    assert [errs(t, 0.1) for t in episodes] == wrong
    assert all(errs(t, 0.2) for t in episodes if errs(t, 0.1)), "a higher share errs there as well"
    assert not any(errs(t, 0.0) for t in episodes) and all(errs(t, 1.0) for t in episodes)
    assert {errs(replace(episodes[0], seed=seed), 0.5) for seed in range(20)} == {True, False}


def test_a_judge_accepts_from_the_middle_on_whatever_the_environment_paid() -> None:
    judge = Says(0.5, 0.4, 1.0)
    groups = told((0.0, False), (1.0, True), (1.0, True))
    evaluator = Evaluator(judge)
    assert outcomes(evaluator.judged(groups)) == [(1.0, False), (0.0, True), (1.0, True)]
    assert [t.seed for t in judge.asked] == [1000, 1001, 1002]
    assert evaluator.measure(groups, lambda _: "")["evaluator/agreement"] == pytest.approx(1 / 3)
    reading = [
        e.trajectory
        for e in keep_accepted().apply([as_example(t) for t in flatten_scored(evaluator.judged(groups))])
    ]
    assert [t.seed for t in reading] == [1000, 1002]


def test_what_a_judge_says_nothing_of_is_left_out_and_too_much_of_it_ends_the_run() -> None:
    silent = Failure(owner="judge", kind="judge_unreadable", message="m")
    groups = told((1.0, True), (1.0, True), (0.0, False))
    evaluator = Evaluator(Says(silent, 1.0, 0.0), most_broken=0.01)
    found = evaluator.judged(groups)
    assert [t.seed for t in flatten_scored(found)] == [1001, 1002]
    metrics = evaluator.measure(groups, lambda _: "")
    assert metrics["evaluator/unread"] == pytest.approx(1 / 3) and metrics["evaluator/agreement"] == 1
    with pytest.raises(FailureRateError, match="2 failures"):
        Evaluator(Says(silent, silent, 0.0), most_broken=0.01).judged(groups)


def test_what_failed_already_is_not_judged() -> None:
    (group,) = told((1.0, True), (1.0, True))
    broken = replace(group.trajectories[0], outcome=Failure(owner="tool", kind="k", message="m"))
    judge = Says(0.0)
    (found,) = Evaluator(judge).judged([replace(group, trajectories=(broken, group.trajectories[1]))])
    assert found.trajectories[0] == broken and [t.seed for t in judge.asked] == [1001]
    assert pay_verdict(broken, None) is broken
    assert pay_verdict(group.trajectories[1], False).outcome == Score(value=0.0, is_success=True)


class Proposing:
    """A collector that proposes every second task."""

    def __init__(self, every: int) -> None:
        self.every, self.sampled = every, list[str]()

    def tasks(self, step: int, count: int) -> list[str]:
        return [f"{step}/{number}" for number in range(count)]

    def propose_tasks(self, step: int, tasks: list[str], by: Any) -> list[str | None]:
        return [None if number % self.every else f"{task}?{by}" for number, task in enumerate(tasks)]

    def sample(self, step: int, tasks: list[str], *, size: int) -> list[Group]:
        self.sampled = [f"{step}:{task}:{size}" for task in tasks]
        return []


def test_only_proposals_that_are_tasks_are_tried() -> None:
    collector = Proposing(2)
    collect_proposals(4, 8, None)(cast(Any, collector), 7)
    assert collector.sampled == ["7:7/0?None:8", "7:7/2?None:8"]
    silent = cast(Any, Proposing(1))
    silent.propose_tasks = lambda _, tasks, by: [None for _ in tasks]
    with pytest.raises(DataError, match="proposals of step 7: got 4, none of which"):
        collect_proposals(4, 8, None)(silent, 7)


def test_who_proposes_and_judges_is_checked_before_anything_is_played() -> None:
    Config(proposer="world", environment="craft").check()
    with pytest.raises(ConfigError, match="proposer: got 'policy'; give world"):
        Config(proposer="policy").check()
    with pytest.raises(ConfigError, match="with max_staleness 1"):
        Config(proposer="world", rollout="async", max_staleness=1).check()
    with pytest.raises(ConfigError, match=r"judge: got 'http://127.0.0.1:1/v1' without a model"):
        Config(judge="http://127.0.0.1:1/v1").check()
    with pytest.raises(ConfigError, match=r"option of proposer .*: got 'modl'"):
        Config(proposer="http://127.0.0.1:1/v1?modl=x").check()
    assert method(Config(proposer="world")).needs.proposals and not method(Config()).needs.proposals


@pytest.mark.slow
def test_a_run_on_proposals_with_an_evaluator_that_errs(train: Any) -> None:
    rows = train(
        "pae", environment="craft?depth=1", model="micro?tokens=words", agent="choice", demonstrations=16, tasks=8,
        group_size=4, proposer="world", evaluator_noise=0.2, steps=2,
    )  # fmt: skip
    told = rows[1:]
    assert len(told) == 2 and all(0.5 < row["evaluator/agreement"] < 1 for row in told)
    assert all(
        row["proposer/tasks"] == 8 and row["data/accepted"] == 32 * row["evaluator/accepted"] for row in told
    )
