"""LIET: do steps to go, learned from exploration, lead to the goal, and do notes help where there is something to say?

A room with a flag (`keydoor`) and a hundred turns. The method's own exploration is played, f is fitted to it, and an
agent takes the action of the least f. The number is the mean of log(steps) on new rooms, cut at the room's turns. In
the control f is dealt among the actions that are open. The rival is the same regression on whether the episode of a
step reached the flag. In the null world the expert acts, whatever is chosen. Also measured: the rank correlation of f
with the steps that an expert takes after an action.

For the team: two seats with cards (`twocards`). Both follow the notes, one each attempt, or, where there are none, any
of three: tell what is asked for, ask for what is lacking, say nothing. A script reads the method's question and writes
notes on what better attempts began with; in its control outcomes are dealt to other attempts at a task. `alone` is the
same where one card holds all that is needed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats as scipy_stats

from quintain.environments.protocol import advance, begin
from quintain.memory.bank import Bank
from quintain.memory.edits import MAX_LENGTH, merge
from quintain.memory.utility import CostSample, StepsToGo
from quintain.methods.multiagent.liet import Config, explore_all, reflect
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Group, Score, StepResult, Task, Trajectory, as_text, derive_seed
from quintain.worlds.keydoor.game import KeyDoor
from quintain.worlds.twocards.game import TwoCards

stats: Any = scipy_stats  # without types of its own
Value = Callable[[str, str, Sequence[str]], Sequence[float]]
"""(first observation, last observation, actions) → the less, the better"""
TELL, ASK, HUSH = "tell what is asked for", "ask for what you lack", "say nothing"
BEGINS = {"say": TELL, "ask": ASK, "pass": HUSH}
ATTEMPT = re.compile(r"^Attempt \d+, (.*) in (\d+) steps:\n\w: (\w+)", re.MULTILINE)
NOTE = re.compile(r"^\[(\w+)\] (.*)$", re.MULTILINE)


class Led(KeyDoor):
    """A room in which the expert acts, whatever is chosen."""

    def step(self, action: Action) -> StepResult:
        """Do what the expert does."""
        return super().step(self.expert_action())


def make_room(*, is_led: bool = False) -> KeyDoor:
    """Return a room of eight by eight places with a flag, and a hundred turns."""
    room = (Led if is_led else KeyDoor)(rooms=1, length=8, distractors=0)
    room.max_turns = 100
    return room


def learn(samples: Sequence[CostSample]) -> StepsToGo:
    """Return f as the method fits it."""
    utility = StepsToGo()
    utility.fit(samples)
    return utility


def count_log_steps(room: KeyDoor, tasks: Sequence[Task], value: Value) -> float:
    """Return the mean of log(steps) of who takes the action of least value."""
    found: list[float] = []
    for task in tasks:
        first = seen = as_text(begin(room, task))
        steps, is_over = 0, False
        while not is_over and steps < room.max_turns:
            legal = room.legal_actions()
            result = advance(room, Action(text=legal[int(np.argmin(value(first, seen, legal)))]))
            seen, is_over, steps = as_text(result.observation), result.is_over, steps + 1
        found.append(float(np.log(steps)))
    return fmean(found)


def correlate(room: KeyDoor, tasks: Sequence[Task], value: Value) -> float:
    """Return Spearman's correlation of value with the expert's steps, over the actions that are open at first."""
    told: list[float] = []
    true: list[int] = []
    for task in tasks:
        first = as_text(begin(room, task))
        told += value(first, first, room.legal_actions())
        true += [count_expert_steps(room, action) for action in room.legal_actions()]
    return float(stats.spearmanr(told, true).statistic)


def count_expert_steps(room: KeyDoor, action: str) -> int:
    """Return the steps to the flag by `action` and then the expert; the room stays as it is."""
    saved, steps = room.snapshot(), 1
    result = advance(room, Action(text=action))
    while not result.is_over:
        result, steps = advance(room, room.expert_action()), steps + 1
    room.restore(saved)
    return steps


def deal_values(value: Value, seed: int) -> Value:
    """Return `value`, dealt among the actions that are open."""
    rng = Random(seed)

    def dealt(first: str, seen: str, actions: Sequence[str]) -> Sequence[float]:
        found = list(value(first, seen, actions))
        rng.shuffle(found)
        return found

    return dealt


def play_talk(world: TwoCards, task: Task, habit: str, index: int) -> Trajectory:
    """Return the talk in which both seats answer when they can, reply when they are asked, and else have `habit`."""
    begin(world, task)
    said: list[tuple[str, str]] = []
    paid, is_over, is_solved = 0.0, False, False
    while not is_over and len(said) < world.max_turns:
        seat = world.seat()
        wise = world.expert_action().text
        was_asked = bool(said) and said[-1][1].startswith("ask ")
        text = wise if wise.startswith("answer ") or was_asked else follow(world, habit, said)
        result = advance(world, Action(text=text))
        said.append((seat, text))
        paid += result.reward
        is_over, is_solved = result.is_over, bool(result.is_success)
    turns = [turn_of(seat=seat, action=Action(text=text)) for seat, text in said]
    return episode_of(turns, paid, is_success=is_solved, task=task, index=index, seed=index)


def follow(world: TwoCards, habit: str, said: Sequence[tuple[str, str]]) -> str:
    """Return what a seat with `habit` says: what the question asks and it has, what it lacks, or nothing."""
    if habit == HUSH:
        return "pass"
    kind, spoken = {TELL: "say ", ASK: "ask "}[habit], {text for _, text in said}
    asked = set(re.findall(r"\w+", world.privileged().partition(";")[0]))
    fitting = (
        text
        for text in world.legal_actions()
        if text.startswith(kind) and text not in spoken and text.split()[1] in asked
    )
    return next(fitting, "pass")


def write_notes(questions: Sequence[str]) -> list[str]:
    """Answer as a script that reads the questions alone: note how the best attempts began, drop how the worst did."""
    return [write_note(question) for question in questions]


def write_note(question: str) -> str:
    """Return the edits that the attempts of `question` ask for."""
    earned: dict[str, list[float]] = defaultdict(list)
    for outcome, steps, word in ATTEMPT.findall(question):
        if word in BEGINS:
            earned[BEGINS[word]].append((outcome == "solved") / int(steps))
    if len(earned) < 2:
        return ""
    means = {note: fmean(values) for note, values in earned.items()}
    best, worst = max(means, key=lambda n: means[n]), min(means, key=lambda n: means[n])
    known = {text: name for name, text in NOTE.findall(question)}
    drop = [f"delete {known[worst]}"] if worst in known and means[worst] < means[best] else []
    return "\n".join([*drop, *([f"add: {best}"] if best not in known and means[best] > means[worst] else [])])


def evolve_notes(world: TwoCards, seed: int, steps: int, *, is_dealt: bool) -> Bank:
    """Return the list after `steps` steps of reflection; if it `is_dealt`, outcomes are those of others."""
    config, rng = Config(), Random(derive_seed("talks", seed))
    bank = Bank(size=config.notes, length=MAX_LENGTH)
    for step in range(steps):
        groups: list[Group] = []
        for place in range(config.tasks):
            task = world.task("train", derive_seed(seed, step, place) % 10**6)
            talks = [
                play_talk(world, task, rng.choice((TELL, ASK, HUSH)), k) for k in range(config.group_size)
            ]
            if is_dealt:
                order = rng.sample(talks, len(talks))
                talks = [give_end(talk, other) for talk, other in zip(talks, order, strict=True)]
            groups.append(Group(task=task, trajectories=tuple(talks)))
        edits, _ = reflect(groups, bank, write_notes)
        bank.edit(merge(edits, config.edits))
    return bank


def give_end(talk: Trajectory, other: Trajectory) -> Trajectory:
    """Return `talk` with the outcome and the number of turns of `other`: its beginning, and then nothing."""
    rest = [turn_of(seat=turn.seat, action=Action(text="pass")) for turn in other.turns[1:]]
    return replace(talk, outcome=other.outcome, turns=(talk.turns[0], *rest))


def earn(world: TwoCards, notes: Bank, seed: int, num: int) -> float:
    """Return the mean reward of `num` new talks by who follows a note each, or any habit where there is none."""
    rng = Random(derive_seed("test", seed))
    habits = [entry.text for entry in notes.entries] or [TELL, ASK, HUSH]
    talks = [play_talk(world, world.task("eval", k), rng.choice(habits), 0) for k in range(num)]
    return fmean(talk.outcome.value for talk in talks if isinstance(talk.outcome, Score))


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications, each with exploration, rooms and talks of its own."""
    num, noise = int(options["tests"]), Config().noise
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        own = derive_seed("liet", seed, number)
        row: dict[str, float] = {}
        with closing(make_room()) as room, closing(make_room(is_led=True)) as led:
            train = [room.task("train", own % 10**6 + k) for k in range(Config().explored)]
            tests = [room.task("eval", own % 10**6 + k) for k in range(num)]
            samples = explore_all(room, train, noise, own)
            value = learn(samples).values
            for world, name in ((room, ""), (led, "null_")):
                row[f"{name}method"] = count_log_steps(world, tests, value)
                row[f"{name}control"] = count_log_steps(world, tests, deal_values(value, own))
            judged = [s._replace(steps=15 if s.is_censored else 5, is_censored=False) for s in samples]
            row["extra.outcome"] = count_log_steps(room, tests, learn(judged).values)
            row["extra.rank"] = correlate(room, tests, value)
        for alone in (0.0, 1.0):
            with closing(TwoCards(alone=alone)) as talks:
                earned = [
                    earn(talks, evolve_notes(talks, own, int(options["steps"]), is_dealt=each), own, num)
                    for each in (False, True)
                ]
            row[f"extra.{'alone' if alone else 'notes'}"] = earned[0] - earned[1]
        found.append(row)
    return found
