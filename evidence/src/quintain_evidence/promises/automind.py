"""AutoMind on a real model: SmolLM2 plans and writes programs over a table, told what helped on others of its kind.

The model has seen the expert through the same harness; what is known is what helped that expert on training tasks. What
each program measures, and what is paid for the one that is handed in, is computed anew in a world of its own.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

from quintain import api
from quintain.data.searched import ATTEMPT, split_head
from quintain.environments.protocol import advance, begin
from quintain.memory.bank import Bank, Entry
from quintain.search.drafted import GOALS, KNOWN, Drafted, DraftedWorld, read_solution
from quintain.search.solutions import list_gains
from quintain.types import Score, Task, Trajectory, as_text
from quintain.worlds.fit.game import Fit
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import make_start

MODEL = "smollm2"
WORLD = "fit?features=1"
LEARNED, DEMONSTRATIONS, EPISODES = 16, 8, 4


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Keep what helped the expert, let the model see it play, then let it work; compute anew what that came to."""
    known = runs / "known.jsonl"
    Bank(entry for number in range(LEARNED) for entry in learn(number)).save(known)
    agent = f"drafted?steps=3&drafts=2&max_tokens=48&knowledge={known}"
    start = make_start(["train", "sft", "--environment", WORLD, "--agent", agent], runs, DEMONSTRATIONS)
    found, _ = api.collect(WORLD, str(start.parent), episodes=EPISODES, seed=1, trust_run=True)
    measured = [(t.task, list_solutions(t)) for t in found]
    same = [measure(task, text) == metric for task, each in measured for text, metric in each]
    paid = [
        isinstance(t.outcome, Score) and abs(t.outcome.value - pay(*each)) < 1e-9
        for t, each in zip(found, measured, strict=True)
    ]
    asked = [as_text(split_head(turn.observation)[2]) for t in found for turn in t.turns]
    drafts = [text for text in asked if text.endswith(GOALS["draft"])]
    checks = [
        Check(
            name="plays",
            has_passed=len(found) == EPISODES and all(isinstance(t.outcome, Score) for t in found),
            detail=f"{len(found)} episodes, {sum(t.is_success for t in found)} of them solved",
        ),
        Check(
            name="measures",
            has_passed=len(same) == 3 * EPISODES and all(same),
            detail=f"{sum(same)} of {len(same)} programs measure what they measure in a world of their own; "
            f"{sum(metric > 0 for _, each in measured for _, metric in each)} run",
        ),
        Check(
            name="hands in",
            has_passed=all(paid),
            detail=f"{sum(paid)} of {len(paid)} episodes are paid for the program that measured best, or nothing",
        ),
        Check(
            name="tells",
            has_passed=bool(drafts) and all(KNOWN in text for text in drafts),
            detail=f"{sum(KNOWN in text for text in asked)} of {len(asked)} prompts tell what helped on such tasks",
        ),
    ]
    return checks, {"R²": fmean(t.outcome.value for t in found if isinstance(t.outcome, Score))}


def learn(number: int) -> Sequence[Entry]:
    """Return what helped the expert on the training task of this `number`."""
    chat: Any = None
    with closing(DraftedWorld(Fit(features=1), Drafted(chat=chat, steps=1))) as world:
        task = world.task("train", 1000 + number)
        words = as_text(split_head(begin(world, task))[2]).partition("\n\n")[0]
        while not advance(world, world.expert_action()).is_over:
            pass
        gains = list_gains([(node.text, node.metric or 0.0) for node in world.tree])
    return [Entry(id=str(number), key=words, text=text, value=gain, source=task.id) for text, gain in gains]


def list_solutions(trajectory: Trajectory) -> list[tuple[str, float]]:
    """Return each program of an episode, and what it was said to measure."""
    return [
        (
            read_solution(as_text(split_head(turn.observation)[2]), turn.action.text),
            turn.reward_terms[ATTEMPT],
        )
        for turn in trajectory.turns
        if ATTEMPT in turn.reward_terms
    ]


def measure(task: Task, text: str) -> float:
    """Return what the program `text` measures in a new world, 0 where it does not run."""
    with closing(Fit(features=1)) as world:
        begin(world, task)
        return world.run_solution(text).metric or 0.0


def pay(task: Task, solutions: Sequence[tuple[str, float]]) -> float:
    """Return what a new world pays for the best of `solutions`."""
    text, metric = max(solutions, key=lambda each: each[1])
    with closing(Fit(features=1)) as world:
        begin(world, task)
        return advance(world, world.hand_in(text)).reward if metric > 0 else 0.0
