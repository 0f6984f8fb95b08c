"""What slow tools cost a rollout, in lockstep and without a barrier: python speed/async_rollout.py [--json FILE]

64 episodes at once, each of 2 to 6 turns with a tool that takes 0.05 to 2 s (heavy tail, drawn for each episode and
turn). Two engines: `timed`, which samples a token for every running request in 2 ms and 20 µs more for each of them,
and `local`, a real tiny model (`Local`). Both sources play the same episodes, in turns, in this process; lockstep has a
thread for every environment, so that its tools at least run side by side. Figures are medians over the runs.

    episodes/s   episodes of a run / its seconds, from the first request to the last episode
    busy         share of that time in which the engine works: it is in `advance` with a request to work on
    without      the same episodes in lockstep with tools that take no time: how busy an engine can be at all

The target: asynchronous ≥ 2.5 times lockstep's episodes per second, and ≥ 90 % as busy as without tools. The end of a
run, when fewer and fewer episodes are left, is part of the first figures; `steady` are those of its first three
quarters, as in training that asks for the next episodes while the last ones end.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quintain.agents.harness import PlainText
from quintain.engines.build import build_engine
from quintain.engines.protocol import Engine, Reply, Request
from quintain.engines.settings import EngineSettings
from quintain.environments.protocol import Environment
from quintain.models.tiny import build_tiny
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.request import EpisodeRequest
from quintain.rollout.source import Kind
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Completion, StepResult, Task, derive_seed

AT_ONCE, EPISODES = 64, 256
SHORTEST, LONGEST, SHAPE = 0.05, 2.0, 1.2
"""Seconds of a tool: a Pareto distribution of this shape, cut off."""
TOKENS = 24
PER_ROUND, PER_REQUEST = 2e-3, 2e-5
"""Seconds of a round of the timed engine."""


class Tool(Environment):
    """Call the tool."""

    max_turns = 6

    def __init__(self, is_slow: bool) -> None:
        self.is_slow = is_slow

    def reset(self, task: Task) -> str:
        """Begin."""
        self.chance = random.Random(task.seed)
        self.turn, self.last = 0, self.chance.randint(2, 6)
        return f"task {task.seed % 97}"

    def step(self, action: Action) -> StepResult:
        """Take as long as is drawn for the episode and turn."""
        self.turn += 1
        seconds = min(SHORTEST * self.chance.paretovariate(SHAPE), LONGEST)
        if self.is_slow:
            time.sleep(seconds)
        is_over = self.turn == self.last
        return StepResult(observation=f"turn {self.turn}", reward=float(is_over), is_terminated=is_over)


@dataclass
class Timed:
    """Samples a token for each running request in a round that takes time; how many tokens depends on the seed."""

    max_length: int = 1 << 20
    policy_version: int = 0
    _left: dict[str, int] = field(default_factory=dict[str, int])
    _ids: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def submit(self, request: Request) -> None:
        """Begin `request`."""
        number = 1 + derive_seed(request.seed) % request.sampling.max_tokens
        self._left[request.session] = number
        self._ids[request.session] = (5,) * (number - 1) + (min(request.sampling.stop_ids),)

    def advance(self) -> list[Reply]:
        """Sample a token for each."""
        if not self._left:
            return []
        time.sleep(PER_ROUND + PER_REQUEST * len(self._left))
        self._left = {session: number - 1 for session, number in self._left.items()}
        done = [session for session, number in self._left.items() if not number]
        for session in done:
            del self._left[session]
        return [Reply(session=session, result=self._said(self._ids.pop(session))) for session in done]

    def release(self, session: str) -> None:
        """Forget it."""
        self._left.pop(session, None)

    def _said(self, ids: tuple[int, ...]) -> Completion:
        return Completion(token_ids=ids, logprobs=(-1.0,) * len(ids), stop="stop")


class Watched:
    """An engine whose work is timed."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting: set[str] = set()
        self.work: list[tuple[float, float]] = []
        """when each round with a request to work on began and ended"""

    @property
    def policy_version(self) -> int:
        """See `Engine`."""
        return self.engine.policy_version

    @property
    def max_length(self) -> int:
        """See `Engine`."""
        return self.engine.max_length

    def submit(self, request: Request) -> None:
        """See `Engine`."""
        self.waiting.add(request.session)
        self.engine.submit(request)

    def advance(self) -> list[Reply]:
        """See `Engine`."""
        started = time.perf_counter()
        replies = self.engine.advance()
        if self.waiting:
            self.work.append((started, time.perf_counter()))
        self.waiting -= {reply.session for reply in replies}
        return replies

    def release(self, session: str) -> None:
        """See `Engine`."""
        self.waiting.discard(session)
        self.engine.release(session)


