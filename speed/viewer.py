"""How long each page of the viewer waits for the server, and a person for the page, on a run of 100,000 episodes.

``python speed/viewer.py [EPISODES]`` writes such a run into a temporary folder, of four turns an episode with signals
for each token, indexes it, and prints the median and the slowest of five answers to what each page asks, and what
processor time one takes. Where there is a Chromium, the same of each page: from the click until it is drawn, server
included, and the processor time of the browser's main thread. ``--keep FOLDER`` keeps the run for another time.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from quintain.adapters.miniwob import chromium
from quintain.dashboard.viewer import payloads
from quintain.dashboard.viewer.server import as_json, view_app
from quintain.dashboard.viewer.tokens import show_episode
from quintain.dashboard.viewer.viewed import Viewer
from quintain.errors import MissingExtra
from quintain.serve.listener import Listener
from quintain.store import Run
from quintain.text.tokenizer import train_tokenizer
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

KEY = "a-key-that-nobody-guesses"
TASKS, GROUP, TURNS, TOKENS = 16, 8, 4, 40
HELD_OUT = 64
METRICS = [
    "train/loss", "train/grad_norm", "policy/entropy", "policy/approx_kl", "policy/clip_fraction", "train/tokens",
    "train/turns", "train/invalid", "train/failures", "monitor/unreadable", "monitor/zero_variance", "gap/mean",
    "gap/max", "tokens_per_second", "machine/memory_gib", "machine/engine_idle", "machine/environments_idle",
    "machine/learner_idle", "time/update", "time/hand_over",
]  # fmt: skip
"""What the charts of the overview show."""
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
                    [make_episode(rng, 0, task, 0) for task in range(HELD_OUT)], step=step, phase="eval"
                )
                phases = [("eval/success", 0.5), ("eval/low", 0.4), ("eval/high", 0.6)]
            signals = Signals(
                weights=np.full(TURNS * TOKENS, 1e-4, np.float32),
                advantages=rng.normal(size=TURNS * TOKENS).astype(np.float32),
                logprobs=-rng.random(TURNS * TOKENS).astype(np.float32),
            )
            names = [*(f"metric/{number}" for number in range(40)), *METRICS]
            metrics = {name: float(rng.random()) for name in names}
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
    train_tokenizer(WORDS, 300).save_pretrained(str(folder / "tokenizer"))


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


PAGES: dict[str, tuple[str, str]] = {
    "overview, 16 charts": ("overview?run=big", "document.querySelectorAll('.chart').length >= 14"),
    "and 20 curves more": ("overview?run=big&more={more}", "document.querySelectorAll('.chart').length >= 34"),
    "episodes, the newest": ("episodes?run=big", "document.querySelectorAll('tbody tr').length === 50"),
    "episodes by tokens": ("episodes?run=big&outcome=solved&sort=-tokens", "document.querySelector('tbody tr')"),
    "episodes by words": ("episodes?run=big&words=red%20door", "document.querySelector('tbody tr')"),
    "episodes by term": ("episodes?run=big&term=found", "document.querySelector('tbody tr')"),
    "one task over training": ("episodes?run=big&task={task}", "document.querySelector('.task')"),
    "tokens of an episode": ("episode?run=big&id={id}", "document.querySelectorAll('.t').length >= 160"),
    "eight of a group": ("group?run=big&id={id}", "document.querySelectorAll('.member-card').length === 8"),
    "data": ("data?run=big", "document.querySelector('.page.data h2')"),
    "comparison of two steps": ("compare?run=big&first=50", "document.querySelector('.member-card')"),
}  # fmt: skip
"""Page → its address, and what shows that it is there."""
WAIT = """
new Promise((done) => {{
  const begun = performance.now();
  const look = () => (document.querySelector("main .page") !== before && ({condition})
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun))) : setTimeout(look, 1));
  const before = document.querySelector("main .page");
  location.hash = {address};
  look();
}})
"""
"""Goes to an address, and gives the milliseconds until the page is there and was drawn."""


def main() -> None:
    """Write, index, ask, look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("episodes", nargs="?", type=int, default=100_000, help="13,000 or more")
    parser.add_argument("--keep", type=Path, help="folder of the run, which is written where it is not there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = arguments.keep or Path(place)
        if not (root / "runs" / "big").is_dir():
            begun = time.perf_counter()
            write_run(root / "runs" / "big", arguments.episodes)
            print(f"written in {time.perf_counter() - begun:.0f} s")
        size = (root / "runs/big/run.db").stat().st_size / 2**20
        print(f"a run of {arguments.episodes:,} episodes, {size:,.0f} MiB")
        measure_server(root, arguments.episodes)
        measure_browser(root, arguments.episodes)


def measure_server(root: Path, num: int) -> None:
    """Print how long the server takes."""
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
        print_spans(name, spans, (time.process_time() - busy) / 5)
    viewer.close()


def measure_browser(root: Path, num: int) -> None:
    """Print how long a person waits for each page, where there is a Chromium."""
    try:
        tab = chromium.Tab(width=1280, height=900)
    except MissingExtra as error:
        print(f"no browser: {error}")
        return
    viewer = Viewer(root / "runs", cache=root / "cache").start()
    listener = Listener(view_app(viewer, KEY)).start()
    viewed = viewer.get("big")
    viewed.decode()  # loaded once
    some = payloads.list_episodes(viewed, {"step": str(num // 256)})["episodes"][0]
    more = ",".join(f"metric/{number}" for number in range(20))
    values = {"id": some["id"], "task": some["task"], "more": more}
    tab.call("Performance.enable", timeDomain="threadTicks")
    tab.call("Page.navigate", url=f"{listener.url}/{KEY}/")
    while not tab.run("Boolean(document.querySelector('main .page'))"):
        time.sleep(0.05)
    first = float(tab.run("performance.now()"))
    print(f"in Chromium, the server included (the first page was there within {first:.0f} ms):", flush=True)
    for name, (address, condition) in PAGES.items():
        go = WAIT.format(address=json.dumps(f"#/{address.format(**values)}"), condition=condition)
        spans: list[float] = []
        busy = 0.0
        for at in range(6):  # the first time, what is loaded once is loaded
            tab.run(WAIT.format(address=json.dumps("#/data?run=big&away"), condition="true"))
            before = read_busy(tab)
            took = float(tab.run(go)) / 1e3
            if at:
                spans.append(took)
                busy += (read_busy(tab) - before) / 5
        print_spans(name, spans, busy)
    tab.close()
    chromium.close_browsers()
    listener.close()
    viewer.close()


def read_busy(tab: chromium.Tab) -> float:
    """Return the seconds that the main thread of a page has worked."""
    found = tab.call("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in found if each["name"] == "TaskDuration")


def print_spans(name: str, spans: Sequence[float], busy: float) -> None:
    """Print the median and the slowest of `spans`, and the processor time of one, in seconds."""
    waited = f"{1e3 * median(spans):6.0f} ms, slowest {1e3 * max(spans):.0f}"
    print(f"{name:<26} {waited}; of the processor {1e3 * busy:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
