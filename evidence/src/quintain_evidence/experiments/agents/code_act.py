"""CodeAct: do turns per solved task stay as they are when a chain of calls gets longer, where the calls are in code?

Chains of sums whose every call takes the result of the one before, with tools that fail now and then. A mind knows the
chain and none of its results. In code it writes a loop that calls the tools one after the other, and again where one
fails; in JSON it calls all that it can call by now, which is one. The number is the slope of turns on the length of the
chain. In the control the same mind writes the same code, and one call of a turn is carried out: the language without
composition. The rival is JSON. In the null world calls are independent, prices to be looked up, and are asked for at
once in both forms. What is compared is the harness; the recipe that fills it with traces has tests of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quintain.types import Trajectory, flatten_scored
from quintain_evidence.labs.mind import Mind, play_mind, require_blindfold

CODE, ONE, JSON = "code", "code?max_calls=1", "tools"
CHAINS, PRICES = (1, 2, 4, 8, 12), (1, 2, 4, 6)
PROBLEM = re.compile(r"Compute: ([^.]*)\.")
RESULT, PRICE = re.compile(r"(?m)(?:^|>|\s)= (-?\d+)\s*$"), re.compile(r"([a-z]+) = (-?\d+)")
OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
}
LOOP = """value, done, steps = FIRST, 0, STEPS
def go():
    global value, done
    while done < len(steps):
        name, number = steps[done]
        said = globals()[name](value, number)
        if said.startswith("= "):
            value, done = int(said[2:]), done + 1
    answer(value)
go()"""


def say(prompt: str, draw: int) -> str:
    """Return code, or the calls that can be made by now, of who knows the chain in `prompt`."""
    is_code, found = "Write Python" in prompt, PROBLEM.findall(prompt)
    if not found:
        return write("answer", {"number": 0}, is_code=is_code)
    first, *rest = (part.strip() for part in found[-1].split(","))
    steps = [(name, term) for name, _, term in (part.partition(" ") for part in rest)]
    names = [term for term in (first, *(term for _, term in steps)) if term.isalpha()]
    if names:
        return look_up(prompt, first, steps, names, is_code=is_code)
    numbers = [(name, int(term)) for name, term in steps]
    later = prompt.partition("<|assistant|>")[2]
    if is_code:
        code = LOOP.replace("FIRST", first).replace("STEPS", repr(numbers))
        return block("go()" if "def go" in later else code)
    results = [int(each) for each in RESULT.findall(later.replace("<|", "\n<|"))]
    value = results[-1] if results else int(first)
    if len(results) == len(numbers):
        return write("answer", {"number": value}, is_code=False)
    name, number = numbers[len(results)]
    return write(name, {"a": value, "b": number}, is_code=False)


def look_up(
    prompt: str, first: str, steps: Sequence[tuple[str, str]], names: Sequence[str], *, is_code: bool
) -> str:
    """Return look-ups of all prices that are not known yet, at once, or the answer, worked out in the head."""
    later = prompt.partition("<|assistant|>")[2]
    known = {name: int(price) for name, price in PRICE.findall(later)} if is_code else read_prices(later)
    missing = [name for name in dict.fromkeys(names) if name not in known]
    if missing and is_code:
        return block(f"for name in {missing}: print(name, lookup(name))")
    if missing:
        return "".join(write("lookup", {"name": name}, is_code=False) for name in missing)
    values = {**known, **{term: int(term) for term in (first, *(t for _, t in steps)) if not term.isalpha()}}
    value = values[first]
    for name, term in steps:
        value = OPERATIONS[name](value, values[term])
    return write("answer", {"number": value}, is_code=is_code)


def read_prices(later: str) -> dict[str, int]:
    """Return the prices that calls in JSON were told, in the order in which they were asked for."""
    known: dict[str, int] = {}
    for said in later.split("<|assistant|>"):
        calls, _, replies = said.partition("<|end|>")
        asked = re.findall(r'"name": "([a-z]+)"\}', calls)
        told = re.findall(r"= (-?\d+)|did not answer", replies)
        known |= {name: int(price) for name, price in zip(asked, told, strict=False) if price}
    return known


def block(code: str) -> str:
    """Return `code` as a block."""
    return f"```python\n{code}\n```"


def write(name: str, arguments: Mapping[str, Any], *, is_code: bool) -> str:
    """Return a call in code or in JSON."""
    if is_code:
        return block(f"print({name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())}))")
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the slope of turns on the length of a chain for each of `seeds` tasks: code, one call a turn, JSON."""
    count, mind = int(options["seeds"]), Mind(say)
    chain, prices = str(options["chain"]), str(options["prices"])
    require_blindfold(mind, chain.format(steps=2), seed=seed, agent=CODE, num=20)
    played = {
        name: [play(mind, chain.format(steps=steps), agent, count, seed) for steps in CHAINS]
        for name, agent in (("method", CODE), ("control", ONE), ("extra.json", JSON))
    }
    null = {
        name: [play(mind, prices.format(names=n, steps=n - 1), agent, count, seed) for n in PRICES]
        for name, agent in (("null_method", CODE), ("null_control", JSON))
    }
    return [
        {name: slope(CHAINS, [size[k] for size in found]) for name, found in played.items()}
        | {name: slope(PRICES, [size[k] for size in found]) for name, found in null.items()}
        | {
            f"extra.{what}_{name.removeprefix('extra.')}": value
            for name, found in played.items()
            for what, value in (
                ("solved", float(np.mean([size[k].is_success for size in found]))),
                ("turns", float(len(found[-1][k].turns))),
                ("tokens", float(count_tokens(found[-1][k]))),
            )
        }
        | {
            "extra.solved_null": float(
                np.mean([size[k].is_success for sizes in null.values() for size in sizes])
            )
        }
        for k in range(count)
    ]


def play(mind: Mind, world: str, agent: str, count: int, seed: int) -> list[Trajectory]:
    """Return an episode of `mind` on each of `count` held-out tasks."""
    with play_mind(mind, world, seed=seed, agent=agent, max_tokens=4_000) as probe:
        return [*flatten_scored(probe.play(probe.tasks(count)))]


def count_tokens(trajectory: Trajectory) -> int:
    """Return the tokens that the model sees or writes, each once."""
    return sum(len(turn.prompt_ids) + len(turn.completion.token_ids) for turn in trajectory.turns)


def slope(sizes: Sequence[int], trajectories: Sequence[Trajectory]) -> float:
    """Return the slope of turns on `sizes`."""
    return float(np.polyfit(sizes, [len(t.turns) for t in trajectories], 1)[0])
