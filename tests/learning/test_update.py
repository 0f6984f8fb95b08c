"""Epochs and minibatches: what is in which optimizer step, when a step ends early, and what rests meanwhile."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning.test_learner import qwen, streams
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from quintain.data.leaves import LeafRule
from quintain.data.pack import micro_batches
from quintain.data.samples import unrelated_samples
from quintain.learning.learner import Learner, Optimization, StepReport
from quintain.learning.policies import Policies, Policy, SharedModel
from quintain.learning.sections import PolicySettings, Schedule
from quintain.learning.train_config import MAIN, OnPolicyConfig, TrainConfig
from quintain.learning.update import (
    Aggregation,
    Denominator,
    Update,
    epoch_batch,
    estimate_kl,
    learn,
    learn_all,
    learn_from,
    learn_in_epochs,
    mean_report,
    minibatches,
    num_batches,
    prepare,
    scale_at,
)
from quintain.losses.policy import clip_ratio
from quintain.losses.value import value
from quintain.models.heads import ValueHead
from quintain.types import (
    Action,
    Batch,
    Completion,
    Credit,
    Loss,
    LossReport,
    Outputs,
    Sample,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
)

OFF_POLICY = Update(loss=clip_ratio(), is_on_policy=False)


def policy(name: str = MAIN, *, has_head: bool = False, tokens_per_microbatch: int = 9999) -> Policy:
    """A policy on the model of the learner's tests."""
    model = qwen()
    head = ValueHead(16) if has_head else None
    learner = Learner(model, Optimization(learning_rate=0.01), value_head=head)
    return Policy(
        name, SharedModel(model), None, cast(PreTrainedTokenizerBase, None), 
        PolicySettings(tokens_per_microbatch=tokens_per_microbatch),
        forward=learner.forward, learner=learner,
    )  # fmt: skip


def weights(each: Policy) -> list[Tensor]:
    return [p.detach().clone() for p in each.model.parameters()]


