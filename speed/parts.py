"""How fast the parts are on this machine: python speed/parts.py

Prints a table; each figure is the best of a few repetitions, on as many threads as torch takes.
"""

import time
from collections.abc import Callable
from random import Random

import torch
from rich.console import Console
from rich.table import Table

from quintain.environments.baselines import random_action
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.models.fingerprint import fingerprint
from quintain.models.tiny import build_tiny
from quintain.text.tokenizer import train_tokenizer

ENVIRONMENTS = ("guess", "keydoor", "gymnasium/FrozenLake-v1", "babyai/GoToRedBallNoDists")
REPETITIONS = 3


def best_seconds(work: Callable[[], object]) -> float:
    """Return the shortest time that `work` takes."""
    seconds: list[float] = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def play(spec: str, num_episodes: int) -> int:
    """Play episodes of random valid actions and return the number of steps."""
    environment = find(spec)()
    rng = Random(0)
    num_steps = 0
    for index in range(num_episodes):
        begin(environment, environment.task("train", index))
        for _ in range(environment.max_turns):
            result = advance(environment, random_action(environment, rng))
            num_steps += 1
            if result.is_terminated or result.is_truncated:
                break
    environment.close()
    return num_steps


def main() -> None:
    """Measure and print."""
    table = Table(
        "what", "figure", "unit", title=f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    for spec in ENVIRONMENTS:
        num_steps = play(spec, 20)
        seconds = best_seconds(lambda spec=spec: play(spec, 20))
        table.add_row(f"{spec}, random play", f"{num_steps / seconds:,.0f}", "steps/s")
    model = build_tiny(train_tokenizer(["open the red door, go to the ball"] * 50))
    num_parameters = sum(weight.numel() for weight in model.parameters())
    table.add_row("weight fingerprint", f"{best_seconds(lambda: fingerprint(model)) * 1e3:.1f}", "ms")
    ids = torch.randint(0, 256, (8, 256))
    with torch.no_grad():
        seconds = best_seconds(lambda: model(input_ids=ids))
    table.add_row(
        f"forward, {num_parameters:,} parameters, 8x256", f"{ids.numel() / seconds:,.0f}", "tokens/s"
    )
    seconds = best_seconds(lambda: model(input_ids=ids).logits.sum().backward())
    table.add_row("forward and backward, 8x256", f"{ids.numel() / seconds:,.0f}", "tokens/s")
    Console().print(table)


if __name__ == "__main__":
    main()
