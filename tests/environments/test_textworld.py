import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.probes import PROBES
from quintain.environments.protocol import advance, begin
from quintain.environments.subject import Subject
from quintain.environments.textworld import TextWorld
from quintain.errors import MissingExtra, UsageError
from quintain.types import Action

pytestmark = pytest.mark.filterwarnings("ignore:Game :UserWarning")
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
    with pytest.raises(MissingExtra, match=r'pip install "quintain\[textworld\]"'):
        TextWorld()
    with pytest.raises(UsageError, match="rooms=0"):
        TextWorld(rooms=0)


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