def played(engine: Engine, chat: Chat, kind: Kind, *, is_slow: bool, seed: int) -> dict[str, float]:
    """Return the figures of one run, all of it and its first three quarters."""
    watched = Watched(engine)
    limits = Limits(concurrency=AT_ONCE, num_workers=AT_ONCE)
    agent = PlainText(chat, max_tokens=TOKENS)
    rollout = Rollout(agent, lambda: Tool(is_slow), watched, limits=limits, source=kind)
    requests = [
        EpisodeRequest(
            task=Task(id=f"tool/train/{number}", environment="tool", seed=derive_seed(seed, number)),
            group=str(number),
            index=0,
            seed=derive_seed(seed, "sampling", number),
        )
        for number in range(EPISODES)
    ]
    ends: list[float] = []
    with closing(rollout):
        started = time.perf_counter()
        for trajectory in rollout.play(requests):
            ends.append(time.perf_counter())
            assert trajectory.turns, "every episode was played"
    return {
        **figures(started, ends[-1], len(ends), watched, ""),
        **figures(started, ends[EPISODES * 3 // 4 - 1], EPISODES * 3 // 4, watched, "steady/"),
    }


def figures(started: float, ended: float, episodes: int, engine: Watched, name: str) -> dict[str, float]:
    """Return rate and busy share between `started` and `ended`."""
    busy = sum(min(to, ended) - at for at, to in engine.work if at < ended)
    return {f"{name}rate": episodes / (ended - started), f"{name}busy": busy / (ended - started)}


def measure(name: str, make: Callable[[], Engine], chat: Chat, repeats: int) -> dict[str, Any]:
    """Return the medians over `repeats` runs of each way to play."""
    ways: dict[str, tuple[Kind, bool]] = {
        "without": ("lockstep", False),
        "lockstep": ("lockstep", True),
        "async": ("async", True),
    }
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for repeat in range(repeats):
        for way, (kind, is_slow) in ways.items():
            runs[way].append(played(make(), chat, kind, is_slow=is_slow, seed=repeat))
    found = {
        way: {key: statistics.median(run[key] for run in each) for key in each[0]}
        for way, each in runs.items()
    }
    print(f"{name}: medians of {repeats} runs of {EPISODES} episodes, {AT_ONCE} at once")
    for way, row in found.items():
        print(
            f"  {way:9} {row['rate']:7.2f} episodes/s, engine busy {row['busy']:6.1%}"
            f"   (steady {row['steady/rate']:7.2f}, {row['steady/busy']:6.1%})"
        )
    for key in ("", "steady/"):
        faster = found["async"][f"{key}rate"] / found["lockstep"][f"{key}rate"]
        busy = found["async"][f"{key}busy"] / found["without"][f"{key}busy"]
        print(
            f"  {key or 'whole run/'}: async / lockstep {faster:.2f} (≥ 2.5), busy / without tools {busy:.1%} (≥ 90 %)"
        )
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each way to play")
    parser.add_argument("--engine", choices=("timed", "local", "both"), default="both")
    parser.add_argument(
        "--size", default="micro", help="size of the local engine's model: micro, mini, tiny or small"
    )
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    tokenizer = train_tokenizer(["turn 1 of task 5: go on to the next turn"] * 30, vocab_size=400)
    chat = Chat(tokenizer)
    model = build_tiny(tokenizer, size=arguments.size, seed=0)
    engines: dict[str, Callable[[], Engine]] = {
        "timed": Timed,
        "local": lambda: build_engine(EngineSettings(), model),
    }
    results = {
        name: measure(name, make, chat, arguments.repeats)
        for name, make in engines.items()
        if arguments.engine in (name, "both")
    }
    if arguments.json:
        arguments.json.write_text(json.dumps({"async_rollout": results}, indent=2))


if __name__ == "__main__":
    main()
