"""Which share of the machine decoding and training reach: python speed/limits.py [--json FILE]

Measures what the machine can do (a large matrix product, reading memory), then what decoding 64 rows and a
supervised training step do, and counts the operations and bytes that they cannot avoid.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch

from quintain.data.pack import micro_batches
from quintain.engines.build import build_engine
from quintain.engines.protocol import Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.learning.learner import Learner, Optimization
from quintain.learning.train_config import TrainConfig
from quintain.losses.imitation import imitation
from quintain.models.cpu.native import unavailable
from quintain.models.families import head_sizes
from quintain.models.tiny import build_tiny
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Sample

ROWS, PROMPT, NEW = 64, 256, 64
STREAMS = 32


def fastest(work: Callable[[], object], repeats: int = 9) -> float:
    """Return the shortest time that `work` takes."""
    seconds: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    product = 2 * 1024**3 / fastest(lambda: left @ right)
    large = torch.randn(32 * 1024 * 1024)
    memory = large.numel() * 4 / fastest(lambda: large.sum())
    tokenizer = train_tokenizer([f"word{n} " * 3 for n in range(400)], vocab_size=768)
    model = build_tiny(tokenizer, size="small")
    num_weights = sum(weight.numel() for weight in model.parameters())
    heads, kv, dimension = head_sizes(model)
    num_layers = model.config.num_hidden_layers

    step = decode_step(model, len(tokenizer))
    context = PROMPT + NEW / 2
    read = ROWS * context * kv * dimension * 2 * num_layers * 4 + num_weights * 4
    products = ROWS * (2 * num_weights + 4 * context * heads * dimension * num_layers)
    tokens, seconds = training_step(model, len(tokenizer))
    trained = tokens * 3 * (2 * num_weights + 4 * (325 / 2) * heads * dimension * num_layers) / seconds
    figures = {
        "kernels": unavailable() or "in C",
        "product_gflops": product / 1e9,
        "memory_gb_per_second": memory / 1e9,
        "decode_ms": step * 1e3,
        "decode_share_of_memory": read / step / memory,
        "decode_share_of_product": products / step / product,
        "training_tokens_per_second": tokens / seconds,
        "training_share_of_product": trained / product,
    }
    print(f"kernels {figures['kernels']}; {torch.get_num_threads()} threads")
    print(
        f"the machine: {product / 1e9:.0f} GFLOP/s in a matrix product, {memory / 1e9:.1f} GB/s from memory"
    )
    print(
        f"decoding {ROWS} rows at {context:.0f} tokens: {step * 1e3:.2f} ms a step, "
        f"{read / step / memory:.0%} of the memory's speed, {products / step / product:.0%} of the product's"
    )
    print(f"training: {tokens / seconds:,.0f} tokens/s, {trained / product:.0%} of the product's speed")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))


def decode_step(model: torch.nn.Module, vocabulary: int) -> float:
    """Return the seconds of a decoding step."""
    engine = build_engine(EngineSettings(), model)  # pyright: ignore[reportArgumentType]
    rng = Random(0)
    for row in range(ROWS):
        prompt = tuple(rng.randrange(10, vocabulary) for _ in range(PROMPT))
        engine.submit(
            Request(session=str(row), prompt_ids=prompt, seed=row, sampling=Sampling(max_tokens=NEW))
        )
    engine.advance()
    seconds: list[float] = []
    for _ in range(NEW - 2):
        started = time.perf_counter()
        engine.advance()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def training_step(model: torch.nn.Module, vocabulary: int) -> tuple[int, float]:
    """Return the tokens and seconds of a supervised training step."""
    rng = Random(0)
    samples: list[Sample] = []
    for index in range(STREAMS):
        length = rng.randint(50, 600)
        zeros, weight, turn = np.zeros(length, np.float32), np.ones(length, np.float32), np.zeros(length, int)
        weight[0], turn[0] = 0, -1
        samples.append(
            Sample(
                token_ids=np.array([rng.randrange(10, vocabulary) for _ in range(length)]),
                loss_weight=weight,
                logprobs=zeros,
                advantages=zeros,
                returns=zeros,
                turn_id=turn,
                turn_end=np.zeros(length, np.bool_),
                trajectory=index,
            )
        )
    learner = Learner(model, Optimization(learning_rate=0.0))  # pyright: ignore[reportArgumentType]
    batches = micro_batches(samples, max_tokens=TrainConfig().tokens_per_pass)
    seconds = [learner.step(batches, imitation()).seconds for _ in range(5)]
    return sum(len(sample.token_ids) for sample in samples), statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
