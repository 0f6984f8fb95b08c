"""CaveAgent: do the tokens that a model sees stay as they are when its data grow, where data are objects of its code?

Questions about all rows of a ledger. A mind knows how to answer each kind: it writes a line of code where the rows are
variables. Where they stand in the prompt it reads them without error, works the answer out in its head, and writes it
down: the same code harness, with the data as text. The number is the slope of log tokens (of prompts and answers, each
once) on log rows. The rival calls tools in words and reads the rows by pages. Beside it code is measured that reads the
pages by the same tool and takes them apart, which has no objects either. In the null world a ledger has one row or two.
Whether a variable is followed is asked where a row is corrected on the way, which nobody prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from quintain.types import Trajectory, flatten_scored
from quintain.worlds.ledger.book import REGIONS, SHOPS
from quintain.worlds.ledger.game import PAGE
from quintain_evidence.labs.mind import Mind, play_mind, require_blindfold

CODE, WORDS = "code?withhold=true", "react"
SIZES, SMALL = (10, 100, 1_000, 3_000), (1, 2)
Way = Literal["objects", "pages"]
"""How code has the rows: as variables, or by a tool whose text it takes apart."""
ASKED = re.compile(r"(List the ids)|Add up the amounts of the (shop|shops of the region) (\w+)")
ROW = re.compile(rf"\b(\d+) ({'|'.join(SHOPS)}) (\d+)")
REGION = re.compile(rf"\b({'|'.join(SHOPS)}) ({'|'.join(REGIONS)})\b")
COUNT = re.compile(r"a list of (\d+) as")
PAGES = f"""rows, shops = [], {{}}
while len(rows) % {PAGE} == 0:
    for line in read(len(rows), {PAGE}).splitlines():
        place, shop, amount = line.split()
        rows.append({{"id": int(place), "shop": shop, "amount": int(amount)}})
    if len(rows) == COUNT:
        break
shops = dict(each.split() for each in REGIONS.split(", "))
"""


def say(way: Way, prompt: str, draw: int) -> str:
    """Return the next code, or the next call in words, of who answers the question in `prompt`."""
    first, *later = prompt.split("<|assistant|>")
    is_code, found = "Write Python" in first, ASKED.findall(first)
    if not found:
        return write([0], is_code=is_code)
    answers = len(later) - 1
    if is_code and "refresh(" in first and answers == 0:
        return block("print(refresh())")
    total = COUNT.findall(first)
    rows = [(int(place), shop, int(amount)) for place, shop, amount in ROW.findall(prompt)]
    if is_code and total:
        if answers == 0 and way == "objects":
            return block("print(len(rows), rows[:1])")
        return block(write_code(found[-1], first, int(total[-1]), way))
    if total and len(rows) < int(total[-1]):
        return f"Action: read[{json.dumps({'first': len(rows), 'count': PAGE})}]"
    return write(work_out(found[-1], rows, dict(REGION.findall(first))), is_code=is_code)


def block(code: str) -> str:
    """Return `code` as a block."""
    return f"```python\n{code}\n```"


def write(numbers: Sequence[int], *, is_code: bool) -> str:
    """Return the answer as a value in code, or as a call in words."""
    return (
        block(f"result = {list(numbers)}")
        if is_code
        else f"Action: answer[{json.dumps({'numbers': numbers})}]"
    )


def write_code(asked: Sequence[str], first: str, total: int, way: Way) -> str:
    """Return code that answers, from variables or from pages."""
    sort, what, of = asked
    if sort:
        line = "result = [r['id'] for r in sorted(rows, key=lambda r: -r['amount'])]"
    else:
        key = "r['shop']" if what == "shop" else "shops[r['shop']]"
        line = f"result = sum(r['amount'] for r in rows if {key} == {of!r})"
    if way == "objects":
        return line
    regions = ", ".join(f"{shop} {region}" for shop, region in REGION.findall(first))
    return PAGES.replace("COUNT", str(total)).replace("REGIONS", repr(regions)) + line


def work_out(
    asked: Sequence[str], rows: Sequence[tuple[int, str, int]], regions: Mapping[str, str]
) -> list[int]:
    """Return the answer from rows that were read, without error."""
    sort, what, of = asked
    if sort:
        return [row[0] for row in sorted(rows, key=lambda row: -row[2])]
    return [sum(amount for _, shop, amount in rows if of == (shop if what == "shop" else regions[shop]))]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the slope of log tokens on log rows for each of `seeds` tasks, as objects, printed and by pages."""
    count = int(options["seeds"])
    objects, pages = (Mind(partial(say, way)) for way in ("objects", "pages"))
    require_blindfold(objects, "ledger", seed=seed, agent=CODE, num=20)
    arms = {
        "method": (objects, CODE, "objects"),
        "control": (objects, CODE, "text"),
        "extra.words": (objects, WORDS, "objects"),
        "extra.tool": (pages, CODE, "objects"),
    }
    played = {
        name: [play(mind, f"ledger?rows={rows}&interface={shown}", agent, count, seed) for rows in SIZES]
        for name, (mind, agent, shown) in arms.items()
    }
    null = {
        name: [play(objects, f"ledger?rows={rows}&interface={shown}", CODE, count, seed) for rows in SMALL]
        for name, shown in (("null_method", "objects"), ("null_control", "text"))
    }
    changed = {
        name: play(objects, f"ledger?rows=100&changes=true&interface={shown}", CODE, count, seed)
        for name, shown in (("extra.follows", "objects"), ("extra.printed_follows", "text"))
    }
    return [
        {name: slope(SIZES, [size[k] for size in found]) for name, found in played.items()}
        | {name: slope(SMALL, [size[k] for size in found]) for name, found in null.items()}
        | {name: float(found[k].is_success) for name, found in changed.items()}
        | {
            f"extra.solved_{name.removeprefix('extra.')}": float(
                np.mean([size[k].is_success for size in found])
            )
            for name, found in played.items()
        }
        | {
            f"extra.tokens_{n.removeprefix('extra.')}": float(count_tokens(f[-1][k]))
            for n, f in played.items()
        }
        for k in range(count)
    ]


def play(mind: Mind, world: str, agent: str, count: int, seed: int) -> list[Trajectory]:
    """Return an episode of `mind` on each of `count` held-out tasks."""
    with play_mind(mind, world, seed=seed, agent=agent, max_tokens=60_000) as probe:
        return [*flatten_scored(probe.play(probe.tasks(count)))]


def count_tokens(trajectory: Trajectory) -> int:
    """Return the tokens that the model sees or writes, each once."""
    return sum(len(turn.prompt_ids) + len(turn.completion.token_ids) for turn in trajectory.turns)


def slope(sizes: Sequence[int], trajectories: Sequence[Trajectory]) -> float:
    """Return the slope of log tokens on log rows."""
    return float(np.polyfit(np.log(sizes), np.log([count_tokens(t) for t in trajectories]), 1)[0])
