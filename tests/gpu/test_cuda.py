"""What only a GPU can show; skipped, with the reason, where there is none."""

import time
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from tests.training.streams import streamed
from transformers import GemmaConfig, GemmaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

import quintain
from quintain.data.pack import pack
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.losses.imitation import imitation
from quintain.training.gap import STOP
from quintain.training.learner import Learner, Optimization
from quintain.types import Completion, Sample

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")
SHAPE: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 1 << 15,
}  # fmt: skip


def model_on(device: str, family: str = "qwen3") -> PreTrainedModel:
    torch.manual_seed(0)
    made = (
        Qwen3ForCausalLM(Qwen3Config(**SHAPE))
        if family == "qwen3"
        else GemmaForCausalLM(GemmaConfig(**SHAPE))
    )
    return made.eval().to(device)  # pyright: ignore[reportArgumentType]


def sampled(model: PreTrainedModel, precision: Literal["fp32", "bf16"] = "fp32") -> list[Sample]:
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


@pytest.mark.parametrize("family", ["qwen3", "gemma"])
@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-3), ("bf16", STOP)])
def test_engine_and_learner_agree(family: str, precision: Literal["fp32", "bf16"], most: float) -> None:
    model = model_on("cuda", family)
    batch = pack(sampled(model, precision))
    learner = Learner(model, Optimization(precision=precision))
    report = learner.step([batch], imitation(), is_on_policy=True)
    assert report.metrics["gap/mean"] < most
    assert report.grad_norm > 0


def test_the_gpu_says_what_the_processor_says() -> None:
    samples = sampled(model_on("cpu"))
    told = [Learner(model_on(device)).infer(pack(samples)).logprobs.cpu() for device in ("cpu", "cuda")]
    torch.testing.assert_close(told[0], told[1], atol=1e-3, rtol=1e-3)


def test_a_stream_of_32k_tokens_in_bounded_memory() -> None:
    model = model_on("cuda")
    ids = torch.randint(0, 512, (1 << 15,)).tolist()
    peaks: list[int] = []
    for is_again in (False, True):
        learner = Learner(model, Optimization(gradient_checkpointing=is_again, optimizer="sgd"))
        torch.cuda.reset_peak_memory_stats()
        learner.step([pack([streamed(ids, first=8, logprobs=[-6.0] * (len(ids) - 8))])], imitation())
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] < 0.6 * peaks[0]


def test_a_run_trains_and_resumes_on_the_gpu(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "model": "micro", "environment": "guess?high=4", "device": "cuda", "steps": 2, "demonstrations": 8,
        "imitation_epochs": 1, "tasks": 2, "group_size": 2, "eval_episodes": 4, "eval_every": 1, "precision": "bf16",
    }  # fmt: skip
    folder = quintain.train("grpo", run="gpu", root=tmp_path, **fields)
    assert (folder / "model" / "config.json").is_file()


def test_bf16_pays_in_training() -> None:
    model = model_on("cuda")
    batch = pack([streamed(list(range(256)), first=8, logprobs=[-6.0] * 248) for _ in range(64)])
    seconds: dict[str, float] = {}
    for precision in ("fp32", "bf16"):
        learner = Learner(model, Optimization(learning_rate=1e-9, precision=precision))
        for _ in range(4):
            torch.cuda.synchronize()
            started = time.perf_counter()
            learner.step([batch], imitation())
            torch.cuda.synchronize()
            seconds[precision] = time.perf_counter() - started
    print({name: f"{len(batch.token_ids) / value:,.0f} tokens/s" for name, value in seconds.items()})
