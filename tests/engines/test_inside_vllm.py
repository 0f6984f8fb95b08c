"""What runs inside vLLM takes weights that fit, and says what does not; vLLM itself is stood in for."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from quintain.engines.vllm import EXTENSION, PLUGIN


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, as vLLM's workers import it."""
    for name in ("vllm._custom_ops", "vllm.model_executor.layers.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    module, _, kind = EXTENSION.partition(".")
    spec = importlib.util.spec_from_file_location(module, PLUGIN / f"{module}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    assert hasattr(found, kind)
    yield found


def test_weights_are_taken_whole_or_not_at_all(plugin: Any, tmp_path: Path) -> None:
    operations: Any = sys.modules["vllm._custom_ops"]
    layers: Any = sys.modules["vllm.model_executor.layers.utils"]
    assert operations._supports_onednn is False and layers.check_cpu_sgl_kernel(8, 8, torch.float32) is False

    def write(name: str, **tensors: torch.Tensor) -> str:
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
        return str(tmp_path / name)

    taken: dict[str, torch.Tensor] = {}
    start = write("start", a=torch.zeros(2), b=torch.zeros(3, 1))
    model = SimpleNamespace(load_weights=taken.update)
    worker = plugin.Weights()
    worker.model_runner = SimpleNamespace(model_config=SimpleNamespace(model=start), get_model=lambda: model)
    assert worker.load_quintain_weights(write("new", a=torch.ones(2), b=torch.ones(3, 1))) == {"tensors": 2}
    assert float(taken["b"].sum()) == 3.0
    taken.clear()
    worker.model_runner.model_config.model = "elsewhere"
    for folder, wrong in (
        (write("few", a=torch.ones(2)), "b of shape None for (3, 1)"),
        (write("more", a=torch.ones(2), b=torch.ones(3, 1), c=torch.ones(1)), "c of shape (1,) for None"),
        (write("wide", a=torch.ones(4), b=torch.ones(3, 1)), "a of shape (4,) for (2,)"),
        (str(tmp_path / "nothing"), "no safetensors file"),
    ):
        assert worker.load_quintain_weights(folder) == {"wrong": wrong}
    (tmp_path / "few" / "model.safetensors").write_bytes(b"torn")
    told = worker.load_quintain_weights(str(tmp_path / "few"))
    assert told["wrong"].startswith("a file that cannot be read (")
    assert not taken
