"""DynaSaur: does a library of functions that solved training tasks spare writing them again, and is it what they do?

Goals of a tech tree, made by code that acts. A mind that knows the tree by its prompt writes a function for each thing
that its goal takes, a cell each, in which a line goes wrong now and then; then it calls them in order. Where there is a
library it looks there first for what it needs, and calls a function whose name fits instead of writing it; where what
it called did not bring the thing, it writes all of them itself. The library grows over training lands by the method's
own fold, gets a hundred functions that make other things, and is frozen. The number is the tokens that are written for
a held-out land, over those without a library. In the control the bodies are dealt out anew among the functions, whose
names and docstrings stay: as much is told and found. The rival is plain code as actions. In the null world the library
has the hundred others alone.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from quintain.agents.code import find_shelf
from quintain.agents.functions import Definition, rename
from quintain.agents.library import MAX_LENGTH, ActionLibrary, write_function
from quintain.credit_lab.permute import derange
from quintain.memory.bank import Bank, Edit
from quintain.methods.agents.dynasaur import Config, Growth
from quintain.types import Task, Trajectory, derive_seed, flatten_scored
from quintain.worlds.craft.land import PLACES
from quintain_evidence.labs.mind import Mind, play_mind, require_blindfold
from quintain_evidence.labs.probe import Probe

AGENT = "code?style=fence"
WRONG = 0.12
"""Chance that a line goes wrong, and its cell with it."""
TOOL_FOR = {"stone": "wood pickaxe", "coal": "wood pickaxe", "iron": "stone pickaxe"}
REACH = '''def reach(action):
    """Take an action at the place where it can be taken."""
    for place in ["", *[each for each in legal_actions().split(", ") if each.startswith("go ")]]:
        if place:
            act(place)
        if action in legal_actions().split(", "):
            break
    return act(action)'''
TAKE = '''def take(thing, count):
    """Gather so many of a raw thing."""
    for _ in range(count):
        seen = reach("gather " + thing)
    return seen'''
GOAL, RECIPE = re.compile(r"Goal: ([^.]*)\."), re.compile(r"([a-z ]+): ((?:\d \w+ ?)+)(?: at ([a-z ]+))?[;.]")
CALLS = re.compile(r"print\((make_|take)")
TOLD = re.compile(r"^(\w+)\([^)]*\): .", re.MULTILINE)
NUM_OTHERS = 100
SOUNDS = ("zor", "mip", "tak", "luv", "bex", "nid", "gop", "fen", "rud", "wim")


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the tokens written for each of `seeds` held-out lands, in parts of those without a library."""
    world, count = str(options["world"]), int(options["seeds"])
    mind = Mind(say)
    require_blindfold(mind, world, seed=seed, agent=AGENT, num=20)
    grown = grow(mind, world, int(options["train"]), seed)
    known = [write_function(found) for found in grown.functions]
    for library in (grown, others := ActionLibrary()):
        library.learn(Task(id="others/train/0", environment="others", seed=0), write_others(), {"act"})
    libraries = {
        "method": grown,
        "control": with_other_bodies(grown, derive_seed("bodies", seed)),
        "null": others,
        "none": ActionLibrary(),
    }
    played = {name: play(mind, world, library, count, seed) for name, library in libraries.items()}
    tokens = {name: [float(count_tokens(t)) for t in found] for name, found in played.items()}
    named = float(sum(place in text for text in known for place in PLACES))
    return [
        {
            "method": tokens["method"][k] / tokens["none"][k],
            "control": tokens["control"][k] / tokens["none"][k],
            "null_method": tokens["null"][k] / tokens["none"][k],
            "null_control": 1.0,
            "extra.none": 1.0,
            "extra.solved": float(played["method"][k].is_success),
            "extra.solved_none": float(played["none"][k].is_success),
            "extra.places": named,
        }
        for k in range(count)
    ]


@contextmanager
def open_probe(mind: Mind, world: str, seed: int) -> Generator[Probe]:
    """Open a probe of `mind`, which writes code in `world`."""
    with play_mind(mind, world, seed=seed, agent=AGENT, max_tokens=2_000) as probe:
        yield probe


def grow(mind: Mind, world: str, count: int, seed: int) -> ActionLibrary:
    """Return the library after `count` training tasks, in steps as the method has them."""
    growth, size = Growth(Config().functions), Config().tasks
    growth.tools = frozenset({"act", "legal_actions"})
    with open_probe(mind, world, seed) as probe:
        for first in range(0, count, size):
            growth.share(probe.rollout.agent)
            growth.update(probe.play(probe.tasks(size, split="train", first=first)))
    return growth.library


def play(mind: Mind, world: str, library: ActionLibrary, count: int, seed: int) -> list[Trajectory]:
    """Return an episode of `mind` in each of `count` held-out lands, with a frozen `library`."""
    with open_probe(mind, world, seed) as probe:
        find_shelf(probe.rollout.agent).bank = library.bank.freeze()
        return [*flatten_scored(probe.play(probe.tasks(count)))]


