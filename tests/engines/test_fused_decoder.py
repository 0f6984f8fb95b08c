from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor
from transformers import GemmaConfig, GemmaForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from quintain.engines.decoder import FastDecoder, GenericDecoder
from quintain.engines.fused_decoder import FusedDecoder, can_decode
from quintain.engines.local import decoder_for
from quintain.models.adapters import add_lora
from quintain.models.cpu import native
from quintain.models.cpu.native import unavailable
from quintain.models.families import head
from quintain.models.packed import Stream, compute_hidden, plan
from quintain.models.precision import Precision, computing

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def with_biases() -> PreTrainedModel:
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=60, hidden_size=40, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=20, attention_bias=True, mlp_bias=True, max_position_embeddings=200,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
    return model


@pytest.fixture(params=["qwen3", "llama with biases", "with an adapter"])
def model(request: pytest.FixtureRequest, qwen: PreTrainedModel) -> PreTrainedModel:
    if request.param == "qwen3":
        return qwen
    if request.param == "with an adapter":
        adapted = add_lora(qwen, rank=2)
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight)
        return adapted
    return with_biases()


def both(model: PreTrainedModel) -> tuple[FusedDecoder, FastDecoder]:
    return FusedDecoder(model, max_length=200), FastDecoder(model, max_length=200)


def test_it_equals_the_decoder_of_torch_over_a_long_schedule(model: PreTrainedModel) -> None:
    ours, theirs = both(model)
    rng = Random(0)
    lengths = dict.fromkeys(range(5), 0)
    for _ in range(40):
        slots = sorted(rng.sample(range(5), rng.randint(1, 5)))
        for slot in slots:
            if lengths[slot] > 120 or rng.random() < 0.1:
                for decoder in (ours, theirs):
                    decoder.clear(slot)
                lengths[slot] = 0
        width = rng.choice([1, 1, 3, 40])
        new = [[rng.randrange(60) for _ in range(rng.randint(1, width))] for _ in slots]
        torch.testing.assert_close(ours.forward(slots, new), theirs.forward(slots, new), atol=1e-4, rtol=1e-4)
        for slot, ids in zip(slots, new, strict=True):
            lengths[slot] += len(ids)


@pytest.mark.parametrize("length", [37, 51, 64, 195])
def test_streams_that_share_a_prompt_read_it_from_one_slot(model: PreTrainedModel, length: int) -> None:
    ours, theirs = both(model)
    prompt = [7 * i % 60 for i in range(length)]
    for decoder in (ours, theirs):
        decoder.forward([2], [prompt])
        decoder.copy(2, [0, 4])
    slots, new = [0, 2, 4], [[1], [2, 3], [4]]
    torch.testing.assert_close(ours.forward(slots, new), theirs.forward(slots, new), atol=1e-4, rtol=1e-4)
    for decoder in (ours, theirs):
        decoder.clear(0)
        decoder.forward([0], [[9, 9, 9]])
    slots, new = [0, 2, 4], [[5], [6], [7]]
    torch.testing.assert_close(ours.forward(slots, new), theirs.forward(slots, new), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 63, 64, 190])
def test_branches_continue_streams_and_leave_them_as_they_are(model: PreTrainedModel, length: int) -> None:
    decoders = both(model)
    prompts = [[7 * i % 60 for i in range(length)], [3, 4, 5]]
    slots, branches = [3, 1, 3, 3], [[1, 2, 3], [4], [5], [6, 7]]
    for decoder in decoders:
        decoder.forward([3, 1], prompts)
    ours, theirs = (decoder.branch(slots, branches) for decoder in decoders)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    alone = FastDecoder(model, max_length=200)
    last = alone.forward(
        [0, 2, 4, 5], [prompts[slot == 1] + ids for slot, ids in zip(slots, branches, strict=True)]
    )
    torch.testing.assert_close(ours[[2, 3, 4, 6]], last, atol=1e-4, rtol=1e-4)
    again = FastDecoder(model, max_length=200).forward([1, 3], [prompts[1] + [8, 9], prompts[0] + [8]])
    for decoder in decoders:
        assert decoder.lengths[:4] == [0, 3, 0, length]
        found = decoder.forward([1, 3], [[8, 9], [8]])
        torch.testing.assert_close(found, again, atol=1e-4, rtol=1e-4)


