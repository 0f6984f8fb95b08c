"""A7: data that runs code, or that takes a machine down, when it is opened.

The payload of a pickle makes a folder in the folder of its attempt. It is opened by weakened builds only.
"""

import json
import struct
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tests.attacks.attack import Attack, Found, Scene, refused
from tests.runs.monitors.test_measures import episode

from quintain.errors import DataError, ModelError, StoreError
from quintain.learning import checkpoint as states
from quintain.models import load, weights
from quintain.store import checkpoints, codec
from quintain.store.checkpoints import MANIFEST, Checkpoints, damage

HEADERS: dict[str, bytes] = {
    "a header of 2^63 bytes": struct.pack("<Q", 1 << 63) + b"{}",
    "a header longer than the file": struct.pack("<Q", 1000) + b"{}",
    "a header that is no JSON": struct.pack("<Q", 2) + b"xx",
    "a tensor outside of the file": struct.pack("<Q", 64)
    + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}'.ljust(64),
    "a shape that overflows": struct.pack("<Q", 96)
    + b'{"a":{"dtype":"F32","shape":[9223372036854775807,9],"data_offsets":[0,0]}}'.ljust(96),
    "no content": b"",
    "a pickle": b"\x80\x02cbuiltins\nprint\n.",
}
NUMBERS = {"a list": "[1, 2]", "nothing": '{"step": null}', "text": '{"step": "x"}', "nesting": "[" * 100_000}


def payload(scene: Scene) -> bytes:
    """Return a pickle that makes a folder."""
    return b"cposix\nmkdir\n(V%b\ntR." % str(scene.folder / "landed").encode()


def model_folder(scene: Scene) -> Path:
    """Return a folder with a configuration and a tokenizer."""
    folder = scene.folder / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    (folder / "tokenizer.json").write_text("{}")
    return folder


def pickled(name: str) -> Callable[[Scene], Found]:
    """Return the attempt to have a file of weights run code."""

    def attempt(scene: Scene) -> Found:
        folder = model_folder(scene)
        (folder / name).write_bytes(payload(scene))
        try:
            load.check_folder(folder, "model")
        except ModelError as error:
            return Found((scene.folder / "landed").exists(), str(error))
        return Found((scene.folder / "landed").exists(), "it was opened")

    return attempt


def unpickled(file: Path) -> Any:
    """Open a pickle, as a careless loader does."""
    import pickle  # noqa: TID251

    with open(file, "rb") as stream:
        return pickle.load(stream)


def any_weights(scene: Scene) -> None:
    """Open pickled weights."""

    def weight_files(folder: Path, _: str) -> list[Path]:
        for pattern in load.PICKLED:
            for file in folder.glob(pattern):
                unpickled(file)
        return []

    scene.patch.setattr(load, "_weight_files", weight_files)


def headed(content: bytes) -> Callable[[Scene], object]:
    """Return work that looks over a model whose weights are `content`."""

    def work(scene: Scene) -> object:
        folder = model_folder(scene)
        (folder / "model.safetensors").write_bytes(content)
        return load.check_folder(folder, "model")

    return work


def any_header(scene: Scene) -> None:
    """Do not look at the files of weights."""
    scene.patch.setattr(load, "safe_open", lambda *_, **__: nullcontext())  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]


def state(scene: Scene) -> tuple[Path, torch.nn.Module, torch.optim.Optimizer]:
    """Return a saved state of a learner."""
    folder = scene.folder / "state"
    folder.mkdir(exist_ok=True)
    module = torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(module.parameters())
    states.save_state(folder, [module], optimizer, {"step": 1})
    return folder, module, optimizer


def taken_over(name: str) -> Callable[[Scene], Found]:
    """Return the attempt to have the file `name` of a learner's state run code."""

    def attempt(scene: Scene) -> Found:
        folder, module, optimizer = state(scene)
        (folder / name).write_bytes(payload(scene))
        try:
            states.load_state(folder, [module], optimizer)
        except StoreError as error:
            return Found((scene.folder / "landed").exists(), str(error))
        return Found((scene.folder / "landed").exists(), "it was loaded")

    return attempt


def any_state(scene: Scene) -> None:
    """Open pickled states."""
    original = states.safe_open

    def open_file(file: Path, **options: Any) -> Any:
        if file.read_bytes()[:1] == b"c":
            unpickled(file)
        return original(file, **options)

    scene.patch.setattr(states, "safe_open", open_file)
    scene.patch.setattr(weights, "safe_open", open_file)


