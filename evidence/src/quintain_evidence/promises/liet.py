"""LIET on a real model: SmolLM2 plays both seats of two cards, told what its actions cost and notes of its own.

A run of two steps, resumed between them. It writes what it likes: what can be read of it becomes notes, the rest is
counted. Its weights stay as they are, and no seat is shown a fact of the other card before it was said.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from quintain.agents.costed import HEAD
from quintain.environments.catalog import find
from quintain.environments.protocol import begin
from quintain.learning.saved import load_policy
from quintain.memory.edits import replay_edits
from quintain.memory.utility import load_utility
from quintain.methods.multiagent.liet import EVENT, UTILITY
from quintain.models.fingerprint import fingerprint
from quintain.store.run import Run
from quintain.types import Task, Trajectory
from quintain.worlds.twocards.game import TwoCards
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import perform_in_two

MODEL = "smollm2"
WORLD = "twocards?max_turns=6&values=3"
STEPS, TASKS, SIZE, SECONDS = 2, 2, 2, 900.0


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Explore, fit, play, write notes, stop, go on, and read what each seat was shown."""
    folder = runs / "liet"
    failed = perform_in_two(
        folder,
        ["liet", "--model", MODEL, "--environment", WORLD, "--agent", "text", "--demonstrations", "0", "--tasks",
         str(TASKS), "--group-size", str(SIZE), "--eval-every", "1", "--eval-episodes", "1", "--eval-start",
         "false", "--max-turn-tokens", "16"],
        steps=STEPS, seconds=SECONDS,
    )  # fmt: skip
    if failed:
        return [Check(name="runs", has_passed=False, detail=failed)], {}
    policy = load_policy(MODEL)
    with Run.open(folder, writable=False) as run:
        weights, kept, notes = run.weights(), [*run.trajectories()], replay_edits(run, EVENT, 12)
        unread = sum(row.get("liet/unread", 0.0) for row in run.metrics())
    train = [t for t in kept if not t.task.is_held_out]

    def decode(ids: Sequence[int]) -> str:
        return str(policy.tokenizer.decode(list(ids)))

    shown = [decode(turn.prompt_ids) for t in kept for turn in t.turns]
    leaks = sum(has_leak(t, decode) for t in kept)
    checks = [
        Check(
            name="weights",
            has_passed=set(weights.values()) <= {fingerprint(policy.model)},
            detail=f"{len(set(weights.values()))} fingerprint after {len(weights)} steps, that of the model as it came",
        ),
        Check(
            name="costs",
            has_passed=bool(shown)
            and all(HEAD in text for text in shown)
            and load_utility(folder / UTILITY).is_fitted,
            detail=f"stand in each of {len(shown)} prompts, evaluations among them",
        ),
        Check(
            name="notes",
            has_passed=len(train) == STEPS * TASKS * SIZE
            and {entry.source for entry in notes.entries} <= {t.task.id for t in train},
            detail=f"{len(notes)} of {len(train)} talks, none of a held-out task; {unread:g} lines were none",
        ),
        Check(
            name="keeps apart",
            has_passed=not leaks,
            detail=f"{leaks} of {len(kept)} talks show a fact of the other card before it was said",
        ),
    ]
    return checks, {"notes": float(len(notes)), "talks": float(len(kept)), "unread": unread}


def has_leak(talk: Trajectory, decode: Callable[[Sequence[int]], str]) -> bool:
    """Return whether a key that stands on one card alone is in a prompt of the other seat before it was said."""
    said: set[str] = set()
    question, cards = read_cards(talk.task)
    for turn in talk.turns:
        other = cards[turn.seat == "A"]
        if words_of(decode(turn.prompt_ids)) & (other - question - said):
            return True
        said |= words_of(turn.action.text)
    return False


def words_of(text: str) -> set[str]:
    """Return the words of `text`."""
    return set(re.findall(r"\w+", text))


def read_cards(task: Task) -> tuple[set[str], tuple[set[str], set[str]]]:
    """Return the keys of the question of `task`, and those on A's card and on B's."""
    with closing(find(WORLD)()) as world:
        assert isinstance(world, TwoCards)
        begin(world, task)
        deal = world.snapshot().deal
    first, second = ({key for key, _ in card} for card in deal.cards)
    return set(deal.question), (first, second)
