"""Rubrics of the world `files`: which items hold of the files that were handed in.

What is right is found here from the attachments, by reading them anew: the code that drew the task is not asked, so
that a mistake in it shows.
"""

import csv
import io
from collections.abc import Mapping
from typing import Any, cast

from quintain.types.json_text import load_json
from quintain.worlds.files.plan import FilesPlan, Kind

WEIGHTS: dict[Kind, dict[str, float]] = {
    "workflow": {"header": 1, "chosen": 2, "totals": 2, "sorted": 1, "count": 1, "sum": 2, "top": 1},
    "latent": {"form": 1, "days": 1, "total": 3},
    "refine": {"changed": 2, "added": 2, "kept": 3},
}
PENALTIES = {"touched": -2.0, "stray": -1.0}
"""An attachment was changed that is to stay; a file was written that nobody asked for."""
NOTE = {"note": 1.0}
"""What a judge says, where there is one: is the note to the customer friendly, and right?"""


def weights_of(kind: Kind, *, is_judged: bool = False) -> dict[str, float]:
    """Return the weights of the items of a task."""
    return {**WEIGHTS[kind], **(NOTE if is_judged else {}), **PENALTIES}


def check_files(
    plan: FilesPlan, files: Mapping[str, str], *, may_write: tuple[str, ...] = ()
) -> dict[str, bool]:
    """Return which items hold of `files`, those of a judge apart; `may_write` are further files that are asked for."""
    attached, asked = dict(plan.attached), {name for name, _ in plan.wanted}
    check = {"workflow": check_workflow, "latent": check_latent, "refine": check_refine}[plan.kind]
    return {
        **check(plan, attached, files),
        "touched": any(files.get(name) != text for name, text in attached.items() if name not in asked),
        "stray": bool(files.keys() - attached.keys() - asked - {*may_write}),
    }


def check_workflow(plan: FilesPlan, attached: Mapping[str, str], files: Mapping[str, str]) -> dict[str, bool]:
    """Return which items hold of report and summary."""
    orders = {row["order"]: row for row in read_rows(attached["orders.csv"]) if row["city"] == plan.asked[0]}
    worth = {order: int(row["units"]) * int(row["price"]) for order, row in orders.items()}
    report, summary = read_rows(files.get("report.csv", "")), read_object(files.get("summary.json", ""))
    written = [row.get("total", "") for row in report]
    numbers = [int(text) for text in written if text.isascii() and text.isdigit()]
    return {
        "header": files.get("report.csv", "").startswith("order,city,units,price,total\n"),
        "chosen": sorted(row.get("order", "") for row in report) == sorted(orders),
        "totals": bool(report) and all(is_product(row) for row in report),
        "sorted": 1 < len(numbers) == len(written) and numbers == sorted(numbers, reverse=True),
        "count": is_number(summary.get("count"), len(orders)),
        "sum": is_number(summary.get("sum"), sum(worth.values())),
        "top": summary.get("top") == max(worth, key=lambda order: worth[order]),
    }


def check_latent(plan: FilesPlan, attached: Mapping[str, str], files: Mapping[str, str]) -> dict[str, bool]:
    """Return which items hold of the totals, by what the conventions say."""
    said = attached["conventions.md"]
    days: set[str] = set()
    cents = 0
    for row in read_rows(attached["sales.csv"]):
        if row["shop"] != plan.asked[0]:
            continue
        days.add(row["day"])
        if row["state"] == "void" and "void does not count" in said:
            continue
        is_return = row["state"] == "back" and "counts as minus" in said
        cents += int(row["amount"]) * (-100 if is_return else 100)
    factor = 10 if "thousands of euros" in said else 0.01
    answer = read_object(files.get("total.json", ""))
    return {
        "form": answer.keys() == {"total", "days"},
        "days": is_number(answer.get("days"), len(days)),
        "total": is_number(answer.get("total"), round(cents * factor)),
    }


def check_refine(plan: FilesPlan, attached: Mapping[str, str], files: Mapping[str, str]) -> dict[str, bool]:
    """Return which items hold of the file that was edited; where nothing was, nothing was kept."""
    day, name, added = plan.asked
    before, after = attached["plan.csv"].split("\n"), files.get("plan.csv", "").split("\n")
    place = next(n for n, line in enumerate(before) if line.startswith(f"{day},"))
    cells = [cell.strip() for cell in before[place].split(",")]
    line = after[place] if place < len(after) else ""
    is_changed = [cell.strip() for cell in line.split(",")] == [day, name, cells[2]]
    is_added = added in after[-2:]
    rest = [each for n, each in enumerate(before) if n != place and each]
    others = [each for n, each in enumerate(after) if n != place and each and each != added]
    has_desk = line.partition(",")[2].partition(",")[2] == before[place].partition(",")[2].partition(",")[2]
    return {
        "changed": is_changed,
        "added": is_added,
        "kept": (is_changed or is_added) and others == rest and (has_desk or not is_changed),
    }


def read_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a CSV `text` by its header; cells that are missing are empty."""
    return [
        {str(key): str(value or "") for key, value in row.items()}
        for row in csv.DictReader(io.StringIO(text), restkey="more", restval="")
    ]


def read_object(text: str) -> dict[str, Any]:
    """Return the JSON object `text`; {} where it is none."""
    try:
        found: object = load_json(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def is_product(row: Mapping[str, str]) -> bool:
    """Return whether the total of `row` is units times price."""
    try:
        return int(row["total"]) == int(row["units"]) * int(row["price"])
    except (KeyError, ValueError):
        return False


def is_number(value: object, wanted: int) -> bool:
    """Return whether `value` is the number `wanted`, and no truth or text."""
    return type(value) in (int, float) and value == wanted
