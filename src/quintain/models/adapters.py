"""LoRA through the peft package: train a few small matrices in place of all weights (arXiv 2106.09685).

The layers are put into the model itself, so that everything that runs a model runs an adapted one.
The weights the model came with are frozen, and a merge works on a copy.
"""

import copy
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from quintain.errors import MissingExtra, UsageError
from quintain.types import derive_seed

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel

ALL_LINEAR = "all-linear"


def add_lora(
    model: "PreTrainedModel",
    rank: int = 8,
    alpha: float = 16.0,
    targets: tuple[str, ...] = (),
    *,
    name: str = "default",
    seed: int = 0,
) -> "PreTrainedModel":
    """Put LoRA layers of `rank`, scaled by alpha/rank, into `model`, freeze all else, and return it.

    Several policies may share a model, each by layers of its own `name`; the newest are switched on.

    `targets` are ends of module names such as ``q_proj``; () means every linear layer but the output head.
    The new layers add nothing until they are trained; they are drawn from `seed` and their `name`.

    Raises:
        MissingExtra: peft is not installed.
        UsageError: the rank is below 1, a target matches nothing, or the model has layers of that name already.
    """
    peft = _peft()
    from quintain.models.lora_linear import round_once
    from quintain.models.seeding import draw_weights

    if rank < 1:
        raise UsageError(f"rank of LoRA layers: got {rank}; give at least 1")
    if name in adapter_names(model):
        raise UsageError(f"add LoRA layers: got a model that has {name!r} already; merge them first")
    named = [name for name, _ in model.named_modules()]
    for target in targets:
        if not any(name.split(".")[-1] == target or name.endswith(f".{target}") for name in named):
            ends = sorted({name.split(".")[-1] for name in named if name.endswith("_proj")})
            raise UsageError(f"target of LoRA layers: got {target!r}; modules here: {', '.join(ends)}")
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=list(targets) or ALL_LINEAR,
        task_type="CAUSAL_LM",
    )
    adapted = cast("Any", model)
    # That there are several adapters is what is wanted.
    with warnings.catch_warnings(), draw_weights(derive_seed("lora", seed, name)):
        warnings.filterwarnings("ignore", message="Already found a `peft_config` attribute")
        adapted.add_adapter(config, adapter_name=name)
    _keep_masters(model, name)
    adapted.set_adapter(name)
    round_once(model)
    return model


def _keep_masters(model: "PreTrainedModel", name: str) -> None:
    """Keep the layers `name` of `model` in fp32: what is trained needs it, also on a base in 16 bits."""
    for key, parameter in model.named_parameters():
        if "lora_" in key and f".{name}." in key:
            parameter.data = parameter.data.float()


def save_adapter(model: "PreTrainedModel", name: str, base: str, folder: Path) -> Path:
    """Write the LoRA layers `name` of `model` as peft keeps them, for `base`, to `folder` and return it."""
    adapted = cast("Any", model)
    adapted.set_adapter(name)
    adapted.peft_config[name].base_model_name_or_path = base
    with warnings.catch_warnings():  # that the base is not on the hub is known
        warnings.simplefilter("ignore")
        adapted.save_pretrained(str(folder))
    return folder


def adapter_names(model: "nn.Module") -> frozenset[str]:
    """Return the names of the LoRA layers in `model`."""
    layers = [cast("Any", module).lora_A for module in model.modules() if hasattr(module, "lora_A")]
    return frozenset(name for layer in layers for name in layer)


def has_adapters(model: "nn.Module") -> bool:
    """Whether `model` holds LoRA layers."""
    return any(hasattr(module, "lora_A") for module in model.modules())


def merge_adapters(model: "PreTrainedModel") -> "PreTrainedModel":
    """Return a copy of `model` whose LoRA layers are added into the weights they adapt; it lies in main memory.

    A card may have no room for a second model.
    """
    tensors = [*model.parameters(), *model.buffers()]
    memo: dict[int, Any] = {id(each): _in_memory(each) for each in tensors if each.device.type != "cpu"}
    return merge(copy.deepcopy(model, memo))


def merge(model: "PreTrainedModel") -> "PreTrainedModel":
    """Add the LoRA layers of `model` into the weights they adapt, in place, and return it as one without them."""
    from quintain.models.lora_linear import effective_weight, lies_in_16_bits

    for name, module in list(model.named_modules()):
        if hasattr(module, "lora_A"):
            layer = cast("Any", module)
            base = layer.get_base_layer()
            if lies_in_16_bits(base):  # the sum is rounded once
                base.weight.data = effective_weight(layer).to(base.weight.dtype)
            else:
                layer.merge()
            model.set_submodule(name, base)
    cast("Any", model)._hf_peft_config_loaded = False
    return model.requires_grad_(True)


def _in_memory(tensor: "Tensor") -> "Tensor":
    """Return a copy of `tensor` in main memory, a parameter where it is one."""
    from torch import nn

    found = tensor.detach().cpu()
    return nn.Parameter(found, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else found


def plain(model: "PreTrainedModel") -> "PreTrainedModel":
    """Return `model` without LoRA layers: itself where it has none, else `merge_adapters`."""
    return merge_adapters(model) if has_adapters(model) else model


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise MissingExtra.for_package("peft", "peft", "LoRA") from error
    return peft
