"""Every attack is denied and reported, every weakened build is caught, and there are as many as are promised."""

from collections import Counter

import pytest
from tests.attacks import files, kernel, loading, names, network, resources, rewards, secrets, templates
from tests.attacks.attack import MINIMUM, Attack, Scene

ROOMS = (kernel, files, network, resources, secrets, rewards, loading, templates, names)
ATTACKS: list[Attack] = [attack for room in ROOMS for attack in room.ATTACKS]
EACH = pytest.mark.parametrize(
    "attack",
    [
        pytest.param(each, id=f"{each.kind} {each.name}", marks=pytest.mark.attack(each.kind))
        for each in ATTACKS
    ],
)


@EACH
def test_it_is_denied_and_reported(attack: Attack, scene: Scene) -> None:
    scene.canaries.touched()
    found = attack.attempt(scene)
    assert not found.landed, found.said
    assert found.said, "denied without a word"
    assert scene.canaries.touched() == []


@EACH
def test_a_weakened_build_is_caught(attack: Attack, scene: Scene) -> None:
    attack.weaken(scene)
    found = attack.attempt(scene)
    if not found.landed and attack.alone is not None:
        attack.alone(scene)
        outside = attack.attempt(scene)
        if not outside.landed:
            pytest.skip(
                f"{attack.name} could not be tried here: this machine stops it by itself: {outside.said}"
            )
    assert found.landed, f"denied by something else than the defence that it tests: {found.said}"


def test_there_are_as_many_as_are_promised() -> None:
    counts = Counter(attack.kind for attack in ATTACKS)
    assert {kind: counts[kind] for kind, least in MINIMUM.items() if counts[kind] < least} == {}
    assert len({(attack.kind, attack.name) for attack in ATTACKS}) == len(ATTACKS)
