import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from quintain.adapters.crafter import expert as crafter_expert
from quintain.adapters.crafter.environment import Crafter, name_of, nearest
from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.probes import PROBES, Subject
from quintain.environments.protocol import Expert, advance, begin
from quintain.errors import EnvironmentFault, MissingExtra, UsageError
from quintain.types import Action

pytestmark = pytest.mark.timeout(900)
real = pytest.mark.real("crafter")
SIZE = 32
"""Small lands are made faster."""
CHECKED = (
    "builds",
    "tasks",
    "random play",
    "nonsense",
    "determinism",
    "no leak",
    "snapshot",
    "legal actions",
    "closing",
)
GOALS = (
    "collect_drink",
    "collect_sapling",
    "collect_wood",
    "eat_cow",
    "make_wood_pickaxe",
    "make_wood_sword",
    "place_plant",
    "place_table",
    "wake_up",
)
"""Goals that every land allows, near the start."""
DEEP = (
    "collect_coal",
    "collect_stone",
    "make_stone_pickaxe",
    "make_stone_sword",
    "place_furnace",
    "place_stone",
)
"""Goals that need stone."""
DEEPER = ("collect_iron", "defeat_skeleton", "make_iron_sword")
"""Goals in caves, of lands of the full size."""
WALK = """
import hashlib, random, sys
from quintain.adapters.crafter.environment import Crafter
from quintain.environments.protocol import advance, begin
from quintain.types import Action
junk = [object() for _ in range(int(sys.argv[1]))]  # other addresses in each process
world = Crafter("score", size=32)
seen = [begin(world, world.task("train", 3))]
rng = random.Random(5)
for _ in range(250):
    result = advance(world, Action(text=rng.choice(world.legal_actions())))
    player = world._game._player
    where = sorted((type(each).__name__, *map(int, each.pos)) for each in world._game._world.objects)
    seen.append(f"{result.observation} {result.reward} {where}")
    if result.is_terminated:
        break
print(len(seen), hashlib.sha256("".join(seen).encode()).hexdigest())
"""


class Cow:
    """Stands in for the package's."""


class Plant:
    """Stands in for the package's."""

    ripe = True


class Land:
    """A land in which water lies to the right and everything else is grass."""

    def __getitem__(self, place: tuple[int, int]) -> tuple[str | None, Any]:
        if place == (5, 3):
            return "grass", Cow()
        return ("water", None) if place[0] > 6 else ("grass", None)


def test_what_is_seen_by_value() -> None:
    assert nearest(Land(), (5, 5)) == {"cow": (0, -2), "water": (2, 0)}
    assert [
        name_of("grass", None),
        name_of("grass", Cow()),
        name_of("grass", Plant()),
        name_of(None, None),
    ] == [
        "grass",
        "cow",
        "ripe plant",
        "edge",
    ]


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crafter", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[crafter\]"'):
        Crafter()


@real
def test_what_does_not_exist_is_refused() -> None:
    for arguments, said in (
        ({"goal": "colect_wood"}, "did you mean 'collect_wood'"),
        ({"max_turns": -1}, "max_turns=-1"),
        ({"size": 8}, "size=8"),
    ):
        with pytest.raises(UsageError, match=said):
            Crafter(**arguments)  # pyright: ignore[reportArgumentType]


@real
@pytest.mark.parametrize("probe", CHECKED)
def test_keeps_the_contract(probe: str) -> None:
    with closing(Subject(make=lambda: Crafter(size=SIZE), num_episodes=2)) as subject:
        assert PROBES[probe](subject)


@real
def test_equal_seeds_are_the_same_game_in_every_process() -> None:
    """With the package's own order, six processes gave six games."""
    told = {
        subprocess.run(
            [sys.executable, "-c", WALK, str(number)], capture_output=True, text=True, check=True, timeout=600
        ).stdout
        for number in (0, 1_000, 77_777)
    }
    assert len(told) == 1 and int(told.pop().split()[0]) > 100


@real
@pytest.mark.parametrize("goal", GOALS)
def test_the_expert_wins(goal: str) -> None:
    with closing(Crafter(goal, size=SIZE)) as world:
        for split in ("train", "eval"):
            episode = play(world, world.task(split, 1), expert)
            assert episode.is_success and episode.total == 1.0, episode.observations[-3:]


@real
@pytest.mark.parametrize("goal", DEEP)
def test_the_expert_goes_down_for_stone(goal: str) -> None:
    with closing(Crafter(goal, size=48)) as world:
        assert play(world, world.task("train", 0), expert).is_success


@real
@pytest.mark.parametrize("goal", DEEPER)
def test_the_expert_goes_into_caves(goal: str) -> None:
    with closing(Crafter(goal)) as world:
        assert play(world, world.task("eval", 0), expert).is_success


@real
def test_a_land_that_lacks_what_is_needed_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Crafter("collect_wood", size=16)) as world:
        begin(world, world.task("train", 0))

        def nowhere(*_: object) -> str:
            raise crafter_expert.NoWayError("a way to tree")

        monkeypatch.setattr("quintain.adapters.crafter.environment.next_action", nowhere)
        assert isinstance(world, Expert)
        with pytest.raises(EnvironmentFault, match="a land without a way to tree"):
            world.expert_action()


@real
def test_the_score_pays_as_the_package_does() -> None:
    with closing(Crafter("score", size=SIZE)) as world:
        assert not isinstance(world, Expert)
        episode = play(world, world.task("train", 0), random_policy(1), 60)
        unlocked = sum(count > 0 for count in world.achievements().values())
        assert sum(reward >= 0.5 for reward in episode.rewards) <= unlocked
        assert any(unlocked - 1 <= episode.total <= unlocked for _ in "1")


@real
def test_words_are_read_with_any_blanks_and_case_and_nonsense_changes_nothing() -> None:
    with closing(Crafter(size=SIZE)) as world:
        begin(world, world.task("train", 0))
        before = world._game._step  # pyright: ignore[reportPrivateUsage]
        seen = advance(world, Action(text="fly"))
        assert not seen.is_valid and str(seen.observation).startswith("Error: unknown action")
        assert world._game._step == before  # pyright: ignore[reportPrivateUsage]
        assert advance(world, Action(text=" Move  LEFT ")).is_valid
