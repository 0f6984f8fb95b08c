"""The engine that settings stand for, and how a learner's weights get to it.

Nothing outside need know the classes of engines: `EngineSettings` name a kind, `Engine` is what comes of it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from quintain.engines.http_engine import HttpEngine
from quintain.engines.local import Local
from quintain.engines.process import ProcessEngine
from quintain.engines.protocol import Engine
from quintain.engines.settings import EngineSettings, check_settings
from quintain.engines.sglang import Sglang
from quintain.engines.vllm import Vllm
from quintain.errors import UsageError
from quintain.models.adapters import adapter_names, has_adapters, save_adapter
from quintain.models.device import find_device
from quintain.models.load import find_folder, load, load_tokenizer, vocabulary_of
from quintain.models.save import save
from quintain.models.weights import write_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AUTO = "auto"


def build_engine(
    settings: EngineSettings,
    model: PreTrainedModel | str | Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    policy: str = "policy",
) -> Engine:
    """Return the engine of `settings` that serves `model` as `policy`.

    Args:
        settings: which engine, and how large.
        model: a model in this process, whose weights a local engine shares, or a model's folder or hub id.
        tokenizer: that of the model, for grammars; read from the folder where one is given.
        policy: name of the policy, which stands in every completion.

    Raises:
        UsageError: see `check_settings`; or an engine in a process of its own was given a model without its tokenizer.
        ModelError: the model cannot be loaded.
        EngineFault: the engine's process or server does not start, or does not answer.
    """
    check_settings(settings)
    if settings.kind == "local":
        return _local(settings, model, tokenizer, policy)
    if isinstance(model, (str, Path)):
        return _start_server(settings, find_folder(str(model)), policy)
    if tokenizer is None:
        raise UsageError("an engine in a process of its own: got a model without its tokenizer; give both")
    folder = Path(tempfile.mkdtemp(prefix="quintain-engine-"))
    try:
        return _start_server(settings, save(model, tokenizer, folder), policy, owned=folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _start_server(
    settings: EngineSettings, folder: Path, policy: str, *, owned: Path | None = None
) -> Engine:
    """Return the engine that serves the model in `folder` from another process."""
    if settings.kind == "process":
        return ProcessEngine(folder, settings, policy=policy, owned=owned)
    tokenizer = cast("Any", load_tokenizer(folder))
    return HttpEngine(
        Vllm(settings.weights) if settings.kind == "vllm" else Sglang(),
        settings,
        folder,
        vocabulary=vocabulary_of(folder),
        decode=lambda ids: str(tokenizer.decode(list(ids))),
        policy=policy,
        owned=owned,
    )


def _local(
    settings: EngineSettings,
    model: PreTrainedModel | str | Path,
    tokenizer: PreTrainedTokenizerBase | None,
    policy: str,
) -> Engine:
    """Return the engine in this process."""
    if isinstance(model, (str, Path)):
        loaded = load(str(model), dtype=settings.dtype)
        model, tokenizer = loaded.model, loaded.tokenizer
        cast("Any", model).to(find_device(settings.device))
    elif settings.device != AUTO and model.device != find_device(settings.device):
        raise UsageError(
            f"device of an engine that shares its weights: got {settings.device!r} for a model on {model.device}; "
            "move the model, or take the engine process"
        )
    return Local(
        model,
        tokenizer,
        policy=policy,
        max_length=settings.max_length,
        max_batch=settings.max_batch,
        precision=settings.precision,
    )


def hand_over(engine: Engine, model: PreTrainedModel, version: int, folder: Path) -> None:
    """Let `engine` serve the weights of `model` as `version`.

    Nothing is copied where it shares them; else they go through files in `folder`/`version`, and those of older
    versions are deleted. The newest stay: an engine that is started again reads them.

    Raises:
        StoreError: the files cannot be written.
        ModelError: they do not fit the engine's model.
        EngineFault: the engine cannot be reached.
    """
    if engine.shares(model):
        engine.load_weights(version, None)
        return
    place = folder / str(version)
    if "adapters" in engine.capabilities and has_adapters(model):
        names = adapter_names(model)
        name = engine.policy if engine.policy in names else min(names)
        engine.load_weights(version, save_adapter(model, name, str(folder), place))
    else:
        engine.load_weights(version, write_weights(model, place))
    for old in folder.iterdir():
        if old.name.isdigit() and int(old.name) != version:
            shutil.rmtree(old, ignore_errors=True)
