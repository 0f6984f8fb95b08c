import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quintain.adapters.textworld.environment import TextWorld
from quintain.environments.baselines import expert, play
from quintain.environments.probes import PROBES, Subject
from quintain.environments.protocol import advance, begin
from quintain.errors import MissingExtra, UsageError
from quintain.types import Action

pytestmark = [pytest.mark.filterwarnings("ignore:Game :UserWarning"), pytest.mark.timeout(600)]
CHECKED = ("builds", "tasks", "random play", "nonsense", "snapshot")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Games are compiled once for all tests."""
    return tmp_path_factory.mktemp("games")


@pytest.fixture
def world(folder: Path) -> Iterator[TextWorld]:
    with closing(TextWorld(folder=str(folder))) as built:
        yield built


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[textworld\]"'):
        TextWorld()


@pytest.mark.parametrize(
    ("family", "options", "said"),
    [
        ("quest", {"rooms": 0}, "rooms=0"),
        ("quest", {"rooms": "many"}, "rooms='many'"),
        ("quest", {"level": 1}, "got 'level'"),
        ("quest", {"quest_length": 31}, "quest_length=31"),
        ("coin_colector", {}, "did you mean 'coin_collector'"),
        ("treasure_hunter", {"levl": 1}, "did you mean 'level'"),
        ("treasure_hunter", {"games": -1}, "games=-1"),
    ],
)
def test_what_does_not_fit_is_refused(family: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TextWorld(family, **options)


@pytest.mark.real("textworld")
@pytest.mark.parametrize("probe", CHECKED)
def test_keeps_the_contract(probe: str, folder: Path) -> None:
    subject = Subject(make=lambda: TextWorld(folder=str(folder)), num_episodes=2)
    with closing(subject):
        assert PROBES[probe](subject)


@pytest.mark.real("textworld")
def test_the_walkthrough_wins(world: TextWorld) -> None:
    for index in range(3):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == 1.0 and len(episode.rewards) <= world.max_turns


@pytest.mark.real("textworld")
@pytest.mark.parametrize("family", ["coin_collector", "treasure_hunter"])
def test_the_walkthrough_wins_the_challenges(family: str, folder: Path) -> None:
    with closing(TextWorld(family, folder=str(folder), games=1)) as world:
        assert world.task("train", 0).environment == f"textworld/{family}"
        for split in ("train", "eval"):
            assert play(world, world.task(split, 0), expert).is_success


@pytest.mark.real("textworld")
def test_the_number_of_games_is_bounded_and_the_splits_share_none(folder: Path) -> None:
    with closing(TextWorld(folder=str(folder), games=2)) as world:
        seen = {
            split: {str(begin(world, world.task(split, index))) for index in range(8)}
            for split in ("train", "eval")
        }
    assert len(seen["train"]) == len(seen["eval"]) == 2 and not seen["train"] & seen["eval"]


@pytest.mark.real("textworld")
def test_a_snapshot_continues_after_the_original_went_another_way(world: TextWorld) -> None:
    begin(world, world.task("train", 0))
    advance(world, world.expert_action())
    state, key = world.snapshot(), world.state_key()
    while not advance(world, world.expert_action()).is_terminated:
        pass
    assert world.state_key() != key
    world.restore(state)
    assert world.state_key() == key
    assert not advance(world, Action(text="look")).is_terminated
