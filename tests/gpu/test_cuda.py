"""What only a GPU can show; skipped, with the reason, where there is none."""

import time
from pathlib import Path
from typing import Any, Literal, cast

import pytest
import torch
import torch.nn.functional as F
from tests.learning.streams import streamed
from torch import Tensor
from transformers import GemmaConfig, GemmaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

import quintain
from quintain.data.pack import pack
from quintain.engines.decoder import FastDecoder
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.errors import InvariantError, MemoryShortage
from quintain.learning.gap import STOP
from quintain.learning.learner import Learner, Optimization
from quintain.learning.pass_size import fit_pass
from quintain.losses.imitation import imitation
from quintain.losses.policy import clip_ratio
from quintain.models.adapters import add_lora
from quintain.models.device import free_memory
from quintain.models.memory import GIB, Use, shape_of, update
from quintain.types import Completion, Sample

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")
Precision = Literal["fp32", "bf16"]
SHAPE: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 1 << 15, "tie_word_embeddings": False,
}  # fmt: skip
WIDE: dict[str, Any] = {
    **SHAPE, "vocab_size": 32_768, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip
"""A quarter of the layers of Qwen3-1.7B."""
SHARPNESS = 8.0
"""What the head's weights are multiplied by: a new model says of every token that it is as likely as any other, and
engine and learner would agree on that however wrong they were."""


def model_on(
    device: str, family: str = "qwen3", shape: dict[str, Any] = SHAPE, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    torch.manual_seed(0)
    with torch.device("cpu" if shape is SHAPE else device):  # a large one is made where it is to be
        made: Any = (
            Qwen3ForCausalLM(Qwen3Config(**shape))
            if family == "qwen3"
            else GemmaForCausalLM(GemmaConfig(**shape))
        )
    with torch.no_grad():
        made.lm_head.weight.mul_(SHARPNESS)
    return made.eval().to(device=device, dtype=dtype)


def adapted(shape: dict[str, Any] = SHAPE) -> PreTrainedModel:
    """Return a model whose base is in 16 bits, with layers of LoRA that have learned."""
    model = add_lora(model_on(DEVICE, shape=shape, dtype=torch.bfloat16), rank=16, alpha=32.0)
    generator = torch.Generator(DEVICE).manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.02, generator=generator)
    return model


def sampled(model: PreTrainedModel, precision: Precision = "fp32") -> list[Sample]:
    engine = Local(model, precision=precision)
    prompts = {str(n): tuple(range(3, 20 + n)) for n in range(8)}
    for seed, (name, prompt) in enumerate(prompts.items()):
        engine.submit(Request(session=name, prompt_ids=prompt, seed=seed, sampling=Sampling(max_tokens=32)))
    replies = []
    while len(replies) < len(prompts):
        replies += engine.advance()
    found: list[Sample] = []
    for reply in replies:
        assert isinstance(reply.result, Completion)
        prompt = prompts[reply.session]
        ids = [*prompt, *reply.result.token_ids]
        found.append(streamed(ids, first=len(prompt), logprobs=reply.result.logprobs))
    return found


def stream(size: int, vocabulary: int, seed: int = 0) -> Sample:
    ids = torch.randint(0, vocabulary, (size,), generator=torch.Generator().manual_seed(seed)).tolist()
    return streamed(ids, first=size // 4, logprobs=[-6.0] * (size - size // 4))


def peak_of(learner: Learner, samples: list[Sample]) -> int:
    """Return the most bytes that are taken in an update, the second: the optimizer is there then.

    It has two passes: in the second the gradients of the first are there.
    """
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        learner.step([pack(samples), pack(samples)], imitation())
    return torch.cuda.max_memory_allocated()


@pytest.mark.parametrize(
    ("family", "precision", "most"),
    [("qwen3", "fp32", 1e-3), ("gemma", "fp32", 1e-3), ("qwen3", "bf16", 0.05), ("gemma", "bf16", 0.05)],
)
def test_engine_and_learner_agree(family: str, precision: Precision, most: float) -> None:
    model = model_on(DEVICE, family)
    learner = Learner(model, Optimization(precision=precision))
    samples = sampled(model, precision)
    said = torch.cat([torch.from_numpy(each.logprobs[each.turn_id >= 0]) for each in samples])
    assert float(said.std()) > 0.5, "a model that says the same of every token shows nothing"
    report = learner.step([pack(samples)], imitation(), is_on_policy=True)
    assert report.metrics["gap/mean"] < most
    assert report.grad_norm > 0


def test_a_base_in_16_bits_agrees_before_and_after_updates() -> None:
    model = adapted()
    learner = Learner(model, Optimization(precision="bf16", learning_rate=1e-3))
    for _ in range(3):
        samples = sampled(model, "bf16")
        logprobs = torch.cat([torch.from_numpy(each.logprobs[each.turn_id >= 0]) for each in samples])
        assert float(logprobs.std()) > 0.5, "a model that says the same of every token shows nothing"
        report = learner.step([pack(samples)], clip_ratio(), is_on_policy=True)
        print(f"gap {report.metrics['gap/mean']:.1e}, at most {report.metrics['gap/max']:.1e}")
        assert report.metrics["gap/mean"] < 0.05


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_engine_that_samples_with_other_weights_is_found(precision: Precision) -> None:
    model = model_on(DEVICE)
    samples = sampled(model, precision)
    with torch.no_grad():
        model.get_parameter("model.layers.1.mlp.down_proj.weight").mul_(-1)
    learner = Learner(model, Optimization(precision=precision))
    with pytest.raises(InvariantError, match=f"more than {STOP}"):
        learner.step([pack(samples)], imitation(), is_on_policy=True)


def test_the_gpu_says_what_the_processor_says() -> None:
    samples = sampled(model_on("cpu"))
    told = [Learner(model_on(device)).infer(pack(samples)).logprobs.cpu() for device in ("cpu", DEVICE)]
    torch.testing.assert_close(told[0], told[1], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("what", ["plain", "shared prefix"])
def test_attention_in_bf16_has_a_kernel(what: str) -> None:
    prefix = 512 if what == "shared prefix" else 0
    query = torch.randn(2, 16, 1024, 128, device=DEVICE, dtype=torch.bfloat16)
    key, value = (
        torch.randn(2, 8, prefix + 1024, 128, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)
    )
    mask: Tensor | None = None
    if prefix:
        mask = torch.ones(1024, prefix + 1024, dtype=torch.bool, device=DEVICE).tril(diagonal=prefix)[
            None, None
        ]
    choose = cast(Any, torch)._fused_sdp_choice
    chosen = choose(query, key, value, mask, 0.0, mask is None, scale=None, enable_gqa=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
    taken = torch.cuda.max_memory_allocated() - before
    print(f"{what}: kernel {chosen} (0 math, 1 flash, 2 efficient, 3 cudnn), {taken / 2**20:.0f} MiB")
    if not prefix:
        assert chosen != 0


def test_a_stream_of_32k_tokens_in_bounded_memory() -> None:
    model = model_on(DEVICE, shape={**SHAPE, "num_key_value_heads": 4})
    samples = [stream(1 << 15, 512)]
    peaks = [
        peak_of(
            Learner(model, Optimization(gradient_checkpointing=again, optimizer="sgd", precision="bf16")),
            samples,
        )
        for again in (False, True)
    ]
    print(f"{peaks[0] / GIB:.1f} GiB, with checkpointing {peaks[1] / GIB:.1f}")
    assert peaks[1] < 0.7 * peaks[0]


@pytest.mark.parametrize("tokens", [4096, 16_384])
@pytest.mark.parametrize("has_lora", [False, True])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_an_update_takes_what_is_reckoned(tokens: int, has_lora: bool, checkpoints: bool) -> None:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    model = model_on(DEVICE, shape=WIDE, dtype=torch.bfloat16 if has_lora else torch.float32)
    shape = shape_of(model)
    if has_lora:
        add_lora(model, rank=16, alpha=32.0)
    learner = Learner(
        model, Optimization(precision="bf16", gradient_checkpointing=checkpoints, learning_rate=1e-9)
    )
    found = peak_of(learner, [stream(1024, 32_768, seed) for seed in range(tokens // 1024)]) - before
    use = Use(
        device="cuda", precision="bf16", is_frozen=has_lora, lora_rank=16 * has_lora, checkpoints=checkpoints,
        tokens=tokens,
    )  # fmt: skip
    reckoned = update(shape, use)
    print(f"measured {found / GIB:.2f} GiB, {reckoned}")
    assert 0.75 * found < reckoned.total < 1.35 * found


@pytest.mark.parametrize("has_lora", [False, True])
def test_a_large_vocabulary_takes_what_is_reckoned(has_lora: bool) -> None:
    """Logits are computed in pieces, and none of a piece stays while the next is computed."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    dims = {**WIDE, "vocab_size": 151_936, "num_hidden_layers": 2, "tie_word_embeddings": True}
    model = model_on(DEVICE, shape=dims, dtype=torch.bfloat16 if has_lora else torch.float32)
    shape = shape_of(model)
    if has_lora:
        add_lora(model, rank=16, alpha=32.0)
    learner = Learner(model, Optimization(precision="bf16", gradient_checkpointing=True, learning_rate=1e-9))
    learner_peak = peak_of(learner, [stream(1024, 151_936, seed) for seed in range(16)]) - before
    reckoned = update(
        shape,
        Use(device="cuda", precision="bf16", is_frozen=has_lora, lora_rank=16 * has_lora, checkpoints=True),
    )
    print(f"measured {learner_peak / GIB:.2f} GiB, {reckoned}")
    assert 0.75 * learner_peak < reckoned.total < 1.35 * learner_peak


@pytest.mark.parametrize("has_lora", [False, True])
def test_recorded_steps_say_what_others_say_and_are_faster(has_lora: bool) -> None:
    dims = {**WIDE, "num_hidden_layers": 28}
    model = model_on(DEVICE, shape=dims, dtype=torch.bfloat16)
    if has_lora:
        add_lora(model, rank=16, alpha=32.0)
    prompts = [stream(size, 32_768, size).token_ids.tolist() for size in (3, 700, 64, 251)]
    logits: list[Tensor] = []
    seconds: list[float] = []
    for is_recorded in (False, True):
        decoder = FastDecoder(model, max_length=4096, precision="bf16")
        if not is_recorded:
            decoder.records_steps = False
        decoder.forward(range(4), prompts)
        found = [decoder.forward([0, 1, 2, 3], [[step] for step in range(4)]) for _ in range(8)]
        found.append(decoder.forward([1, 3], [[5], [6]]))
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(20):
            found.append(decoder.forward([0, 2, 3], [[7], [8], [9]]))
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - started) / 20)
        logits.append(torch.cat([found[8], found[-1]]).float())
    apart = (logits[0].log_softmax(-1) - logits[1].log_softmax(-1)).abs().mean()
    print(
        f"{seconds[0] * 1e3:.1f} ms a step, recorded {seconds[1] * 1e3:.1f} ms; apart by {float(apart):.1e} nats"
    )
    assert float(logits[0].std()) > 0.5
    assert float(apart) < 0.2
    assert seconds[1] < 0.7 * seconds[0]


def test_a_measured_pass_fits() -> None:
    model = add_lora(model_on(DEVICE, shape=WIDE, dtype=torch.bfloat16), rank=16, alpha=32.0)
    learner = Learner(model, Optimization(precision="bf16", gradient_checkpointing=True, learning_rate=1e-9))
    print(fit_pass(learner, None))
    assert learner.max_tokens >= 4096
    samples = [stream(1024, 32_768, seed) for seed in range(learner.max_tokens // 1024)]
    assert peak_of(learner, samples) < free_memory(model.device)[1]


def test_memory_that_runs_out_is_a_line() -> None:
    model = model_on(DEVICE, shape=WIDE)
    learner = Learner(model, Optimization(learning_rate=1e-9))
    free = free_memory(model.device)[0]
    blocker = torch.empty(max(free - 8 * GIB, 0), dtype=torch.uint8, device=DEVICE)
    samples = [stream(1024, 32_768, seed) for seed in range(64)]
    with pytest.raises(
        MemoryShortage, match=r"an optimizer step: got no more memory .*; lower --tokens-per-microbatch"
    ):
        learner.step([pack(samples)], imitation())
    del blocker


def test_long_prompts_are_read_in_bounded_memory() -> None:
    model = model_on(DEVICE, shape=WIDE, dtype=torch.bfloat16)
    peaks: list[int] = []
    for size in (4096, 16_384):
        engine = Local(model, precision="bf16", max_length=20_000)
        ids = tuple(stream(size, 32_768).token_ids.tolist())
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        engine.submit(Request(session="a", prompt_ids=ids, seed=0, sampling=Sampling(max_tokens=2)))
        while not engine.advance():
            pass
        peaks.append(torch.cuda.max_memory_allocated() - before)
        engine.release("a")
    print(f"{peaks[0] / GIB:.2f} GiB for 4,096 tokens, {peaks[1] / GIB:.2f} for 16,384")
    assert peaks[1] < 6 * peaks[0]


def test_the_cache_is_let_go_when_nothing_is_sampled() -> None:
    model = model_on(DEVICE)
    engine = Local(model)
    engine.submit(Request(session="a", prompt_ids=(1, 2, 3), seed=0, sampling=Sampling(max_tokens=4)))
    while not engine.advance():
        pass
    assert engine.stats().cache_bytes > 0
    engine.release("a")
    assert engine.stats().cache_bytes == 0


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_a_run_trains_and_resumes_on_the_gpu(method: str, tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "model": "micro", "environment": "guess?high=4", "device": DEVICE, "steps": 2, "demonstrations": 8,
        "imitation_epochs": 1, "eval_episodes": 4, "eval_every": 1, "precision": "bf16",
    }  # fmt: skip
    if method == "grpo":
        fields |= {"tasks": 2, "group_size": 2, "lora_rank": 4}
    else:
        fields |= {"episodes": 4}
    folder = quintain.train(method, run="gpu", root=tmp_path, **fields)
    assert (folder / "model" / "config.json").is_file()
    quintain.resume(folder, steps=3)
    rows = folder.metrics
    assert rows[-1]["machine/memory_gib"] > 0 and rows[-1]["time/hand_over"] > 0


def test_bf16_pays_in_training() -> None:
    model = model_on(DEVICE, shape=WIDE)
    batch = pack([stream(1024, 32_768, seed) for seed in range(8)])
    seconds: dict[str, float] = {}
    for precision in ("fp32", "bf16"):
        learner = Learner(model, Optimization(learning_rate=1e-9, precision=precision, optimizer="sgd"))
        for _ in range(4):
            torch.cuda.synchronize()
            started = time.perf_counter()
            learner.step([batch], imitation())
            torch.cuda.synchronize()
            seconds[precision] = time.perf_counter() - started
    print({name: f"{len(batch.token_ids) / value:,.0f} tokens/s" for name, value in seconds.items()})
    assert seconds["bf16"] < 0.8 * seconds["fp32"]
