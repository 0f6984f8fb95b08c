"""AgentIF-OneDay: does the rubric name what an agent did wrong, and that alone?

Twelve agents, each of which makes one mistake on purpose where a task gives it the chance, in the world `files`; what
each must fail is written down here by hand. A violation is an episode whose failed items are others. The control
judges the same files by the rubric of another task of the same kind. In the null world no attachment says a rule, and
who does not read it loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quintain.environments.protocol import advance, begin, tool_action
from quintain.rewards.rubric import agree, find_failed
from quintain.types import Task, derive_seed
from quintain.worlds.files.game import FilesWorld
from quintain.worlds.files.plan import FilesPlan
from quintain.worlds.files.rubrics import check_files, weights_of

ALL = {
    "workflow": {"header", "chosen", "totals", "sorted", "count", "sum", "top"},
    "latent": {"form", "days", "total"},
    "refine": {"changed", "added", "kept"},
}
Wanted = dict[str, str]
"""the files that an agent writes, by name"""
Agent = tuple[Callable[[FilesPlan, Wanted], Wanted], Mapping[str, set[str]]]
"""(task, the files that are right) → the files that it writes; what it fails in each kind of task"""


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the counts of all agents on the same tasks."""
    world, plain = FilesWorld(), FilesWorld(kind="latent", rules="none")
    first, num = derive_seed("agentif", seed) % 100_000, int(options["tasks"])
    wrong = trials = alike = 0
    said: list[bool] = []
    meant: list[bool] = []
    plans: list[tuple[FilesPlan, dict[str, str], set[str]]] = []
    for number in range(num):
        task = world.task("eval", first + number)
        for act, fails in AGENTS.values():
            failed, files = play(world, task, act)
            planted = fails.get(world.plan.kind, set())
            trials, wrong = trials + 1, wrong + (failed != planted)
            items = weights_of(world.plan.kind)
            said += [name in failed for name in items]
            meant += [name in planted for name in items]
            plans.append((world.plan, files, planted))
    others = [(plan, *find_other(plans, place)) for place, (plan, _, _) in enumerate(plans)]
    for plan, files, planted in others:
        held = check_files(plan, {**dict(plan.attached), **files})
        alike += set(find_failed(weights_of(plan.kind), held)) == planted
    lost = sum(bool(play(plain, plain.task("eval", first + n), ignore_rule)[0]) for n in range(num))
    return [
        {
            "trials": float(trials),
            "violations": float(wrong),
            "control_trials": float(len(others)),
            "control_violations": float(len(others) - alike),
            "extra.kappa": agree(said, meant).kappa,
            "extra.null_lost": lost / num,
        }
    ]


