"""What bf16 pays on this machine: python speed/precision.py [--model smollm2|random:Qwen3-1.7B] [--lora 16]

The same model samples and trains in fp32 and in bf16, in turn, in one process. Tokens a second are by the processor's
time (on a GPU by the clock), so that other work on the machine counts little; ratios are those of the medians, by the
processor and by the clock. Reading: --rows prompts of --before tokens. Decoding: 48 tokens after each. Training: one
update on --streams of them, AdamW; 0 leaves it out. The gap is the difference, in nats, of the log-probs that the
engine told and those of the learner of the same precision. ``random:NAME`` has the size of a model that many know, and
random weights: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from quintain.data.pack import pack
from quintain.engines.build import build_engine
from quintain.engines.protocol import Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.learning.learner import Learner, Optimization
from quintain.losses.imitation import imitation
from quintain.models.adapters import add_lora
from quintain.models.device import find_device
from quintain.models.load import load
from quintain.models.memory import MODELS
from quintain.types import Completion, Sample

NEW = 48
PRECISIONS: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="what to measure")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps")
    parser.add_argument("--pairs", type=int, default=3, help="times that each side is run; one more warms up")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--rows", type=int, default=16, help="prompts that are sampled from together")
    parser.add_argument("--before", type=int, default=200, help="tokens of a prompt")
    parser.add_argument(
        "--lora", type=int, default=0, help="rank of LoRA layers, filled as if they had learned"
    )
    parser.add_argument("--streams", type=int, default=8, help="streams of an update")
    arguments = parser.parse_args()
    rows, before, streams = arguments.rows, arguments.before, arguments.streams
    device = find_device(arguments.device)
    kind, _, name = arguments.model.partition(":")
    model = (
        random_model(name, device)
        if kind == "random"
        else cast("Any", load(arguments.model).model).to(device)
    )
    if arguments.lora:
        add_lora(model, arguments.lora)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.data.normal_(0, 0.01, generator=torch.Generator(device).manual_seed(len(name)))
    rng = np.random.default_rng(0)
    vocabulary = int(model.config.vocab_size)
    prompts = [tuple(map(int, rng.integers(0, vocabulary, before))) for _ in range(rows)]
    seconds: dict[tuple[str, str], list[tuple[float, float]]] = {}
    gaps: dict[str, list[float]] = {}

    def now() -> tuple[float, float]:
        if device.type != "cuda":
            return time.process_time(), time.perf_counter()
        torch.cuda.synchronize()
        return time.perf_counter(), time.perf_counter()

    def clocked(what: str, precision: str, started: tuple[float, float]) -> None:
        own, clock = now()
        seconds.setdefault((what, precision), []).append((own - started[0], clock - started[1]))

    learners = {
        p: Learner(
            model, Optimization(learning_rate=1e-9, precision=p, gradient_checkpointing=device.type == "cuda")
        )
        for p in PRECISIONS
    }
    for pair in range(arguments.pairs + 1):
        for precision in PRECISIONS if pair % 2 else reversed(PRECISIONS):
            engine = build_engine(EngineSettings(precision=precision), model)
            for row, prompt in enumerate(prompts):
                engine.submit(
                    Request(session=str(row), prompt_ids=prompt, seed=row, sampling=Sampling(max_tokens=NEW))
                )
            started = now()
            replies = engine.advance()
            clocked("reading", precision, started)
            started = now()
            while len(replies) < rows:
                replies += engine.advance()
            clocked("decoding", precision, started)
            samples = [sample(prompts[int(r.session)], r.result) for r in replies[: streams or 1]]
            batch = pack(samples)
            told = learners[precision].infer(batch).logprobs.cpu()
            is_trained = batch.turn_id >= 0
            apart = (told - batch.logprobs)[is_trained].abs()
            gaps[precision] = [float(apart.mean()), float(apart.max())]
            if not streams:
                continue
            started = now()
            learners[precision].step([batch], imitation())
            clocked("training", precision, started)
    tokens = {"reading": rows * before, "decoding": rows * (NEW - 1), "training": streams * (before + NEW)}
    found: dict[str, float] = {}
    for what, count in tokens.items():
        if not count:
            continue
        own, clock = (
            [statistics.median(s[i] for s in seconds[what, p][1:]) for p in PRECISIONS] for i in (0, 1)
        )
        found[what] = own[0] / own[1]
        print(
            f"{what}: fp32 {count / own[0]:,.0f} tokens/s, bf16 {count / own[1]:,.0f}, ratio {found[what]:.2f}, "
            f"by the clock {clock[0] / clock[1]:.2f}"
        )
    for precision, (mean, most) in gaps.items():
        print(f"gap of learner and engine in {precision}: {mean:.1e} nats in the mean, {most:.1e} at most")
    print(f"threads {torch.get_num_threads()}")
    if arguments.json:
        arguments.json.write_text(json.dumps({**found, "gap": gaps}, indent=2), encoding="utf-8")


def random_model(name: str, device: torch.device) -> Any:
    """Return a model of the size of `name`, one of `quintain.models.memory.MODELS`, with random weights on `device`."""
    shape = MODELS[name]
    config = Qwen3Config(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.inner,
        num_hidden_layers=shape.layers, num_attention_heads=shape.queries // 128, num_key_value_heads=shape.keys // 128,
        head_dim=128, max_position_embeddings=40_960,
        tie_word_embeddings=shape.parameters < 5e9,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        return Qwen3ForCausalLM(config).eval()


def sample(prompt: tuple[int, ...], result: object) -> Sample:
    """Return what a reply is trained as."""
    assert isinstance(result, Completion), result
    ids = np.array([*prompt, *result.token_ids])
    is_new = np.arange(len(ids)) >= len(prompt)
    return Sample(
        token_ids=ids,
        turn_id=np.where(is_new, 0, -1),
        advantages=is_new.astype(np.float32),
        loss_weight=(is_new / NEW).astype(np.float32),
        logprobs=np.array([0.0] * len(prompt) + list(result.logprobs), dtype=np.float32),
        returns=np.zeros(len(ids), dtype=np.float32),
        turn_end=np.arange(len(ids)) == len(ids) - 1,
        trajectory=0,
    )


if __name__ == "__main__":
    main()
