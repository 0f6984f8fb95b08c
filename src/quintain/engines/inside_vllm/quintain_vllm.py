"""What vLLM's workers need to take a learner's weights from files: ``--worker-extension-cls quintain_vllm.Weights``.

vLLM imports this module by its bare name, in an environment where quintain is not installed, so it imports nothing of
quintain. vLLM's own ``reload_weights`` is not used: on CPUs it leaves the packed copies of linear layers as they were
(0.32), and after files that cannot be read the model is neither the old nor the new one.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

Shapes = dict[str, tuple[int, ...]]


def _keep_weights_plain() -> None:
    """Let linear layers on CPUs compute with the weights that the model holds, and not with packed copies of them."""
    operations: Any = importlib.import_module("vllm._custom_ops")
    layers: Any = importlib.import_module("vllm.model_executor.layers.utils")
    operations._supports_onednn = False
    layers.check_cpu_sgl_kernel = lambda *_: False


_keep_weights_plain()


class Weights:
    """Mixed into vLLM's worker; each method can be called by ``/collective_rpc``."""

    model_runner: Any
    _shapes: Shapes | None = None

    def load_quintain_weights(self, folder: str) -> dict[str, Any]:
        """Put the weights in `folder` into the model that is served; return how many tensors, or what is ``wrong``.

        Nothing is changed unless names and shapes are those of the files that the model was loaded from.
        """
        if self._shapes is None:
            self._shapes = _shapes(Path(self.model_runner.model_config.model))
        try:
            found = _shapes(Path(folder))
            if wrong := _difference(found, self._shapes):
                return {"wrong": wrong}
            new = [
                (name, opened.get_tensor(name))
                for file in _files(Path(folder))
                for opened in [safe_open(file, framework="pt")]
                for name in opened.keys()  # noqa: SIM118 (it is no mapping)
            ]
        except (OSError, ValueError, SafetensorError) as error:
            return {"wrong": f"a file that cannot be read ({error})"}
        with torch.no_grad():
            self.model_runner.get_model().load_weights(iter(new))
        return {"tensors": len(new)}


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _shapes(folder: Path) -> Shapes:
    """Return the shape of every tensor in the files of `folder`."""
    found: Shapes = {}
    for file in _files(folder):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                found[name] = tuple(opened.get_slice(name).get_shape())
    return found


def _difference(found: Shapes, expected: Shapes) -> str:
    """Say how the tensors `found` differ from the `expected` ones; an empty text where they do not."""
    if not found:
        return "no safetensors file"
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            return f"{name} of shape {found.get(name)} for {expected.get(name)}"
    return ""
