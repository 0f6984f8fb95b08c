"""What AgentOccam's pages keep and its plans show, each beside a plain second version."""

import re
from types import ModuleType

from quintain_evidence.formulas.formula import Formula, Rng

ACTED_ON = ("link", "button", "textbox", "option")
SHOWN = ("StaticText", "generic", "cell", "row", "table", "list", "listitem", "group")
Drawn = list[tuple[int, str, str]]
"""(depth, role, name) of each node, in order; its id is its place"""
Command = tuple[str, int]


def draw_nodes(rng: Rng) -> Drawn:
    """Return up to 15 nodes of a page."""
    found: Drawn = []
    depth = 0
    for _ in range(int(rng.integers(1, 16))):
        role = str(rng.choice([*ACTED_ON, *SHOWN]))
        found.append((depth, role, str(rng.choice(["", "", "a", "b", "a b", "c"]))))
        depth = int(rng.integers(0, depth + 2))
    return found


def keep_by_code(module: ModuleType, case: Drawn) -> list[float]:
    """Return the ids that can be acted on, in order, which words stand in the page, and what holders are left."""
    raw = "\n".join(f'{"  " * depth}[{k}] {role} "{name}"' for k, (depth, role, name) in enumerate(case))
    page = module.simplify(raw)
    nodes = re.findall(r'\[(\d+)\] (\w+) "([^"]*)"', page)
    ids = [float(k) for k, role, _ in nodes if role in ACTED_ON]
    text = re.sub(r"\[\d+\] \w+", " ", page)
    words = [float(re.search(rf"\b{word}\b", text) is not None) for word in "abc"]
    empty = sum(role in ("generic", "StaticText") and not name for _, role, name in nodes)
    return [*ids, *words, float(empty), float(module.simplify(page) == page)]


def keep_by_rule(case: Drawn) -> list[float]:
    """Return the same from what was drawn: all that can be acted on, every word, and nothing that says nothing."""
    ids = [float(k) for k, (_, role, _) in enumerate(case) if role in ACTED_ON]
    words = [float(any(word in name.split() for *_, name in case)) for word in "abc"]
    return [*ids, *words, 0.0, 1.0]


def draw_commands(rng: Rng) -> list[Command]:
    """Return up to twelve planning actions, some of plans that there are not."""
    kinds = ("branch", "branch", "prune", "note", "act")
    return [(str(rng.choice(kinds)), int(rng.integers(0, 7))) for _ in range(int(rng.integers(1, 13)))]


def plan_by_code(module: ModuleType, case: list[Command]) -> list[float]:
    """Return after each action whether it was one, was wrong, which plan is current, and lines of the tree."""
    tree = module.PlanTree()
    found: list[float] = []
    for verb, number in case:
        said = tree.take(f"{verb} [{number}] it" if verb != "note" else f"note [{number}]")
        lines = tree.write().splitlines()
        now = [k for k, line in enumerate(lines) if line.endswith("<- now")]
        found += [said is None, bool(said), tree.current, len(lines), *now]
    return [float(each) for each in found]


def plan_by_sets(case: list[Command]) -> list[float]:
    """Return the same from sets of plans."""
    above: dict[int, int] = {1: 0}
    pruned, notes = set[int](), list[int]()
    current, found = 1, list[float]()

    def chain(number: int) -> list[int]:
        return [number, *chain(above[number])] if number else []

    def lines_of(number: int) -> list[int]:
        if number in pruned:
            return [number]
        under = [other for other in sorted(above) if above[other] == number]
        return [number, *[0] * notes.count(number), *(line for each in under for line in lines_of(each))]

    for verb, number in case:
        is_live = number in above and not pruned.intersection(chain(number))
        is_wrong = verb in ("branch", "prune") and (not is_live or (verb == "prune" and number == 1))
        if verb == "note":
            notes.append(current)
        elif verb == "branch" and not is_wrong:
            current = len(above) + 1
            above[current] = number
        elif verb == "prune" and not is_wrong:
            pruned.add(number)
            current = above[number] if number in chain(current) else current
        lines = lines_of(1)
        found += [verb == "act", is_wrong, current, 1 + len(lines), 1 + lines.index(current)]
    return [float(each) for each in found]


FORMULAS: tuple[Formula, ...] = (
    Formula("agents.pages", "agents.pages", ("simplify",), draw_nodes, keep_by_code, keep_by_rule),
    Formula("agents.plan_tree", "agents.plan_tree", ("PlanTree",), draw_commands, plan_by_code, plan_by_sets),
)  # fmt: skip
