"""One rank's shard of a policy: FSDP2 around the model's own modules, and an optimizer over what lies here.

Each layer is a unit whose weights are put together when it computes; what is left of the model (embeddings, norm, head)
and the value head are one more. A gradient is the sum over ranks, not their mean: weights of a loss are normalised over
the whole step before they come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from quintain.errors import ConfigError, ModelError, QuintainError
from quintain.learning.checkpoint import load_shards, save_shards
from quintain.learning.learner import Forward, Optimization
from quintain.learning.optimizers import make_optimizer
from quintain.learning.sharding.wire import weights_in
from quintain.models.adapters import add_lora
from quintain.models.context import Context
from quintain.models.families import backbone, find_unsupported
from quintain.models.heads import ValueHead
from quintain.models.load import load, outline
from quintain.models.precision import storage_dtype
from quintain.types import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """LoRA layers that are trained in place of all weights."""

    name: str
    rank: int
    alpha: float
    targets: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSpec:
    """What every rank must know to build its shard."""

    folder: str
    """model folder that it starts from"""
    optimization: Optimization
    has_value_head: bool = False
    lora: Lora | None = None
    is_trained: bool = True
    context_ranks: int = 1
    """ranks that share the tokens of a batch"""
    is_frozen: bool = False
    """whether the weights of the folder stay; see `storage_dtype`"""


class _Whole(nn.Module):
    """The model with its value head, as one module: a batch → log-probs, entropies and values [M] of trained tokens."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.model, self.value_head = forward.model, forward.value_head
        self._compute = forward

    def forward(self, batch: Batch) -> tuple[Tensor, ...]:
        outputs = self._compute(batch)
        targets = (batch.turn_id >= 0).nonzero().squeeze(1).to(outputs.logprobs.device)
        found = (outputs.logprobs, outputs.entropy, outputs.values)
        return tuple([part.index_select(0, targets) for part in found if part is not None])


