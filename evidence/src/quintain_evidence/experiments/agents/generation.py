"""Generation: does trying configurations of an agent find better ones, more than choosing among them by chance?

Agents with tools, of which each task needs two out of four; there are twenty-four, each described by a word. The
description of the agent tells three of the four words, and some that no task needs. An episode is solved only where
both tools are seen, the rarer the more others are seen, and more often through one harness than through others; which,
is drawn. A script writes configurations: it reads the question alone, takes tools whose word is in the description and
then varies what did best so far, and in three of ten names a tool that does not exist. They are checked, tried and kept
as the method does, at its defaults. The number is the success on new tasks of what is kept. In the control successes
are dealt out anew among those that are tried. The rival is the first that fits, untried. In the null world success does
not depend on the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from quintain.agents.configured import Configuration
from quintain.agents.harness import JsonTools
from quintain.environments.protocol import Environment
from quintain.methods.agents.generation import Config, pick, sift, write_question
from quintain.rollout.configurations import read_objects
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, Task, ToolSpec, derive_seed
from quintain_evidence.labs.mind import mind_tokenizer

NUM, NEEDED, TOLD, MISLEADING, UNKNOWN = 24, 4, 3, 3, 0.3
HARNESSES: Mapping[str, float] = {"tools": 0.6, "react": 0.8, "plan+tools": 1.0}
"""harness → factor of success; which has which is drawn"""
OTHER = 0.97
"""Factor of success for each tool that is seen and not needed."""
BEST = 0.95
NULL = 0.5


class Shed(Environment):
    """An environment that is its tools."""

    name = "shed"

    def __init__(self, words: Sequence[str]) -> None:
        """Have a tool for each of `words`."""
        self.words = words

    def reset(self, task: Task) -> str:
        """Begin."""
        return task.id

    def step(self, action: Action) -> StepResult:
        """End."""
        return StepResult(observation=action.text, is_terminated=True)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools, numbered in their order."""
        schema = {"type": "object", "properties": {}}
        return tuple(
            ToolSpec(name=f"t{k}", description=f"Sees to {word}.", parameters=schema)
            for k, word in enumerate(self.words)
        )


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications: success on new tasks of what is kept."""
    steps = int(options["steps"])
    rows: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("generation", seed, number)
        kept, first, counts = generate(own, steps)
        other, _, _ = generate(own, steps, is_permuted=True)
        rows.append(
            {
                "method": success(own, kept),
                "control": success(own, other),
                "extra.first": success(own, first),
                "extra.plain": success(own, None),
                "extra.unknown": counts["unknown tried"],
                "extra.refused": counts["unknown refused"],
                "null_method": NULL,
                "null_control": NULL,
            }
        )
    return rows


def draw_world(seed: int) -> tuple[list[str], frozenset[str], str, dict[str, float]]:
    """Return the words of tools, the names of those that are needed, the description, and factors of harnesses."""
    rng = Random(derive_seed("world", seed))
    words = [f"w{number}" for number in rng.sample(range(100, 1000), NUM)]
    places = rng.sample(range(NUM), NEEDED + MISLEADING)
    told = [words[place] for place in (*places[:TOLD], *places[NEEDED:])]
    rng.shuffle(told)
    factors = dict(zip(HARNESSES, rng.sample([*HARNESSES.values()], len(HARNESSES)), strict=True))
    return words, frozenset(f"t{place}" for place in places[:NEEDED]), f"See to {', '.join(told)}.", factors


def success(seed: int, found: Configuration | None) -> float:
    """Return the chance that a new task is solved by an agent as `found` has it; None: all tools, by ``tools``."""
    words, needed, _, factors = draw_world(seed)
    seen = (
        frozenset(found.tools) if found is not None and found.tools else {f"t{k}" for k in range(len(words))}
    )
    known = len(needed & seen)
    both = known * (known - 1) / (NEEDED * (NEEDED - 1))
    return both * BEST * OTHER ** len(seen - needed) * factors["tools" if found is None else found.agent]


def generate(
    seed: int, steps: int, *, is_permuted: bool = False
) -> tuple[Configuration | None, Configuration | None, dict[str, float]]:
    """Return what is kept after `steps` steps, the first that fitted, and how many named a tool that is not there."""
    config = Config(description="x")
    words, _, description, _ = draw_world(seed)
    world, agent = Shed(words), JsonTools(Chat(mind_tokenizer()))
    tools = {tool.name: tool.description for tool in world.tools()}
    kept: Configuration | None = None
    first: Configuration | None = None
    history: list[Mapping[str, Any]] = []
    counts = {"unknown tried": 0.0, "unknown refused": 0.0}
    for step in range(steps):
        rng = Random(derive_seed("step", seed, step))
        answer = write_script(write_question(description, tools, history), rng)
        sound, refused = sift(read_objects(answer), world, agent, config.candidates)
        first = first or next(iter(sound), None)
        rates = [play(seed, found, config.tasks, rng) for found in (kept, *sound)]
        if is_permuted:
            rng.shuffle(rates)
        history.append(
            {
                "tried": [
                    {"agent": c.agent, "tools": c.tools, "success": own}
                    for c, own in zip(sound, rates[1:], strict=True)
                ],
                "refused": refused,
            }
        )
        kept = [kept, *sound][pick(rates)]
        counts["unknown tried"] += sum(not set(c.tools) <= set(tools) for c in sound)
        counts["unknown refused"] += len(refused)
    return kept, first, counts


def play(seed: int, found: Configuration | None, count: int, rng: Random) -> float:
    """Return the share of `count` tasks that are solved."""
    chance = success(seed, found)
    return sum(rng.random() < chance for _ in range(count)) / count


def write_script(question: str, rng: Random) -> str:
    """Return four configurations, by the words of the description or by what did best of those that were told."""
    told = json.loads(question)
    named = [name for name, what in told["tools"].items() if what.split()[-1].strip(".") in told["for"]]
    best = max(told["tried"], key=lambda row: float(row["success"]), default=None)
    written: list[str] = []
    for _ in range(4):
        chosen = set(named if best is None else best["tools"])
        for _ in range(rng.randint(1, 2)):
            chosen ^= (
                {rng.choice([*told["tools"]])}
                if rng.random() < 0.5
                else {rng.choice(sorted(chosen) or named)}
            )
        agent = rng.choice([*HARNESSES]) if best is None or rng.random() < 0.3 else str(best["agent"])
        tools = [*sorted(chosen), *(["t99"] if rng.random() < UNKNOWN else [])]
        written.append(json.dumps({"agent": agent, "tools": tools}))
    return "\n".join(written)