def count_tokens(trajectory: Trajectory) -> int:
    """Return how many tokens were written."""
    return sum(len(turn.completion.token_ids) for turn in trajectory.turns)


def with_other_bodies(library: ActionLibrary, seed: int) -> ActionLibrary:
    """Return `library`, in which each function that makes something does what another one should."""
    made = [found for found in library.functions if "reach" in found.depends and found.name != "take"]
    order = derange(len(made), seed)
    swapped: dict[str, Definition] = {}
    for own, place in zip(made, order, strict=True):
        other = rename(made[place], {made[place].name: own.name})
        source = other.source.replace(made[place].description, own.description)
        swapped[own.name] = replace(other, source=source, description=own.description)
    return rebuild(library, [swapped.get(found.name, found) for found in library.functions])


def write_others() -> list[str]:
    """Return functions that make things which there are not, a cell each."""
    names = (f"{one}{two}" for one in SOUNDS for two in SOUNDS)
    return [
        f'def make_{name}():\n    """Make a {name}."""\n    return act("make {name}")'
        for name, _ in zip(names, range(NUM_OTHERS), strict=True)
    ]


def rebuild(library: ActionLibrary, functions: Sequence[Definition]) -> ActionLibrary:
    """Return a library of `functions`, with the sources that those of `library` have."""
    edits = [
        Edit(kind="add", id=f.name, key=f"{f.name} {f.description}", text=write_function(f), source=e.source)
        for f, e in zip(functions, library.bank.entries, strict=True)
    ]
    bank = Bank(size=library.bank.size, length=MAX_LENGTH)
    refused = bank.edit(edits)
    assert not refused, refused
    return ActionLibrary(bank)


def say(prompt: str, draw: int) -> str:
    """Return the next cell, in which a line may have gone wrong."""
    code = next_cell(prompt)
    rng = Random(derive_seed("wrong", draw))
    if any(rng.random() < WRONG for _ in code.splitlines()):
        code = f"{code}\n)"
    return f"```python\n{code}\n```"


def next_cell(prompt: str) -> str:
    """Return what is to be written next by one who makes one thing after another."""
    head, *parts = prompt.split("<|assistant|>")
    turns = [part.partition("<|end|>")[::2] for part in parts[:-1]]
    ran = [(code, shown) for code, shown in turns if "SyntaxError" not in shown]
    goal = GOAL.findall(head)
    if not goal:
        return "print(act('wait'))"
    chain = things_for(goal[-1], {name.strip(): (needs, at) for name, needs, at in RECIPE.findall(head)})
    called = [shown for code, shown in ran if CALLS.search(code)]
    told = set() if called else set(TOLD.findall(prompt))
    written = {name for code, _ in ran for name in re.findall(r"^def (\w+)", code, re.MULTILINE)}
    left = [step for step in chain if not any(step[0] in shown for shown in called)] or chain[-1:]
    wanted = [function_for(*step) for step in left]
    if "find_functions(" in head and not any("find_functions(" in code for code, _ in ran):
        things = ", ".join(thing for thing, _ in left)
        return f"print(find_functions('take a raw thing; reach a place; {things}'))"
    missing = [(name, text) for name, text in wanted if text and name not in told | written]
    if missing or any(not text for _, text in wanted):
        helpers = [("reach", REACH), ("take", TAKE)]
        missing = [each for each in helpers if each[0] not in told | written] + missing
    if missing:
        return missing[0][1]
    if len(called) > 2:
        return "print(act('wait'))"
    return "\n".join(f"print({name}())" if text else f"print({name})" for name, text in wanted)


def things_for(goal: str, recipes: Mapping[str, tuple[str, str]]) -> list[tuple[str, dict[str, int]]]:
    """Return what is to be made for `goal`, in order, each with the raw things it takes; a raw goal takes itself."""
    chain: dict[str, dict[str, int]] = {}

    def visit(thing: str) -> None:
        if thing in chain:
            return
        needs, at = recipes.get(thing, (f"1 {thing}", ""))
        counts = {name: int(number) for number, name in re.findall(r"(\d) (\w+)", needs)}
        for before in (*filter(None, at.split(" and ")), *(TOOL_FOR.get(name, "") for name in counts)):
            if before:
                visit(before)
        chain[thing] = counts

    visit(goal)
    return list(chain.items())


def function_for(thing: str, counts: Mapping[str, int]) -> tuple[str, str]:
    """Return the name of the function that makes `thing`, and the function; of a raw thing a call, and nothing."""
    if thing in counts:
        return f"take({thing!r}, 1)", ""
    name = f"make_{thing.replace(' ', '_')}"
    lines = [f"    take({raw!r}, {number})" for raw, number in counts.items()]
    body = "\n".join([f'    """Make a {thing}."""', *lines, f"    return reach({f'make {thing}'!r})"])
    return name, f"def {name}():\n{body}"
