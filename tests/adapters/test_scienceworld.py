import importlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from quintain.adapters.scienceworld import jvm as jvm
from quintain.adapters.scienceworld.environment import ScienceWorld
from quintain.environments.baselines import expert, noop, play
from quintain.environments.probes import PROBES, Subject
from quintain.environments.protocol import Legal, advance, begin
from quintain.errors import EnvironmentFault, MissingExtra, UsageError
from quintain.types import Action

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:Implicitly cleaning:ResourceWarning"),
]
real = pytest.mark.real("scienceworld", program="java")
TASK = "find-living-thing"
CHECKED = ("builds", "tasks", "nonsense", "random play", "determinism", "no leak", "closing")
GOLD = (
    "boil",
    "change-the-state-of-matter-of",
    "chemistry-mix",
    "chemistry-mix-paint-secondary-color",
    "chemistry-mix-paint-tertiary-color",
    "find-animal",
    "find-living-thing",
    "find-non-living-thing",
    "find-plant",
    "freeze",
    "grow-fruit",
    "grow-plant",
    "identify-life-stages-1",
    "identify-life-stages-2",
    "inclined-plane-determine-angle",
    "inclined-plane-friction-named-surfaces",
    "inclined-plane-friction-unnamed-surfaces",
    "lifespan-longest-lived",
    "lifespan-longest-lived-then-shortest-lived",
    "lifespan-shortest-lived",
    "measure-melting-point-known-substance",
    "measure-melting-point-unknown-substance",
    "melt",
    "power-component",
    "power-component-renewable-vs-nonrenewable-energy",
    "test-conductivity",
    "test-conductivity-of-unknown-substances",
    "use-thermometer",
)
SLOW = ("mendelian-genetics-known-plant", "mendelian-genetics-unknown-plant")
"""Tasks whose gold paths take the simulator minutes: played with --slow."""


@pytest.fixture(scope="module", autouse=True)
def machines() -> Iterator[None]:
    """Tests share machines, which are closed after them."""
    yield
    jvm.close_machines()


def test_what_is_missing_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scienceworld", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[scienceworld\]"'):
        ScienceWorld()


@real
def test_java_that_is_missing_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingExtra, match=r"needs the program java: .*apt-get install default-jre-headless"):
        ScienceWorld()


@real
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": "boyl"}, "did you mean 'boil'"),
        ({"simplifications": "easy+openDors"}, "did you mean 'openDoors'"),
        ({"held_out": "train"}, "held_out='train'"),
        ({"reward": "raw"}, "reward='raw'"),
        ({"max_turns": 0}, "max_turns=0"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ScienceWorld(**options)


@real
@pytest.mark.parametrize("probe", CHECKED)
def test_keeps_the_contract(probe: str) -> None:
    with closing(Subject(make=lambda: ScienceWorld(TASK, max_turns=20), num_episodes=2)) as subject:
        assert PROBES[probe](subject)


@real
def test_these_are_the_packages_tasks() -> None:
    package: Any = importlib.import_module("scienceworld.utils")
    assert {package.infer_task(name) for name in package.NAME2ID} == {*GOLD, *SLOW}


@real
@pytest.mark.parametrize("task", [*GOLD, *SLOW])
def test_the_gold_path_wins(task: str, request: pytest.FixtureRequest) -> None:
    if task in SLOW and not request.config.getoption("--slow", default=False):
        pytest.skip("takes minutes: give --slow")
    with closing(ScienceWorld(task, max_turns=300)) as world:
        episode = play(world, world.task("eval", 0), expert)
        assert episode.is_success and 0.8 < episode.total < 1.0 + 1e-9, episode.observations[-3:]


@real
def test_the_gold_path_ends_where_it_is_left_and_doing_nothing_is_no_success() -> None:
    with closing(ScienceWorld(TASK, max_turns=10)) as world:
        begin(world, world.task("train", 0))
        advance(world, world.expert_action())
        advance(world, Action(text="wait1"))
        with pytest.raises(EnvironmentFault, match="not on the gold path"):
            world.expert_action()
        assert not play(world, world.task("train", 0), noop).is_success


@real
def test_splits_are_the_packages_variations() -> None:
    seen: dict[str, set[int]] = {}
    for held_out in ("dev", "test"):
        with closing(ScienceWorld(TASK, held_out=held_out)) as world:
            for split in ("train", "eval"):
                for index in range(5):
                    begin(world, world.task(split, index))
                    part = split if split == "train" else held_out
                    seen.setdefault(part, set()).add(world._variation)  # pyright: ignore[reportPrivateUsage]
    assert (
        not seen["train"] & seen["dev"]
        and not seen["train"] & seen["test"]
        and not seen["dev"] & seen["test"]
    )


@real
def test_valid_actions_are_listed_on_request_alone() -> None:
    assert not isinstance(ScienceWorld(TASK), Legal)
    with closing(ScienceWorld(TASK, listed=True)) as world:
        assert isinstance(world, Legal)
        begin(world, world.task("train", 0))
        listed = world.legal_actions()
        assert len(listed) == len(set(listed)) > 50 and "look around" in listed
        assert advance(world, Action(text=listed[0])).is_valid


@real
def test_a_machine_is_lent_to_one_and_used_again() -> None:
    jvm.close_machines()
    with closing(ScienceWorld(TASK)) as first, closing(ScienceWorld(TASK)) as second:
        shown = begin(first, first.task("train", 0))
        begin(second, second.task("train", 1))
        assert jvm.count() == 2
        advance(second, Action(text="open door to outside"))
        # What one does is not seen by the other.
        assert begin(first, first.task("train", 0)) == shown
        ran = first._machine  # pyright: ignore[reportPrivateUsage]
        first.close()
        with closing(ScienceWorld(TASK)) as third:
            begin(third, third.task("train", 0))
            assert third._machine is ran and jvm.count() == 2  # pyright: ignore[reportPrivateUsage]
    jvm.close_machines()
    assert jvm.count() == 0


@real
def test_machines_that_nobody_needs_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "IDLE", 0.1)
    with closing(ScienceWorld(TASK)) as world:
        begin(world, world.task("train", 0))
    deadline = time.monotonic() + 60
    while jvm.count() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert jvm.count() == 0


@real
def test_a_machine_that_dies_is_a_fault_and_the_next_episode_has_a_new_one() -> None:
    with closing(ScienceWorld(TASK)) as world:
        begin(world, world.task("train", 0))
        assert world._machine is not None  # pyright: ignore[reportPrivateUsage]
        world._machine.process.kill()  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(EnvironmentFault, match="ScienceWorld's simulator: got"):
            advance(world, Action(text="look around"))
            advance(world, Action(text="look around"))
        world.close()
        assert "Your task is to" in str(begin(world, world.task("train", 0)))


@real
def test_a_call_that_waits_is_ended_from_another_thread() -> None:
    with closing(ScienceWorld(TASK)) as world:
        begin(world, world.task("train", 0))
        machine = world._machine  # pyright: ignore[reportPrivateUsage]
        assert machine is not None
        found: list[BaseException] = []

        def wait() -> None:
            try:
                machine.ask(machine.env._gateway.jvm.java.lang.Thread.sleep, 600_000)
            except EnvironmentFault as error:
                found.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.5)
        world.kill()
        waiting.join(60)
        assert len(found) == 1 and not waiting.is_alive()
