"""One small run of each loop, as the arguments of ``quintain train``: what kills and growth are tried on."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUESS = "guess?high=8&max_turns=3"
MODEL = (
    "--model", "micro", "--learning-rate", "1e-4", "--eval-episodes", "2", "--max-turn-tokens", "16", "--seed", "3",
)  # fmt: skip
WARM = ("--environment", GUESS, "--demonstrations", "12", "--imitation-epochs", "2")
EPISODES = (*WARM, "--tasks", "2", "--group-size", "4")
PREFERRING = (
    "--environment", GUESS, "--demonstrations", "24", "--imitation-epochs", "16", "--tasks", "8", "--group-size", "4",
)  # fmt: skip
"""A start that solves some of its tasks and not all, so that there is something to prefer."""
AGENT = ROOT / "examples" / "openai_agent.py"
LOOPS: dict[str, tuple[str, ...]] = {
    "on-policy": ("gigpo", *EPISODES, "--steps", "12", "--eval-every", "3"),
    "on-policy with a critic": ("ppo", *WARM, "--episodes", "8", "--steps", "8", "--eval-every", "3"),
    "async": (
        "grpo", *EPISODES, "--steps", "8", "--eval-every", "3", "--rollout", "async", "--max-staleness", "2",
    ),
    "agent outside": (
        "grpo", *EPISODES, "--steps", "5", "--eval-every", "2", "--agent", f"{AGENT}:run_agent",
    ),
    "engine process": ("gigpo", *EPISODES, "--steps", "6", "--eval-every", "3", "--engine", "process"),
    "offline": (
        "sft", "--environment", GUESS, "--demonstrations", "24", "--steps", "20", "--eval-every", "5",
        "--batch-size", "4",
    ),
    "pairs": (
        "dpo", *PREFERRING, "--steps", "12", "--eval-every", "4", "--batch-size", "4",
    ),
    "reward model": (
        "reward_model", *PREFERRING, "--steps", "14", "--eval-every", "4", "--batch-size", "4",
    ),
    "rounds of pairs": ("eto", *WARM, "--tasks", "4", "--steps", "3"),
    "rounds of imitation": ("rest", *EPISODES, "--steps", "6"),
    "rounds that start over": (
        "agent_evol", "--environment", GUESS, "--demonstrations", "12", "--tasks", "2", "--group-size", "4", "--steps",
        "4", "--num-minibatches", "2",
    ),
    "replay": (
        "archer", *EPISODES, "--steps", "6", "--eval-every", "2", "--batch-size", "4", "--critic-updates", "2",
        "--critic-first", "2", "--critic-explains", "0",
    ),
    "replay from a log": (
        "digi_rl", *EPISODES, "--steps", "6", "--eval-every", "2", "--offline-tasks", "4", "--offline-steps", "2",
        "--critic-updates", "2", "--critic-batch", "4",
    ),
    "two seats": (
        "optima", "--environment", "twocards?cost=0", "--demonstrations", "12", "--imitation-epochs", "2", "--tasks",
        "4", "--group-size", "4", "--steps", "3", "--num-epochs", "1", "--num-minibatches", "2",
    ),
}  # fmt: skip
"""Name of a loop → a method on it, with flags that make it last seconds."""
UNORDERED = frozenset(["async", "agent outside"])
"""Loops whose episodes end in any order, so that a repeated step need not be the same bit for bit."""


def arguments(name: str, root: Path) -> list[str]:
    """Return the arguments of ``quintain`` that train the loop `name` as the run ``run`` in `root`."""
    return ["train", *LOOPS[name], *MODEL, "--run", "run", "--runs", str(root)]
