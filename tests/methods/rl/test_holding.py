"""A KL and an entropy term beside the loss of methods that have neither by themselves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.errors import ConfigError
from quintain.methods.find import find_method
from quintain.methods.loops.on_policy import OnPolicy
from quintain.types import Batch, BatchExtra, Outputs

HELD = ("grpo", "dapo", "gspo", "cispo", "dr_grpo")


def made(name: str, **fields: Any) -> OnPolicy:
    found = find_method(name)
    method = found.make(found.config_class(**fields))
    assert isinstance(method, OnPolicy)
    return method


def batch(reference: list[float] | None) -> Batch:
    """Two sampled tokens, after one that was given."""
    extra = BatchExtra(
        num_trained=2,
        turn_end=torch.tensor([False, False, True]),
        trajectory=torch.tensor([0]),
        pair=torch.tensor([-1]),
        is_chosen=torch.tensor([False]),
        reference_logprobs=None if reference is None else torch.tensor(reference, dtype=torch.float64),
    )
    return Batch(
        token_ids=torch.arange(3),
        sequence_id=torch.zeros(3, dtype=torch.long),
        position_ids=torch.arange(3),
        lengths=(3,),
        loss_weight=torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64),
        logprobs=torch.tensor([0.0, -1.0, -2.0], dtype=torch.float64),
        advantages=torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64),
        returns=torch.zeros(3, dtype=torch.float64),
        turn_id=torch.tensor([-1, 0, 0]),
        extra=extra,
    )


def loss_of(method: OnPolicy, given: Batch) -> tuple[float, set[str]]:
    outputs = Outputs(
        logprobs=given.logprobs.clone(), entropy=torch.tensor([9.0, 1.0, 3.0], dtype=torch.float64)
    )
    report = method.update.loss(outputs, given)
    return float(report.loss), {name for name in report.metrics if name.startswith(("kl/", "entropy/"))}


@pytest.mark.parametrize("name", HELD)
def test_both_are_read_and_neither_changes_anything_unless_given(name: str) -> None:
    plain = made(name)
    assert (plain.update.has_reference, plain.update.keeps_zeros, plain.needs.reference) == (
        False,
        False,
        False,
    )
    bare, names = loss_of(plain, batch(None))
    assert names == set()
    held, trying = made(name, kl_coef=0.1), made(name, entropy_coef=0.01)
    assert held.update.has_reference and held.update.keeps_zeros and held.needs.reference
    assert (trying.update.has_reference, trying.update.keeps_zeros) == (False, True)
    assert (
        replace(held.update, loss=plain.update.loss, has_reference=False, keeps_zeros=False) == plain.update
    )
    # k3 of 1 and 0 nats: exp(-1) - 1 + 1 = 1/e; both tokens weigh a half
    given = batch([0.0, -2.0, -2.0])
    assert loss_of(held, given) == (
        pytest.approx(bare + 0.1 * 0.5 * 0.36787944), {"kl/penalty", "kl/reference"},
    )  # fmt: skip
    assert loss_of(trying, batch(None)) == (pytest.approx(bare - 0.01 * 2.0), {"entropy/bonus"})
    both = made(name, kl_coef=0.1, entropy_coef=0.01)
    assert loss_of(both, given)[0] == pytest.approx(bare + 0.1 * 0.5 * 0.36787944 - 0.02)


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("option", ["kl_coef", "entropy_coef"])
def test_a_negative_weight_is_refused(name: str, option: str) -> None:
    config = find_method(name).config_class(**{option: -0.1})
    with pytest.raises(ConfigError, match=f"{option}: got -0.1; give a number of 0 or more"):
        config.check()


@pytest.mark.slow
def test_a_held_run_measures_how_far_it_went_and_resumes_bit_for_bit(
    runner: Any, rows: Any, weights: Any, interrupt: Any
) -> None:
    fields = {"tasks": 2, "group_size": 3, "kl_coef": 0.1, "entropy_coef": 0.01, "steps": 2}
    whole: Path = runner.train("grpo", **fields)
    curve = rows(whole)
    assert all({"kl/reference", "entropy/bonus"} <= row.keys() for row in curve[1:])
    interrupt(1)
    stopped = runner.train("grpo", **fields)
    runner.resume(stopped)
    assert rows(stopped) == curve and weights(stopped / "model") == weights(whole / "model")
