"""Reflexion: does a lesson from the own failure help the next attempt, more than any sentence of its form?

Arms that pay at unknown rates, of which the one that pays best must be pulled most. A mind explores, and so fails in
about half of the tasks; asked why, it names the arm that paid best in the transcript, never the one it pulled most,
for that was wrong. Told a lesson it follows it in nine of ten pulls. The number is the success of the second attempt at
tasks whose first one failed. The control is told the same sentence with another arm of the task, drawn at random, never
the one that was pulled most: that the first attempt was wrong is granted to both. The rival is a plain retry. All arms
draw alike. In the null world all arms pay alike, so that no transcript says which one is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from quintain.agents.reflexion import REFLECT, Lessons, Reflexion
from quintain.rollout.request import Options
from quintain.rollout.trials import trials
from quintain.text.chat import Chat
from quintain.types import Trajectory, as_text, derive_seed
from quintain_evidence.labs.mind import Mind, mind_tokenizer, play_mind, require_blindfold

ARMS, TALLY = re.compile(r"Arms: ([\w, ]+);"), re.compile(r"(\w+) (\d+) of (\d+)")
LESSON = re.compile(r"- The best arm is (\w+)\.")
FOLLOWS, EXPLORES = 0.9, 0.75
"""Shares of pulls in which a lesson is followed, and in which any arm is pulled where there is none."""
Tally = list[tuple[str, int, int]]
"""(arm, paid, pulled)"""


def tally_in(text: str) -> Tally:
    """Return the last tally in `text`."""
    return [(name, int(won), int(num)) for name, won, num in TALLY.findall(text.rpartition(" paid ")[2])]


def settle(tally: Tally) -> str:
    """Return the arm that was pulled most; empty where several were."""
    most = max((num for _, _, num in tally), default=0)
    names = [name for name, _, num in tally if num == most]
    return names[0] if len(names) == 1 else ""


def best_of(tally: Tally, rng: Random) -> str:
    """Return the arm with the largest share of pulls that paid, after one that did and one that did not."""
    return max(tally, key=lambda each: ((each[1] + 1) / (each[2] + 2), rng.random()))[0]


def say(prompt: str, draw: int) -> str:
    """Return a lesson where one is asked for, else the next pull."""
    rng, tally = Random(draw), tally_in(prompt)
    if REFLECT in prompt:
        left = [each for each in tally if each[0] != settle(tally)]
        return f"The best arm is {best_of(left, rng)}." if left else "Nothing was seen."
    names = [name for found in ARMS.findall(prompt)[-1:] for name in found.split(", ")]
    told = [name for name in LESSON.findall(prompt) if name in names]
    follows, explores = rng.random() < FOLLOWS, rng.random() < EXPLORES
    anything = rng.choice(names or ["red"])
    if told:
        return f"pull {told[-1] if follows else anything}"
    return f"pull {anything if explores or not tally else best_of(tally, rng)}"


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the success of every arm of the experiment, for each task whose first attempt failed."""
    world, count = str(options["world"]), int(options["seeds"])
    require_blindfold(Mind(say), world, seed=seed, agent="text", num=60)
    rows = arms(world, count, seed)
    null = arms(world.replace("gap=0.8", "gap=0"), count, seed)
    return [
        {**row, "null_method": other["method"], "null_control": other["control"]}
        for row, other in zip(rows, null, strict=True)
    ]


def arms(world: str, count: int, seed: int) -> list[dict[str, float]]:
    """Return the success of the second attempt at `count` tasks, for own, other, no and empty lessons."""
    with play_mind(Mind(say), world, seed=seed, agent="text") as probe:
        rollout, chat = probe.rollout, Chat(mind_tokenizer())
        tasks = probe.tasks(3 * count, split="train", first=derive_seed("tasks", seed) % 1_000_000)
        first, second = trials(rollout, chat, tasks, rounds=2, seed=seed)
        failed = [t for t in first.trajectories if not t.is_success][:count]
        lessons = first.lessons

        def attempts(told: Lessons) -> list[Trajectory]:
            groups = rollout.groups(
                [t.task for t in second.trajectories],  # all of them: a seed is also of a task's place
                size=1,
                seed=derive_seed(seed, "trial", 1),
                options=Options(agent=Reflexion(rollout.agent, told)),
            )
            return [group.trajectories[0] for group in groups][:count]

        rng = Random(derive_seed("other", seed))
        other = add_all((t.task, f"The best arm is {another(t, lessons, rng)}.") for t in failed)
        empty = add_all((t.task, "Try again.") for t in failed)
        found = {"control": attempts(other), "extra.plain": attempts(Lessons()), "empty": attempts(empty)}
    solved = len(first.solved) / len(tasks)
    return [
        {
            "method": float(second.trajectories[k].is_success),
            "control": float(found["control"][k].is_success),
            "extra.plain": float(found["extra.plain"][k].is_success),
            "extra.first": solved,
            "extra.empty_differs": float(acts(found["empty"][k]) != acts(found["extra.plain"][k])),
        }
        for k in range(count)
    ]


def add_all(told: Any) -> Lessons:
    """Return the lessons of tasks, one each."""
    lessons = Lessons()
    for task, text in told:
        lessons = lessons.add(task, text)
    return lessons


def another(failed: Trajectory, lessons: Lessons, rng: Random) -> str:
    """Return an arm that neither the lesson names nor the failure settled on."""
    tally = tally_in(as_text(failed.final_observation))
    (own,) = LESSON.findall(f"- {lessons.of(failed.task.id)[-1]}")
    return rng.choice([name for name, _, _ in tally if name not in (own, settle(tally))])


def acts(trajectory: Trajectory) -> list[str]:
    """Return what was done, in order."""
    return [turn.action.text for turn in trajectory.turns]
