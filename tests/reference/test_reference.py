"""Our formulas against those of other libraries, on random batches, to 1e-6: `make test-reference`.

Skipped where they are not installed; they are no dependency of anything else.
"""

import importlib
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import Tensor

from quintain.credit.gae import gae
from quintain.losses.compose import combine
from quintain.losses.kl import kl_penalty
from quintain.losses.policy import cispo, clip_ratio, gspo
from quintain.losses.preference import dpo, hinge, ipo, kto, nll_of_chosen, orpo, simpo
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
    "grpo": (clip_ratio(0.2, 0.28), sequence_mean, {"loss_type": "grpo"}),
    "dapo": (clip_ratio(0.2, 0.28), token_mean, {"loss_type": "dapo"}),
    "dr_grpo": (clip_ratio(0.2, 0.28), constant, {"loss_type": "dr_grpo"}),
    "dual clip": (clip_ratio(0.2, 0.28, dual=1.5), token_mean, {"loss_type": "bnpo", "delta": 1.5}),
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
        combine((clip_ratio(0.2, 0.28), 1.0), (kl_penalty("k3"), 0.1)),
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


class Preferred:
    """Random pairs with three tokens of prompt, padded as TRL has them and packed as we have them, in float64."""

    def __init__(self, seed: int, num: int = 3) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.num = num
        lengths = torch.randint(1, LONGEST + 1, (2 * num,), generator=generator)
        shape = (2 * num, LONGEST)
        self.inside = torch.arange(LONGEST) < lengths[:, None]
        new = torch.randn(*shape, generator=generator, dtype=torch.float64) * 0.5 - 2
        self.new = new.requires_grad_()
        self.reference = (new + 0.3 * torch.randn(*shape, generator=generator, dtype=torch.float64)).detach()
        self.lengths = lengths.tolist()
        """of the chosen sides, then of the rejected ones, as TRL has them"""

    def ours(self, loss: Loss, *, kl: float | None = None) -> tuple[float, Tensor]:
        """Value and gradient of our `loss`."""
        total = sum(self.lengths)
        extra = BatchExtra(
            num_trained=total,
            turn_end=torch.zeros(total, dtype=torch.bool),
            trajectory=torch.arange(2 * self.num),
            pair=torch.arange(self.num).repeat(2),
            is_chosen=torch.arange(2 * self.num) < self.num,
            num_pairs=self.num,
            reference_logprobs=self.reference[self.inside],
            kl=kl,
        )
        streams = torch.repeat_interleave(torch.arange(2 * self.num), torch.tensor(self.lengths))
        weights = [1 / (2 * self.num * length) for length in self.lengths for _ in range(length)]
        batch = Batch(
            token_ids=torch.zeros(total, dtype=torch.int64),
            sequence_id=streams,
            position_ids=torch.zeros(total, dtype=torch.int64),
            lengths=tuple(self.lengths),
            loss_weight=torch.tensor(weights, dtype=torch.float64),
            logprobs=torch.zeros(total, dtype=torch.float64),
            advantages=torch.ones(total, dtype=torch.float64),
            returns=torch.zeros(total, dtype=torch.float64),
            turn_id=torch.zeros(total, dtype=torch.int64),
            extra=extra,
        )
        logprobs = self.new[self.inside]
        report = loss(Outputs(logprobs=logprobs, entropy=torch.zeros_like(logprobs)), batch)
        return self.both(report.loss)

    def both(self, loss: Tensor) -> tuple[float, Tensor]:
        """Value, and gradient by the log-probs of trained tokens."""
        (gradient,) = torch.autograd.grad(loss, self.new)
        return float(loss.detach()), gradient * self.inside

    def padded(self, logprobs: Tensor) -> Tensor:
        """Log-probs as TRL's model says them: of two tokens of prompt, too, and 0 where nothing is trained."""
        return torch.cat([torch.zeros(2 * self.num, 2), logprobs * self.inside], 1)

    def masks(self) -> Tensor:
        """Which of all tokens were written, prompts included."""
        return torch.cat([torch.zeros(2 * self.num, 3, dtype=torch.bool), self.inside], 1).long()

    def means(self) -> tuple[Tensor, Tensor]:
        """Mean log-probs of chosen and of rejected sides."""
        found = (self.new * self.inside).sum(1) / self.inside.sum(1)
        return found[: self.num], found[self.num :]

    def dpo(self, loss_type: str, **settings: Any) -> tuple[float, Tensor]:
        """Value and gradient of TRL's `DPOTrainer._compute_loss`."""
        trainer: Any = stub(
            ld_alpha=None, f_divergence_type="reverse_kl", precompute_ref_logps=False, use_weighting=False,
            aux_loss_enabled=False, loss_types=[loss_type], loss_weights=[1.0],
            **{"beta": 0.1, "label_smoothing": 0.0, **settings},
        )  # fmt: skip
        trainer.ref_model.side_effect = lambda **_: says(self.padded(self.reference))
        ids = self.masks()
        inputs = {"input_ids": ids, "attention_mask": ids, "completion_mask": ids}
        return self.both(
            library("trl.trainer.dpo_trainer").DPOTrainer._compute_loss(
                trainer, MagicMock(side_effect=lambda **_: says(self.padded(self.new))), inputs, False
            )
        )

    def kto(self, kl: float, **settings: Any) -> tuple[float, Tensor]:
        """Value and gradient of TRL's `KTOTrainer._compute_loss`, whose estimate of the KL is `kl`."""
        ids = self.masks()
        inputs = {
            "input_ids": ids, "attention_mask": ids, "completion_mask": ids,
            "label": torch.arange(2 * self.num) < self.num,
        }  # fmt: skip
        trainer: Any = stub(
            aux_loss_enabled=False, precompute_ref_logps=False, calculate_KL=True, loss_type="kto", beta=0.1,
            **{"desirable_weight": 1.0, "undesirable_weight": 1.0, **settings},
        )  # fmt: skip
        trainer.ref_model.side_effect = lambda **_: says(self.padded(self.reference))
        trainer._compute_kl_logps.side_effect = [torch.full((6,), kl), torch.zeros(6)]
        return self.both(
            library("trl.trainer.kto_trainer").KTOTrainer._compute_loss(
                trainer, MagicMock(side_effect=lambda **_: says(self.padded(self.new))), inputs, False
            )
        )

    def simpo(self) -> tuple[float, Tensor]:
        """Value and gradient of TRL's `CPOTrainer.cpo_loss` as SimPO."""
        trainer: Any = stub(alpha=0.0, loss_type="simpo", beta=2.0, simpo_gamma=0.5, label_smoothing=0.0)
        module = library("trl.experimental.cpo.cpo_trainer")
        return self.both(module.CPOTrainer.cpo_loss(trainer, *self.means())[0].mean())

    def odds_ratio(self) -> tuple[float, Tensor]:
        """Value and gradient of the odds ratio's part of TRL's ORPO, which computes it in float32."""
        module = library("trl.experimental.orpo.orpo_trainer")
        return self.both(-module.ORPOTrainer.odds_ratio_loss(stub(beta=0.1), *self.means())[0].mean())


