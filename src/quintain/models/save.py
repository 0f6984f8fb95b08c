"""Write a model as a plain Hugging Face folder that `transformers` loads alone.

The folder is written under a temporary name beside its place, flushed to the disk and renamed, so that a reader finds
the old folder or the new one and never half of either. What is written needs nothing but transformers; adapters are
merged into a copy on the way out.
"""

import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from safetensors import SafetensorError

from quintain.errors import StoreError, UsageError
from quintain.models.adapters import plain
from quintain.models.heads import ValueHead
from quintain.models.quiet import quiet_transformers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

END_IDS = "end_token_ids"
"""Key of ``tokenizer_config.json`` under which the ends of answers are kept."""


def save(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    folder: str | Path,
    value_head: ValueHead | None = None,
) -> Path:
    """Write `model` and `tokenizer` to `folder`, in place of a model that is there; return the folder.

    A `value_head` stands beside them, which `transformers` does not read. LoRA layers are merged into a copy, `model`
    keeps them. The generation configuration names every token that ends an answer, so that others stop there, too.

    Raises:
        UsageError: `folder` is there and holds something else than a model.
        StoreError: the disk is full or cannot be written; what was there before still is.
    """
    target = Path(folder)
    if target.exists() and not _may_replace(target):
        raise UsageError(
            f"save a model to {str(target)!r}: got a path that holds something else; name a new folder"
        )
    whole = plain(model)
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        with quiet_transformers():
            whole.save_pretrained(temporary)
            tokenizer.save_pretrained(str(temporary))
        _write_ends(temporary, tokenizer)
        if value_head is not None:
            value_head.keep(temporary)
        _share(temporary)
        _flush(temporary)
        _put(temporary, target)
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"save a model to {str(target)!r}: got {error}; free space or name a folder that can be written"
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _write_ends(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> None:
    """Name in the generation configuration of `folder` the ends that are stored with `tokenizer`, too."""
    path = folder / "generation_config.json"
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    named: object = values.get("eos_token_id")
    ends = cast("list[object]", named) if isinstance(named, list) else [named]
    stored = cast("dict[str, Any]", tokenizer.init_kwargs).get(END_IDS) or []
    every = sorted({each for each in (*ends, *stored, tokenizer.eos_token_id) if type(each) is int})
    if not set(every) - set(ends):
        return
    values.pop("_from_model_config", None)  # it is the folder's own from now on
    values["eos_token_id"] = every[0] if len(every) == 1 else every
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _may_replace(target: Path) -> bool:
    """Whether `target` is an empty folder or a model folder."""
    return target.is_dir() and ((target / "config.json").is_file() or not any(target.iterdir()))


def _share(folder: Path) -> None:
    """Give `folder` and its files the rights of its ``config.json``, which the user's mask left; weights have fewer."""
    mode = stat.S_IMODE((folder / "config.json").stat().st_mode)
    for file in folder.iterdir():
        file.chmod(mode)
    folder.chmod(mode | (mode & 0o444) >> 2)


def _flush(folder: Path) -> None:
    """Ask the system to put every file of `folder`, and the folder itself, on the disk."""
    for path in (*sorted(folder.rglob("*")), folder):
        _sync(path)


def _sync(path: Path) -> None:
    """Ask the system to put the file or folder `path` on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(source: Path, target: Path) -> None:
    """Rename `source` to `target`; a folder that is there steps aside first and is deleted last."""
    old = target.with_name(f".{target.name}-old-{os.getpid()}")
    if target.exists():
        os.replace(target, old)
    try:
        os.replace(source, target)
    except OSError:
        if old.exists():
            os.replace(old, target)
        raise
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)