def test_many_prompts_go_through_in_rounds(qwen: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = both(qwen)
    monkeypatch.setattr("quintain.engines.fused_decoder.ROUND_TOKENS", 50)
    new = [[(i + j) % 60 for j in range(10 + i)] for i in range(12)]
    torch.testing.assert_close(
        ours.forward(range(12), new), theirs.forward(range(12), new), atol=1e-4, rtol=1e-4
    )


def test_new_weights_empty_the_cache(qwen: PreTrainedModel) -> None:
    ours, _ = both(qwen)
    before = ours.forward([0], [[1, 2, 3]])
    with torch.no_grad():
        for weight in qwen.parameters():
            weight.mul_(1.1)
    ours.refresh()
    assert ours.lengths == [0]
    after = ours.forward([0], [[1, 2, 3]])
    torch.testing.assert_close(
        after, FastDecoder(qwen, max_length=200).forward([0], [[1, 2, 3]]), atol=1e-4, rtol=1e-4
    )
    assert not torch.allclose(before, after)


def test_other_precisions_run_on_torch(qwen: PreTrainedModel) -> None:
    assert can_decode(qwen)
    assert isinstance(decoder_for(qwen.double(), 50), FastDecoder)


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("bf16", 2)])
def test_the_cache_says_its_size(qwen: PreTrainedModel, precision: Precision, size: int) -> None:
    ours = FusedDecoder(qwen, max_length=200, precision=precision)
    assert ours.num_bytes == 0
    ours.forward([0], [[1]])
    layers, heads, length = 2, 2, 64
    assert ours.num_bytes == size * layers * heads * length * (8 + 16)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_broken_weights_left_in_a_slot_is_not_read(qwen: PreTrainedModel, precision: Precision) -> None:
    ours = FusedDecoder(qwen, max_length=200, precision=precision)
    weight = qwen.get_parameter("model.layers.0.self_attn.v_proj.weight")
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(float("nan"))
        ours.refresh()
        assert bool(ours.forward([0, 1], [[1] * 40, [2] * 40]).isnan().all())
        weight.copy_(kept)
    ours.refresh()
    fresh = FusedDecoder(qwen, max_length=200, precision=precision)
    for slots, new in (([0, 1], [[3, 4, 5], [6]]), ([0, 1], [[7], [8]]), ([1], [[9, 10]])):
        found = ours.forward(slots, new)
        assert bool(found.isfinite().all())
        assert torch.equal(found, fresh.forward(slots, new))


def agree(ours: Tensor, theirs: Tensor) -> None:
    """Check that they are computed from the same rounded numbers; sums may now and then round to a neighbour."""
    apart, scale = (ours - theirs).abs(), float(theirs.std())
    assert float(apart.median()) < 1e-5 * scale
    assert float(apart.max()) < 0.02 * scale


def test_in_bf16_a_stream_is_read_alike_in_pieces_and_as_a_whole(model: PreTrainedModel) -> None:
    ours = FusedDecoder(model, max_length=200, precision="bf16")
    rng = Random(1)
    streams: dict[int, list[int]] = {slot: [] for slot in range(4)}
    for step in range(24):
        slots = sorted(rng.sample(range(4), rng.randint(1, 4)))
        new = [[rng.randrange(60) for _ in range(rng.choice([1, 1, 2, 7, 18]))] for _ in slots]
        found = ours.forward(slots, new)
        for slot, ids in zip(slots, new, strict=True):
            streams[slot] += ids
        whole = FusedDecoder(model, max_length=200, precision="bf16")
        agree(found, whole.forward(slots, [streams[slot] for slot in slots]))
        source, *others = rng.sample(range(4), 3)
        if step % 6 == 5 and streams[source]:
            ours.copy(source, others)
            streams |= {slot: list(streams[source]) for slot in others}
            branched = ours.branch([source, others[0]], [[1, 2], [3]])
            last = FusedDecoder(model, max_length=200, precision="bf16").forward(
                [0, 1], [streams[source] + ids for ids in ([1, 2], [3])]
            )
            agree(branched[[1, 2]], last)
        for slot in [slot for slot in streams if len(streams[slot]) > 90]:
            ours.clear(slot)
            streams[slot] = []


