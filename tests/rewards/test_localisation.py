"""Where a change is, by file and function."""

from quintain.rewards.localisation import OUTSIDE, find_changed_places, localise

BEFORE = {
    "a.py": "import x\n\ndef f(a):\n    return a\n\ndef g(a):\n    return 1\n",
    "b.py": "def h():\n    pass\n",
}


def test_layout_and_comments_are_no_change() -> None:
    after = {**BEFORE, "a.py": "import x\ndef f(a):\n    # so\n    return (a)\n\n\ndef g(a):\n    return 1\n"}
    assert find_changed_places(BEFORE, after) == frozenset()


def test_functions_files_and_the_rest() -> None:
    after = {
        "a.py": BEFORE["a.py"].replace("return a", "return -a").replace("import x", "import y"),
        "c.py": "X = 1\n",
    }
    assert find_changed_places(BEFORE, after) == {
        ("a.py", "f"),
        ("a.py", OUTSIDE),
        ("b.py", "h"),
        ("c.py", OUTSIDE),
    }
    assert find_changed_places({"a.py": "def ("}, {"a.py": "def (("}) == {("a.py", OUTSIDE)}


def test_how_places_lie_to_the_right_ones() -> None:
    right = frozenset({("a.py", "f")})
    found = [
        localise(frozenset(changed), right)
        for changed in ({("a.py", "f"), ("b.py", "h")}, {("a.py", "g")}, ())
    ]
    assert [(each.file, each.function, each.num_others) for each in found] == [
        (True, True, 1),
        (True, False, 1),
        (False, False, 0),
    ]
