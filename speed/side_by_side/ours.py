"""Our side of the comparison: python ours.py grpo|turns|decode|sft FOLDER [--size 30M]. Prints one line of JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import torch
import transformers
import workload
from prepare import Never

import quintain
from quintain.credit.group import group_relative
from quintain.curriculum.streams import TaskStream
from quintain.data.pack import micro_batches
from quintain.data.samples import samples_from
from quintain.engines.build import build_engine
from quintain.engines.protocol import Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.learning.learner import Learner, Optimization
from quintain.learning.train_config import TrainConfig
from quintain.losses.imitation import imitation
from quintain.losses.policy import clip_ratio
from quintain.models.load import load
from quintain.rollout.collect import Limits, Rollout
from quintain.types import Sample
from quintain.warm_start.start import harness

Result = dict[str, object]
REPEATS = 5


def grpo(folder: str) -> Result:
    """Time whole GRPO steps of 64 episodes; the first is dropped. Every episode is trained on."""
    loaded = load(folder)
    make = find(f"guess?high={workload.HIGH}&max_turns={workload.MAX_TURNS}")
    engine = build_engine(EngineSettings(), loaded.model)
    learner = Learner(loaded.model, Optimization(learning_rate=1e-6))
    rollout = Rollout(harness(TrainConfig(), loaded.tokenizer, make), make, engine)
    tasks = TaskStream(make)
    seconds: list[float] = []
    parts: list[tuple[float, float]] = []
    sampled = engine.stats().num_sampled
    for step in range(REPEATS + 1):
        started = time.perf_counter()
        groups = rollout.groups(tasks.draw(step, workload.TASKS), size=workload.GROUP_SIZE, seed=step)
        rolled = time.perf_counter()
        samples = samples_from(group_relative(groups))
        batches = micro_batches(
            samples, max_tokens=TrainConfig().tokens_per_pass, aggregation="sequence_mean"
        )
        learner.step(batches, clip_ratio())
        engine.load_weights(learner.version, None)
        seconds.append(time.perf_counter() - started)
        parts.append((rolled - started, seconds[-1] - rolled + started))
    rollout.close()
    per_episode = (engine.stats().num_sampled - sampled) / (REPEATS + 1) / workload.NUM_EPISODES
    return {
        "seconds": statistics.median(seconds[1:]),
        "sampled_per_episode": per_episode,
        "rollout_seconds": statistics.median(rolled for rolled, _ in parts[1:]),
        "learning_seconds": statistics.median(learned for _, learned in parts[1:]),
    }


def turns(folder: str) -> Result:
    """Time GRPO steps of 16 episodes that go on for 4, 8, 16 and 32 turns; also without what episodes share."""
    return {"rows": _turns(folder, shares=True), "unshared": _turns(folder, shares=False)}


def _turns(folder: str, *, shares: bool) -> list[dict[str, float]]:
    loaded = load(folder)
    engine = build_engine(EngineSettings(), loaded.model)
    learner = Learner(loaded.model, Optimization(learning_rate=1e-6, shares_prefixes=shares))
    rows: list[dict[str, float]] = []
    for number in workload.GROWTH:
        limits = Limits(max_turns=number)
        rollout = Rollout(harness(TrainConfig(), loaded.tokenizer, Never), Never, engine, limits=limits)
        seconds: list[float] = []
        sampled = engine.stats().num_sampled
        for step in range(REPEATS):
            started = time.perf_counter()
            drawn = TaskStream(Never).draw(step, workload.GROWTH_EPISODES // workload.GROUP_SIZE)
            groups = rollout.groups(drawn, size=workload.GROUP_SIZE, seed=step)
            batches = micro_batches(
                samples_from(group_relative(groups)), max_tokens=TrainConfig().tokens_per_pass
            )
            learner.step(batches, clip_ratio())
            engine.load_weights(learner.version, None)
            seconds.append(time.perf_counter() - started)
        rollout.close()
        per_episode = (engine.stats().num_sampled - sampled) / REPEATS / workload.GROWTH_EPISODES
        rows.append(
            {"turns": number, "seconds": statistics.median(seconds[1:]), "sampled_per_episode": per_episode}
        )
    return rows


def decode(folder: str, size: workload.Size) -> Result:
    """Time steady decoding: so many rows (64 of the taught model), prompts of 256 tokens."""
    model = load(folder).model
    engine = build_engine(EngineSettings(), model)
    ids = workload.prompts(model.config.vocab_size, size.decode_rows, workload.DECODE_PROMPT)
    sampling = Sampling(max_tokens=size.decode_new)
    seconds: list[float] = []
    for _ in range(3):
        for row, prompt in enumerate(ids):
            engine.submit(Request(session=str(row), prompt_ids=tuple(prompt), seed=row, sampling=sampling))
        engine.advance()
        started = time.perf_counter()
        steps = 1
        while not engine.advance():
            steps += 1
        seconds.append((time.perf_counter() - started) / steps)
        for row in range(len(ids)):
            engine.release(str(row))
    return {"seconds": statistics.median(seconds[1:]), "tokens": size.decode_rows}


def sft(folder: str, size: workload.Size) -> Result:
    """Time supervised steps of so many streams (32) of 50 to 600 tokens; the first is dropped."""
    model = load(folder).model
    learner = Learner(model, Optimization(learning_rate=1e-6))
    rows = workload.streams(model.config.vocab_size, size.sft_steps, size.sft_rows)
    seconds: list[float] = []
    for start in range(0, len(rows), size.sft_rows):
        samples = [stream(ids, i) for i, ids in enumerate(rows[start : start + size.sft_rows])]
        started = time.perf_counter()
        learner.step(micro_batches(samples, max_tokens=TrainConfig().tokens_per_pass), imitation())
        seconds.append(time.perf_counter() - started)
    return {"seconds": statistics.median(seconds[1:]), "tokens": sum(map(len, rows)) / size.sft_steps}


def stream(ids: list[int], index: int) -> Sample:
    """Return `ids` as a sample whose every token but the first is trained."""
    zeros = np.zeros(len(ids), np.float32)
    weight, turn = np.ones(len(ids), np.float32), np.zeros(len(ids), np.int64)
    weight[0], turn[0] = 0, -1
    return Sample(
        token_ids=np.array(ids),
        loss_weight=weight,
        logprobs=zeros,
        advantages=zeros,
        returns=zeros,
        turn_id=turn,
        turn_end=np.zeros(len(ids), np.bool_),
        trajectory=index,
    )


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("grpo", "turns", "decode", "sft"))
    parser.add_argument("folder", help="the model")
    parser.add_argument("--size", choices=workload.SIZES, default=workload.TAUGHT)
    arguments = parser.parse_args()
    what, folder, size = arguments.what, arguments.folder, workload.SIZES[arguments.size]
    torch.set_flush_denormal(True)
    if what in ("decode", "sft"):
        result = {"decode": decode, "sft": sft}[what](folder, size)
    else:
        result = {"grpo": grpo, "turns": turns}[what](folder)
    versions = {
        "quintain": quintain.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }
    print(json.dumps(result | {"versions": versions}))


if __name__ == "__main__":
    main()
