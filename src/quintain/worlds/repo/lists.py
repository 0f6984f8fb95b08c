"""Functions of lists for the world `repo`."""

from random import Random
from typing import Any

from quintain.worlds.repo.template import Arguments, Constants, Template

ITEMS = (("items",), ("values",), ("numbers",))
SIZED = (("items", "size"), ("values", "count"), ("numbers", "n"))


def _numbers(rng: Random, least: int = 4) -> list[int]:
    return rng.sample(range(1, 60), rng.randint(least, 6))


def _lists(rng: Random, _: Constants) -> list[Arguments]:
    rising = sorted(_numbers(rng))
    return [[rising], [rising[::-1]], [_numbers(rng)]]


def _with_empty(rng: Random, _: Constants) -> list[Arguments]:
    return [[[]], [_numbers(rng)], [_numbers(rng)]]


def _repeats(rng: Random, _: Constants) -> list[Arguments]:
    a, b, c = rng.sample(range(1, 30), 3)
    return [[[a, a, b, a]], [[b, c, c]], [[c, a, b, b, a]]]


def _draw_sized(rng: Random, _: Constants) -> list[Arguments]:
    return [[_numbers(rng, 5), 2], [_numbers(rng, 5), 3]]


def _around(rng: Random, k: Constants) -> list[Arguments]:
    far = k["k"] + rng.randint(2, 9)
    return [
        [[k["k"], far, k["k"] - 1]],
        [[k["k"], k["k"], k["k"] - rng.randint(1, 5)]],
        [[far, far + 1, far + 2]],
    ]


def _unique(items: list[int]) -> list[int]:
    return list(dict.fromkeys(items))