def numbered(text: str) -> Callable[[Scene], object]:
    """Return work that loads a learner whose numbers are `text`."""

    def work(scene: Scene) -> object:
        folder, module, optimizer = state(scene)
        (folder / "learner.json").write_text(text)
        states.load_state(folder, [module], optimizer)
        return states.load_numbers(folder, ["step"])

    return work


def any_numbers(scene: Scene) -> None:
    """Take the numbers for right."""
    scene.patch.setattr(states.json, "loads", lambda _: {"step": 1})


def bomb(scene: Scene) -> object:
    """Read an episode of 8 MiB of zeros, where 1 MiB is the most."""
    scene.patch.setattr(codec, "MAX_MEMORY", 1 << 20)
    return codec.decode(codec.Record(structure=zlib.compress(bytes(8 << 20)), payload=b"", digest=b"x"))


def any_length(scene: Scene) -> None:
    """Unpack records of every length, whatever they hold."""

    def decompress(blob: bytes, most: int) -> bytes:
        assert len(zlib.decompress(blob)) == 8 << 20
        raise AssertionError("8 MiB were unpacked")

    scene.patch.setattr(codec, "_decompress", decompress)


def changed(scene: Scene) -> object:
    """Read an episode whose reward was changed."""
    record = codec.encode(episode(0.0, (1,)))
    told, instead = (b"\xa5value\xcb" + struct.pack(">d", value) for value in (0.0, 9.0))
    assert told in record.structure
    return codec.decode(record._replace(structure=record.structure.replace(told, instead)))


def any_digest(scene: Scene) -> None:
    """Believe a record what it holds."""
    scene.patch.setattr(codec, "_digest", lambda text, blob: b"same")


def resealed(scene: Scene) -> Found:
    """Attempt to have a manifest used of which a number was changed."""

    def write(folder: Path) -> None:
        save_file({"a": torch.zeros(1)}, folder / "weights.safetensors")

    folder = Checkpoints(scene.folder / "checkpoints", lambda kind, message: None).write(1, write).folder
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"journal": null', '"journal": {"steps": 9}'))
    said = damage(folder)
    return Found(said is None, said or "")


def any_manifest(scene: Scene) -> None:
    """Believe a manifest what it says."""
    scene.patch.setattr(checkpoints, "_open_manifest", lambda content: json.loads(content)["manifest"])


def own_code(scene: Scene) -> Found:
    """Attempt to have the code run that a model brings along."""
    from transformers import dynamic_module_utils
    from transformers.utils import hub

    folder = model_folder(scene)
    for module in (dynamic_module_utils, hub):
        if hasattr(module, "HF_MODULES_CACHE"):
            scene.patch.setattr(module, "HF_MODULES_CACHE", str(scene.folder / "modules"))
    code = f"open({str(scene.folder / 'landed')!r}, 'w').close()\nclass C: pass\n"
    (folder / "own.py").write_text(code)
    (folder / "config.json").write_text(
        json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "own.C"}})
    )
    save_file({"a": torch.zeros(1)}, folder / "model.safetensors")
    try:
        load._read_model(folder, "model", torch.float32)  # pyright: ignore[reportPrivateUsage]
    except ModelError as error:
        return Found((scene.folder / "landed").exists(), str(error))
    return Found((scene.folder / "landed").exists(), "it was loaded")


def trusting(scene: Scene) -> None:
    """Trust the code of a model."""
    original = load.AutoModelForCausalLM.from_pretrained

    def from_pretrained(folder: Path, **named: Any) -> Any:
        return original(folder, **{**named, "trust_remote_code": True})

    scene.patch.setattr(load.AutoModelForCausalLM, "from_pretrained", from_pretrained)


ATTACKS = [
    *(
        Attack("A7", f"pickled weights {name}", pickled(name), any_weights)
        for name in ("pytorch_model.bin", "model.pt", "model.pth", "model.ckpt")
    ),
    *(
        Attack("A7", f"a pickle as {name}", taken_over(name), any_state)
        for name in ("optimizer.safetensors", "weights-0.safetensors")
    ),
    *(
        Attack("A7", f"weights with {name}", refused(headed(content), by=ModelError), any_header)
        for name, content in HEADERS.items()
    ),
    *(
        Attack("A7", f"numbers of a learner: {name}", refused(numbered(text), by=StoreError), any_numbers)
        for name, text in NUMBERS.items()
    ),
    Attack("A7", "a record that swells", refused(bomb, by=DataError), any_length),
    Attack("A7", "a record that was changed", refused(changed, by=DataError), any_digest),
    Attack("A7", "a manifest that was changed", resealed, any_manifest),
    Attack("A7", "a model with code of its own", own_code, trusting),
]