def stub(**settings: Any) -> Any:
    """A trainer of TRL with nothing but `settings`."""
    trainer: Any = MagicMock()
    for name, value in settings.items():
        setattr(trainer, name, value)
    trainer.accelerator.device = "cpu"
    trainer.accelerator.gather_for_metrics.side_effect = lambda tensor: tensor
    trainer._is_vlm = False
    return trainer


def says(logprobs: Tensor) -> Any:
    """What a model of TRL's says: log-probs by token, and what is only measured."""
    zeros = torch.zeros_like(logprobs)
    return SimpleNamespace(log_probs=logprobs, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())


THEIRS: dict[str, tuple[Loss, Callable[[Preferred], tuple[float, Tensor]]]] = {
    "dpo": (dpo(0.1), lambda data: data.dpo("sigmoid")),
    "dpo by length": (dpo(0.1, by_length=True), lambda data: data.dpo("sigmoid_norm")),
    "hinge": (hinge(0.1), lambda data: data.dpo("hinge")),
    "ipo by length": (ipo(0.1, by_length=True), lambda data: data.dpo("ipo")),
    "simpo": (simpo(2.0, margin=0.5), lambda data: data.simpo()),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", THEIRS)
def test_preference_losses_and_their_gradients(name: str, seed: int) -> None:
    loss, theirs = THEIRS[name]
    data = Preferred(seed)
    expected, expected_gradient = theirs(data)
    found, gradient = data.ours(loss)
    assert found == pytest.approx(expected, abs=1e-6)
    assert torch.allclose(gradient, expected_gradient, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_smoothed_labels_are_those_of_one_pair_transported(seed: int) -> None:
    data = Preferred(seed, num=1)
    expected, expected_gradient = data.dpo("aot", label_smoothing=0.1)
    found, gradient = data.ours(dpo(0.1, label_smoothing=0.1))
    assert found == pytest.approx(expected, abs=1e-6)
    assert torch.allclose(gradient, expected_gradient, atol=1e-6)


@pytest.mark.parametrize("kl", [-0.4, 0.2])
@pytest.mark.parametrize("seed", SEEDS)
def test_kto_takes_sides_one_by_one(seed: int, kl: float) -> None:
    data = Preferred(seed)
    expected, expected_gradient = data.kto(kl, desirable_weight=1.5, undesirable_weight=0.7)
    found, gradient = data.ours(kto(0.1, desirable=1.5, undesirable=0.7), kl=kl)
    assert found == pytest.approx(expected, abs=1e-6)
    assert torch.allclose(gradient, expected_gradient, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_odds_ratio_is_what_orpo_adds_to_the_likelihood(seed: int) -> None:
    data = Preferred(seed)
    expected, expected_gradient = data.odds_ratio()
    whole, likelihood = data.ours(orpo(0.1)), data.ours(nll_of_chosen())
    assert whole[0] - likelihood[0] == pytest.approx(expected, abs=1e-5), "theirs is computed in float32"
    assert torch.allclose(whole[1] - likelihood[1], expected_gradient, atol=1e-5)


def test_the_comparison_can_fail() -> None:
    data = Random(0)
    expected, _ = data.theirs(loss_type="grpo")
    found, _ = data.ours(clip_ratio(0.2, 0.28), 2 * token_mean(data))
    assert abs(found - expected) > 1e-6
