"""Functions of numbers for the world `repo`."""

from random import Random

from quintain.worlds.repo.template import Arguments, Constants, Template

PAIR = (("a", "b"), ("x", "y"), ("first", "second"))
ONE = (("n",), ("number",), ("value",))


def _clamp(rng: Random, _: Constants) -> list[Arguments]:
    low = rng.randint(-9, 9)
    high = low + rng.randint(3, 9)
    return [[low - rng.randint(1, 9), low, high], [high + rng.randint(1, 9), low, high], [low + 1, low, high]]


def _thresholds(rng: Random, k: Constants) -> list[Arguments]:
    return [[k["k"]], [k["k"] - 1], [k["k"] + rng.randint(1, 9)], [k["k"] - rng.randint(2, 9)]]


def _positive(rng: Random, _: Constants) -> list[Arguments]:
    return [[rng.randint(3, 9)], [rng.randint(10, 99)], [rng.randint(100, 999)]]


def _gcd(numbers: tuple[int, int]) -> int:
    return max(d for d in range(1, min(numbers) + 1) if not numbers[0] % d and not numbers[1] % d)


NUMBERS: dict[str, Template] = {
    "clamp": Template(
        says="Return $a, but at least $b and at most $c.",
        names=("clamp", "limit", "bound"),
        arguments=(("value", "low", "high"), ("x", "least", "most"), ("n", "bottom", "top")),
        body=("if $a < $b:", "    return $b", "if $a > $c:", "    return $c", "return $a"),
        bugs=(("$a < $b", "$a > $b"), ("    return $c", "    return $b"), ("$a > $c", "$a < $c")),
        solve=lambda _, value, low, high: sorted((value, low, high))[1],
        cases=_clamp,
    ),
    "larger": Template(
        says="Return the larger of $a and $b.",
        names=("larger", "maximum", "greater"),
        arguments=PAIR,
        body=("if $a > $b:", "    return $a", "return $b"),
        bugs=(("$a > $b", "$a < $b"), ("    return $a", "    return $b"), ("return $b", "return $a")),
        solve=lambda _, a, b: max(a, b),
        cases=lambda rng, _: [[n := rng.randint(1, 50), n + rng.randint(1, 9)], [n + rng.randint(1, 9), n]],
    ),
    "distance": Template(
        says="Return how far $a is from $b, never negative.",
        names=("distance", "gap", "difference"),
        arguments=PAIR,
        body=("gap = $a - $b", "if gap < 0:", "    gap = -gap", "return gap"),
        bugs=(("$a - $b", "$a + $b"), ("gap < 0", "gap > 0"), ("gap = -gap", "gap = 0")),
        solve=lambda _, a, b: abs(a - b),
        cases=lambda rng, _: [[n := rng.randint(1, 50), n + rng.randint(1, 9)], [n + rng.randint(1, 9), n]],
    ),
    "price": Template(
        says="Return the price of $a things at $b each; from $k things on, $cut less in all.",
        names=("price", "total", "cost"),
        arguments=(("count", "each"), ("amount", "unit"), ("num", "single")),
        body=("total = $a * $b", "if $a >= $k:", "    total -= $cut", "return total"),
        bugs=(("$a * $b", "$a + $b"), (">= $k", "> $k"), ("-= $cut", "+= $cut")),
        solve=lambda k, count, each: count * each - (k["cut"] if count >= k["k"] else 0),
        cases=lambda rng, k: [
            [k["k"], rng.randint(5, 20)],
            [k["k"] - 1, rng.randint(5, 20)],
            [k["k"] + rng.randint(1, 5), rng.randint(5, 20)],
        ],
        constants={"k": (5, 6, 8, 10, 12), "cut": (2, 3, 4, 7)},
    ),
    "is_enough": Template(
        says="Return whether $a is $k or more.",
        names=("is_enough", "has_passed", "is_full"),
        arguments=ONE,
        body=("return $a >= $k",),
        bugs=((">=", ">"), (">=", "<="), (">=", "<")),
        solve=lambda k, value: value >= k["k"],
        cases=_thresholds,
        constants={"k": (10, 12, 15, 18, 20, 50)},
    ),
    "grade": Template(
        says="Return 2 from $k points on, 1 from $h on, else 0.",
        names=("grade", "level", "rank"),
        arguments=(("points",), ("score",), ("marks",)),
        body=("if $a >= $k:", "    return 2", "if $a >= $h:", "    return 1", "return 0"),
        bugs=(
            (">= $k", "> $k"),
            (">= $h", "> $h"),
            ("    return 2", "    return 1"),
            ("return 0", "return 1"),
        ),
        solve=lambda k, points: (points >= k["k"]) + (points >= k["h"]),
        cases=lambda rng, k: [[k["k"]], [k["h"]], [k["h"] - rng.randint(1, 9)], [k["k"] + rng.randint(1, 9)]],
        constants={"h": (10, 20, 30), "k": (50, 60, 80)},
    ),
    "sum_to": Template(
        says="Return the sum of the numbers from 1 to $a.",
        names=("sum_to", "add_up", "triangle"),
        arguments=ONE,
        body=("total = 0", "for i in range(1, $a + 1):", "    total += i", "return total"),
        bugs=(("$a + 1", "$a"), ("total = 0", "total = 1"), ("total += i", "total = i"), ("(1, ", "(2, ")),
        solve=lambda _, n: n * (n + 1) // 2,
        cases=lambda rng, _: [[rng.randint(3, 9)], [rng.randint(10, 20)]],
    ),
    "digit_sum": Template(
        says="Return the sum of the digits of $a.",
        names=("digit_sum", "cross_sum", "add_digits"),
        arguments=ONE,
        body=("total = 0", "while $a > 0:", "    total += $a % 10", "    $a = $a // 10", "return total"),
        bugs=(("$a % 10", "$a // 10"), ("$a > 0", "$a > 9"), ("total = 0", "total = 1")),
        solve=lambda _, n: sum(map(int, str(n))),
        cases=_positive,
    ),
    "count_digits": Template(
        says="Return how many digits $a has.",
        names=("count_digits", "num_digits", "width"),
        arguments=ONE,
        body=("count = 1", "while $a >= 10:", "    $a = $a // 10", "    count += 1", "return count"),
        bugs=(("count = 1", "count = 0"), (">= 10", "> 100"), ("count += 1", "count += 2")),
        solve=lambda _, n: len(str(n)),
        cases=lambda rng, _: [[rng.randint(1, 9)], [rng.randint(10, 99)], [rng.randint(100, 999)], [10]],
    ),
    "divisor": Template(
        says="Return the largest number that divides $a and $b.",
        names=("divisor", "gcd", "common"),
        arguments=PAIR,
        body=("while $b:", "    $a, $b = $b, $a % $b", "return $a"),
        bugs=(("$a % $b", "$a // $b"), ("return $a", "return $b")),
        solve=lambda _, *numbers: _gcd(numbers),
        cases=lambda rng, _: [[(n := rng.randint(2, 9)) * 5, n * 2], [n * 3, n * 9], [n * 7 + 1, n * 7]],
    ),
    "is_leap": Template(
        says="Return whether $a is a leap year.",
        names=("is_leap", "has_leap_day", "leap"),
        arguments=(("year",), ("y",)),
        body=("if $a % 100 == 0:", "    return $a % 400 == 0", "return $a % 4 == 0"),
        bugs=(
            ("% 400 == 0", "% 400 != 0"),
            ("return $a % 4 ==", "return $a % 2 =="),
            ("% 100 ==", "% 100 !="),
        ),
        solve=lambda _, year: year % 4 == 0 and (year % 100 != 0 or year % 400 == 0),
        cases=lambda rng, _: [[1900], [2000], [2002 + 4 * rng.randint(0, 9)], [2004 + 4 * rng.randint(0, 9)]],
    ),
    "steps": Template(
        says="Return how often $a can be halved or made odd by 3 $a + 1 until it is 1.",
        names=("steps", "collatz", "hops"),
        arguments=ONE,
        body=(
            "count = 0",
            "while $a != 1:",
            "    if $a % 2 == 0:",
            "        $a = $a // 2",
            "    else:",
            "        $a = 3 * $a + 1",
            "    count += 1",
            "return count",
        ),
        bugs=(("count = 0", "count = 1"), ("count += 1", "count += 2"), ("return count", "return $a")),
        solve=lambda _, n: _steps(n),
        cases=lambda rng, _: [[rng.randint(3, 8)], [rng.randint(9, 30)]],
    ),
}


def _steps(n: int) -> int:
    return 0 if n == 1 else 1 + _steps(n // 2 if n % 2 == 0 else 3 * n + 1)
