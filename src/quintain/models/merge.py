"""θ = Σ_k w_k θ_k: one model of several specialists with the same ancestor (UI-TARS-2, arXiv 2509.02544).

The weights add up to 1, and every tensor is there in every model, in the same shape.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from quintain.errors import UsageError


def merge_states(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    """Return the weighted mean of the state dictionaries `states`, in their own types; computed in float32.

    Tensors of whole numbers must be the same everywhere.
    """
    if not states or len(states) != len(weights) or abs(sum(weights) - 1) > 1e-6:
        raise UsageError(
            f"models to merge: got {len(states)} with weights {list(weights)}; give one weight to each, adding up to 1"
        )
    shapes = [{name: tuple(tensor.shape) for name, tensor in state.items()} for state in states]
    for place, other in enumerate(shapes):
        if other != shapes[0]:
            name = min(dict(other.items() ^ shapes[0].items()))
            raise UsageError(
                f"model {place} to merge: got another {name} than the first; merge models with the same ancestor"
            )
    result: dict[str, Tensor] = {}
    for name, first in states[0].items():
        parts = [state[name] for state in states]
        if first.is_floating_point():
            mean = sum((w * part.float() for w, part in zip(weights, parts, strict=True)), torch.zeros(()))
            result[name] = torch.as_tensor(mean).to(first.dtype)
        elif all(torch.equal(first, part) for part in parts):
            result[name] = first.clone()
        else:
            raise UsageError(f"tensor {name} to merge: got whole numbers that differ; leave it out")
    return result
