"""What the framework costs around the model: python speed/overhead.py [--json FILE]

Episodes of 8 turns in a trivial environment with an engine that answers at once: microseconds per turn at 64
concurrent episodes, and 1,000 concurrent episodes in one process with the memory they take.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from pathlib import Path
from typing import cast

from quintain.agents.harness import PlainText
from quintain.curriculum.streams import TaskStream
from quintain.engines.protocol import Engine, Reply, Request
from quintain.environments.protocol import Environment
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Completion, StepResult, Task

TURNS = 8
REPEATS = 7


class Echo(Environment):
    """Says what the turn is, eight times."""

    max_turns = TURNS

    def reset(self, task: Task) -> str:
        """Begin."""
        self._turn = 0
        return f"turn 0 of task {task.seed % 97}"

    def step(self, action: Action) -> StepResult:
        """Count."""
        self._turn += 1
        is_last = self._turn == TURNS
        return StepResult(
            observation=f"turn {self._turn}: {action.text}", reward=float(is_last), is_terminated=is_last
        )


class Instant:
    """The least that an engine does: every request has the same answer in the next round."""

    max_length = 1 << 20
    policy_version = 0

    def __init__(self, answer: tuple[int, ...]) -> None:
        self.said = Completion(token_ids=answer, logprobs=(-1.0,) * len(answer), stop="stop")
        self.waiting: list[str] = []

    def submit(self, request: Request) -> None:
        """Take on a request."""
        self.waiting.append(request.session)

    def advance(self) -> list[Reply]:
        """Answer all of them."""
        waiting, self.waiting = self.waiting, []
        return [Reply(session=session, result=self.said) for session in waiting]

    def release(self, session: str) -> None:
        """Hold nothing."""


def measure(num_episodes: int) -> dict[str, float]:
    """Return the time per turn, in microseconds, and what was lost of `num_episodes` concurrent episodes."""
    tokenizer = train_tokenizer(["turn 1 of task 5: go on to the next turn"] * 30, vocab_size=400)
    chat = Chat(tokenizer)
    answer = chat.write("go on")
    seconds: list[float] = []
    num_lost = 0
    for repeat in range(REPEATS):
        rollout = Rollout(PlainText(chat), Echo, cast(Engine, Instant(answer)))
        tasks = TaskStream(Echo).draw(repeat, num_episodes)
        started = time.perf_counter()
        groups = rollout.groups(tasks, size=1, seed=repeat)
        seconds.append(time.perf_counter() - started)
        rollout.close()
        done = [t for group in groups for t in group.scored if len(t.turns) == TURNS]
        num_lost += num_episodes - len({t.group for t in done})
    each = statistics.median(seconds) / (num_episodes * TURNS) * 1e6
    return {"episodes": num_episodes, "microseconds_per_turn": each, "lost": num_lost}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    results = [measure(64), measure(1000)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    for result in results:
        print(
            f"{result['episodes']:5.0f} concurrent episodes: {result['microseconds_per_turn']:6.1f} µs per turn, "
            f"{result['lost']:.0f} lost"
        )
    print(f"peak memory {peak:.2f} GB")
    if arguments.json:
        arguments.json.write_text(json.dumps({"overhead": results, "peak_gb": peak}, indent=2))


if __name__ == "__main__":
    main()
