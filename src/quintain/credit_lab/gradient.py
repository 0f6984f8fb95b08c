"""One frozen checkpoint, the same episodes: the gradient of each idea, and which way it points.

Training runs differ by optimisation noise, which has nothing to do with the idea that is tested. Here nothing is
trained: the gradient that a credit and a loss take from recorded episodes is computed through samples, packing and the
learner's own pass, flattened, and compared with the gradient of success from *other* episodes. An
estimate never meets a reference that was made of its own episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from quintain.credit.baseline import subtract_others
from quintain.credit.group import leave_one_out
from quintain.credit.layout import Critic
from quintain.credit.outcome import outcome_return
from quintain.data.pack import micro_batches
from quintain.data.samples import imitation_samples, samples_from
from quintain.errors import UsageError
from quintain.learning.learner import Forward, move_batch
from quintain.learning.policies import nest_by_turn
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.losses.policy import reinforce
from quintain.types import Batch, Credit, Group, Loss, Outputs, Sample, Score, Trajectory, flatten_scored

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Keep = Callable[[Trajectory, int], bool]
"""(trajectory, number of a turn) → whether its tokens are looked at"""
PLAIN = Update(loss=reinforce(), aggregation="token_mean")


class GradientLab:
    """Gradients of a model whose weights rest: ``GradientLab(model).gradient(credit, Update(loss=clipped()))``.

    Args:
        model: the checkpoint; its weights are as before after every call.
        temperature: at which the episodes were sampled.
        tokens_per_microbatch: tokens of a pass.
        only: name of a parameter → whether gradients are of it; all trainable parameters without.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        temperature: float = 1.0,
        tokens_per_microbatch: int = 16_384,
        only: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.model, self.tokens_per_microbatch = model, tokens_per_microbatch
        self._features = _Features()
        self._forward = Forward(model, temperature=temperature)
        self._reading = Forward(model, temperature=temperature, value_head=self._features)
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad and only(name)]
        if not named:
            raise UsageError("gradients: got a model without such trainable parameters; name others")
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self.seconds = 0.0
        """seconds that passes through the model took so far"""

    @property
    def size(self) -> int:
        """Numbers of a gradient."""
        return sum(p.numel() for p in self.parameters)

    def gradient(self, credit: Credit, update: Update = PLAIN, *, keep: Keep | None = None) -> Tensor:
        """Return the direction [P] in which `update` moves the weights: minus the gradient of its loss.

        `keep` restricts it to some turns; all zeros where nothing is trained.
        """
        return self.gradients(credit, {"": update}, keep=keep)[""].direction

    def gradients(
        self, credit: Credit, updates: Mapping[str, Update], *, keep: Keep | None = None
    ) -> dict[str, Found]:
        """Return the direction of each of `updates` on one credit; losses that weigh tokens alike share a pass.

        Streams without any advantage are left out, as in training, unless an update keeps them.
        """
        samples = choose_turns(credit, keep)
        alike: dict[tuple[object, ...], dict[str, Update]] = {}
        for name, update in updates.items():
            key = (update.keeps_zeros, update.aggregation, update.constant, update.denominator)
            alike.setdefault(key, {})[name] = update
        found: dict[str, Found] = {}
        for own in alike.values():
            first = next(iter(own.values()))
            counted = [sample for sample in samples if sample.loss_weight.any() and first.counts(sample)]
            trained = [sample for sample in counted if first.trains(sample)]
            left_out = [sample for sample in counted if not first.trains(sample)]
            found |= self._descend(trained, own, left_out)
        return {name: found[name] for name in updates}

    def of_samples(self, samples: Sequence[Sample], update: Update = PLAIN) -> Tensor:
        """Return the direction [P] of `update` on token streams as they are, whatever weights them."""
        return self._descend(samples, {"": update})[""].direction

    def _descend(
        self, samples: Sequence[Sample], updates: Mapping[str, Update], left_out: Sequence[Sample] = ()
    ) -> dict[str, Found]:
        """Return the directions of `updates`, which average alike, from one pass over `samples`."""
        if not samples:
            return {name: Found(torch.zeros(self.size), 0.0, 0) for name in updates}
        started = time.monotonic()
        first = next(iter(updates.values()))
        batches = micro_batches(
            samples,
            max_tokens=self.tokens_per_microbatch,
            aggregation=first.aggregation,
            constant=first.constant,
            left_out=left_out,
        )
        outputs = [self._forward(batch) for batch in batches]
        num = len({sample.trajectory for sample in samples})
        known: list[tuple[NDArray[np.float32], Found]] = []
        found: dict[str, Found] = {}
        for name, update in updates.items():
            weights = [
                _token_weights(update.loss, o, batch) for o, batch in zip(outputs, batches, strict=True)
            ]
            flat = torch.cat([part for pair in weights for part in pair if part is not None]).numpy()
            same = [
                f for w, f in known if w.shape == flat.shape and np.allclose(w, flat, rtol=1e-5, atol=1e-9)
            ]
            if same:
                found[name] = same[0]
                continue
            direction = self._pull(outputs, weights)
            effective = effective_episodes(samples, torch.cat([own for own, _ in weights]).numpy())
            found[name] = Found(direction, effective, num)
            known.append((flat, found[name]))
        self.seconds += time.monotonic() - started
        return found

    def _pull(self, outputs: Sequence[Outputs], weights: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor:
        """Return minus the gradient [P] of the loss that has these derivatives by log-probs and entropies."""
        for own, (logprobs, entropy) in zip(outputs, weights, strict=True):
            tensors, grads = [own.logprobs], [logprobs.to(own.logprobs.device)]
            if entropy is not None:
                tensors, grads = [*tensors, own.entropy], [*grads, entropy.to(own.entropy.device)]
            torch.autograd.backward(tensors, grads, retain_graph=True)
        direction = -torch.cat(
            [
                torch.zeros(p.numel()) if p.grad is None else p.grad.detach().float().flatten().cpu()
                for p in self.parameters
            ]
        )
        for parameter in self.model.parameters():
            parameter.grad = None
        return direction

    def log_ratios(self, groups: Sequence[Group]) -> NDArray[np.float32]:
        """Return log π - log π at sampling of every sampled token of the scored episodes of `groups`, [tokens]."""
        parts: list[Tensor] = []
        for batch in self._batches(flatten_scored(groups)):
            with torch.no_grad():
                said = self._forward(batch).logprobs.cpu()
            parts.append((said - batch.logprobs)[batch.turn_id >= 0])
        return torch.cat(parts).numpy()

    def gap(self, groups: Sequence[Group]) -> float:
        """Return the mean of |log π - log π at sampling| over the sampled tokens of `groups`, in nats."""
        return float(np.abs(self.log_ratios(groups)).mean())

    def features(self, trajectories: Sequence[Trajectory]) -> NDArray[np.float32]:
        """Return the last hidden state before each sampled token, [tokens, D], in the order of the tokens."""
        parts: list[Tensor] = []
        for batch in self._batches(trajectories):
            with torch.no_grad():
                self._reading(batch)
            assert self._features.seen is not None, "the pass calls its head"
            parts.append(self._features.seen.float().cpu())
        return torch.cat(parts).numpy()

    def fit_critic(self, groups: Sequence[Group], *, ridge: float = 1.0) -> LinearCritic:
        """Return values that are linear in the hidden states, fitted to the returns from each turn on of `groups`."""
        trajectories = flatten_scored(groups)
        targets: list[float] = []
        for t in trajectories:
            rest = np.cumsum([turn.reward for turn in t.turns][::-1])[::-1]
            for turn, value in zip(t.turns, rest.tolist(), strict=True):
                targets += [value] * len(turn.completion.token_ids)
        rows = self.features(trajectories).astype(np.float64)
        mean, spread = rows.mean(0), rows.std(0) + 1e-6
        scaled = np.concatenate([(rows - mean) / spread, np.ones((len(rows), 1))], 1)
        penalty = ridge * len(rows) / 100 * np.eye(scaled.shape[1])
        penalty[-1, -1] = 0.0
        moment = scaled.T @ np.array(targets, np.float64)
        weights = np.asarray(np.linalg.solve(scaled.T @ scaled + penalty, moment), np.float64)
        return LinearCritic(lab=self, weights=weights, mean=mean, spread=spread)

    @contextmanager
    def move(self, direction: Tensor, rate: float) -> Generator[None]:
        """Let the weights be those after one AdamW step of `rate` along `direction`, for as long as it lasts."""
        before = [p.detach().clone() for p in self.parameters]
        optimizer = torch.optim.AdamW(self.parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
        try:
            parts = direction.split([p.numel() for p in self.parameters])
            for parameter, part in zip(self.parameters, parts, strict=True):
                parameter.grad = -part.view_as(parameter).to(parameter)
            optimizer.step()
            for parameter in self.parameters:
                parameter.grad = None
            yield
        finally:
            with torch.no_grad():
                for parameter, old in zip(self.parameters, before, strict=True):
                    parameter.copy_(old)

    def _batches(self, trajectories: Sequence[Trajectory]) -> list[Batch]:
        return micro_batches(imitation_samples(trajectories), max_tokens=self.tokens_per_microbatch)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a credit and a loss make of episodes."""

    direction: Tensor
    """[P] minus the gradient of the loss, on the processor"""
    effective: float
    """episodes that the gradient is effectively made of: (Σ w)²/Σ w², w the sum over an episode of |dL/d log π|"""
    num: int
    """episodes that have any weight"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearCritic:
    """Values that are linear in the model's last hidden state; made by `GradientLab.fit_critic`."""

    lab: GradientLab
    weights: NDArray[np.float64]
    """[D + 1], the last is the constant"""
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]

    def __call__(self, groups: Sequence[Group]) -> Critic:
        """Return the value before each sampled token of the scored episodes of `groups`."""
        trajectories = flatten_scored(groups)
        rows = (self.lab.features(trajectories) - self.mean) / self.spread
        values = rows @ self.weights[:-1] + self.weights[-1]
        found = nest_by_turn(values, trajectories)
        return Critic(values=found, final=[float(np.concatenate(turns)[-1]) for turns in found])


class _Features(nn.Module):
    """A value head that only remembers what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Tensor | None = None

    def forward(self, hidden: Tensor, is_after: Tensor | None = None) -> Tensor:
        """Keep `hidden` [M, D] and return zeros [M], wherever they stand."""
        self.seen = hidden.detach()
        return hidden.new_zeros(len(hidden))


def _token_weights(loss: Loss, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Return dL/d log π of every token [N], and dL/d entropy where the loss has an entropy term."""
    logprobs = outputs.logprobs.detach().requires_grad_()
    entropy = outputs.entropy.detach().requires_grad_()
    total = loss(
        replace(outputs, logprobs=logprobs, entropy=entropy), move_batch(batch, logprobs.device)
    ).loss
    total.backward()
    own = torch.zeros_like(logprobs) if logprobs.grad is None else logprobs.grad
    return own.cpu(), None if entropy.grad is None else entropy.grad.cpu()


def effective_episodes(samples: Sequence[Sample], weights: NDArray[np.float32]) -> float:
    """Return (Σ w)²/Σ w² over episodes, w the sum of |`weights`| [N] over the tokens of an episode's streams."""
    by: dict[int, float] = {}
    place = 0
    for sample in samples:
        length = len(sample.token_ids)
        by[sample.trajectory] = by.get(sample.trajectory, 0.0) + float(
            np.abs(weights[place : place + length]).sum()
        )
        place += length
    sums = np.array(list(by.values()))
    return float(sums.sum() ** 2 / (sums**2).sum()) if sums.any() else 0.0


def choose_turns(credit: Credit, keep: Keep | None) -> list[Sample]:
    """Return the token streams of `credit`, with loss weight 0 on turns that `keep` says no to."""
    samples = samples_from(credit)
    if keep is None:
        return samples
    found: list[Sample] = []
    for sample in samples:
        trajectory = credit.trajectories[sample.trajectory]
        wanted = [k for k in range(len(trajectory.turns)) if keep(trajectory, k)]
        weight = np.where(np.isin(sample.turn_id, wanted), sample.loss_weight, np.float32(0))
        found.append(replace(sample, loss_weight=weight))
    return found


def success_credit(groups: Sequence[Group]) -> Credit:
    """Return success (1 or 0) of every episode less the mean of the others of its group, of the batch without others.

    The policy gradient of the probability of success, without bias and with nothing divided by a deviation.
    """
    judged = [
        replace(
            group,
            trajectories=tuple(
                replace(t, outcome=Score(value=float(t.is_success), is_success=t.is_success))
                for t in group.scored
            ),
        )
        for group in groups
    ]
    if all(len(group.trajectories) > 1 for group in judged):
        return leave_one_out(judged)
    return subtract_others(outcome_return(judged))


def cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine of two gradients; 0 where one of them is 0."""
    norms = one.norm() * other.norm()
    return float((one @ other) / norms) if norms > 0 else 0.0


def leave_out(gradients: Sequence[Tensor], extra: Tensor | None = None) -> list[Tensor]:
    """Return for each of `gradients` the sum of the others, and of `extra` where it is given."""
    total = torch.stack(list(gradients)).sum(0)
    total = total if extra is None else total + extra
    return [total - own for own in gradients]


def noise_of(gradients: Sequence[Tensor]) -> float:
    """Return trace of the covariance over the squared norm of the mean of `gradients`, both without bias.

    Infinite where the mean is not told from 0. The number of batches of this size whose mean is half noise.
    """
    num = len(gradients)
    if num < 2:
        return float("inf")
    stack = torch.stack(list(gradients)).double()
    mean = stack.mean(0)
    variance = float(((stack - mean) ** 2).sum() / (num - 1))
    signal = float((mean**2).sum()) - variance / num
    return variance / signal if signal > 0 else float("inf")


def compare_choices(
    lab: GradientLab, choices: Mapping[str, Sequence[Sequence[Sample]]], targets: Sequence[Tensor]
) -> dict[str, list[float]]:
    """Return how imitation of each choice of data lies to success: cosines with `targets`, batch by batch.

    Args:
        lab: the checkpoint.
        choices: name → K sets of token streams, which differ in what of the same material counts.
        targets: K gradients of success, of episodes that are in no set.
    """
    update = Update(loss=imitation(), is_on_policy=False)
    return {
        name: [
            cosine(lab.of_samples(samples, update), target)
            for samples, target in zip(sets, targets, strict=True)
        ]
        for name, sets in choices.items()
    }
