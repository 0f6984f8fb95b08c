"""Tasks of the world `files`: attachments, what is asked for, and the files that are right. Nothing here judges."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal["workflow", "latent", "refine"]
KINDS: tuple[Kind, ...] = ("workflow", "latent", "refine")
CITIES = ("Lyon", "Porto", "Graz", "Bergen", "Ghent")
SHOPS = ("Nord", "West", "Mill", "Quay")
PEOPLE = ("Ana", "Ben", "Cleo", "Dan", "Eva", "Finn")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri")
RULES = {
    "thousands": "Amounts are written in thousands of euros.",
    "void": "A row in the state void does not count.",
    "back": "A row in the state back is a return: its amount counts as minus.",
}
"""What a file may say that changes what is right."""
HABITS = (
    "Days are numbered from the start of the year.",
    "Shops are named by their street.",
    "Files end in a newline.",
)
Files = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesPlan:
    """A task: ``FilesPlan(kind="refine", request="…", attached=(("plan.csv", "…"),), wanted=(…), asked=(…))``."""

    kind: Kind
    request: str
    attached: Files
    wanted: Files
    """the files that are written or written over, as they are right"""
    asked: tuple[str, ...]
    """what the request names, for who checks: of a workflow the city, of a latent rule shop and rule, of an edit the
    shift, who takes it, and the line that is added"""


def draw_workflow(rng: Random) -> FilesPlan:
    """Return a task of many steps that are all said."""
    city, *others = rng.sample(CITIES, 3)
    totals = rng.sample(range(2, 60), rng.randint(7, 10))
    num = rng.randint(3, len(totals) - 2)
    rows: list[tuple[str, str, int, int]] = []
    for place, total in enumerate(totals):
        units = rng.choice([n for n in (1, 2, 3, 4) if total % n == 0])
        rows.append((f"A{100 + place}", city if place < num else rng.choice(others), units, total // units))
    rng.shuffle(rows)
    head = "order,city,units,price"
    own = sorted((row for row in rows if row[1] == city), key=lambda row: -row[2] * row[3])
    if [row for row in rows if row[1] == city] == own:
        rows.reverse()
    report = "\n".join([f"{head},total", *(f"{o},{c},{u},{p},{u * p}" for o, c, u, p in own)]) + "\n"
    summary = {"count": len(own), "sum": sum(u * p for _, _, u, p in own), "top": own[0][0]}
    return FilesPlan(
        kind="workflow",
        request=(
            f"From orders.csv write report.csv: its header with a column total at the end, then the orders of {city} "
            "alone, each with units times price as its total, the largest total first. Then write summary.json with "
            "count, how many these are, sum, their totals together, and top, the order of the largest. Leave "
            "orders.csv as it is, and write no other file."
        ),
        attached=(("orders.csv", "\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n"),),
        wanted=(("report.csv", report), ("summary.json", json.dumps(summary))),
        asked=(city,),
    )


def draw_latent(rng: Random, *, is_ruled: bool) -> FilesPlan:
    """Return a task with a rule that only an attachment says; one of its habits in its place unless it `is_ruled`."""
    shop, *others = rng.sample(SHOPS, 3)
    rule = rng.choice(sorted(RULES)) if is_ruled else ""
    state = rule if rule in ("void", "back") else rng.choice(["void", "back"]) if is_ruled else "ok"
    rows = [(rng.randint(1, 9), shop, rng.randint(3, 60), "ok") for _ in range(4)]
    if is_ruled:
        rows.append((rng.randint(1, 9), shop, rng.randint(1, 9), state if rule != "thousands" else "ok"))
    rows += [
        (rng.randint(1, 9), rng.choice(others), rng.randint(3, 60), rng.choice(["ok", state]))
        for _ in range(4)
    ]
    rng.shuffle(rows)
    own = [row for row in rows if row[1] == shop]
    worth = {"void": 0, "back": -1}
    total = sum(amount * (worth[rule] if said == rule else 1) for _, _, amount, said in own)
    answer = {"total": total * (1000 if rule == "thousands" else 1), "days": len({row[0] for row in own})}
    told = [*rng.sample(HABITS, 2), *([RULES[rule]] if rule else [])]
    rng.shuffle(told)
    lines = ["day,shop,amount,state", *(",".join(map(str, row)) for row in rows)]
    return FilesPlan(
        kind="latent",
        request=(
            f"Write total.json with total, what the shop {shop} sold in euros, and days, the number of different days "
            "on which it has a row. Write no other file."
        ),
        attached=(
            ("sales.csv", "\n".join(lines) + "\n"),
            ("conventions.md", "# Conventions\n\n" + "\n".join(f"- {line}" for line in told) + "\n"),
        ),
        wanted=(("total.json", json.dumps(answer)),),
        asked=(shop, rule),
    )


def draw_refine(rng: Random) -> FilesPlan:
    """Return a task that changes a line of a finished file, adds one, and must leave the rest as it is."""
    odd = rng.randrange(len(DAYS))
    lines: list[tuple[str, str, str]] = []
    for place, day in enumerate(DAYS):
        left, right = ("  ", " ") if place == odd else rng.choice([("", ""), ("", " "), (" ", "")])
        lines.append((day, rng.choice(PEOPLE), f"{left}desk {rng.randint(1, 9)}{right}"))
    place = rng.choice([n for n in range(len(DAYS)) if n != odd])
    day, before, desk = lines[place]
    after = rng.choice([name for name in PEOPLE if name != before])
    added = f"Sat,{rng.choice(PEOPLE)},desk {rng.randint(1, 9)}"
    changed = [*lines[:place], (day, after, desk), *lines[place + 1 :]]

    def write(rows: list[tuple[str, str, str]], *more: str) -> str:
        return "\n".join(["day,name,place", *map(",".join, rows), *more]) + "\n"

    return FilesPlan(
        kind="refine",
        request=(
            f"In plan.csv {after} takes the shift of {day} in the place of {before}. Add the line {added} at the end. "
            "Change nothing else, not a space, and write no other file."
        ),
        attached=(("plan.csv", write(lines)), ("house.md", "# House\n\nThe door opens at eight.\n")),
        wanted=(("plan.csv", write(changed, added)),),
        asked=(day, after, added),
    )


def draws(*, is_ruled: bool) -> dict[Kind, Callable[[Random], FilesPlan]]:
    """Return how each kind of task is drawn."""
    return {
        "workflow": draw_workflow,
        "latent": lambda rng: draw_latent(rng, is_ruled=is_ruled),
        "refine": draw_refine,
    }
