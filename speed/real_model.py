"""A real model beside transformers alone: python speed/real_model.py [--model smollm2] [--pairs 3] [--json FILE]

Episodes of the expert of `hopqa` are what is read and trained on. Decoding: 16 rows, 32 tokens after the prompt of the
first turn. Training: an update on 8 episodes, the supervised loss of the expert's tokens, AdamW. Transformers pads, as
it does by itself. The sides alternate in one process, and the ratio is that of the medians. The gap is the largest
difference, in nats, between the log-probs that our sampler told and those of transformers' forward pass.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch

from quintain.agents.harness import JsonTools
from quintain.data.pack import micro_batches
from quintain.data.samples import imitation_samples
from quintain.engines.build import build_engine
from quintain.engines.protocol import Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.learning.learner import Learner, Optimization
from quintain.losses.imitation import imitation
from quintain.models.load import load
from quintain.text.chat import Chat
from quintain.types import Completion
from quintain.warm_start.start import demonstrate

WORLD = "hopqa?closed=0"
ROWS, NEW, EPISODES = 16, 32, 8


class Side:
    """Seconds of one side, and the tokens that they were for."""

    def __init__(self, name: str, run: Callable[[], int]) -> None:
        self.name, self.run = name, run
        self.rates: list[float] = []

    def once(self) -> None:
        """Run and note tokens per second."""
        started = time.perf_counter()
        tokens = self.run()
        self.rates.append(tokens / (time.perf_counter() - started))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="what to measure")
    parser.add_argument("--pairs", type=int, default=3, help="times that each side is run; one more warms up")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    loaded = load(arguments.model)
    model, make = loaded.model, find(WORLD)
    episodes = demonstrate(JsonTools(Chat(loaded.tokenizer)), make, count=max(ROWS, EPISODES), seed=0)
    prompts = [tuple(episode.turns[0].prompt_ids) for episode in episodes[:ROWS]]
    samples = imitation_samples(episodes[:EPISODES])
    streams = [torch.as_tensor(sample.token_ids) for sample in samples]
    trained = [torch.as_tensor(sample.turn_id) >= 0 for sample in samples]
    pad = cast("int | None", loaded.tokenizer.pad_token_id) or 0
    engine = build_engine(EngineSettings(), model)
    learner = Learner(model, Optimization(learning_rate=1e-7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-7)
    gaps: list[float] = []

    def decode() -> int:
        sampling = Sampling(max_tokens=NEW)
        for row, prompt in enumerate(prompts):
            engine.submit(Request(session=str(row), prompt_ids=prompt, seed=row, sampling=sampling))
        replies = []
        while len(replies) < ROWS:
            replies += engine.advance()
        if not gaps:
            result = replies[0].result
            assert isinstance(result, Completion), result
            ids = torch.tensor([[*prompts[int(replies[0].session)], *result.token_ids]])
            with torch.no_grad():
                plain = torch.log_softmax(model(ids).logits[0, -NEW - 1 : -1].double(), -1)
            told = torch.tensor(result.logprobs, dtype=torch.float64)
            gaps.append(float((plain.gather(1, ids[0, -NEW:, None])[:, 0] - told).abs().max()))
        for row in range(ROWS):
            engine.release(str(row))
        return ROWS * NEW

    def generate() -> int:
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.no_grad():
            model.generate(  # pyright: ignore[reportCallIssue]
                ids, attention_mask=mask, do_sample=True, top_k=0, min_new_tokens=NEW, max_new_tokens=NEW
            )
        return ROWS * NEW

    def learn() -> int:
        learner.step(micro_batches(samples, max_tokens=16_384), imitation())
        return sum(map(len, streams))

    def train() -> int:
        ids = torch.nn.utils.rnn.pad_sequence(streams, batch_first=True, padding_value=pad)
        is_trained = torch.nn.utils.rnn.pad_sequence(trained, batch_first=True, padding_value=False)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(s) for s in streams], batch_first=True)
        model.train()
        model(ids, attention_mask=mask, labels=ids.masked_fill(~is_trained, -100)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        return sum(map(len, streams))

    found: dict[str, dict[str, float]] = {}
    for what, run, alone in (("decoding", decode, generate), ("training", learn, train)):
        sides = [Side("ours", run), Side("transformers", alone)]
        for pair in range(arguments.pairs + 1):
            for side in sides if pair % 2 else reversed(sides):
                side.once()
        ours, theirs = (statistics.median(side.rates[1:]) for side in sides)
        found[what] = {"ours": ours, "transformers": theirs, "ratio": ours / theirs}
        print(
            f"{what}: {ours:,.1f} tokens/s, transformers {theirs:,.1f}, ratio {ours / theirs:.2f}", flush=True
        )
    print(f"gap of the sampled log-probs: {gaps[0]:.1e} nats at most")
    if arguments.json:
        arguments.json.write_text(json.dumps({**found, "gap": gaps[0]}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
