"""Code that is certain to fail is refused before it runs, and nothing else is."""

from random import Random

import pytest

from quintain.agents.code_review import find_bound, review_code
from quintain.environments.tools import tool, tool_specs
from quintain.types import ToolSpec


class Desk:
    """Tools to call."""

    num_done = 0

    @tool
    def take(self, name: str, count: int, fast: bool = False) -> str:
        """Take some."""
        self.num_done += 1
        return name

    @tool
    def rest(self) -> str:
        """Rest."""
        return ""


TOOLS = tool_specs(Desk)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("take('a', 1", "line 1: '(' was never closed"),
        ("take('a')", "line 1: take(count): missing"),
        ("\ntake(1, 2)", "line 2: take(name): expected string, got 1"),
        ("take('a', '2')", 'line 1: take(count): expected integer, got "2"'),
        ("take('a', 1, True, 2)", "line 1: take takes 3 arguments: got 4"),
        ("take('a', 1, name='b')", "line 1: take got two values for name"),
        ("take('a', cout=1)", "line 1: take has no argument cout; did you mean 'count'?"),
        ("rest(1)", "line 1: rest takes 0 arguments: got 1"),
        ("print(tak('a', 1))", "line 1: nothing is called tak; did you mean 'take'?"),
        ("def f(x):\n    return g(x)\nf(1)", "line 2: nothing is called g; choose from rest, take"),
        ("take(n, count=None)", "line 1: take(count): expected integer, got null"),
        (
            "rest(1); rest(1)\nrest(2)",
            "line 1: rest takes 0 arguments: got 1; line 2: rest takes 0 arguments: got 1",
        ),
    ],
)
def test_faults_by_word(code: str, fault: str) -> None:
    assert review_code(code, TOOLS) == fault


@pytest.mark.parametrize(
    "code",
    [
        "take('a', 1)",
        "take(count=1, name='a', fast=True)",
        "take(name, count)",
        "take('a', int('1'))",
        "take(*given)",
        "take('a', *given)",
        "take('a', **given)",
        "def take(x): return x\ntake(1)",
        "from os import path as take\ntake()",
        "from os.path import *\nexists('a')",
        "import os.path\nos.path.exists('a')",
        "globals().update(f=len)\nf('a')",
        "exec('f = len')\nf('a')",
        "lambda g: g(1)",
        "[f(1) for f in (abs, len)]",
        "try: pass\nexcept Exception as f: f()",
        "match x:\n    case [f, *g]: f(), g()\n    case {'a': h, **k}: h(), k()\n    case int() as m: m()",
        "class A: pass\nA()",
        "async def f(): await g()\ndef g(): return f()",
        "while (n := abs): n(1)",
        "print(sum(map(len, 'a')), ToolError('x'))",
        "setattr(x, 'f', len)\nf(1)",
        "x.take(1)",
        "",
    ],
)
def test_what_might_run_is_let_go(code: str) -> None:
    assert review_code(code, TOOLS) == ""


def test_what_earlier_code_has_bound_is_known() -> None:
    assert find_bound("import os.path, sys as s\ndef f(a): b = a\nfor c in a: pass") == set("abcfs") | {"os"}
    assert find_bound("from m import *") == {"*"} == find_bound("vars()")
    assert review_code("take('a\0', 1)", TOOLS).startswith("line 1: ")
    assert find_bound("f(") == find_bound("f\0") == frozenset()
    assert review_code("f(1)", TOOLS, {"f"}) == "" == review_code("f(1)", TOOLS, {"*"})
    assert review_code("take(1)", TOOLS, {"take"}) == "", "what a name was bound to since is not known"


def test_300_wrong_calls_are_refused_and_300_right_twins_pass_and_none_is_carried_out() -> None:
    rng, desk = Random(3), Desk()
    for _ in range(300):
        right = {
            "name": repr(rng.choice("abc")),
            "count": str(rng.randint(-9, 9)),
            "fast": rng.choice(("True", "x")),
        }
        if rng.random() < 0.5:
            del right["fast"]
        wrong = dict(right)
        match rng.randrange(4):
            case 0:
                del wrong[rng.choice(("name", "count"))]
            case 1:
                wrong["cnt"] = "1"
            case 2:
                wrong["count"] = repr(wrong["count"])
            case _:
                wrong["name"] = "3"
        texts = [f"print(take({', '.join(f'{k}={v}' for k, v in each.items())}))" for each in (right, wrong)]
        assert (bool(review_code(texts[0], TOOLS)), bool(review_code(texts[1], TOOLS))) == (False, True), (
            texts
        )
    assert desk.num_done == 0


def test_a_schema_from_elsewhere_is_followed_as_far_as_it_goes() -> None:
    loose = ToolSpec(name="go", description="", parameters={"type": "object", "additionalProperties": True})
    assert review_code("go(where='x')", (loose,)) == ""
    assert review_code("go('x')", (loose,)) == "line 1: go takes 0 arguments: got 1"
    broken = ToolSpec(name="go", description="", parameters={"properties": {"x": {"type": "nonsense"}}})
    assert review_code("go(x=1)", (broken,)) == ""