class Shard:
    """What one rank of `mesh` holds of the policy that `spec` describes."""

    def __init__(self, spec: ShardSpec, mesh: DeviceMesh, device: torch.device) -> None:
        """Keep this rank's part of the model; only the first rank reads the whole.

        Raises:
            ModelError: it cannot be loaded.
        """
        dtype = storage_dtype(spec.optimization.precision, device, is_frozen=spec.is_frozen)
        model = _model(spec.folder, device, dtype)
        if spec.lora is not None:
            lora = spec.lora
            add_lora(model, lora.rank, lora.alpha, lora.targets, name=lora.name, seed=lora.seed)
        head = ValueHead(model.config.hidden_size) if spec.has_value_head else None
        for module in (model, head):
            if module is not None and not spec.is_trained:
                module.requires_grad_(False)
        self.optimization = spec.optimization
        compute = Forward.of(model, spec.optimization, value_head=head, use_kernels=False)
        self.context_group: dist.ProcessGroup | None = None
        """ranks that share the tokens of a batch with this one"""
        if spec.context_ranks > 1:
            if compute.fallback_reason:
                raise ConfigError(
                    f"context_ranks: got {spec.context_ranks} with a model whose attention is its own "
                    f"({compute.fallback_reason}); give 1"
                )
            shape = mesh.size() // spec.context_ranks, spec.context_ranks
            sharing = init_device_mesh(mesh.device_type, shape, mesh_dim_names=("batches", "context"))[
                "context"
            ]
            self.context_group = sharing.get_group()
            compute.context = Context(self.context_group, sharing.get_local_rank(), spec.context_ranks)
        self._whole = _Whole(compute)
        for unit in (*_layers(model), self._whole):
            _fill(unit, device)
            fully_shard(unit, mesh=mesh)
        for module in self._whole.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        self._all = dict(self._whole.named_parameters())
        self._named = {name: parameter for name, parameter in self._all.items() if parameter.requires_grad}
        if spec.is_trained:
            self.optimizer = make_optimizer(
                spec.optimization.optimizer,
                [*self._named.values()],
                rate=spec.optimization.learning_rate,
                betas=spec.optimization.betas,
                weight_decay=spec.optimization.weight_decay,
            )
        self.num_numbers = sum(_local(parameter).numel() for parameter in self._all.values())
        """parameters of which this rank holds its part"""
        self._mesh = mesh
        self._outputs: tuple[Tensor, ...] = ()

    def infer(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return log-probs, entropies and, with a value head, values [M] of the trained tokens of `batch`."""
        with torch.no_grad():
            found = self._whole(batch)
        whole = cast(FSDPModule, self._whole)
        whole.reshard()  # without a backward pass the root would keep what it put together
        return found

    def forward(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return what `infer` does, and keep what `backward` needs."""
        self._outputs = self._whole(batch)
        return self._outputs

    def backward(self, gradients: Sequence[Tensor]) -> None:
        """Add to the gradients of the weights, given the loss's gradient by each of the last outputs."""
        outputs, self._outputs = self._outputs, ()
        pairs = [(out, grad.to(out.device)) for out, grad in zip(outputs, gradients, strict=True)]
        torch.autograd.backward([out for out, _ in pairs], [grad for _, grad in pairs])

    def clip(self) -> float:
        """Clip the gradient over all ranks and return its norm before."""
        norm = nn.utils.clip_grad_norm_([*self._named.values()], self.optimization.max_grad_norm)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def update(self, rate_scale: float) -> None:
        """Change the weights by the gradient."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.optimization.learning_rate * rate_scale
        self.optimizer.step()

    def forget_gradient(self) -> None:
        """Drop the gradient."""
        self.optimizer.zero_grad(set_to_none=True)

    def restart(self) -> None:
        """Forget what the optimizer knows."""
        self.optimizer.state.clear()

    def write_weights(self, file: Path) -> None:
        """Write the trained weights, put together, to `file`; the first rank does, and all must be asked."""
        whole = {name: _full(parameter).cpu() for name, parameter in self._named.items()}
        if not dist.get_rank():
            save_file({name: tensor.contiguous() for name, tensor in whole.items()}, file)

    def read_weights(self, file: Path) -> None:
        """Take over this rank's part of the weights in `file`."""
        with torch.no_grad():
            for name, found in weights_in(file):
                parameter = self._all[name]
                part = distribute_tensor(
                    found.to(parameter.device), self._mesh, cast(Any, parameter).placements
                )
                parameter.copy_(part)

    def save(self, folder: Path) -> None:
        """Write this rank's part of weights and optimizer into `folder`; all ranks must be asked."""
        save_shards(folder, self._named, self.optimizer)

    def load(self, folder: Path) -> None:
        """Take over what any number of ranks wrote into `folder`; see `checkpoint.load_shards`."""
        load_shards(folder, self._named, self.optimizer)


def _model(folder: str, device: torch.device, dtype: str) -> Any:
    """Return the model in `folder`, which all ranks must ask for: with its numbers in the first, without elsewhere.

    Raises:
        ModelError: it cannot be loaded, here or in the first rank.
    """
    is_loaded = torch.ones(1, device=device)
    if dist.get_rank():
        dist.broadcast(is_loaded, 0)
        if not is_loaded:
            raise ModelError(f"model {folder}: got one that the first rank could not load; it says why")
        model = cast(Any, outline(folder, dtype=dtype))
        loose = [
            name
            for name, each in model.named_modules()
            if any(_is_meta(part) for part in vars(each).values())
        ]
        return (
            load(folder, dtype=dtype).model if loose else model
        )  # a tensor that is no buffer cannot be filled
    try:
        model = load(folder, dtype=dtype).model
    except QuintainError:
        dist.broadcast(is_loaded.zero_(), 0)
        raise
    dist.broadcast(is_loaded, 0)
    return model


def _is_meta(part: object) -> bool:
    return isinstance(part, Tensor) and part.is_meta


def _fill(unit: nn.Module, device: torch.device) -> None:
    """Put what the first rank has of `unit`, and is not spread yet, onto `device`: weights, their ties, and buffers."""
    owned = [
        (module, name, parameter)
        for module in unit.modules()
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
        if not isinstance(parameter, DTensor)
    ]
    found = {id(parameter): number for number, (*_, parameter) in reversed([*enumerate(owned)])}
    ties = torch.tensor([found[id(parameter)] for *_, parameter in owned], dtype=torch.int64, device=device)
    dist.broadcast(ties, 0)
    filled: list[nn.Parameter] = []
    for number, (module, name, parameter) in zip(ties.tolist(), owned, strict=True):
        is_new = number == len(filled)
        value = (
            nn.Parameter(_of_first(parameter, device), parameter.requires_grad) if is_new else filled[number]
        )
        filled.append(value)
        setattr(module, name, value)
    for module in unit.modules():
        for name, buffer in [*module.named_buffers(recurse=False)]:
            setattr(module, name, _of_first(buffer, device))


def _of_first(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the first rank's values of `tensor`, on `device`."""
    value = torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.detach().to(device)
    value = value.contiguous()
    dist.broadcast(value, 0)
    return value


def _layers(model: Any) -> Sequence[nn.Module]:
    """Return the layers of `model`, each of which is a unit of sharding."""
    if find_unsupported(model) is None:
        return cast(Sequence[nn.Module], backbone(model).layers)
    names = set(cast("list[str] | None", getattr(model, "_no_split_modules", None)) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _full(parameter: Tensor) -> Tensor:
    return (
        cast(DTensor, parameter.detach()).full_tensor()
        if isinstance(parameter, DTensor)
        else parameter.detach()
    )
