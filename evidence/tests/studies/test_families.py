"""evidence/studies/families.py: what is counted of choices, and that kinds are drawn evenly."""

from __future__ import annotations

from tests.speed_scripts import load_script

from quintain.types import Group, Task

FAMILIES = load_script("evidence/studies/families.py")


def group(kind: str) -> Group:
    """Return a task of `kind` without episodes."""
    return Group(task=Task(id=f"{kind}/0", environment=kind, seed=0), trajectories=())


def test_the_share_is_that_of_kinds_that_can_be_learned() -> None:
    counted = FAMILIES.Counted(FAMILIES.Evenly())
    counted.update([group("guess"), group("solved 0"), group("hopeless 0")])
    counted.update([group("far")])
    assert counted.share == 0.5


def test_kinds_are_drawn_with_equal_chances_whatever_became_of_them() -> None:
    counted = FAMILIES.Counted(FAMILIES.Evenly())
    counted.update([group("a")] * 50)
    drawn = [kind for seed in range(200) for kind in counted.choose(["a", "b"], 4, seed)]
    assert len(drawn) == 800 and 350 < drawn.count("a") < 450
    assert counted.choose(["a", "b"], 9, 3) == counted.choose(["a", "b"], 9, 3)