def _runs(items: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for item in items:
        if found and found[-1][0] == item:
            found[-1][1] += 1
        else:
            found.append([item, 1])
    return found


def _case(*given: Any) -> Arguments:
    return list(given)


LISTS: dict[str, Template] = {
    "mean": Template(
        says="Return the mean of $a, 0 for an empty list.",
        names=("mean", "average", "middle"),
        arguments=ITEMS,
        body=("if not $a:", "    return 0", "return sum($a) / len($a)"),
        bugs=(("/ len($a)", "/ 2"), ("return 0", "return 1"), ("sum($a)", "max($a)")),
        solve=lambda _, items: sum(items) / len(items) if items else 0,
        cases=lambda rng, _: [_case([]), _case(_numbers(rng, 5)), _case(_numbers(rng, 3))],
    ),
    "largest": Template(
        says="Return the largest of $a.",
        names=("largest", "highest", "top"),
        arguments=ITEMS,
        body=("best = $a[0]", "for item in $a:", "    if item > best:", "        best = item", "return best"),
        bugs=(("item > best", "item < best"), ("return best", "return item"), ("in $a:", "in $a[:1]:")),
        solve=lambda _, items: max(items),
        cases=_lists,
    ),
    "total": Template(
        says="Return the sum of $a.",
        names=("total", "add_all", "sum_of"),
        arguments=ITEMS,
        body=("total = 0", "for item in $a:", "    total += item", "return total"),
        bugs=(("+= item", "-= item"), ("in $a:", "in $a[1:]:"), ("total = 0", "total = 1")),
        solve=lambda _, items: sum(items),
        cases=_with_empty,
    ),
    "count_above": Template(
        says="Return how many of $a are larger than $k.",
        names=("count_above", "num_large", "count_large"),
        arguments=ITEMS,
        body=("count = 0", "for item in $a:", "    if item > $k:", "        count += 1", "return count"),
        bugs=((" > $k", " >= $k"), (" > $k", " < $k"), ("count = 0", "count = 1"), ("+= 1", "+= item")),
        solve=lambda k, items: sum(item > k["k"] for item in items),
        cases=_around,
        constants={"k": (10, 12, 15, 20, 25)},
    ),
    "evens": Template(
        says="Return the even numbers of $a.",
        names=("evens", "even_only", "keep_even"),
        arguments=ITEMS,
        body=("return [item for item in $a if item % 2 == 0]",),
        bugs=(("== 0", "== 1"), ("[item for", "[-item for"), ("in $a if", "in $a[1:] if")),
        solve=lambda _, items: [item for item in items if not item & 1],
        cases=lambda rng, _: [
            _case([2 * rng.randint(1, 9), 2 * rng.randint(1, 9) + 1, n := 2 * rng.randint(1, 9)]),
            _case([n, n + 1, n + 2]),
        ],
    ),
    "scaled": Template(
        says="Return $a with every item times $k.",
        names=("scaled", "times", "stretch"),
        arguments=ITEMS,
        body=("return [item * $k for item in $a]",),
        bugs=(("* $k", "+ $k"), ("in $a]", "in $a[1:]]"), ("* $k", "- $k")),
        solve=lambda k, items: [k["k"] * item for item in items],
        cases=_with_empty,
        constants={"k": (3, 4, 5, 7, 9)},
    ),
    "last": Template(
        says="Return the last $b of $a.",
        names=("last", "tail", "ending"),
        arguments=SIZED,
        body=("return $a[len($a) - $b:]",),
        bugs=(("[len($a) - $b:]", "[:$b]"), ("- $b", "- $b - 1"), ("- $b", "- $b + 1")),
        solve=lambda _, items, size: items[-size:],
        cases=_draw_sized,
    ),
    "chunks": Template(
        says="Return $a in lists of $b; the last may be shorter.",
        names=("chunks", "batches", "pieces"),
        arguments=SIZED,
        body=("return [$a[i:i + $b] for i in range(0, len($a), $b)]",),
        bugs=(("i + $b]", "i + 1]"), ("range(0,", "range(1,"), ("len($a), $b)", "len($a))")),
        solve=lambda _, items, size: [items[i : i + size] for i in range(0, len(items), size)],
        cases=_draw_sized,
    ),
    "unique": Template(
        says="Return $a without repeats, in order.",
        names=("unique", "distinct", "without_repeats"),
        arguments=ITEMS,
        body=(
            "seen = []",
            "for item in $a:",
            "    if item not in seen:",
            "        seen.append(item)",
            "return seen",
        ),
        bugs=(("item not in", "item in"), ("return seen", "return $a"), ("append(item)", "insert(0, item)")),
        solve=lambda _, items: _unique(items),
        cases=_repeats,
    ),
    "runs": Template(
        says="Return each item of $a with the number of times it stands in a row.",
        names=("runs", "encode", "row_lengths"),
        arguments=ITEMS,
        body=(
            "runs = []",
            "for item in $a:",
            "    if runs and runs[-1][0] == item:",
            "        runs[-1][1] += 1",
            "    else:",
            "        runs.append([item, 1])",
            "return runs",
        ),
        bugs=(("[1] += 1", "[1] += 2"), ("[0] == item", "[0] != item"), ("[item, 1]", "[item, 0]")),
        solve=lambda _, items: _runs(items),
        cases=_repeats,
    ),
    "running_sum": Template(
        says="Return the sums of the first 1, 2, ... of $a.",
        names=("running_sum", "cumulative", "partial_sums"),
        arguments=ITEMS,
        body=(
            "total = 0",
            "sums = []",
            "for item in $a:",
            "    total += item",
            "    sums.append(total)",
            "return sums",
        ),
        bugs=(
            ("append(total)", "append(item)"),
            ("total = 0", "total = 1"),
            ("total += item", "total = item"),
        ),
        solve=lambda _, items: [sum(items[: i + 1]) for i in range(len(items))],
        cases=_with_empty,
    ),
    "is_sorted": Template(
        says="Return whether $a never falls.",
        names=("is_sorted", "is_rising", "in_order"),
        arguments=ITEMS,
        body=(
            "for i in range(1, len($a)):",
            "    if $a[i] < $a[i - 1]:",
            "        return False",
            "return True",
        ),
        bugs=(("] < $a", "] <= $a"), ("] < $a", "] > $a"), ("return False", "return True")),
        solve=lambda _, items: sorted(items) == items,
        cases=lambda rng, _: [
            _case([n := rng.randint(1, 20), n, n + rng.randint(1, 9)]),
            _case([n + 5, n, n + 2]),
            _case([n, n + 1, n + rng.randint(2, 9)]),
        ],
    ),
}
