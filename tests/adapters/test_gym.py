import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from quintain.adapters.gym.environment import Gymnasium, Tabular, best_actions
from quintain.adapters.gym.text import in_numbers
from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.probes import play_on, require_same
from quintain.environments.protocol import Expert, StateKey, advance, begin
from quintain.errors import EnvironmentFault, MissingExtra, UsageError
from quintain.types import Action


def test_frozen_lake_by_value() -> None:
    world = Gymnasium("FrozenLake-v1", is_slippery=False)
    first = begin(world, world.task("train", 0))
    assert first == (
        "SFFF\nFHFH\nFFFH\nHFFG\nrow 0 column 0, left edge, down ice, right ice, up edge, goal 3 down 3 right"
    )
    seen = [advance(world, Action(text=word)) for word in ("right", "right", "down", "down", "down", "right")]
    assert (
        seen[0].observation == "row 0 column 1, left ice, down hole, right ice, up edge, goal 3 down 2 right"
    )
    assert seen[4].observation == "row 3 column 2, left ice, down edge, right goal, up ice, goal 1 right"
    assert (seen[5].reward, seen[5].is_terminated, seen[5].is_success) == (1.0, True, True)
    begin(world, world.task("train", 0))
    fallen = [advance(world, Action(text=word)) for word in ("right", "down")][-1]
    assert (fallen.reward, fallen.is_terminated, fallen.is_success) == (0.0, True, False)


def test_limits_are_truncations() -> None:
    world = Gymnasium("FrozenLake-v1", is_slippery=False)
    begin(world, world.task("train", 0))
    last = [advance(world, Action(text="left")) for _ in range(world.max_turns)][-1]
    assert (last.is_truncated, last.is_terminated, last.is_success) == (True, False, False)


def test_taxi_by_value() -> None:
    world = Gymnasium("Taxi-v4")
    begin(world, world.task("train", 0))
    unwrapped: Any = world._world  # pyright: ignore[reportPrivateUsage]
    unwrapped.s = unwrapped.encode(1, 1, 1, 3)
    assert advance(world, Action(text="north")).observation == (
        "at 0 1, blocked north east, passenger 3 east, destination 4 south 2 east"
    )
    unwrapped.s = unwrapped.encode(0, 4, 1, 3)
    assert advance(world, Action(text="pickup")).observation == (
        "at 0 4, blocked north east, passenger aboard, destination 4 south 1 west"
    )
    unwrapped.s = unwrapped.encode(4, 3, 4, 3)
    last = advance(world, Action(text="dropoff"))
    assert (last.reward, last.is_terminated, last.is_success) == (20.0, True, True)
    assert last.observation == "at 4 3, blocked south west, passenger here, destination here"


def test_maps_differ_by_task_and_between_the_splits() -> None:
    world = Gymnasium("FrozenLake-v1", random_map=6, is_slippery=False)
    boards = {
        str(begin(world, world.task(split, index))) for split in ("train", "eval") for index in range(10)
    }
    assert len(boards) == 20
    for index in range(10):
        assert play(world, world.task("eval", index), expert).is_success
    keys: set[str] = set()
    assert isinstance(world, Tabular)
    for index in range(3):
        begin(world, world.task("train", index))
        keys.add(world.state_key())
    assert len(keys) == 3, "the same place on another map is another state"


@pytest.mark.parametrize("name", ["CliffWalking-v1", "Taxi-v4"])
def test_experts_reach_the_goal(name: str) -> None:
    world = Gymnasium(name)
    assert isinstance(world, Expert) and isinstance(world, StateKey)
    for index in range(5):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success
        assert name != "CliffWalking-v1" or episode.total == -13, "eleven steps along the edge, up and down"


