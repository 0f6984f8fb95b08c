"""Measure the peaks of a model with random weights while it is sampled from and trained; run by test_memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from quintain.data.pack import pack
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.learning.learner import Learner, Optimization
from quintain.losses.imitation import imitation
from quintain.models.adapters import add_lora
from quintain.models.memory import Use, phases, shape_of
from quintain.types import Sample

ROWS, LENGTH, NEW, STREAM = 16, 256, 4, 512
SIZES: dict[str, Any] = {
    "135M": LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True,
    ),
    "600M": Qwen3Config(
        vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=8192, tie_word_embeddings=True,
    ),
}  # fmt: skip


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def stream(size: int, vocabulary: int, seed: int) -> Sample:
    ids = np.random.default_rng(seed).integers(0, vocabulary, size)
    is_new = np.arange(size) >= size // 4
    zeros = np.zeros(size, np.float32)
    return Sample(
        token_ids=ids, turn_id=np.where(is_new, 0, -1), turn_end=np.arange(size) == size - 1,
        loss_weight=is_new.astype(np.float32), advantages=zeros, returns=zeros, logprobs=zeros, trajectory=seed,
    )  # fmt: skip


def main(which: str, tokens: int, checkpoints: bool) -> None:
    """Sample and learn twice; the peak of the second update has the optimizer in it."""
    program = status("VmRSS")
    torch.manual_seed(0)
    model: Any = (LlamaForCausalLM if which == "135M" else Qwen3ForCausalLM)(SIZES[which]).eval()
    rank, shape = 0 if which == "135M" else 16, shape_of(model)
    if rank:
        add_lora(model, rank, 32.0)
    use = Use(
        lora_rank=rank, is_frozen=rank > 0, checkpoints=checkpoints, tokens=tokens, engine="local", streams=ROWS,
        length=LENGTH,
    )  # fmt: skip
    learner, engine = Learner(model, Optimization(gradient_checkpointing=checkpoints)), Local(model)
    measured: dict[str, int] = {}
    for step in range(2):
        Path("/proc/self/clear_refs").write_text("5")
        for row in range(ROWS):
            ids = tuple(map(int, np.random.default_rng(row).integers(0, 1000, LENGTH - NEW)))
            engine.submit(
                Request(session=str(row), prompt_ids=ids, seed=row, sampling=Sampling(max_tokens=NEW))
            )
        replies: list[Any] = []
        while len(replies) < ROWS:
            replies += engine.advance()
        for reply in replies:
            engine.release(reply.session)
        if not step:  # later it has what the update before it has not given back
            measured["sampling"] = status("VmHWM")
        Path("/proc/self/clear_refs").write_text("5")
        samples = [stream(STREAM, shape.vocabulary, seed) for seed in range(tokens // STREAM)]
        learner.step([pack(samples)], imitation())
        measured["update"] = status("VmHWM")
        engine.load_weights(learner.version, None)
    reckoned = {phase.name: phase.total for phase in phases(shape, use)}
    state = 8 * sum(p.numel() for p in learner.parameters)
    reckoned["sampling"] -= state  # before the first update
    print(json.dumps({"program": program, "measured": measured, "reckoned": reckoned}))
