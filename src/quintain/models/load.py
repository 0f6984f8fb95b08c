"""Load a causal language model and its tokenizer from a folder, a GGUF file or the Hugging Face hub.

A folder is looked over before anything heavy happens, so that what is wrong with it is said in one line. The
one rule: safetensors only, no pickle, and never the code that a repository brings along; a weight that the
file does not hold is an error, not a random number.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from quintain.errors import (
    ModelError,
    UsageError,
    is_out_of_memory,
    is_panic,
    name_shortage,
    suggestion,
)
from quintain.models.gguf import SMOLLM2, Say, folder_of, gguf_in, silent, smollm2_file
from quintain.models.patterns import find_fault
from quintain.models.precision import DTYPES
from quintain.models.quiet import quiet_transformers
from quintain.models.save import END_IDS
from quintain.types.json_text import load_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

OURS = ("micro", "mini", "tiny", "small", SMOLLM2)
"""Models that have a name of their own here; `quintain.models.tiny.SIZES` are the new ones."""
RUNS = "runs"
"""The folder that holds the runs where nobody says another."""
MAX_GROWTH = 64
"""Times as long as a text that a tokenizer may make it; those of published models stay below 4."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
DOWNLOADED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to use: ``LoadedModel(model=..., tokenizer=..., name="Qwen3-0.6B")``."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    name: str
    """The hub id, or the name of the folder."""


def load(path_or_id: str, *, dtype: str = "float32") -> LoadedModel:
    """Load the causal LM that `path_or_id` names (`find_folder`); the model is in evaluation mode.

    `dtype` is float32, bfloat16 or float16.

    Raises:
        ModelError: the folder is missing or broken, or the hub cannot be reached and holds no copy here.
        UsageError: `dtype` has no such name.
    """
    if dtype not in DTYPES:
        raise UsageError(f"dtype of a model: got {dtype!r}; {suggestion(dtype, DTYPES)}")
    folder = find_folder(path_or_id)
    check_folder(folder, path_or_id)
    advice = "take a smaller model, or a machine with more memory; a base of LoRA layers in bf16 takes half"
    with quiet_transformers(), name_shortage(f"loading the model {path_or_id} in {dtype}", advice):
        tokenizer = _read_tokenizer(folder, path_or_id)
        model = _read_model(folder, path_or_id, DTYPES[dtype])
    num_rows = int(cast("torch.Tensor", model.get_input_embeddings().weight).shape[0])
    if len(tokenizer) > num_rows:
        raise _refusal(
            path_or_id,
            f"a tokenizer of {len(tokenizer)} tokens for {num_rows} embeddings",
            "use the tokenizer that the model was trained with",
        )
    name = folder.resolve().name if Path(path_or_id).is_dir() else path_or_id
    return LoadedModel(model=model.eval(), tokenizer=tokenizer, name=name)


def outline(folder: str, *, dtype: str = "float32") -> "PreTrainedModel":
    """Return the model in `folder` without its numbers: every weight and buffer is on the device ``meta``.

    Raises:
        ModelError: `folder` is missing or broken.
    """
    found = find_folder(folder)
    check_folder(found, folder)
    with quiet_transformers():
        try:
            config = AutoConfig.from_pretrained(found, trust_remote_code=False, local_files_only=True)
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype], trust_remote_code=False)
        except Exception as error:  # transformers raises whatever a broken file leads it to
            raise _refusal(
                folder,
                f"a model that cannot be built ({_first_line(error)})",
                "give a causal LM that transformers loads without code of its own",
            ) from error
    return cast("PreTrainedModel", model).eval()


