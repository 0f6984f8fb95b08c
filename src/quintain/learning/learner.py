"""The learner: packed batches and a loss in, an optimizer step and new weights out. It knows no method.

Micro-batches are exact: a loss is a sum whose weights were normalised over the whole step, so gradients of any split
add up to the same. Weights only change when loss and gradient are finite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from quintain.engines.grammar import Grammars
from quintain.errors import InvariantError, UsageError, name_shortage
from quintain.learning import gap
from quintain.learning.allowed import find_allowed, mask_logits
from quintain.learning.checkpoint import SHARDS, load_numbers, load_shards, load_state, save_state
from quintain.learning.optimizers import make_optimizer
from quintain.learning.sections import MICRO_TOKENS, OptimizerName
from quintain.models.checkpointing import checkpoint_layers, contexts, training_mode
from quintain.models.context import Context
from quintain.models.distributions import distributions
from quintain.models.families import find_unsupported, head
from quintain.models.layout import layout
from quintain.models.memory import MAX_LOGITS
from quintain.models.packed import compute_hidden
from quintain.models.precision import Precision, computing
from quintain.types import NOTHING, Batch, BatchExtra, Loss, Outputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MAX_SKIPPED = 3
"""Steps in a row that may be skipped because something was not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """How weights are updated: ``Optimization(learning_rate=1e-3)``."""

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    precision: Precision = "fp32"
    """bf16 computes linear layers in bfloat16; weights and optimizer stay in fp32."""
    temperature: float = 1.0
    """Temperature that completions are sampled at; log-probs are of the same distribution."""
    shares_prefixes: bool = True
    """Compute prompts that several streams open with once."""
    optimizer: OptimizerName = "adamw"
    gradient_checkpointing: bool = False
    """Keep only what each layer begins with for the backward pass, and compute the rest anew there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one optimizer step did."""

    loss: float
    grad_norm: float
    num_tokens: int
    seconds: float
    is_skipped: bool = False
    metrics: Mapping[str, float] = NOTHING
    lr_scale: float = 1.0
    """factor on the learning rate, from its schedule"""


