"""How long each page of the viewer waits for the server, on a run of 100,000 episodes.

``python speed/viewer.py [EPISODES]`` writes such a run into a temporary folder, of four turns an episode with signals
for each token, indexes it, and prints the median and the slowest of five answers to what each page asks, and what
processor time one takes.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from quintain.dashboard.viewer import payloads
from quintain.dashboard.viewer.server import as_json
from quintain.dashboard.viewer.tokens import show_episode
from quintain.dashboard.viewer.viewed import Viewer
from quintain.store import Run
from quintain.types import (
    Action,
    Completion,
    Score,
    Signals,
    Stop,
    Task,
    ToolCall,
    Trajectory,
    Turn,
    Use,
    as_content,
)

TASKS, GROUP, TURNS, TOKENS = 16, 8, 4, 40
WORDS = ["red", "blue", "green", "door", "window", "key", "box", "left", "right", "north", "south"]


def write_run(folder: Path, num_episodes: int) -> None:
    """Write a run of so many episodes, 128 a step."""
    rng = np.random.default_rng(0)
    size = TASKS * GROUP
    with Run.create(
        folder, recipe="grpo", config={"steps": num_episodes // size, "tasks": TASKS, "group_size": GROUP}
    ) as run:
        for step in range(1, num_episodes // size + 1):
            played = [make_episode(rng, step, task, place) for task in range(TASKS) for place in range(GROUP)]
            ids = run.append(played, step=step)
            phases: list[tuple[str, float]] = []
            if step % 50 == 0:
                run.append(
                    [make_episode(rng, step, task, 0) for task in range(TASKS)], step=step, phase="eval"
                )
                phases = [("eval/success", 0.5), ("eval/low", 0.4), ("eval/high", 0.6)]
            signals = Signals(
                weights=np.full(TURNS * TOKENS, 1e-4, np.float32),
                advantages=rng.normal(size=TURNS * TOKENS).astype(np.float32),
                logprobs=-rng.random(TURNS * TOKENS).astype(np.float32),
            )
            metrics = {f"metric/{number}": float(rng.random()) for number in range(60)}
            row = {
                **metrics,
                **dict(phases),
                "train/success": 0.5,
                "train/reward": 0.5,
                "time/step": 1.0,
                "time/seconds": float(step),
                "total/tokens": 1e4 * step,
            }
            run.commit(step, row, uses=[Use(episode=name, signals=signals) for name in ids])
        run.finish()


def make_episode(rng: np.random.Generator, step: int, task: int, place: int) -> Trajectory:
    """Return an episode of random words and tokens."""
    turns: list[Turn] = []
    for _ in range(TURNS):
        said = " ".join(rng.choice(WORDS, 6))
        turns.append(
            Turn(
                observation=as_content(f"you see {said}"),
                prompt_ids=tuple(range(1, 20)),
                completion=Completion(
                    token_ids=tuple(range(1, TOKENS + 1)),
                    logprobs=tuple((-rng.random(TOKENS)).astype(np.float32).tolist()),
                    stop="stop",
                ),
                action=Action(text=said, tool_calls=(ToolCall(name="go", arguments={"to": said}),)),
                reward_terms={"found": float(rng.random() < 0.1)},
            )
        )
    won = bool(rng.random() < 0.5)
    number = step * TASKS + task
    return Trajectory(
        task=Task(id=f"maze/train/{number % 5000}", environment="maze", seed=number),
        turns=tuple(turns),
        outcome=Score(value=float(won), is_success=won),
        stop=Stop.TERMINATED,
        seed=place,
        group=f"{step}:{task}",
        index=place,
    )


def main() -> None:
    """Write, index, ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("episodes", nargs="?", type=int, default=100_000)
    num = parser.parse_args().episodes
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        begun = time.perf_counter()
        write_run(root / "runs" / "big", num)
        size = (root / "runs/big/run.db").stat().st_size / 2**20
        print(f"a run of {num:,} episodes, {size:,.0f} MiB, written in {time.perf_counter() - begun:.0f} s")
        viewer = Viewer(root / "runs", cache=root / "cache")
        begun = time.perf_counter()
        viewed = viewer.get("big")
        viewed.read_ends()
        print(f"listed after {time.perf_counter() - begun:.1f} s", flush=True)
        while viewed.read_on():
            pass
        size = sum(file.stat().st_size for file in (root / "cache").iterdir()) / 2**20
        print(f"searchable after {time.perf_counter() - begun:.1f} s, index {size:,.0f} MiB", flush=True)
        some = payloads.list_episodes(viewed, {"step": str(num // 256)})["episodes"][0]["id"]
        names = payloads.show_run(viewed)["metrics"]
        asks: dict[str, Callable[[], Any]] = {
            "overview: state": lambda: payloads.show_run(viewed),
            "overview: 25 curves": lambda: payloads.show_metrics(viewed, names[:25], "step"),
            "episodes, the newest": lambda: payloads.list_episodes(viewed, {"sort": "-order"}),
            "episodes by tokens": lambda: payloads.list_episodes(
                viewed, {"sort": "-tokens", "outcome": "solved"}
            ),
            "episodes by words": lambda: payloads.list_episodes(viewed, {"words": '"red door" key'}),
            "episodes by term": lambda: payloads.list_episodes(viewed, {"term": "found"}),
            "what can be filtered by": lambda: payloads.show_facets(viewed),
            "tokens of an episode": lambda: show_episode(viewed, some),
            "data": lambda: payloads.show_data(viewed, {}),
            "comparison of two steps": lambda: payloads.compare_runs(viewed, viewed, {"first": "50"}),
        }
        for name, call in asks.items():
            call()  # what is loaded once is loaded
            spans: list[float] = []
            busy = time.process_time()
            for _ in range(5):
                begun = time.perf_counter()
                as_json(call())
                spans.append(time.perf_counter() - begun)
            busy = (time.process_time() - busy) / 5
            waited = f"{1e3 * median(spans):6.0f} ms, slowest {1e3 * max(spans):.0f}"
            print(f"{name:<26} {waited}; of the processor {1e3 * busy:.0f} ms", flush=True)
        viewer.close()


if __name__ == "__main__":
    main()
