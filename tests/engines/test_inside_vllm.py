"""What runs inside vLLM takes weights that fit, and says what does not; vLLM itself is stood in for."""

import importlib.util
import sys
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from quintain.engines.settings import EngineSettings, check_settings, read_engine
from quintain.engines.shared_weights import share_weights
from quintain.engines.vllm import EXTENSION, PLUGIN, Vllm
from quintain.engines.weight_group import WeightGroup, tensors_of
from quintain.errors import UsageError


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


def make_worker(plugin: Any, start: Path, rank: int) -> tuple[Any, dict[str, torch.Tensor]]:
    """A worker that serves the weights in `start`, and what it takes."""
    taken: dict[str, torch.Tensor] = {}
    worker = plugin.Weights()
    worker.rank, worker.device = rank, torch.device("cpu")
    model = SimpleNamespace(load_weights=taken.update)
    worker.model_runner = SimpleNamespace(
        model_config=SimpleNamespace(model=str(start)), get_model=lambda: model
    )
    return worker, taken


def test_weights_are_taken_whole_or_not_at_all(plugin: Any, tmp_path: Path) -> None:
    operations: Any = sys.modules["vllm._custom_ops"]
    layers: Any = sys.modules["vllm.model_executor.layers.utils"]
    assert operations._supports_onednn is False and layers.check_cpu_sgl_kernel(8, 8, torch.float32) is False

    def write(name: str, **tensors: torch.Tensor) -> str:
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
        return str(tmp_path / name)

    worker, taken = make_worker(plugin, Path(write("start", a=torch.zeros(2), b=torch.zeros(3, 1))), 0)
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


def test_weights_come_over_the_network_to_every_worker(plugin: Any, tmp_path: Path) -> None:
    for name in ("start", "new", "wide"):
        (tmp_path / name).mkdir()
    new = {"a": torch.randn(2, 3), "b": torch.randn(4).bfloat16(), "c": torch.tensor(7)}
    save_file(
        {name: torch.zeros_like(tensor) for name, tensor in new.items()}, tmp_path / "start" / "x.safetensors"
    )
    save_file(new, tmp_path / "new" / "x.safetensors")
    save_file({**new, "a": torch.zeros(2)}, tmp_path / "wide" / "x.safetensors")
    workers = [make_worker(plugin, tmp_path / "start", rank) for rank in range(2)]
    group = WeightGroup("gloo", "http://127.0.0.1:8000", 2, 60.0)
    host, port = group.address
    assert host == "127.0.0.1"
    worker, _ = workers[0]
    assert worker.expect_quintain_weights(tensors_of(tmp_path / "wide")) == {
        "wrong": "a of shape (2,) for (2, 3)"
    }

    def serve(worker: Any) -> dict[str, Any]:
        assert worker.expect_quintain_weights(tensors_of(tmp_path / "new")) == {}
        worker.join_quintain(host, port, 3, "gloo", 60.0)
        return worker.take_quintain_weights()

    with ThreadPoolExecutor() as threads:
        served = [threads.submit(serve, worker) for worker, _ in workers]
        group.join()
        group.send(tmp_path / "new")
        assert [each.result(60) for each in served] == [{"tensors": 3}] * 2
    for _, taken in workers:
        assert taken.keys() == new.keys()
        assert all(torch.equal(taken[name], tensor) for name, tensor in new.items())


def test_weights_are_read_from_memory_that_is_shared(plugin: Any, tmp_path: Path) -> None:
    for name in ("start", "new"):
        (tmp_path / name).mkdir()
    new = {
        "a": torch.randn(2, 3),
        "b": torch.randn(5).bfloat16(),
        "c": torch.tensor(7),
        "d": torch.zeros(0, 2),
    }
    save_file(
        {name: torch.zeros_like(tensor) for name, tensor in new.items()}, tmp_path / "start" / "x.safetensors"
    )
    save_file(new, tmp_path / "new" / "x.safetensors")
    worker, taken = make_worker(plugin, tmp_path / "start", 0)
    worker.model_runner.get_model().load_weights = lambda parts: taken.update(
        (n, t.clone()) for n, t in parts
    )
    with share_weights(tmp_path / "new") as where:
        if "path" in where:
            assert Path(where["path"]).stat().st_mode & 0o077 == 0, "nobody else reads it"
        assert worker.map_quintain_weights(**where) == {"tensors": 4}
        wide = [(name, [*shape, 1], dtype, first) for name, shape, dtype, first in where["tensors"]]
        assert worker.map_quintain_weights(**{**where, "tensors": wide}) == {
            "wrong": "a of shape (2, 3, 1) for (2, 3)"
        }
    assert taken.keys() == new.keys()
    assert all(torch.equal(taken[name].cpu(), tensor) for name, tensor in new.items())
    gone = {**where, "cuda": None, "path": str(tmp_path / "none")}
    assert worker.map_quintain_weights(**gone) == {
        "wrong": f"{tmp_path / 'none'}, which is not on this server's machine"
    }


def test_memory_of_a_gpu_is_opened_where_the_server_sees_it(
    plugin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "start").mkdir()
    save_file({"a": torch.zeros(2)}, tmp_path / "start" / "x.safetensors")
    worker, taken = make_worker(plugin, tmp_path / "start", 0)
    worker.model_runner.get_model().load_weights = taken.update
    memory = torch.tensor([3.0, 4.0]).view(torch.uint8)
    opened: list[Any] = []

    def open_memory(*handles: Any) -> torch.UntypedStorage:
        opened.extend(handles)
        return memory.untyped_storage()

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=f"gpu-{number}")
    )
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", open_memory, raising=False)
    handle = {"bytes": b64encode(b"\x00handle").decode()}
    where: dict[str, Any] = {"tensors": [("a", [2], "float32", 0)], "size": 8, "cuda": [0, handle, 8, 0]}
    assert worker.map_quintain_weights(**where, uuid="gpu-1") == {"tensors": 1}
    assert taken["a"].tolist() == [3.0, 4.0] and opened == [1, b"\x00handle", 8, 0]
    assert worker.map_quintain_weights(**where, uuid="gpu-7") == {
        "wrong": "memory of the GPU gpu-7, where this server sees gpu-0, gpu-1"
    }


def test_nccl_takes_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="got nccl where the learner has no GPU; give gloo, shared or files"):
        Vllm("nccl")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("?weights=pigeon", "got 'pigeon'; "),
        ("?weights=gloo&adapters=1", "got gloo for adapters, which are read from files; leave weights out"),
    ],
)
def test_how_weights_can_come_is_checked(options: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_settings(EngineSettings(**read_engine("vllm" + options)))
    with pytest.raises(UsageError, match="got gloo for the engine sglang"):
        check_settings(EngineSettings(kind="sglang", weights="gloo"))
