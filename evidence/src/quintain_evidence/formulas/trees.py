"""What trees of searches back up and pick, each beside a plain second version."""

from dataclasses import dataclass
from math import log, sqrt
from types import ModuleType

from quintain.search.tree import Seen
from quintain_evidence.formulas.formula import Formula, Rng


@dataclass(frozen=True, slots=True)
class Land:
    """States by the letters that lead there, how a search goes about them, and how long."""

    values: dict[str, float]
    """what the model says of each, and where it is over whether it is solved"""
    over: frozenset[str]
    played: dict[str, list[str]]
    """states that were played on to from each, where something was"""
    discount: float
    backup_rate: float
    simulation_weight: float
    rounds: int

    def lead_on(self, name: str) -> list[str]:
        """Return where `name` leads."""
        return [name + letter for letter in "ab" if name + letter in self.values]


def draw_land(rng: Rng) -> Land:
    """Return a tree of one to three steps, with ends, states from which nothing leads on, and simulations."""
    names, values, over = [""], dict[str, float](), set[str]()
    depth = int(rng.integers(1, 4))
    for name in names:  # grows under way
        if name in over or len(name) >= depth or (name and rng.random() < 0.1):
            continue
        for letter in "ab":
            values[name + letter] = float(rng.random())
            if rng.random() < 0.2 or len(name) == depth - 1:
                over.add(name + letter)
                values[name + letter] = float(rng.random() < 0.3)
            names.append(name + letter)
    ends = list(names[1:])
    played = {
        name: [ends[int(k)] for k in rng.integers(0, len(ends), int(rng.integers(1, 3)))]
        for name in names[1:]
        if rng.random() < 0.4
    }
    return Land(
        values, frozenset(over), played, float(rng.uniform(0.8, 1.0)), float(rng.uniform(0.2, 1.0)),
        float(rng.random()), int(rng.integers(1, 20)),
    )  # fmt: skip


def grow_land(module: ModuleType, land: Land) -> list[float]:
    """Return visits and values of all states that the code's tree came to, by name, and the length of its answer."""

    def see(name: str) -> Seen:
        is_over = name in land.over
        return Seen(key=name, text=name, is_over=is_over, is_solved=is_over and land.values[name] > 0.5)

    tree = module.WeightedTree(
        see(""), land.values.__getitem__,
        discount=land.discount, backup_rate=land.backup_rate, simulation_weight=land.simulation_weight,
    )  # fmt: skip
    for _ in range(land.rounds):
        node = tree.select()
        if node is None:
            break
        if not node.seen.is_over:
            paths = [
                [see(name), see(end)] if ends else [see(name)]
                for name in land.lead_on(node.seen.text)
                for ends in [land.played.get(name, [])]
                for end in (ends or [""])
            ]
            tree.back_up(node, paths, [None] * len(paths))
    found = sorted((node.seen.text, node.visits, node.value, lead) for node, lead in tree.advantages())
    known = sorted((seen.text, value) for seen, value in tree.targets())
    numbers = [float(number) for _, *own in found for number in own] + [value for _, value in known]
    return [*numbers, tree.root.value, float(tree.root.visits), float(len(tree.answer()))]


def grow_land_by_hand(land: Land) -> list[float]:
    """Return the same, in tables by name."""
    visits, q, grown, dead = {"": 1}, {"": 0.0}, set[str](), set[str]()

    def is_known(name: str) -> bool:
        return name in land.over | dead or (name in grown and all(map(is_known, land.lead_on(name))))

    def bound(name: str) -> float:
        before = visits[name[:-1]] - 1
        return q[name] + sqrt(before) / (1 + visits[name]) * (1.25 + log((before + 19653.0) / 19652.0))

    for _ in range(land.rounds):
        if is_known(""):
            break
        name = ""
        while name in grown and name not in dead:
            name = max(land.lead_on(name), key=bound)
        if name not in land.over | dead:
            for child in land.lead_on(name):
                ends = [land.values[end] for end in land.played.get(child, [])]
                own = land.values[child]
                if ends and child not in land.over:
                    own += land.simulation_weight * (sum(ends) / len(ends) - own)
                visits[child], q[child] = 1, own
            (grown if land.lead_on(name) else dead).add(name)
        for length in range(len(name), -1, -1):
            above = name[:length]
            visits[above] += 1
            if above in grown:
                own = land.lead_on(above)
                mean = sum(visits[c] * q[c] for c in own) / sum(visits[c] for c in own)
                q[above] += land.backup_rate * (land.discount * mean - q[above])
    names, way = sorted(name for name in q if name), ""
    while way in grown:
        way = max(land.lead_on(way), key=lambda name: (visits[name], q[name]))
    numbers = [x for n in names for x in (float(visits[n]), q[n], land.discount * q[n] - q[n[:-1]])]
    targets = [q[n] for n in names if n in land.over | grown | dead]
    return [*numbers, *targets, q[""], float(visits[""]), float(len(way))]


FORMULAS: tuple[Formula, ...] = (
    Formula("x1.tree", "search.weighted_tree", ("WeightedTree",), draw_land, grow_land, grow_land_by_hand),
)  # fmt: skip