class Forward:
    """Runs packed batches through a model: log-probs, entropies and, with a value head, values.

    Args:
        model: any causal language model; families that the packed pass does not know run on their own padded one.
        value_head: hidden states → values; None for a model that says nothing of values.
        temperature: of the distribution whose log-probs are returned.
        precision: bf16 computes linear layers in bfloat16; see `models.precision`.
        shares_prefixes: compute prompts that several streams open with once.
        gradient_checkpointing: keep only what each layer begins with, and compute the rest anew for the gradient.
        activate: is called before each pass, where several policies share the model as adapters.
        use_kernels: let the kernels read the weights beside the model's modules, where they can.
        tokenizer: that of the model, which log-probs among what a grammar of text allows need.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        value_head: nn.Module | None = None,
        temperature: float = 1.0,
        precision: Precision = "fp32",
        shares_prefixes: bool = True,
        gradient_checkpointing: bool = False,
        activate: Callable[[], None] | None = None,
        use_kernels: bool = True,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        self.model, self.value_head = model, value_head
        self._tokenizer, self._grammars = tokenizer, None
        self.temperature, self.shares_prefixes = temperature, shares_prefixes
        self.precision: Precision = precision
        self.gradient_checkpointing = gradient_checkpointing
        self.fallback_reason = find_unsupported(model)
        if gradient_checkpointing and self.fallback_reason:
            checkpoint_layers(model, precision)
        self._activate = activate
        self._use_kernels = use_kernels
        self.context: Context | None = None
        """ranks that share the tokens of a batch; what is said of those of others is 0 here"""

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        optimization: Optimization,
        *,
        value_head: nn.Module | None = None,
        activate: Callable[[], None] | None = None,
        use_kernels: bool = True,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> Self:
        """Return the passes of a `model` that is trained by `optimization`."""
        return cls(
            model,
            value_head=value_head,
            temperature=optimization.temperature,
            precision=optimization.precision,
            shares_prefixes=optimization.shares_prefixes,
            gradient_checkpointing=optimization.gradient_checkpointing,
            activate=activate,
            use_kernels=use_kernels,
            tokenizer=tokenizer,
        )

    def __call__(self, batch: Batch) -> Outputs:
        """Return log-probs, entropies and values of the trained tokens of `batch`, with gradients."""
        if self._activate is not None:
            self._activate()
        batch = move_batch(batch, self.model.device)
        num_tokens = len(batch.token_ids)
        with computing(self.precision, batch.token_ids.device):
            targets, hidden, logits = self._predictions(batch)
            values = None
            if self.value_head is not None:
                is_after = batch.extra.turn_end.index_select(0, targets)
                values = cast(Tensor, self.value_head(hidden, is_after))
            chosen = batch.token_ids.index_select(0, targets)
            allowed = self._find_allowed(batch, targets)
            if logits is None:
                logprobs, entropy = self._read_chosen(hidden, chosen, allowed)
            else:
                logprobs, entropy = distributions(mask_logits(logits, allowed), chosen, self.temperature)
        empty = logprobs.new_zeros(num_tokens)
        return Outputs(
            logprobs=empty.index_copy(0, targets, logprobs),
            entropy=empty.index_copy(0, targets, entropy),
            values=None if values is None else empty.index_copy(0, targets, values.float()),
        )

    @torch.no_grad()
    def infer(self, batch: Batch) -> Outputs:
        """Return the outputs without gradients."""
        return self(batch)

    @torch.no_grad()
    def features(self, batch: Batch) -> Tensor:
        """Return what a value head reads at the marked tokens of `batch`, [M, D] in their order."""
        if self._activate is not None:
            self._activate()
        batch = move_batch(batch, self.model.device)
        with computing(self.precision, batch.token_ids.device):
            return self._predictions(batch)[1].float()

    def infer_each(self, batches: Iterable[Batch]) -> Iterator[Outputs]:
        """Yield the outputs of each of `batches`, without gradients."""
        for batch in batches:
            yield self.infer(batch)

    def named(self, parameters: Iterable[nn.Parameter]) -> dict[str, nn.Parameter]:
        """Return `parameters` by their names in ``model`` and ``value_head``."""
        wanted = {id(parameter) for parameter in parameters}
        parts: dict[str, nn.Module | None] = {"model": self.model, "value_head": self.value_head}
        return {
            f"{part}.{name}": parameter
            for part, module in parts.items()
            if module is not None
            for name, parameter in module.named_parameters()
            if id(parameter) in wanted
        }

    def note_restored(self) -> None:
        """Note that the weights were changed from outside."""

    def _predictions(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return targets [M], the hidden states [M, D] that predict them, and logits [M, V] where they are there."""
        if self.fallback_reason:
            with training_mode(self.model, is_on=self.gradient_checkpointing):
                return _pad_predictions(self.model, batch)
        laid = layout(batch, share=self.shares_prefixes, context=self.context)
        again = self._again if self.gradient_checkpointing and torch.is_grad_enabled() else None
        hidden = compute_hidden(
            self.model, laid.token_ids, laid.position_ids, laid.attention,
            again=again, use_kernels=self._use_kernels,
        )  # fmt: skip
        return laid.targets, hidden.index_select(0, laid.predictors), None

    def _find_allowed(self, batch: Batch, targets: Tensor) -> Tensor | None:
        """Return what was allowed at `targets` [M] of `batch`, as `find_allowed` does."""
        if not batch.extra.constraints:
            return None
        if self._grammars is None:
            vocabulary = len(cast(Tensor, self.model.get_input_embeddings().weight))
            self._grammars = Grammars(vocabulary, self._tokenizer)
        return find_allowed(batch, targets, self._grammars)

    def _read_chosen(self, hidden: Tensor, chosen: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies [M] of `chosen` after `hidden` [M, D]; few logits are there at a time."""
        rows = max(1, MAX_LOGITS // len(cast(Tensor, head(self.model).weight)))
        if len(hidden) <= rows:
            return self._piece(hidden, chosen, allowed)
        split = [None] * -(-len(hidden) // rows) if allowed is None else allowed.split(rows)
        pieces = zip(hidden.split(rows), chosen.split(rows), split, strict=True)
        told = [self._again(self._piece, *piece) for piece in pieces]
        return torch.cat([logprobs for logprobs, _ in told]), torch.cat([entropy for _, entropy in told])

    def _piece(self, hidden: Tensor, chosen: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what `_read_chosen` does, at once."""
        return distributions(mask_logits(head(self.model)(hidden), allowed), chosen, self.temperature)

    def _again(self, function: Callable[..., Any], *parts: Any) -> Any:
        """Return ``function(*parts)``, of which nothing is kept for the backward pass: it is called again there."""
        return checkpoint(
            function,
            *parts,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=contexts(self.model, self.precision),
        )


class Learner:
    """Trains `model` and, where it has one, a value head; `trained` names the part of the model that is changed."""

    def __init__(
        self,
        model: PreTrainedModel,
        optimization: Optimization | None = None,
        *,
        value_head: nn.Module | None = None,
        trained: nn.Module | None = None,
        activate: Callable[[], None] | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        self.model = model
        self.optimization = optimization or Optimization()
        self.forward = Forward.of(
            model, self.optimization, value_head=value_head, activate=activate, tokenizer=tokenizer
        )
        self.version = 0
        """number of optimizer steps taken; the policy version that the engine serves after it loaded the weights"""
        self.num_skipped = 0
        self.is_updating = False
        """whether the weights are being changed just now"""
        self.max_tokens, self.num_parts = MICRO_TOKENS, 1
        """tokens of a pass, and passes that are computed at once, by ranks"""
        self.busy_seconds, self.num_learned = 0.0, 0
        """seconds of all optimizer steps so far, and tokens that they went through"""
        self._modules = [model if trained is None else trained, *([] if value_head is None else [value_head])]
        self.parameters = [p for module in self._modules for p in module.parameters() if p.requires_grad]
        if not self.parameters:
            raise UsageError(
                "learner: got a model without trainable parameters; unfreeze it or add an adapter"
            )
        self.optimizer = make_optimizer(
            self.optimization.optimizer,
            self.parameters,
            rate=self.optimization.learning_rate,
            betas=self.optimization.betas,
            weight_decay=self.optimization.weight_decay,
        )

    def infer(self, batch: Batch) -> Outputs:
        """Return log-probs, entropies and values of the trained tokens of `batch`, without gradients."""
        return self.forward.infer(batch)

    def step(
        self,
        batches: Sequence[Batch],
        loss: Loss,
        *,
        rate_scale: float = 1.0,
        is_on_policy: bool = False,
        observe: Callable[[Batch, Outputs], None] | None = None,
        beside: tuple[Sequence[Batch], Loss] | None = None,
        passes: Callable[[Batch], Outputs] | None = None,
    ) -> StepReport:
        """Take one optimizer step on the micro-batches of one batch.

        Args:
            batches: micro-batches whose loss weights are normalised over all of them.
            loss: additive over micro-batches.
            rate_scale: factor on the learning rate, from a schedule that is a function of the step.
            is_on_policy: the batch was sampled with the current weights, so that the log-probs must agree; of a batch
                that says which weights its tokens were sampled with, those of the current ones.
            observe: is called with each batch and what the learner says of it.
            beside: micro-batches of another batch, whose loss is added: both have a part in the gradient.
            passes: says of a batch, with gradients, what the model says otherwise; by its head alone, its body resting.

        Raises:
            InvariantError: loss or gradient was not finite for the third time in a row, or the log-probs of a
                batch that is on-policy differ from those at sampling.
        """
        with name_shortage("an optimizer step", self._advice):
            started = time.monotonic()
            self._forget_gradient()
            total = 0.0
            metrics: dict[str, float] = {}
            gaps: list[gap.Gap] = []

            def watch(batch: Batch, outputs: Outputs) -> None:
                if is_on_policy:
                    gaps.append(gap.gap(outputs, batch, self.version))
                if observe is not None:
                    observe(batch, outputs)

            parts = [(batches, loss, watch), *([(*beside, None)] if beside is not None else [])]
            for own, measure, seen in parts:
                for batch, outputs in self._passes(own) if passes is None else ((b, passes(b)) for b in own):
                    if seen is not None:
                        seen(batch, outputs)
                    report = measure(outputs, batch)
                    report.loss.backward()
                    total += float(report.loss.detach())
                    for name, value in report.metrics.items():
                        metrics[name] = metrics.get(name, 0.0) + float(value)
            if gaps:
                num_stale, num = sum(part.num_stale for part in gaps), batches[0].extra.num_trained
                if batches[0].extra.versions is not None:
                    metrics["gap/stale_fraction"] = num_stale / num
                    metrics["gap/age_mean"] = sum(part.age for part in gaps) / num
                    metrics["gap/age_max"] = float(max(part.oldest for part in gaps))
                    num = max(num - num_stale, 1)
                metrics["gap/mean"] = sum(part.total for part in gaps) / num
                metrics["gap/max"] = max(part.largest for part in gaps)
                gap.check(metrics["gap/mean"], metrics["gap/max"], sum(part.shifted for part in gaps) / num)
            norm = self._clip_gradient()
            is_finite = torch.tensor([total, norm]).isfinite().all().item()
            if is_finite:
                self.is_updating = True
                self._update(rate_scale)
                self.version += 1
                self.num_skipped = 0
                self.is_updating = False
            else:
                self._skip(total, norm)
            self._forget_gradient()
            seconds, num_tokens = time.monotonic() - started, sum(len(batch.token_ids) for batch in batches)
            self.busy_seconds += seconds
            self.num_learned += num_tokens
            return StepReport(
                loss=total,
                grad_norm=norm,
                num_tokens=num_tokens,
                seconds=seconds,
                is_skipped=not is_finite,
                metrics=metrics,
                lr_scale=rate_scale,
            )

    @contextmanager
    def tried(self) -> Generator[None]:
        """Let what is learned meanwhile be forgotten: weights, optimizer, counts and chance are as before, bit for bit.

        Where the weights are in ranks, the optimizer is, too, and cannot be kept here.
        """
        weights = [parameter.detach().clone() for parameter in self.parameters]
        optimizer, numbers = deepcopy(self.optimizer.state_dict()), self._numbers
        chance = torch.get_rng_state()
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, before in zip(self.parameters, weights, strict=True):
                    parameter.copy_(before)
            self.optimizer.load_state_dict(optimizer)
            self._numbers = numbers
            torch.set_rng_state(chance)

    @property
    def _advice(self) -> str:
        """What to change where an update does not fit into memory."""
        others = "" if self.optimization.gradient_checkpointing else ", give --gradient-checkpointing true"
        size = f"--tokens-per-microbatch (now {self.max_tokens:,} at once)"
        return f"lower {size}{others}, or train LoRA layers (--lora-rank 16)"

    def restart(self) -> None:
        """Forget what the optimizer knows."""
        self.optimizer.state.clear()

    def note_restored(self) -> None:
        """Note that the model was changed from outside, by weights from elsewhere."""
        self.forward.note_restored()

    def save(self, folder: Path) -> None:
        """Write weights, value head and optimizer state into `folder` as safetensors and JSON."""
        save_state(folder, self._modules, self.optimizer, self._numbers)

    def load(self, folder: Path) -> None:
        """Take over what `save` wrote, here or in ranks.

        Raises:
            StoreError: it is missing, broken or of another model.
        """
        numbers = load_numbers(folder, self._numbers)
        if any(folder.glob(SHARDS)):
            load_shards(folder, self.named_parameters, self.optimizer)
        else:
            load_state(folder, self._modules, self.optimizer)
        self._numbers = numbers

    @property
    def named_parameters(self) -> dict[str, nn.Parameter]:
        """The trained parameters by their names in ``model`` and ``value_head``."""
        return self.forward.named(self.parameters)

    @property
    def _numbers(self) -> dict[str, int]:
        """What is counted, as it is saved."""
        return {"version": self.version, "num_skipped": self.num_skipped}

    @_numbers.setter
    def _numbers(self, numbers: Mapping[str, int]) -> None:
        self.version, self.num_skipped = numbers["version"], numbers["num_skipped"]

    def _passes(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, Outputs]]:
        """Yield each of `batches` with what the model says of it, whose gradient is taken before the next."""
        for batch in batches:
            on_device = move_batch(batch, self.model.device)
            yield on_device, self.forward(on_device)

    def _clip_gradient(self) -> float:
        """Clip the gradient and return its norm before."""
        return float(nn.utils.clip_grad_norm_(self.parameters, self.optimization.max_grad_norm))

    def _update(self, rate_scale: float) -> None:
        """Change the weights by the gradient."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.optimization.learning_rate * rate_scale
        self.optimizer.step()

    def _forget_gradient(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _skip(self, loss: float, norm: float) -> None:
        """Count a step that would have made the weights non-finite."""
        self.num_skipped += 1
        if self.num_skipped >= MAX_SKIPPED:
            raise InvariantError(
                f"optimizer step: got loss {loss} and gradient norm {norm} for the {self.num_skipped}th time in a "
                "row; lower the learning rate or look at the rewards; the weights are those of the last good step"
            )


def move_batch(batch: Batch, device: torch.device) -> Batch:
    """Return `batch` on `device`; the batch itself where it is there already."""
    if batch.token_ids.device == device:
        return batch

    def tensors(part: Batch | BatchExtra) -> dict[str, Tensor]:
        found = {field.name: getattr(part, field.name) for field in fields(part)}
        return {name: value.to(device) for name, value in found.items() if isinstance(value, Tensor)}

    extra = replace(batch.extra, **cast(Any, tensors(batch.extra)))
    return replace(batch, extra=extra, **cast(Any, tensors(batch)))


def _pad_predictions(model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `Learner._predictions` does by the model's own padded forward pass."""
    device = batch.token_ids.device
    num_rows, width = len(batch.lengths), max(batch.lengths)
    places = batch.sequence_id * width + batch.position_ids
    padded = torch.zeros(num_rows * width, dtype=torch.int64, device=device).index_copy(
        0, places, batch.token_ids
    )
    mask = torch.zeros(num_rows * width, dtype=torch.int64, device=device).index_fill(0, places, 1)
    output: Any = cast(Any, model)(
        input_ids=padded.view(num_rows, width),
        attention_mask=mask.view(num_rows, width),
        output_hidden_states=True,
        use_cache=False,
    )
    targets = (batch.turn_id >= 0).nonzero().squeeze(1)
    predictors = places.index_select(0, targets) - 1
    hidden = output.hidden_states[-1].flatten(0, 1).index_select(0, predictors)
    return targets, hidden, output.logits.flatten(0, 1).index_select(0, predictors)