def test_value_iteration_by_value() -> None:
    # From 0: `a` ends with 1, `b` goes to 1, from where `a` ends with 3; staying costs nothing but time.
    table = {
        0: {0: [(1.0, 0, 1.0, True)], 1: [(1.0, 1, 0.0, False)]},
        1: {0: [(0.5, 1, 3.0, True), (0.5, 1, 0.0, False)], 1: [(1.0, 0, 0.0, False)]},
    }
    assert best_actions(table).tolist() == [1, 0]
    table[1][0] = [(0.3, 1, 3.0, True), (0.7, 0, -1.0, True)]
    assert best_actions(table).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "actions", "first"),
    [
        ("CartPole-v1", ("left", "right"), 4),
        ("Blackjack-v1", ("stick", "hit"), 3),
        ("MountainCar-v0", ("left", "wait", "right"), 2),
        ("Acrobot-v1", ("action 0", "action 1", "action 2"), 6),
    ],
)
def test_any_discrete_environment_by_rule(name: str, actions: tuple[str, ...], first: int) -> None:
    world = Gymnasium(name)
    assert world.legal_actions() == actions and not isinstance(world, Expert)
    assert len(str(begin(world, world.task("train", 0))).split()) == first
    assert actions[-1] in world.instructions()
    for index in range(2):
        task = world.task("train", index)
        require_same(
            play(world, task, random_policy(1), 20),
            play(Gymnasium(name), task, random_policy(1), 20),
            "differs",
        )
    world.close()


def test_rewards_and_ends_are_the_packages() -> None:
    world, package = Gymnasium("Blackjack-v1"), gymnasium.make("Blackjack-v1")
    for index in range(30):
        task = world.task("train", index)
        begin(world, task)
        package.reset(seed=task.seed)
        result = advance(world, Action(text="stick"))
        _, reward, is_terminated, is_truncated, _ = package.step(0)
        assert (result.reward, result.is_terminated, result.is_truncated) == (
            reward,
            is_terminated,
            is_truncated,
        )
        assert result.is_success == (float(reward) > 0)
    package.close()


def test_other_words_change_nothing() -> None:
    world = Gymnasium("Taxi-v4")
    first = begin(world, world.task("train", 0))
    result = advance(world, Action(text="fly"))
    said = "Error: unknown action; say one of south, north, east, west, pickup, dropoff"
    assert result.observation == f"{said}\n{first}" and not result.is_valid and result.reward == 0.0
    assert advance(world, Action(error="unreadable")).observation == f"Error: unreadable\n{first}"


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Taxi-v4", "Blackjack-v1"])
def test_a_snapshot_goes_on_alike(name: str) -> None:
    world, fresh = Gymnasium(name), Gymnasium(name)
    for index in range(5):
        begin(world, world.task("train", index))
        begin(fresh, world.task("train", 99))
        state = world.snapshot()
        original = play_on(world, 3)
        for other in (world, fresh):
            other.restore(state)
            require_same(play_on(other, 3), original, "goes on differently")


def test_a_world_that_cannot_be_copied_says_so() -> None:
    world = Gymnasium("CartPole-v1")
    begin(world, world.task("train", 0))
    world._world.lock = (part for part in ())  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(EnvironmentFault, match="snapshot of gymnasium/CartPole-v1"):
        world.snapshot()


@pytest.mark.filterwarnings("ignore:.*out of date.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("FrozenLak-v1", {}, "did you mean 'FrozenLake-v1'"),
        ("Zzz", {}, "got 'Zzz'; check its name"),
        ("Taxi-v3", {}, "Please use `Taxi-v4` instead"),
        ("Pendulum-v1", {}, "choose a discrete one"),
        ("FrozenLake-v1", {"slippery": True}, "slippery"),
        ("FrozenLake-v1", {"map_name": "9x9"}, "9x9"),
        ("FrozenLake-v1", {"random_map": 1}, "2 or more"),
        ("Taxi-v4", {"random_map": 4}, "only FrozenLake has maps"),
    ],
)
def test_what_cannot_be_made_is_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Gymnasium(name, **options)


def test_observations_as_numbers() -> None:
    assert in_numbers(None, np.int64(13)) == "13"
    assert in_numbers(None, (14, 10, np.bool_(True))) == "14 10 1"
    assert in_numbers(None, np.array([0.0, -1.25, 1e-5], dtype=np.float32)) == "0 -1.25 1e-05"
    with pytest.raises(UsageError, match="got 65 values"):
        in_numbers(None, np.zeros(65))
    with pytest.raises(UsageError, match="of type dict"):
        in_numbers(None, {"a": 1})


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtra, match=r'needs the package gymnasium.*pip install -e "\.\[gym\]"'):
        Gymnasium()