def are_equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def own_streams(*owners: int, is_paired: bool = False) -> list[Sample]:
    """One stream for each of `owners`: of that trajectory, or of both sides of that pair."""
    (base,) = streams(0, num=1)
    found: list[Sample] = []
    for number, owner in enumerate(owners):
        ids = base.token_ids.copy()
        ids[-1] = number % 40
        owned = {"pair": owner, "trajectory": number} if is_paired else {"trajectory": owner}
        found.append(replace(base, token_ids=ids, **owned))
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=20), st.integers(1, 9), st.integers(0, 99), st.booleans()
)
def test_minibatches_are_parts_of_the_step_and_never_split_a_trajectory_or_a_pair(
    owners: list[int], count: int, seed: int, is_paired: bool
) -> None:
    samples = own_streams(*owners, is_paired=is_paired)
    parts = minibatches(samples, count, seed)
    assert sorted(number for part in parts for number in part) == list(range(len(samples)))
    assert len(parts) == min(count, len(set(owners))) or count == 1
    where = [{owners[number] for number in part} for part in parts]
    assert sum(map(len, where)) == len(set(owners)), "each is in one part"
    sizes = [len(found) for found in where]
    assert max(sizes) - min(sizes) <= 1
    assert parts == minibatches(samples, count, seed)
    if count == 1:
        assert parts == [list(range(len(samples)))], "a step in one part keeps its order"


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the learner is asked for; nothing is learned, and each step goes 0.1 further."""
    seen: list[dict[str, Any]] = []

    def step(_: Learner, batches: list[Batch], __: Loss, **fields: Any) -> StepReport:
        last = tuple(int(batch.token_ids[sum(batch.lengths[: i + 1]) - 1]) for batch in batches
                     for i in range(len(batch.lengths)))  # fmt: skip
        seen.append({"streams": last, **fields})
        return StepReport(
            loss=float(len(seen)), grad_norm=1.0, num_tokens=10, seconds=1.0,
            metrics={"policy/approx_kl": 0.1 * len(seen)},
        )  # fmt: skip

    monkeypatch.setattr(Learner, "step", step)
    return seen


def test_every_epoch_has_an_order_of_its_own_from_the_seed(taken: list[dict[str, Any]]) -> None:
    samples = own_streams(*range(12))
    config = OnPolicyConfig(num_epochs=3, num_minibatches=4)

    def orders(seed: int) -> list[tuple[int, ...]]:
        taken.clear()
        report = learn_in_epochs(Policies({MAIN: policy()}), samples, OFF_POLICY, config, step=20, seed=seed)
        assert report is not None and report.loss == pytest.approx(10.5), "the mean over the last epoch"
        assert (report.num_tokens, report.seconds) == (40, 4.0)
        assert all(each["rate_scale"] == 1.0 for each in taken), "it has risen after lr_warmup steps"
        return [each["streams"] for each in taken]

    found = orders(1)
    epochs = [found[start : start + 4] for start in (0, 4, 8)]
    assert all(sorted(n for part in epoch for n in part) == list(range(12)) for epoch in epochs)
    assert all(len(part) == 3 for part in found)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert orders(1) == found and orders(2) != found


@pytest.mark.parametrize(
    ("update", "config", "num"),
    [
        (OFF_POLICY, TrainConfig(), 1),
        (OFF_POLICY, OnPolicyConfig(num_epochs=2, num_minibatches=3), 6),
        (replace(OFF_POLICY, num_epochs=1), OnPolicyConfig(num_epochs=2, num_minibatches=3), 3),
        (replace(OFF_POLICY, num_minibatches=2), OnPolicyConfig(num_epochs=2, num_minibatches=3), 4),
        (replace(OFF_POLICY, num_epochs=3), TrainConfig(), 3),
        (OFF_POLICY, OnPolicyConfig(num_minibatches=99), 5),
    ],
)
def test_a_method_counts_before_the_configuration_and_else_once(
    update: Update, config: TrainConfig, num: int, taken: list[dict[str, Any]]
) -> None:
    learn_in_epochs(Policies({MAIN: policy()}), own_streams(*range(5)), update, config, step=1, seed=0)
    assert len(taken) == num


@pytest.mark.parametrize(("target", "num"), [(None, 8), (0.05, 1), (0.35, 4), (0.55, 6)])
def test_a_step_ends_with_the_minibatch_that_went_too_far(
    target: float | None, num: int, taken: list[dict[str, Any]]
) -> None:
    """Also in the middle of an epoch; the report is of the minibatches of that epoch which were made."""
    config = OnPolicyConfig(num_epochs=2, num_minibatches=4)
    update = replace(OFF_POLICY, target_kl=target)
    report = learn_in_epochs(
        Policies({MAIN: policy()}), own_streams(*range(4)), update, config, step=1, seed=0
    )
    assert len(taken) == num and report is not None
    assert report.num_tokens == 10 * ((num - 1) % 4 + 1)


def test_only_the_very_first_step_is_held_to_the_sampler(taken: list[dict[str, Any]]) -> None:
    config = OnPolicyConfig(num_epochs=2, num_minibatches=2)
    for is_on_policy in (True, False):
        taken.clear()
        update = Update(loss=clip_ratio(), is_on_policy=is_on_policy)
        learn_in_epochs(Policies({MAIN: policy()}), own_streams(0, 1), update, config, step=1, seed=0)
        assert [each["is_on_policy"] for each in taken] == [is_on_policy, False, False, False]
        assert taken[0]["rate_scale"] == pytest.approx(0.1)


def test_nothing_to_learn_from_is_no_step(taken: list[dict[str, Any]]) -> None:
    assert learn_in_epochs(Policies({MAIN: policy()}), [], OFF_POLICY, TrainConfig(), step=1, seed=0) is None
    assert not taken


def test_one_epoch_of_one_minibatch_is_a_plain_step_bit_for_bit() -> None:
    samples, one, other = streams(3), policy(tokens_per_microbatch=40), policy(tokens_per_microbatch=40)
    assert other.learner is not None
    report = learn_in_epochs(Policies({MAIN: one}), samples, OFF_POLICY, OnPolicyConfig(), step=3, seed=7)
    plain = other.learner.step(micro_batches(samples, max_tokens=40), clip_ratio(), rate_scale=0.3)
    assert are_equal(weights(one), weights(other))
    assert report is not None and (report.loss, report.grad_norm) == (plain.loss, plain.grad_norm)
    assert report.metrics == plain.metrics


def test_minibatches_are_weighted_over_themselves() -> None:
    """A minibatch of half the episodes is a whole batch: its loss is a mean over its own tokens."""
    samples = streams(3)
    seen: list[float] = []

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        seen.append(float(batch.loss_weight.sum()))
        return LossReport(loss=outputs.logprobs.sum() * 1e-6)

    config = OnPolicyConfig(num_minibatches=3)
    update = Update(loss=loss, is_on_policy=False)
    learn_in_epochs(Policies({MAIN: policy()}), samples, update, config, step=1, seed=0)
    assert seen == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("num_agreeing", [0, 1, 7])
@pytest.mark.parametrize(
    ("denominator", "aggregation", "sums"),
    [
        # by 0, 1 and 7 groups that agree beside one of two episodes, of one token each, with advantages of ±½
        ("kept", "constant", (1 / 128, 1 / 128, 1 / 128)),
        ("sampled", "constant", (1 / 128, 1 / 256, 1 / 1024)),
        ("kept", "token_mean", (0.5, 0.5, 0.5)),
        ("sampled", "token_mean", (0.5, 0.25, 0.0625)),
        ("kept", "sequence_mean", (0.5, 0.5, 0.5)),
        ("sampled", "sequence_mean", (0.5, 0.25, 0.0625)),
    ],
)
def test_groups_that_agree_count_in_the_denominator_or_leave_it(
    denominator: Denominator, aggregation: Aggregation, sums: tuple[float, ...], num_agreeing: int
) -> None:
    seen: list[float] = []

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        assert batch.advantages[batch.loss_weight > 0].abs().min() > 0, (
            "what agrees is not passed through the model"
        )
        seen.append(float((batch.loss_weight * batch.advantages.abs()).sum()))
        return LossReport(loss=outputs.logprobs.sum() * 1e-6)

    values = [0.5, -0.5, *[0.0] * (2 * num_agreeing)]
    turn = Turn(
        observation=(), prompt_ids=(1,), completion=Completion(token_ids=(3,), logprobs=(-0.5,), stop="stop"),
        action=Action(),
    )  # fmt: skip
    episodes = [
        Trajectory(
            task=Task(id="t", environment="e", seed=0), turns=(turn,), outcome=Score(value=x, is_success=x > 0),
            stop=Stop.TERMINATED, seed=0, group=str(n // 2), index=n % 2,
        )
        for n, x in enumerate(values)
    ]  # fmt: skip
    credit = Credit(
        trajectories=tuple(episodes), advantages=tuple((np.full(1, x, np.float32),) for x in values)
    )
    update = Update(
        loss=loss,
        aggregation=aggregation,
        constant=64.0 if aggregation == "constant" else None,
        denominator=denominator,
        is_on_policy=False,
    )
    owner = Policies({MAIN: policy()})
    assert learn(owner, credit, update, OnPolicyConfig(), step=1, seed=0) is not None
    assert seen == pytest.approx([sums[{0: 0, 1: 1, 7: 2}[num_agreeing]]])
    nothing = replace(credit, advantages=tuple((np.zeros(1, np.float32),) for _ in values))
    assert learn(owner, nothing, update, OnPolicyConfig(), step=1, seed=0) is None
    # In minibatches of their own, those without an advantage take no step and still count.
    seen.clear()
    config = OnPolicyConfig(num_minibatches=len(values))
    learn(owner, credit, replace(update, denominator="sampled"), config, step=1, seed=0)
    assert len(seen) == 2


def test_what_others_say_goes_with_its_stream_into_every_minibatch() -> None:
    """Reference and values are computed once, before the first update, and shuffled along."""
    samples = own_streams(0, 1, 0, 2, 1, 3)
    main, reference = policy(has_head=True), policy("reference")
    with torch.no_grad():
        for parameter in reference.model.parameters():
            parameter.mul_(1.1)
    policies = Policies({MAIN: main, "reference": reference})
    alone = {int(s.token_ids[-1]): micro_batches([s], max_tokens=9999)[0] for s in samples}
    expected = {
        number: (reference.infer(batch).logprobs, cast(Tensor, main.infer(batch).values))
        for number, batch in alone.items()
    }
    seen: list[int] = []

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        assert batch.extra.reference_logprobs is not None and batch.extra.values is not None
        for row, length in enumerate(batch.lengths):
            start = sum(batch.lengths[:row])
            place = slice(start, start + length)
            number = int(batch.token_ids[start + length - 1])
            seen.append(number)
            assert torch.allclose(batch.extra.reference_logprobs[place], expected[number][0], atol=1e-5)
            assert torch.allclose(batch.extra.values[place], expected[number][1], atol=1e-6)
        return LossReport(loss=outputs.logprobs.sum() * 0.1)

    update = Update(loss=loss, is_on_policy=False, has_reference=True, has_values=True)
    config = OnPolicyConfig(num_epochs=2, num_minibatches=3)
    learn_in_epochs(policies, samples, update, config, step=9, seed=0)
    assert sorted(seen) == sorted([*range(6)] * 2)


def test_sides_of_a_pair_that_lie_apart_keep_what_is_said_of_them() -> None:
    samples = own_streams(0, 1, 0, 1, is_paired=True)
    main, reference = policy(tokens_per_microbatch=len(samples[0].token_ids) * 2), policy("reference")
    update = Update(loss=clip_ratio(), has_reference=True)
    prepared = prepare(Policies({MAIN: main, "reference": reference}), main, samples, update)
    assert prepared.reference is not None and [s.pair for s in prepared.samples] == [0, 0, 1, 1]
    for said, sample in zip(prepared.reference, prepared.samples, strict=True):
        (batch,) = micro_batches([sample], max_tokens=9999)
        assert torch.allclose(said, reference.infer(batch).logprobs, atol=1e-5)
    for batch in prepared.batches(range(4), update, main.pass_size):
        assert batch.extra.reference_logprobs is not None
        assert torch.allclose(batch.extra.reference_logprobs, reference.infer(batch).logprobs, atol=1e-5)


def test_the_kl_estimate_is_of_the_whole_step_whatever_the_cut() -> None:
    samples = [
        replace(sample, trajectory=number, pair=number // 2)
        for number, sample in enumerate(streams(3, num=4))
    ]
    seen: list[list[float | None]] = []

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        seen[-1].append(batch.extra.kl)
        return LossReport(loss=outputs.logprobs.sum() * 0.0)

    update = Update(loss=loss, is_on_policy=False, has_reference=True, has_kl=True)
    whole = sum(len(sample.token_ids) for sample in samples)
    for tokens_per_microbatch in (whole, 2 * max(len(sample.token_ids) for sample in samples)):
        main, reference = policy(tokens_per_microbatch=tokens_per_microbatch), policy("reference")
        with torch.no_grad():
            for parameter in main.model.parameters():
                parameter.mul_(1.05)
        policies = Policies({MAIN: main, "reference": reference})
        seen.append([])
        learn_from(policies, samples, update, rate_scale=0.0)
        seen.append([])
        learn_in_epochs(policies, samples, update, TrainConfig(), step=9, seed=0)
    assert [len(found) for found in seen] == [1, 1, 2, 2]
    ((expected,), *_), streamed = seen, unrelated_samples(samples)
    assert expected is not None
    (batch,) = micro_batches([replace(sample, pair=-1) for sample in streamed], max_tokens=9999)
    by_hand = (main.infer(batch).logprobs - reference.infer(batch).logprobs).sum() / 4
    assert expected == pytest.approx(float(by_hand), abs=1e-5) and abs(expected) > 1e-3
    assert [kl for found in seen for kl in found] == pytest.approx([expected] * 6, abs=1e-5)
    assert estimate_kl(policies, main, samples, replace(update, has_kl=False)) is None


def test_the_policy_rests_while_the_critic_learns_first() -> None:
    main = policy(has_head=True)
    head = main.forward.value_head
    assert head is not None and main.learner is not None
    before, head_before = weights(main), [p.detach().clone() for p in head.parameters()]
    update = Update(
        loss=clip_ratio(), critic_steps=2, critic_loss=value(), critic_epochs=3, is_on_policy=False
    )
    policies = Policies({MAIN: main})
    for step in (1, 2):
        assert learn_in_epochs(policies, streams(3), update, OnPolicyConfig(), step=step, seed=0) is not None
    assert main.version == 6, "as many steps as critic_epochs says, each time"
    assert are_equal(weights(main), before) and not are_equal(list(head.parameters()), head_before)
    assert all(p.requires_grad for p in main.model.parameters())
    learned = learn_in_epochs(policies, streams(3), update, OnPolicyConfig(), step=3, seed=0)
    assert main.version == 7 and not are_equal(weights(main), before)
    assert learned is not None and learned.lr_scale == pytest.approx(0.1), "its rate rises from here"
    again = learn_in_epochs(policies, streams(3), update, OnPolicyConfig(), step=30, seed=0, num_learned=4)
    assert again is not None and again.lr_scale == pytest.approx(0.5)


def test_an_error_in_the_rest_wakes_the_policy_again() -> None:
    def broken(outputs: Outputs, batch: Batch) -> LossReport:
        raise ZeroDivisionError

    main = policy(has_head=True)
    update = Update(loss=clip_ratio(), critic_steps=1, critic_loss=broken)
    with pytest.raises(ZeroDivisionError):
        learn_in_epochs(Policies({MAIN: main}), streams(3), update, OnPolicyConfig(), step=1, seed=0)
    assert all(p.requires_grad for p in main.model.parameters())


def played_by(name: str, amount: float) -> Trajectory:
    completion = Completion(token_ids=(3, 4), logprobs=(-3.7, -3.7), stop="stop", policy=name)
    turn = Turn(observation=(), prompt_ids=(1, 2), completion=completion, action=Action(), reward=amount)
    return Trajectory(
        task=Task(id="t", environment="e", seed=0), turns=(turn,), outcome=Score(value=amount, is_success=True),
        stop=Stop.TERMINATED, seed=0, group="g", index=0,
    )  # fmt: skip


def test_every_policy_that_acted_learns_from_its_own_episodes() -> None:
    main, opponent, frozen = policy(), policy("opponent"), policy("frozen")
    frozen.learner = None
    policies = Policies({MAIN: main, "opponent": opponent, "frozen": frozen})
    episodes = [
        played_by(name, amount) for name, amount in ((MAIN, 1.0), ("opponent", -1.0), ("frozen", 1.0))
    ]
    advantages = tuple((np.full(2, t.turns[0].reward, np.float32),) for t in episodes)
    credit = Credit(trajectories=tuple(episodes), advantages=advantages)
    before = {name: weights(each) for name, each in policies.items()}

    def likelihood(each: Policy) -> float:
        return float(np.sum(each.token_logprobs(episodes)[0][0]))

    likely = {name: likelihood(each) for name, each in policies.items()}
    report = learn_all(policies, credit, OFF_POLICY, TrainConfig(), step=20, seed=0)
    assert report is not None and {"opponent/train/loss", "opponent/train/grad_norm"} <= report.metrics.keys()
    assert report.num_tokens == 4, "its own tokens, not those of others"
    assert likelihood(main) > likely[MAIN] and likelihood(opponent) < likely["opponent"]
    assert are_equal(weights(frozen), before["frozen"])
    alone = replace(credit, trajectories=(episodes[1],), advantages=(advantages[1],))
    report = learn_all(policies, alone, OFF_POLICY, TrainConfig(), step=20, seed=0)
    assert report is not None and all(name.startswith("opponent/") for name in report.metrics)


def test_reports_of_minibatches_are_one() -> None:
    first = StepReport(loss=1.0, grad_norm=2.0, num_tokens=5, seconds=1.0, metrics={"a": 1.0, "b": 4.0})
    second = StepReport(
        loss=3.0, grad_norm=4.0, num_tokens=6, seconds=2.0, is_skipped=True, metrics={"a": 3.0}
    )
    found = mean_report([first, second])
    assert (found.loss, found.grad_norm, found.num_tokens, found.seconds) == (2.0, 3.0, 11, 3.0)
    assert found.is_skipped and found.metrics == {"a": 2.0, "b": 4.0}
    assert mean_report([first]) is first


@pytest.mark.parametrize(("total", "size"), [(10, 3), (1, 32), (32, 32), (47, 16)])
def test_an_epoch_over_a_data_set_has_every_place_once(total: int, size: int) -> None:
    num = num_batches(total, size)
    epochs = [
        [epoch_batch(total, size, epoch * num + part, ("s", 1)) for part in range(num)] for epoch in range(2)
    ]
    for batches in epochs:
        assert sorted(place for batch in batches for place in batch) == list(range(total))
        assert max(map(len, batches)) - min(map(len, batches)) <= 1
    assert epochs[0] != epochs[1] or total == 1
    assert epoch_batch(total, size, 0, ("s", 1)) == epochs[0][0]


@pytest.mark.parametrize(
    ("rule", "trained", "left_out"), [("all", (3, 4, 5), 0), ("last", (5,), 2), ("root", (3,), 2)]
)
def test_a_rule_says_which_streams_of_a_rewritten_history_are_trained(
    rule: LeafRule, trained: tuple[int, ...], left_out: int, taken: list[dict[str, Any]]
) -> None:
    turns = tuple(
        Turn(
            observation=(),
            prompt_ids=(number,),
            completion=Completion(token_ids=(number + 3,), logprobs=(-0.5,), stop="stop"),
            action=Action(),
            starts_segment=number > 0,
        )
        for number in range(3)
    )
    episode = Trajectory(
        task=Task(id="t", environment="e", seed=0), turns=turns, outcome=Score(value=1.0, is_success=True),
        stop=Stop.TERMINATED, seed=0, group="g", index=0,
    )  # fmt: skip
    credit = Credit(trajectories=(episode,), advantages=((np.ones(1, np.float32),) * 3,))
    config = OnPolicyConfig(train_branches=rule)
    report = learn(
        Policies({MAIN: policy()}),
        credit,
        OFF_POLICY,
        config,
        step=1,
        seed=0,
        train_branches=config.train_branches,
    )
    assert [each["streams"] for each in taken] == [trained]
    assert report is not None and report.metrics.get("data/streams_left_out", 0) == left_out


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("method", 2, [0.3, 0.3, 0.3, 0.3]),
        ("constant", 0, [1, 1, 1, 1]),
        ("constant", 2, [0.5, 1, 1, 1]),
        ("linear", 0, [1, 0.75, 0.5, 0.25]),
        ("cosine", 0, [1, 0.853553, 0.5, 0.146447]),
        ("linear", 2, [0.5, 1, 1, 0.5]),
    ],
)
def test_schedules_by_hand(schedule: Schedule, warmup: int, expected: list[float]) -> None:
    found = [scale_at(step, 4, schedule=schedule, by_method=0.3, warmup=warmup) for step in range(1, 5)]
    assert found == pytest.approx(expected, abs=1e-6)