@pytest.mark.parametrize("has_biases", [False, True])
def test_in_bf16_sampling_and_training_round_alike(qwen: PreTrainedModel, *, has_biases: bool) -> None:
    model = with_biases() if has_biases else qwen
    first, second = [7 * i % 60 for i in range(37)], [11 * i % 60 for i in range(20)]
    tails = [[3, 1, 4, 1, 5], [9, 2, 6]]
    streams = [Stream(0, 37), Stream(37, 5, ((0, 37),)), Stream(42, 3, ((0, 37),)), Stream(45, 20)]
    ids = torch.tensor([*first, *tails[0], *tails[1], *second])
    positions = torch.cat([torch.arange(37), torch.arange(37, 42), torch.arange(37, 40), torch.arange(20)])
    trained: dict[Precision, Tensor] = {}
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    with torch.no_grad():
        for precision in precisions:
            with computing(precision, torch.device("cpu")):
                trained[precision] = head(model)(compute_hidden(model, ids, positions, plan(streams)))
    ours = FusedDecoder(model, max_length=200, precision="bf16")
    read = [ours.read([0], [first])]
    ours.copy(0, [1])
    read += [ours.forward([0, 1], [tails[0][:1], tails[1][:1]])]
    read += [ours.read([0, 1], [tails[0][1:], tails[1][1:]]), ours.read([2], [second])]
    sampled = torch.cat(read)
    order = [*range(37), 37, 42, *range(38, 42), *range(43, 65)]
    agree(sampled, trained["bf16"][order])
    assert float((sampled - trained["fp32"][order]).abs().median()) > 1e-4 * float(sampled.std())


@contextmanager
def without_instructions(folder: Path) -> Generator[None]:
    """Use kernels as a processor without AVX512-BF16 has them."""
    known = native.library, native.unavailable
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(native, "FLAGS", (*native.FLAGS, "-O0", "-U__AVX512BF16__"))
        changed.setattr(native, "_FUNCTIONS", {})
        changed.setattr(Path, "home", lambda: folder)
        for remembered in known:
            remembered.cache_clear()
        yield
    for remembered in known:
        remembered.cache_clear()


def bf16_logits(model: PreTrainedModel) -> Tensor:
    decoder = FusedDecoder(model, max_length=200, precision="bf16")
    decoder.forward([0], [[7 * i % 60 for i in range(35)]])
    decoder.copy(0, [1, 2])
    steps = [decoder.forward([0, 1, 2], [[i], [i + 1, 5], [i + 2]]) for i in range(4)]
    return torch.cat([*steps, decoder.branch([0, 0], [[1, 2, 3], [4]])])


@pytest.mark.slow
def test_in_bf16_a_processor_without_the_instructions_says_the_same(
    qwen: PreTrainedModel, tmp_path: Path
) -> None:
    expected = bf16_logits(qwen)
    with without_instructions(tmp_path):
        assert native.unavailable() is None
        agree(bf16_logits(qwen), expected)


def test_in_bf16_it_is_near_the_decoder_of_torch(model: PreTrainedModel) -> None:
    ours = FusedDecoder(model, max_length=200, precision="bf16")
    theirs = FastDecoder(model, max_length=200, precision="bf16")
    exact = FastDecoder(model, max_length=200)
    for slots, new in (([0, 1], [[5, 9, 3], [7]]), ([0], [[11, 2]]), ([0, 1], [[4], [4]])):
        mine, other, true = (decoder.forward(slots, new) for decoder in (ours, theirs, exact))
        assert mine.dtype == other.dtype == torch.float32
        scale = float(true.std())
        assert float((mine - other).abs().max()) < 0.1 * scale
        assert 0 < float((mine - true).abs().max()) < 0.1 * scale


def test_other_families_compute_in_bf16_too() -> None:
    torch.manual_seed(0)
    model = GemmaForCausalLM(
        GemmaConfig(
            vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=200,
        )
    ).eval()  # fmt: skip
    half, full = (decoder_for(model, 200, precision) for precision in ("bf16", "fp32"))
    assert isinstance(half, GenericDecoder)
    one, other = (decoder.forward([0], [[5, 9, 3]]) for decoder in (half, full))
    assert 0 < float((one - other).abs().max()) < 0.1 * float(other.std())
