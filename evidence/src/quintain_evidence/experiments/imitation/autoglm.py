"""AutoGLM: does it help that one plans and another points, or would one who does both come as far?

Menus of `screen`, clicked at coordinates. A planner and a grounder, one small model in two conversations, imitate 200
episodes of the expert and 2,000 answers to where a thing is, on screens that were reached by clicking anything. One who
does both imitates the same episodes by as many trained tokens. The number is by how much the two solve more held-out
tasks. The control for it are the two whose grounder learned from points of other boxes of the same screens: it must
not reach a third of that. In the null world boxes are clicked by name, so that there is nothing to find.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quintain.agents.grounded import (
    FIND,
    GROUNDER,
    GROUNDER_INSTRUCTION,
    PLANNER,
    PLANNER_INSTRUCTION,
    SCREEN,
)
from quintain.data.pipeline import as_example, example_samples
from quintain.data.seats import by_seat
from quintain.environments.noisy import noisy
from quintain.methods.imitation import autoglm
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.text.chat import Chat
from quintain.types import Sample, Task, Trajectory, Turn, as_text, derive_seed, flatten_scored

FAR = 100_000
"""Tasks that are wandered about in are so far from those that the expert shows."""
BOX = re.compile(r"([a-z]+) (\d+ \d+)")
"""A box on the screen: what it is called, and its point."""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return success of two who act together, of one alone, and of two with a grounder who learned other points."""
    world = str(options["world"])
    lab = Lab(world, options, seed)
    method, control = lab.together(lab.shown, lab.pairs), lab.alone([])
    misled = lab.together(lab.mispointed(lab.shown), lab.mispointed(lab.pairs))
    row = {
        "method": lab.success(method),
        "control": lab.success(control),
        "extra.misled": lab.success(misled),
        "extra.one_with_pairs": lab.success(lab.alone(lab.pairs)),
        "extra.points": lab.points(method),
        **lab.faults(method),
    }
    # What is left of the effect with points of other boxes; above a third of it, it was not the grounding.
    row["extra.left"] = row["extra.misled"] - row["control"] - (row["method"] - row["control"]) / 3
    if int(options["block"]) < int(options.get("null_blocks", 2)):
        null = Lab(world.replace("interface=text", "interface=labels"), options, seed)
        row["null_method"] = null.success(null.together(null.shown, null.pairs))
        row["null_control"] = null.success(null.alone([]))
    return [row]


class Lab:
    """What all arms of a seed have: a blank model, the expert's episodes, answers to where things are, tasks."""

    def __init__(self, world: str, options: Mapping[str, Any], seed: int) -> None:
        self.world, self.options, self.seed = world, options, seed
        self.first = derive_seed(seed, "tasks") % 1_000_000
        blank = new_pupil(
            [world],
            seed=derive_seed("autoglm", seed) % (1 << 31),
            model=str(options["model"]),
            texts=[f"{PLANNER_INSTRUCTION} {GROUNDER_INSTRUCTION} {SCREEN} {FIND}"] * 50,
            agent="grounded",
        )
        self.two, self.one = blank, Pupil(blank.model, blank.tokenizer, blank.seed, "text")
        self.tasks = self.drawn(int(options["episodes"]))
        self.shown = self.two.show(world, self.tasks, noisy(0.0), seed=seed)
        wandered = self.two.show(world, self.drawn(int(options["wandered"]), far=FAR), noisy(1.0), seed=seed)
        self.pairs = answers(wandered)
        self.held_out = tasks_from(world, int(options["held_out"]), split="eval", first=self.first)

    def drawn(self, count: int, far: int = 0) -> list[Task]:
        """Return `count` training tasks of the seed."""
        return tasks_from(self.world, count, first=self.first + far)

    def together(self, shown: Sequence[Trajectory], pairs: Sequence[Trajectory]) -> Pupil:
        """Return planner and grounder, taught the expert's episodes and the answers."""
        return self._taught(self.two, [*samples_of(shown), *self._cut(pairs)])

    def alone(self, pairs: Sequence[Trajectory]) -> Pupil:
        """Return one who does both, taught the same episodes by as many trained tokens; and the answers, if any."""
        shown = self.one.show(self.world, self.tasks, noisy(0.0), seed=self.seed)
        return self._taught(self.one, [*samples_of(shown), *self._cut(pairs)])

    def mispointed(self, episodes: Sequence[Trajectory]) -> list[Trajectory]:
        """Return `episodes` in which the grounder says points of other boxes: those of a screen in another order."""
        chat = Chat(self.two.tokenizer)

        def changed(turn: Turn) -> Turn:
            if turn.speaker != GROUNDER:
                return turn
            screen, _, thing = as_text(turn.observation).removeprefix(SCREEN).partition(f"\n{FIND}")
            boxes = dict(BOX.findall(screen))
            points = random.Random(derive_seed("points", self.seed, screen)).sample(
                list(boxes.values()), len(boxes)
            )
            said = chat.write(dict(zip(boxes, points, strict=True))[thing])
            return replace(turn, completion=replace(turn.completion, token_ids=said, logprobs=()))

        return [replace(t, turns=tuple(map(changed, t.turns))) for t in episodes]

    def success(self, pupil: Pupil) -> float:
        """Return the share of held-out tasks that `pupil` solves."""
        return pupil.success(self.world, self.held_out, seed=self.seed)

    def points(self, pupil: Pupil) -> float:
        """Return the probability of the right point for held-out pairs of a thing and a screen."""
        tasks = tasks_from(self.world, 64, split="eval", first=self.first + FAR)
        asked = answers(self.two.show(self.world, tasks, noisy(1.0), seed=self.seed))
        return float(np.exp(np.concatenate(pupil.chances(asked))).mean())

    def faults(self, pupil: Pupil) -> dict[str, float]:
        """Return the shares of failures that are the planner's, the grounder's, and of both."""
        agents = {"": "grounded", **{seat: f"grounded?{seat}=expert" for seat in (PLANNER, GROUNDER)}}
        won = {
            seat: [
                t.is_success
                for t in flatten_scored(
                    Pupil(pupil.model, pupil.tokenizer, pupil.seed, agent).play(
                        self.world, self.held_out, seed=self.seed
                    )
                )
            ]
            for seat, agent in agents.items()
        }
        counts = autoglm.count_blame(won[""], won[PLANNER], won[GROUNDER])
        return {f"extra.fault_{who}": num / max(sum(counts.values()), 1) for who, num in counts.items()}

    def _cut(self, pairs: Sequence[Trajectory]) -> list[Sample]:
        """Return the token streams of `pairs`, at most as many as there are to be."""
        return samples_of(pairs)[: int(self.options["pairs"])] if pairs else []

    def _taught(self, pupil: Pupil, samples: Sequence[Sample]) -> Pupil:
        """Return a copy of `pupil` that imitated `samples` until the trained tokens are spent."""
        taught, size = pupil.copy(), int(self.options["size"])
        each = sum(float(s.loss_weight.sum()) for s in samples) / len(samples)
        updates = round(float(self.options["tokens"]) / each / size)
        taught.learn(samples, updates=updates, rate=float(self.options["rate"]), size=size, seed=self.seed)
        return taught


def answers(episodes: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the grounder's part of each of `episodes`."""
    return [part for t in episodes for part in by_seat(t) if part.turns[0].speaker == GROUNDER]


def samples_of(episodes: Sequence[Trajectory]) -> list[Sample]:
    """Return the token streams of `episodes`."""
    return example_samples([as_example(t) for t in episodes])
