"""Our formulas against those of other libraries, on random batches, to 1e-6: `make test-reference`.

Skipped where they are not installed; they are no dependency of anything else.
"""

import importlib
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import Tensor

from quintain.credit.gae import gae
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import cispo, clipped, gspo
from quintain.types import Batch, BatchExtra, Loss, Outputs

SEEDS = range(4)
LONGEST = 9


def library(name: str) -> Any:
    """The module `name`, without the warnings of its import; skips the test where it is missing."""
    pytest.importorskip(name.partition(".")[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_truncated", [False, True])
def test_generalised_advantage_estimation(seed: int, is_truncated: bool) -> None:
    functional = library("torchrl.objectives.value.functional")
    generator = np.random.default_rng(seed)
    num = int(generator.integers(1, 30))
    rewards, values = generator.normal(size=num), generator.normal(size=num)
    final = float(generator.normal())
    following = np.append(values[1:], final)
    done = np.arange(num) == num - 1

    def column(numbers: Any) -> Tensor:
        return torch.as_tensor(numbers)[:, None]

    expected, _ = functional.generalized_advantage_estimate(
        0.97,
        0.9,
        column(values),
        column(following),
        column(rewards),
        done=column(done),
        terminated=column(done & (not is_truncated)),
    )
    found = gae(
        rewards.tolist(),
        values.tolist(),
        discounts=[0.97] * num,
        gae_lambda=0.9,
        final=final if is_truncated else 0.0,
    )
    assert found == pytest.approx(expected[:, 0].tolist(), abs=1e-6)


class Random:
    """The same random episodes, padded as TRL has them and packed as we have them, in float64."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.lengths = torch.randint(1, LONGEST + 1, (5,), generator=generator)
        self.mask = (torch.arange(LONGEST) < self.lengths[:, None]).double()
        self.old, self.reference = normal(5, LONGEST) - 2, normal(5, LONGEST) - 2
        self.new = (self.old + 0.3 * normal(5, LONGEST)).requires_grad_()
        self.advantages = normal(5)

    def packed(self, weights: Tensor) -> Batch:
        """The sampled tokens end to end, with loss weights [5, LONGEST]."""
        keep = self.mask.bool()
        num = int(self.lengths.sum())
        streams = torch.repeat_interleave(torch.arange(5), self.lengths)
        extra = BatchExtra(
            num_trained=num,
            turn_end=torch.zeros(num, dtype=torch.bool),
            trajectory=torch.arange(5),
            pair=torch.full((5,), -1),
            is_chosen=torch.zeros(5, dtype=torch.bool),
            reference_logprobs=self.reference[keep],
        )
        return Batch(
            token_ids=torch.zeros(num, dtype=torch.int64),
            sequence_id=streams,
            position_ids=torch.zeros(num, dtype=torch.int64),
            lengths=tuple(self.lengths.tolist()),
            loss_weight=weights[keep],
            logprobs=self.old[keep],
            advantages=self.advantages[streams],
            returns=torch.zeros(num, dtype=torch.float64),
            turn_id=torch.zeros(num, dtype=torch.int64),
            extra=extra,
        )

    def ours(self, loss: Loss, weights: Tensor) -> tuple[float, Tensor]:
        """Value and gradient of our `loss`."""
        chosen = self.new[self.mask.bool()]
        report = loss(Outputs(logprobs=chosen, entropy=torch.zeros_like(chosen)), self.packed(weights))
        return self._both(report.loss)

    def theirs(self, **settings: Any) -> tuple[float, Tensor]:
        """Value and gradient of TRL's `GRPOTrainer._compute_loss` with `settings`."""
        trainer = library("trl.trainer.grpo_trainer").GRPOTrainer
        stub: Any = MagicMock()
        given = {
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "importance_sampling_level": "token",
            "beta": 0.0,
            "epsilon_low": 0.2,
            "epsilon_high": 0.28,
            "use_vllm": False,
            "current_gradient_accumulation_steps": 1,
            "max_completion_length": 64,
            "aux_loss_enabled": False,
            "_entropy_bonus_enabled": False,
            **{name: value for name, value in settings.items() if name != "delta"},
        }
        for name, value in given.items():
            setattr(stub, name, value)
        stub.args.delta = settings.get("delta")
        stub.args.use_bias_correction_kl = False
        stub.args.steps_per_generation = 1
        stub.accelerator.num_processes = 1
        stub.accelerator.gather.side_effect = lambda tensor: tensor
        stub.model.training = True
        entropies = torch.zeros_like(self.new)
        stub._get_per_token_logps_and_entropies.return_value = (self.new, entropies, None)
        ids = torch.zeros(5, LONGEST, dtype=torch.int64)
        inputs = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": ids[:, :1] + 1,
            "completion_ids": ids,
            "completion_mask": self.mask,
            "advantages": self.advantages,
            "old_per_token_logps": self.old,
            "ref_per_token_logps": self.reference,
            "num_items_in_batch": self.mask.sum(),
        }
        return self._both(trainer._compute_loss(stub, None, inputs))

    def _both(self, loss: Tensor) -> tuple[float, Tensor]:
        (gradient,) = torch.autograd.grad(loss, self.new)
        return float(loss.detach()), gradient * self.mask


def token_mean(data: Random) -> Tensor:
    return data.mask / data.mask.sum()


def sequence_mean(data: Random) -> Tensor:
    return data.mask / data.lengths[:, None] / 5


def constant(data: Random) -> Tensor:
    return data.mask / 5 / 64


PAIRS: dict[str, tuple[Loss, Callable[[Random], Tensor], dict[str, Any]]] = {
    "grpo": (clipped(0.2, 0.28), sequence_mean, {"loss_type": "grpo"}),
    "dapo": (clipped(0.2, 0.28), token_mean, {"loss_type": "dapo"}),
    "dr_grpo": (clipped(0.2, 0.28), constant, {"loss_type": "dr_grpo"}),
    "dual clip": (clipped(0.2, 0.28, dual=1.5), token_mean, {"loss_type": "bnpo", "delta": 1.5}),
    "gspo": (
        gspo(0.03, 0.04),
        sequence_mean,
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon_low": 0.03,
            "epsilon_high": 0.04,
        },
    ),
    "cispo": (cispo(0.28), token_mean, {"loss_type": "cispo", "epsilon_high": 1.28}),
    "kl": (
        combine((clipped(0.2, 0.28), 1.0), (kl_penalty("k3"), 0.1)),
        token_mean,
        {"loss_type": "bnpo", "beta": 0.1},
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", PAIRS)
def test_policy_losses_and_their_gradients(name: str, seed: int) -> None:
    loss, weights, settings = PAIRS[name]
    data = Random(seed)
    expected, expected_gradient = data.theirs(**settings)
    found, gradient = data.ours(loss, weights(data))
    assert found == pytest.approx(expected, abs=1e-6)
    assert torch.allclose(gradient, expected_gradient, atol=1e-6)


def test_the_comparison_can_fail() -> None:
    data = Random(0)
    expected, _ = data.theirs(loss_type="grpo")
    found, _ = data.ours(clipped(0.2, 0.28), 2 * token_mean(data))
    assert abs(found - expected) > 1e-6
