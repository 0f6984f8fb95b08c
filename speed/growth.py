"""How cost and memory grow with turns, and what a shared prompt saves: python speed/growth.py [--json FILE]

Episodes of 4 to 32 turns with a fixed number of tokens per turn: seconds per episode of rollout and of training,
the exponent of a fit, the bytes of the engine's cache per live token, and how far the process grew at its peak.
Then one training step of 8 groups of 8
with a prompt of 300 tokens, with and without sharing the prompt.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from quintain.agents.harness import PlainText
from quintain.credit.group import group_relative
from quintain.curriculum.streams import TaskStream
from quintain.data.pack import micro_batches
from quintain.data.samples import samples_from
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.protocol import Environment
from quintain.learning.learner import Learner, Optimization
from quintain.learning.train_config import TrainConfig
from quintain.losses.policy import clip_ratio
from quintain.models.tiny import build_tiny
from quintain.rollout.collect import Limits, Rollout
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Sample, StepResult, Task

TURNS = (4, 8, 16, 32)
EPISODES = 32
PROMPT, OBSERVED, SAMPLED = 104, 6, 21
"""words of the task, which a group shares; words of an observation; tokens sampled a turn"""
REPEATS = 3
WORDS = ["north", "south", "east", "west", "open", "take", "drop", "look", "wait", "push", "pull", "turn"]


class Corridor(Environment):
    """Says a few words a turn, for as many turns as asked, after a task as long as a few tools' descriptions."""

    max_turns = 32

    def reset(self, task: Task) -> str:
        """Begin."""
        self._rng = Random(task.seed)
        return self._words(PROMPT)

    def step(self, action: Action) -> StepResult:
        """Go on; the reward is drawn, so that there is something to learn from."""
        return StepResult(observation=self._words(OBSERVED), reward=self._rng.random())

    def _words(self, count: int) -> str:
        """Return `count` words."""
        return " ".join(self._rng.choices(WORDS, k=count))


def growth() -> dict[str, Any]:
    """Return seconds per episode for each number of turns, and the exponents of their growth."""
    tokenizer = train_tokenizer([" ".join(WORDS)] * 40, vocab_size=400)
    model = build_tiny(tokenizer, size="small")
    rows: list[dict[str, float]] = []
    for turns in TURNS:
        before = resident("VmRSS")
        forget_peak()
        engine = build_engine(EngineSettings(max_length=4096), model)
        agent = PlainText(Chat(tokenizer), max_tokens=SAMPLED)
        rollout = Rollout(agent, Corridor, engine, limits=Limits(max_turns=turns))
        learner = Learner(model, Optimization(learning_rate=0.0))
        rolled: list[float] = []
        learned: list[float] = []
        num_tokens = 0
        for repeat in range(REPEATS + 1):
            started = time.perf_counter()
            groups = rollout.groups(TaskStream(Corridor).draw(repeat, EPISODES // 8), size=8, seed=repeat)
            rolled.append(time.perf_counter() - started)
            batches = micro_batches(
                samples_from(group_relative(groups)), max_tokens=TrainConfig().tokens_per_pass
            )
            num_tokens = sum(len(batch.token_ids) for batch in batches)
            started = time.perf_counter()
            learner.step(batches, clip_ratio())
            learned.append(time.perf_counter() - started)
        rollout.close()
        rows.append(
            {
                "turns": turns,
                "tokens": num_tokens / EPISODES,
                "rollout_seconds": statistics.median(rolled[1:]) / EPISODES,
                "learning_seconds": statistics.median(learned[1:]) / EPISODES,
                "cache_bytes_per_token": engine.stats().cache_bytes / num_tokens,
                "peak_megabytes": (resident("VmHWM") - before) / 1e3,
            }
        )
    return {
        "rows": rows,
        "rollout_exponent": exponent(rows, "rollout_seconds"),
        "learning_exponent": exponent(rows, "learning_seconds"),
        "exponent": exponent(
            [row | {"seconds": row["rollout_seconds"] + row["learning_seconds"]} for row in rows], "seconds"
        ),
    }


def resident(name: str) -> float:
    """Return kilobytes of this process: VmRSS now, VmHWM at the peak; NaN off Linux."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{name}:")), math.nan)


def forget_peak() -> None:
    """Let VmHWM begin anew."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5", encoding="ascii")


def exponent(rows: list[dict[str, float]], name: str) -> float:
    """Return the slope of log(seconds) over log(turns)."""
    turns, seconds = (np.log([row[key] for row in rows]) for key in ("turns", name))
    return float(np.polyfit(turns, seconds, 1)[0])


def sharing(prompt: int = 300, answer: int = 60) -> dict[str, float]:
    """Return the seconds of a training step of 8 groups of 8 with and without a shared prompt."""
    rng = Random(0)
    tokenizer = train_tokenizer([" ".join(WORDS)] * 40, vocab_size=400)
    model = build_tiny(tokenizer, size="small")
    samples: list[Sample] = []
    for group in range(8):
        opening = [rng.randrange(10, len(tokenizer)) for _ in range(prompt)]
        for member in range(8):
            ids = [*opening, *(rng.randrange(10, len(tokenizer)) for _ in range(answer))]
            is_sampled = np.arange(len(ids)) >= prompt
            samples.append(
                Sample(
                    token_ids=np.array(ids),
                    loss_weight=is_sampled.astype(np.float32),
                    logprobs=np.zeros(len(ids), np.float32),
                    advantages=np.ones(len(ids), np.float32),
                    returns=np.zeros(len(ids), np.float32),
                    turn_id=np.where(is_sampled, 0, -1),
                    turn_end=np.zeros(len(ids), np.bool_),
                    trajectory=group * 8 + member,
                )
            )
    batches = micro_batches(samples, max_tokens=TrainConfig().tokens_per_pass)
    learners = {
        shares: Learner(model, Optimization(learning_rate=0.0, shares_prefixes=shares))
        for shares in (True, False)
    }
    ratios: list[float] = []
    for _ in range(REPEATS + 2):
        seconds = {
            shares: learner.step(batches, clip_ratio()).seconds for shares, learner in learners.items()
        }
        ratios.append(seconds[False] / seconds[True])
    return {"prompt": prompt, "answer": answer, "speedup": statistics.median(ratios[1:])}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    grown, shared = growth(), sharing()
    for row in grown["rows"]:
        print(
            f"{row['turns']:3.0f} turns, {row['tokens']:5.0f} tokens: {row['rollout_seconds'] * 1e3:7.2f} ms rollout, "
            f"{row['learning_seconds'] * 1e3:7.2f} ms training an episode, "
            f"{row['cache_bytes_per_token']:6.0f} bytes of cache a token, "
            f"{row['peak_megabytes']:.0f} MB more at the peak"
        )
    print(
        f"exponent in turns: {grown['exponent']:.2f} "
        f"(rollout {grown['rollout_exponent']:.2f}, training {grown['learning_exponent']:.2f})"
    )
    print(
        f"a prompt of {shared['prompt']} tokens shared by groups of 8: {shared['speedup']:.2f} times faster"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({"growth": grown, "sharing": shared}, indent=2))


if __name__ == "__main__":
    main()