def load_tokenizer(folder: str | Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer in `folder` alone, which need not hold a model.

    Raises:
        ModelError: there is none, or it is broken.
    """
    with quiet_transformers():
        return _read_tokenizer(Path(folder), str(folder))


def vocabulary_of(folder: Path) -> int:
    """Return the number of tokens of the model in `folder`, which is not loaded.

    Raises:
        ModelError: its configuration cannot be read.
    """
    try:
        config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        return int(config.get_text_config().vocab_size)
    except Exception as error:  # transformers raises whatever a broken file leads it to
        raise _refusal(
            str(folder), f"a config.json that cannot be read ({_first_line(error)})", "copy the file again"
        ) from error


def find_folder(path_or_id: str, *, say: Say = silent) -> Path:
    """Return the local folder of `path_or_id`: a folder itself, that of a GGUF file, or one fetched from the hub.

    ``smollm2`` is the model that the package of that name brings. A GGUF file, or a folder with nothing but one, is
    converted in the user's cache the first time; `say` is told of it.

    Raises:
        ModelError: there is neither such a folder nor such an id within reach, or the GGUF file is broken.
        MissingExtra: a package is not installed that brings or reads the GGUF file.
        StoreError: there is no place to convert it to.
    """
    if path_or_id == SMOLLM2:
        return folder_of(smollm2_file(), asked=path_or_id, say=say)
    path = Path(path_or_id).expanduser()
    if (gguf := gguf_in(path, path_or_id)) is not None:
        return folder_of(gguf, asked=path_or_id, say=say)
    if path.is_dir():
        return path
    if path.is_file():
        raise _refusal(path_or_id, "a file", "give the folder that holds config.json, or a .gguf file")
    if not reads_as_hub_id(path_or_id):
        raise _refusal(path_or_id, "no such folder", "check the path, or give a hub id such as owner/name")
    try:
        return Path(snapshot_download(path_or_id, allow_patterns=list(DOWNLOADED)))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError, ValueError) as error:
        near = suggestion(path_or_id.lower(), OURS)
        hint = near if near.startswith("did") else "check the name and the connection"
        raise _refusal(
            path_or_id,
            f"no run, folder or file of that name, and the hub gave {_first_line(error)}",
            f"{hint}, or give the path of a model folder",
        ) from error


def check_folder(folder: Path, asked: str) -> None:
    """Check that `folder` holds a configuration, safetensors weights that can be opened, and a tokenizer.

    Raises:
        ModelError: naming what is missing or broken and what to do.
    """
    config = folder / "config.json"
    if (folder / ADAPTER_CONFIG).exists():
        # transformers would load the base model that it names, wherever that is, and not the weights that are here
        what = "an adapter beside a model" if config.is_file() else "an adapter without its model"
        raise _refusal(asked, what, "merge it into its base model first, and give a folder without it")
    if not config.is_file():
        raise _refusal(asked, "a folder without config.json", "give a folder that save_pretrained wrote")
    _read_json(config, asked)
    for file in _weight_files(folder, asked):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise _refusal(
                asked, f"{file.name} that cannot be read ({_first_line(error)})", "copy the file again"
            ) from error
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise _refusal(asked, "a folder without a tokenizer", "save the tokenizer beside the model")


def _weight_files(folder: Path, asked: str) -> list[Path]:
    """Return the safetensors files that make up the model in `folder`."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / WEIGHTS_INDEX).is_file():
        shards = _read_json(folder / WEIGHTS_INDEX, asked).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise _refusal(asked, f"{WEIGHTS_INDEX} without a weight_map", "copy the file again")
        names = {str(name) for name in cast("dict[str, Any]", shards).values()}
        outside = [name for name in sorted(names) if Path(name).name != name]
        if outside:
            raise _refusal(
                asked, f"{WEIGHTS_INDEX} that names {outside[0][:60]!r}", "give files of the folder only"
            )
        return [folder / name for name in sorted(names)]
    pickled = sorted(file.name for pattern in PICKLED for file in folder.glob(pattern))
    if pickled:
        raise _refusal(
            asked,
            f"pickled weights ({pickled[0]}), which can run code when they are opened",
            "convert them with save_pretrained(..., safe_serialization=True) where you trust them",
        )
    raise _refusal(asked, f"a folder without {WEIGHTS}", "give a folder that save_pretrained wrote")


def _read_json(file: Path, asked: str) -> dict[str, Any]:
    try:
        value: object = load_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _refusal(
            asked, f"{file.name} that cannot be read ({_first_line(error)})", "copy the file again"
        ) from error
    if not isinstance(value, dict):
        raise _refusal(asked, f"{file.name} that holds no JSON object", "copy the file again")
    return cast("dict[str, Any]", value)


def _read_tokenizer(folder: Path, asked: str) -> "PreTrainedTokenizerBase":
    check_tokenizer(folder, asked)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except BaseException as error:  # transformers raises whatever a broken file leads it to
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise _refusal(
            asked, f"a tokenizer that cannot be read ({_first_line(error)})", "save the tokenizer again"
        ) from error
    if ends := read_end_ids(folder, asked, len(tokenizer)):
        # they belong to the chat format: see quintain.text.settings
        cast("dict[str, Any]", tokenizer.init_kwargs).setdefault(END_IDS, ends)
    return tokenizer


def check_tokenizer(folder: Path, asked: str) -> None:
    """Check that the tokenizer in `folder` makes texts not much longer, and that its patterns end soon.

    Raises:
        ModelError: a short text could take all memory, or all time.
    """
    if not (folder / "tokenizer.json").is_file():
        return
    row = _read_json(folder / "tokenizer.json", asked)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth = growth_of(row.get(part))
        if growth > MAX_GROWTH:
            raise _refusal(
                asked,
                f"a tokenizer whose {part} makes a text up to {growth:.0f} times as long (at most: {MAX_GROWTH})",
                "take the tokenizer of the model's authors",
            )
    if fault := find_fault(folder / "tokenizer.json", row):
        raise _refusal(asked, f"a tokenizer with {fault}", "take the tokenizer of the model's authors")


def growth_of(part: object) -> float:
    """Return how many times as long a text may become by a `part` of a tokenizer that replaces texts by others."""
    row = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    growth = 1.0
    for name in ("normalizers", "pretokenizers", "decoders"):
        inner: object = row.get(name)
        for each in cast("list[object]", inner) if isinstance(inner, list) else []:
            growth *= growth_of(each)
    content: object = row.get("content")
    if row.get("type") == "Replace" and isinstance(content, str):
        pattern: object = row.get("pattern")
        found = cast("dict[str, object]", pattern).get("String") if isinstance(pattern, dict) else None
        growth *= (
            max(1.0, len(content) / max(1, len(found))) if isinstance(found, str) else max(1, len(content))
        )
    return growth


def read_end_ids(folder: Path, asked: str, num_tokens: int) -> list[int]:
    """Return the tokens that end an answer by ``generation_config.json`` and ``config.json``: the union of their lists.

    Raises:
        ModelError: one of them is no number of a token.
    """
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        if not (folder / name).is_file():
            continue
        value: object = _read_json(folder / name, asked).get("eos_token_id")
        ids = cast("list[object]", value) if isinstance(value, list) else [value]
        for each in ids:
            if each is None:
                continue
            if type(each) is not int or each < 0:
                raise _refusal(
                    asked,
                    f"eos_token_id {each!r:.40} in {name}",
                    "give the number of a token, or a list of them",
                )
            if each < num_tokens:  # what the vocabulary has not cannot be sampled
                found.add(each)
    return sorted(found)


def _read_model(folder: Path, asked: str, dtype: torch.dtype) -> "PreTrainedModel":
    try:
        found: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            weights_only=True,
            ignore_mismatched_sizes=True,  # reported below, with the name
            output_loading_info=True,
        )
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise _refusal(
            asked,
            f"a model that cannot be read ({_first_line(error)})",
            "give a causal LM that transformers loads without code of its own",
        ) from error
    model, report = cast("tuple[PreTrainedModel, dict[str, Any]]", found)
    missing = sorted(cast("set[str]", report["missing_keys"]))
    if missing:
        raise _refusal(
            asked, f"weights without {missing[0]} ({len(missing)} missing)", "give the complete checkpoint"
        )
    for name, came, expected in sorted(cast("set[tuple[str, Any, Any]]", report["mismatched_keys"])):
        raise _refusal(
            asked,
            f"{name} of shape {tuple(came)} where config.json says {tuple(expected)}",
            "give weights and configuration of one model",
        )
    return model


def reads_as_hub_id(text: str) -> bool:
    """Whether `text` could be ``name`` or ``owner/name``, and is no path.

    What begins with a folder that is here, or with that of the runs, is the path of something that is missing: a
    stranger's repository of that name must not take its place.
    """
    parts = text.split("/")
    is_path = len(parts) > 1 and (parts[0] == RUNS or Path(parts[0]).is_dir())
    return len(parts) <= 2 and all(parts) and not text.startswith((".", "~")) and not is_path


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()}"[:200] if lines else type(error).__name__


def _refusal(asked: str, came: str, todo: str) -> ModelError:
    return ModelError(f"model {asked!r}: got {came}; {todo}")
