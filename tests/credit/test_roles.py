"""One role learns: the other's tokens change neither loss nor gradient, and stand in no divisor."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.build import make_episode, make_group, make_turn

from quintain.credit.group import group_relative
from quintain.credit.roles import train_role
from quintain.data.pack import pack
from quintain.data.samples import samples_from
from quintain.errors import DataError
from quintain.learning.update import Update, by_policy
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import clip_ratio
from quintain.types import Batch, Credit, Outputs, Score, Trajectory


def make_planned(outcome: float, *, apart: bool, seed: int = 0) -> Trajectory:
    """Return a plan of three tokens and an act of two, in streams of their own or in one."""
    return make_episode(
        make_turn((2, 3, 4), seat="agent/plan", starts_segment=True),
        make_turn((5, 6), starts_segment=apart),
        outcome=Score(value=outcome, is_success=outcome > 0),
        seed=seed,
    )


def credit_of(*, apart: bool) -> Credit:
    pair = [make_planned(1.0, apart=apart), make_planned(0.0, apart=apart, seed=1)]
    return group_relative([make_group(*pair)], std="none")


def loss_of(batch: Batch, change: float, role: str) -> tuple[float, torch.Tensor]:
    """Return loss and gradient in the log-probs, with those of the tokens that are not of `role` moved by `change`."""
    other = torch.isin(batch.token_ids, torch.tensor([2, 3, 4] if role == "act" else [5, 6]))
    leaf = (batch.logprobs + 0.1 + change * other).requires_grad_()
    loss = combine((clip_ratio(0.2, 0.2), 1.0), (kl_penalty("k3"), 0.5), (entropy_bonus(), 0.1))
    report = loss(Outputs(logprobs=leaf, entropy=leaf * 2), batch)
    (gradient,) = torch.autograd.grad(report.loss, leaf)
    return float(report.loss.detach()), gradient


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("role", ["plan", "act"])
def test_the_other_role_changes_nothing_bit_for_bit(role: str, apart: bool) -> None:
    credit = train_role(credit_of(apart=apart), role)
    batch = pack(samples_from(credit))
    batch = replace(
        batch, extra=replace(batch.extra, reference_logprobs=torch.full_like(batch.logprobs, -0.7))
    )
    loss, gradient = loss_of(batch, 0.0, role)
    moved, other = loss_of(batch, 3.0, role)
    assert loss == moved and torch.equal(gradient, other)
    own = torch.isin(batch.token_ids, torch.tensor([2, 3, 4] if role == "plan" else [5, 6]))
    assert bool((gradient[own] != 0).all()) and not bool(gradient[~own].any())
    assert batch.loss_weight[own].tolist() == pytest.approx([1 / int(own.sum())] * int(own.sum()))
    assert batch.extra.num_trained == int(own.sum()) == 2 * (3 if role == "plan" else 2)


def test_a_role_in_a_stream_of_its_own_leaves_the_step_and_a_shared_one_stays_as_context() -> None:
    apart = samples_from(train_role(credit_of(apart=True), "act"))
    assert [sample.token_ids.tolist() for sample in apart] == [[1, 5, 6], [1, 5, 6]]
    shared = samples_from(train_role(credit_of(apart=False), "act"))
    assert shared[0].token_ids.tolist() == [1, 2, 3, 4, 1, 5, 6]
    assert shared[0].loss_weight.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert shared[0].advantages.tolist() == [0, 0, 0, 0, 0, 0.5, 0.5]


def test_a_stream_whose_only_advantage_is_of_the_other_role_is_not_trained() -> None:
    credit = credit_of(apart=False)
    only_plan = replace(credit, advantages=tuple((a, np.zeros_like(b)) for a, b in credit.advantages))
    update = Update(loss=clip_ratio(0.2, 0.2))
    assert not any(update.trains(sample) for sample in samples_from(train_role(only_plan, "act")))


def test_roles_are_united_and_what_rested_rests() -> None:
    credit = credit_of(apart=True)
    both = train_role(credit, "plan", "act")
    assert both.is_trained == ((True, True), (True, True))
    assert train_role(train_role(credit, "plan"), "plan", "act").is_trained == ((True, False), (True, False))
    assert samples_from(both)[0].loss_weight.tolist() == samples_from(credit)[0].loss_weight.tolist()
    assert train_role(Credit(trajectories=(), advantages=()), "plan").is_trained == ()


def test_a_role_that_nobody_has() -> None:
    with pytest.raises(
        DataError, match=r"turns of critique .*none among those of agent, agent/plan; take a harness"
    ):
        train_role(credit_of(apart=True), "critique")


def test_parts_of_policies_rest_as_the_whole_does() -> None:
    credit = train_role(credit_of(apart=True), "plan")
    first = credit.trajectories[0]
    turn = first.turns[0]
    other = replace(
        first, turns=(replace(turn, completion=replace(turn.completion, policy="b")), *first.turns[1:])
    )
    parts = by_policy(replace(credit, trajectories=(other, credit.trajectories[1])))
    assert {name: part.is_trained for name, part in parts.items()} == {
        "b": ((True, False),),
        "policy": ((True, False),),
    }
