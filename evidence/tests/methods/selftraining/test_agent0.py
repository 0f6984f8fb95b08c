"""Agent0: pay of proposals, labels of the majority, scale and bound of each episode; traps of the released code."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from quintain.curriculum.levels import Proposer
from quintain.errors import UsageError
from quintain.losses.policy import clip_each_ratio, clip_ratio
from quintain.methods.selftraining.agent0 import (
    Config,
    agreement,
    answer_of,
    count_executed,
    majority,
    majority_paid,
    measure_majority,
    method,
    proposal_values,
    trust,
    uncertain,
    words_of,
)
from quintain.types import Action, Group, Stop, ToolCall, Trajectory, flatten_scored
from quintain_evidence.labs.tables import new_table, s3
from quintain_evidence.labs.tabular import assign, kept_samples, packed


def group(*answers: str, level: str = "a", calls: int = 0, is_valid: bool = True) -> Group:
    (made,) = new_table(s3(0, num_tasks=1), 0).sample(size=len(answers), seed=0)
    task = replace(made.task, environment=level)

    def said(trajectory: Trajectory, answer: str) -> Trajectory:
        first, last = trajectory.turns[0], trajectory.turns[-1]
        call = tuple(ToolCall(name="add") for _ in range(calls))
        turns = (
            replace(
                first, action=Action(tool_calls=call) if call else Action(text="x"),
                is_valid=is_valid, starts_segment=True,
            ),
            replace(last, action=Action(text=answer), starts_segment=False, reward=0.3),
        )  # fmt: skip
        return replace(trajectory, task=task, turns=turns, group=f"0:{level}")

    return Group(
        task=task,
        trajectories=tuple(said(t, answer) for t, answer in zip(made.trajectories, answers, strict=True)),
    )


def test_answers_count_as_wholes_and_the_first_of_equals_is_the_majority() -> None:
    assert majority(["12", "32", "32", "12"]) == ("12", 0.5)
    assert majority(["12", "32", "2"]) == ("12", 1 / 3), "not by their last character, which all share"
    assert agreement(group("4", "4", "7")) == pytest.approx(2 / 3)
    assert answer_of(group(" 4 ").trajectories[0]) == "4"


def broken(group: Group, *, ends: tuple[Stop, ...] = (), errors: tuple[int, ...] = ()) -> Group:
    """Return `group` with other ends of its first episodes, and actions at `errors` that cannot be read."""
    episodes = list(group.trajectories)
    for number, stop in enumerate(ends):
        episodes[number] = replace(episodes[number], stop=stop)
    for number in errors:
        *before, last = episodes[number].turns
        unread = replace(last.action, text="", error="no call")
        episodes[number] = replace(episodes[number], turns=(*before, replace(last, action=unread)))
    return replace(group, trajectories=tuple(episodes))


def test_what_cannot_be_read_is_no_answer_and_never_the_majority() -> None:
    made = broken(group("", "", "", "", "", "7", "7", "1", "2", "3"), errors=(0, 1, 2, 3, 4))
    assert [answer_of(t) for t in made.trajectories] == [None] * 5 + ["7", "7", "1", "2", "3"]
    assert agreement(made) == pytest.approx(0.2), "five of ten agree with nobody"
    (paid,) = majority_paid([made])
    assert paid.returns == [0.0] * 5 + [1.0, 1.0, 0.0, 0.0, 0.0]
    silent = broken(group("", "x"), errors=(0, 1))
    assert majority([None, None]) == (None, 0.0) and agreement(silent) == 0.0
    assert majority_paid([silent])[0].returns == [0.0, 0.0]
    assert measure_majority([made], Proposer(lambda _: [1.0], rate=1.0))["agent0/unread"] == 0.5


def test_running_out_of_turns_is_no_answer() -> None:
    ends = (Stop.MAX_TURNS, Stop.MAX_TURNS, Stop.CUT, Stop.MAX_TOKENS, Stop.TIMEOUT, Stop.MAX_TURNS)
    made = broken(group(*(["look around"] * 6), "4", "4", "5", "6"), ends=ends)
    assert agreement(made) == pytest.approx(0.2)
    assert majority_paid([made])[0].returns == [0.0] * 6 + [1.0, 1.0, 0.0, 0.0]
    assert uncertain([made], 0.3, 0.8) == []


def test_calls_count_where_they_were_carried_out() -> None:
    done = group("4", "5", calls=2)
    assert [count_executed(t) for t in done.trajectories] == [2, 2]
    assert [count_executed(t) for t in group("4", "5", calls=2, is_valid=False).trajectories] == [0, 0]
    written = group("4", "```output ```output", calls=0)
    assert [count_executed(t) for t in written.trajectories] == [0, 0], "markers in what is said are no calls"
    values = proposal_values(
        [done, group("4", "5", level="b")], tool_weight=0.05, max_calls=4, repetition_weight=1.0
    )
    assert values == pytest.approx([1 + 0.1 - 0.5, 1 - 0.5])


def test_both_ends_are_kept() -> None:
    shares = {
        3: group(*"4447890123"[:10]),
        8: group(*"4444444412"),
        9: group(*"4444444441"),
        2: group(*"4412356789"),
    }
    assert {key: round(agreement(g), 1) for key, g in shares.items()} == {3: 0.3, 8: 0.8, 9: 0.9, 2: 0.2}
    assert uncertain(list(shares.values()), 0.3, 0.8) == [shares[3], shares[8]]


def test_the_majority_is_paid_and_the_truth_is_not_read() -> None:
    made = group("4", "4", "7")
    paid = majority_paid([made])[0]
    assert paid.returns == [1.0, 1.0, 0.0]
    assert [t.turns[-1].reward for t in paid.trajectories] == [1.0, 1.0, 0.0]
    assert [t.turns[0].reward for t in paid.trajectories] == [0.0] * 3
    assert [t.is_success for t in paid.trajectories] == [t.is_success for t in made.trajectories]


def test_advantages_are_scaled_and_the_loss_in_use_reads_the_bound_of_each_episode() -> None:
    made = method(Config(tasks=2, group_size=5))
    easy, hard = group(*"44441", level="a"), group(*"44123", level="b")
    policy = new_table(s3(0, num_tasks=1), 0)
    credit = assign(policy, made, [easy, hard])
    scale = {0: trust(0.8, 0.6), 5: trust(0.4, 0.6)}
    normal = {0: 0.2 / np.std([1, 1, 1, 1, 0], ddof=1), 5: 0.6 / np.std([1, 1, 0, 0, 0], ddof=1)}
    for place in (0, 5):
        assert credit.advantages[place][0][0] == pytest.approx(scale[place] * normal[place], rel=1e-4)
    batch = packed(kept_samples(credit, made.update), made.update)
    shifted = batch.logprobs - 0.24  # as if the policy had moved up by a factor of 1.27, between both bounds
    outputs = policy(batch)
    moved = replace(
        outputs, logprobs=outputs.logprobs.detach().where(batch.turn_id < 0, batch.logprobs).requires_grad_()
    )
    report = made.update.loss(moved, replace(batch, logprobs=shifted))
    (slope,) = torch.autograd.grad(report.loss, moved.logprobs)
    is_positive = batch.advantages > 0
    owner = batch.extra.trajectory[batch.sequence_id]
    assert torch.all(slope[is_positive & (owner < 5)] == 0), "p .8: the bound is 1.2"
    assert torch.all(slope[is_positive & (owner >= 5)] != 0), "p .4: the bound is 1.28"


def test_one_bound_for_all_is_the_clipped_loss_and_missing_ones_are_refused() -> None:
    policy = new_table(s3(0, num_tasks=1), 0)
    made = method(Config(tasks=2, group_size=5, low=0.0, high=1.0))
    credit = assign(policy, made, [group(*"44123")])
    batch = packed(kept_samples(credit, made.update), made.update)
    batch = replace(batch, logprobs=batch.logprobs - 0.3)
    one, other = (
        clip_each_ratio(0.2, [0.28] * 5)(policy(batch), batch),
        clip_ratio(0.2, 0.28)(policy(batch), batch),
    )
    assert torch.equal(one.loss, other.loss) and one.metrics == other.metrics
    with pytest.raises(UsageError, match="upper bounds of 5 episodes: got 1"):
        clip_each_ratio(0.2, [0.2])(policy(batch), batch)


def test_what_is_measured_says_how_good_the_labels_are() -> None:
    made = method(Config(tasks=2, group_size=5))
    groups = [group(*"44441")]
    made.state.update(groups)
    found = made.measure(groups, lambda _: "")
    assert found["agent0/agreement"] == pytest.approx(0.8)
    assert found["agent0/level_entropy"] == pytest.approx(0.0)
    assert found["agent0/episodes"] == 5
    assert found["agent0/majority_right"] == float(any(t.is_success for t in flatten_scored(groups)[:4]))


def test_a_proposer_moves_to_what_pays() -> None:
    proposer = Proposer(lambda groups: [float(g.task.environment == "b") for g in groups], rate=1.0)
    for _ in range(20):
        proposer.update([group("1", "2", level="a"), group("1", "2", level="b")])
    assert proposer.chances(["a", "b"])[1] > 0.9
    assert proposer.choose(["a", "b"], 20, 0).count("b") > 15
    same = Proposer(lambda groups: [1.0 for _ in groups], rate=1.0)
    same.update([group("1", level="a"), group("1", level="b")])
    assert same.chances(["a", "b"]) == [0.5, 0.5]


def test_equal_proposals_are_a_cluster() -> None:
    groups = [group("1", "2"), group("1", "2"), group("1", "2")]
    groups = [
        replace(each, task=replace(each.task, data={"want": want}))
        for each, want in zip(groups, ("torch", "torch", "plank"), strict=True)
    ]
    weights: Any = {"tool_weight": 0.0, "max_calls": 4, "repetition_weight": 1.0}
    assert proposal_values(groups, **weights) == [0.0, 0.0, 0.0]
    assert proposal_values(groups, **weights, cluster=words_of) == pytest.approx([1 / 3, 1 / 3, 2 / 3])


class Proposing:
    """A collector that says whose proposals were asked for, and what was tried."""

    def __init__(self) -> None:
        self.tried = list[str]()

    def tasks(self, step: int, count: int) -> list[str]:
        return [f"{step}/{number}" for number in range(count)]

    def propose_tasks(self, step: int, tasks: list[str], by: Any) -> list[str | None]:
        return [f"{task} by {type(by).__name__}" for task in tasks]

    def sample(self, step: int, tasks: list[str], *, size: int) -> list[Group]:
        self.tried = [f"{task} × {size}" for task in tasks]
        return []


@pytest.mark.parametrize(
    ("proposer", "kind"), [("world", "NoneType"), ("http://127.0.0.1:1/v1?model=m", "Proposer")]
)
def test_the_world_or_a_model_says_tasks_in_the_place_of_levels(proposer: str, kind: str) -> None:
    made = method(Config(proposer=proposer, tasks=2, group_size=3))
    collector = Proposing()
    made.collect(cast(Any, collector), 5)
    assert collector.tried == [f"5/0 by {kind} × 3", f"5/1 by {kind} × 3"]
    assert made.needs.proposals and not method(Config()).needs.proposals
    told = [replace(group("1", "2"), task=replace(group("1").task, data={"want": want})) for want in "ab"]
    assert made.measure(told, cast(Any, None))["agent0/proposal_value"] == pytest.approx(0.5)