def find_other(
    plans: Sequence[tuple[FilesPlan, dict[str, str], set[str]]], place: int
) -> tuple[dict[str, str], set[str]]:
    """Return what the same agent wrote in the next task of the same kind, and what it failed there."""
    kind, step = plans[place][0].kind, len(AGENTS)
    later = [(place + step * n) % len(plans) for n in range(1, len(plans) // step + 1)]
    found = next(each for each in later if plans[each][0].kind == kind)
    return plans[found][1], plans[found][2]


def play(
    world: FilesWorld, task: Task, act: Callable[[FilesPlan, Wanted], Wanted]
) -> tuple[set[str], dict[str, str]]:
    """Return the items that who acts so fails, and what was written."""
    begin(world, task)
    files = act(world.plan, dict(world.plan.wanted))
    for name, text in files.items():
        advance(world, tool_action("write_file", path=name, text=text))
    advance(world, tool_action("submit"))
    return set(world.failed), files


def change(name: str, edit: Callable[[str], str]) -> Callable[[FilesPlan, Wanted], Wanted]:
    """Return who writes the files that are right, but for `name`, whose text it edits."""
    return lambda _, wanted: {n: edit(text) if n == name else text for n, text in wanted.items()}


def add_others(plan: FilesPlan, wanted: Wanted) -> Wanted:
    """Report the smallest order of another city, too, which stays behind the others in order."""
    if plan.kind != "workflow":
        return wanted
    lines = dict(plan.attached)["orders.csv"].splitlines()[1:]
    order, city, *_ = next(line for line in lines if line.split(",")[1] != plan.asked[0]).split(",")
    return {**wanted, "report.csv": f"{wanted['report.csv']}{order},{city},1,1,1\n"}


def raise_sum(text: str) -> str:
    """Return a summary whose sum is one more."""
    found = json.loads(text)
    return json.dumps({**found, "sum": found["sum"] + 1})


def raise_totals(text: str) -> str:
    """Return a report whose totals are all one more."""
    head, *lines = text.splitlines()
    cells = [line.split(",") for line in lines]
    return "\n".join([head, *(",".join([*row[:-1], str(int(row[-1]) + 1)]) for row in cells)]) + "\n"


def turn_rows(text: str) -> str:
    """Return a report whose first two rows are the other way round."""
    head, first, second, *rest = text.splitlines()
    return "\n".join([head, second, first, *rest]) + "\n"


def ignore_rule(plan: FilesPlan, wanted: Wanted) -> Wanted:
    """Add up what stands in the attachment, whatever the conventions say."""
    if plan.kind != "latent":
        return wanted
    rows = [line.split(",") for line in dict(plan.attached)["sales.csv"].splitlines()[1:]]
    own = [row for row in rows if row[1] == plan.asked[0]]
    return {
        "total.json": json.dumps(
            {"total": sum(int(row[2]) for row in own), "days": len({row[0] for row in own})}
        )
    }


def touch(plan: FilesPlan, wanted: Wanted) -> Wanted:
    """Change an attachment that is to stay."""
    name = {"workflow": "orders.csv", "latent": "sales.csv", "refine": "house.md"}[plan.kind]
    return {**wanted, name: f"{dict(plan.attached)[name]}\n"}


def write_anew(plan: FilesPlan, wanted: Wanted) -> Wanted:
    """Write the edited file anew, every cell without the spaces around it."""
    if plan.kind != "refine":
        return wanted
    lines = wanted["plan.csv"].splitlines()
    return {
        "plan.csv": "\n".join(",".join(cell.strip() for cell in line.split(",")) for line in lines) + "\n"
    }


def keep_name(plan: FilesPlan, wanted: Wanted) -> Wanted:
    """Add the line and forget the change."""
    return (
        {"plan.csv": f"{dict(plan.attached)['plan.csv']}{plan.asked[2]}\n"}
        if plan.kind == "refine"
        else wanted
    )


def spoil_json(_: FilesPlan, wanted: Wanted) -> Wanted:
    """Write words where JSON is asked for."""
    return {name: "It is done." if name.endswith(".json") else text for name, text in wanted.items()}


AGENTS: dict[str, Agent] = {
    "gold": (lambda _, wanted: wanted, {}),
    "nobody": (lambda _, wanted: {}, ALL),
    "turns rows": (change("report.csv", turn_rows), {"workflow": {"sorted"}}),
    "adds others": (add_others, {"workflow": {"chosen"}}),
    "raises sum": (change("summary.json", raise_sum), {"workflow": {"sum"}}),
    "raises totals": (change("report.csv", raise_totals), {"workflow": {"totals"}}),
    "ignores rule": (ignore_rule, {"latent": {"total"}}),
    "touches": (touch, {kind: {"touched"} for kind in ALL}),
    "strays": (lambda _, wanted: {**wanted, "more.txt": "x"}, {kind: {"stray"} for kind in ALL}),
    "writes anew": (write_anew, {"refine": {"kept"}}),
    "keeps name": (keep_name, {"refine": {"changed"}}),
    "spoils JSON": (spoil_json, {"workflow": {"count", "sum", "top"}, "latent": ALL["latent"]}),
}
"""Who acts, and what it fails by that."""
