import contextlib
import importlib
import io
import random
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import pytest

pytest.importorskip("minigrid")

from tests.calls import count_calls

from quintain.adapters.babyai import level as babyai_level
from quintain.adapters.babyai.environment import ACTIONS, BabyAI
from quintain.adapters.babyai.level import copy_level, level_ids, start_level
from quintain.adapters.babyai.view import describe
from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.probes import play_on
from quintain.environments.protocol import advance, begin
from quintain.errors import EnvironmentFault, MissingExtra, UsageError
from quintain.types import Action

STATES = ["open", "closed", "locked"]


def package_text(image: Any) -> str:
    """Tell minigrid's own 7 by 7 picture in our words: [column from the left, row from the far end]."""
    constants = importlib.import_module("minigrid.core.constants")
    found: list[tuple[tuple[int, int, int], str]] = []
    wall = ""
    for row in range(6, -1, -1):
        for column in range(7):
            kind, color, state = (int(value) for value in image[column, row])
            word, ahead, right = constants.IDX_TO_OBJECT[kind], 6 - row, column - 3
            if word == "wall" and right == 0 and not wall:
                wall = f"wall {ahead} ahead"
            if word in ("unseen", "empty", "wall", "floor") or (ahead, right) == (0, 0):
                continue
            place = [f"{ahead} ahead"] if ahead else []
            place += [f"{abs(right)} {'right' if right > 0 else 'left'}"] if right else []
            full = f"{constants.IDX_TO_COLOR[color]} {word}"
            full = f"{STATES[state]} {full}" if word == "door" else full
            found.append(((ahead + abs(right), ahead, right), f"{full} {' '.join(place)}"))
    return ", ".join([*(text for _, text in sorted(found)), *([wall] if wall else [])]) or "nothing"


@pytest.fixture(scope="module")
def package() -> Iterator[Any]:
    level_ids()
    env = gymnasium.make("BabyAI-BossLevel-v0")
    yield env
    env.close()


def test_views_are_those_of_the_package(package: Any) -> None:
    rng = random.Random(0)
    level = package.unwrapped
    for seed in range(12):
        seen = package.reset(seed=seed)[0]
        for _ in range(25):
            x, y = level.agent_pos
            told = describe(level.grid.grid, level.grid.width, (int(x), int(y), int(level.agent_dir)))
            assert told == package_text(seen["image"])
            seen = package.step(rng.choice([0, 1, 2, 2, 2, 3, 4, 5]))[0]


def test_levels_and_their_play_are_those_of_the_package() -> None:
    theirs = gymnasium.make("BabyAI-GoToLocal-v0")
    ours = BabyAI("GoToLocal", reward="package")
    rng = random.Random(1)
    for seed in (3, 10**15):
        seen = theirs.reset(seed=seed)[0]
        level = start_level("GoToLocal", seed)
        assert level.mission == seen["mission"]
        task = ours.task("train", seed)
        assert begin(ours, task) == f"{theirs.reset(seed=task.seed)[0]['mission']}\n" + package_text(
            theirs.unwrapped.gen_obs()["image"]  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
        )
        for _ in range(64):
            number = rng.choice([0, 1, 2, 2, 2])
            seen, reward, is_terminated, is_truncated, _ = theirs.step(number)
            result = advance(ours, Action(text=ACTIONS[number]))
            assert result.observation == package_text(seen["image"])
            assert (result.reward, result.is_terminated) == (float(reward), is_terminated)
            assert result.is_truncated == (is_truncated and not is_terminated)
            if is_terminated or is_truncated:
                break
        else:
            raise AssertionError("the package cuts episodes after 64 steps")
    theirs.close()


def test_generating_says_nothing_but_others_may_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = importlib.import_module(babyai_level.GENERATOR)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for seed in range(1000, 1030):
            start_level("GoToLocal", seed)
        print("heard")
    assert said.getvalue() == "heard\n"
    calls: list[object] = []
    monkeypatch.setitem(vars(generator), "print", lambda *words: calls.append(words))
    for seed in range(2000, 2030):
        start_level("GoToLocal", seed)
    assert calls, "the level does reject samples; without our silence they would be printed"


@pytest.mark.parametrize("level", ["GoToRedBallNoDists", "GoToLocal", "PutNextLocal", "UnlockPickup"])
def test_the_packages_bot_wins(level: str) -> None:
    world = BabyAI(level)
    for index in range(6):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == 1.0 and len(episode.rewards) < world.max_turns


def test_rewards_and_limits() -> None:
    binary, package = BabyAI(max_turns=30), BabyAI(reward="package")
    task = binary.task("train", 0)
    turns = len(play(binary, task, expert).rewards)
    assert play(package, task, expert).total == pytest.approx(1 - 0.9 * turns / 64)
    assert (binary.max_turns, package.max_turns) == (30, 64)
    begin(package, task)
    results = [advance(package, Action(text="left")) for _ in range(64)]
    assert [result.is_truncated for result in results] == [False] * 63 + [True]
    assert (results[-1].is_success, results[-1].is_terminated) == (False, False)
    assert BabyAI(max_turns=1000).max_turns == 64


def test_an_end_without_reward_is_no_success() -> None:
    world = BabyAI("PickupDistDebug")  # a level that ends when the wrong thing is picked up
    results = []
    for index in range(40):
        begin(world, world.task("train", index))
        for word in ("pickup", "left", "pickup", "left", "pickup", "left", "pickup"):
            result = advance(world, Action(text=word))
            if result.is_terminated:
                results.append((result.reward, result.is_success))
                break
    assert (0.0, False) in results and set(results) <= {(0.0, False), (1.0, True)}


@pytest.mark.parametrize("text", ["", "jump", "left right", "turn left"])
def test_other_words_change_nothing(text: str) -> None:
    world = BabyAI()
    first = str(begin(world, world.task("train", 0))).split("\n")[1]
    key = world.state_key()
    result = advance(world, Action(text=text))
    assert result.observation == (
        f"Error: unknown action; say one of left right forward pickup drop toggle done\n{first}"
    )
    assert not result.is_valid and world.state_key() == key
    assert advance(world, Action(text=" Left\n")).is_valid


def test_the_mission_is_told_once_or_every_time() -> None:
    world = BabyAI(repeat_mission=True)
    assert str(begin(world, world.task("train", 0))).startswith("go to the red ball\n")
    assert str(advance(world, Action(text="left")).observation).startswith("go to the red ball\n")
    assert "go to" not in str(advance(BabyAI(), Action(text="left")).observation)


def test_views_without_distractors_are_short() -> None:
    world = BabyAI()
    for index in range(40):
        episode = play(world, world.task("train", index), random_policy(index), 10)
        assert all(len(str(seen).split()) <= 15 for seen in episode.observations[1:])


def test_what_is_carried_is_told() -> None:
    world = BabyAI("PutNextLocal")
    begin(world, world.task("train", 1))
    seen: list[str] = []
    for _ in range(world.max_turns):
        action = world.expert_action()
        seen.append(str(advance(world, action).observation))
        if action.text == "pickup":
            break
    assert seen[-1].startswith("carrying ") and not any(text.startswith("carrying") for text in seen[:-1])


def test_the_bot_is_told_what_was_done_whenever_it_is_asked_first() -> None:
    for index in range(4):
        early, late = BabyAI("PutNextLocal"), BabyAI("PutNextLocal")
        task = early.task("train", index)
        begin(early, task)
        begin(late, task)
        for word in ("left", "forward", "right", "forward", "pickup", "left"):
            early.expert_action()
            advance(early, Action(text=word))
            advance(late, Action(text=word))
        key = late.state_key()
        assert late.expert_action() == early.expert_action() == late.expert_action()
        assert late.state_key() == key == early.state_key(), "asking changes nothing"
        for _ in range(early.max_turns):
            assert late.expert_action() == early.expert_action()
            if (
                advance(late, late.expert_action()).is_terminated
                | advance(early, early.expert_action()).is_terminated
            ):
                break


def test_a_bot_that_gives_up_is_a_fault_and_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        def replan(self, action_taken: int | None = None) -> int:
            raise AssertionError("nothing left to explore")

    monkeypatch.setattr("quintain.adapters.babyai.environment.make_bot", lambda _level: Lost())
    world = BabyAI()
    begin(world, world.task("train", 0))
    for _ in range(2):
        with pytest.raises(
            EnvironmentFault, match="has no action: got AssertionError: nothing left to explore"
        ):
            world.expert_action()
        assert advance(world, Action(text="left")).is_valid
    monkeypatch.undo()
    begin(world, world.task("train", 0))
    assert world.expert_action().text in ACTIONS


def test_opening_a_box_ends_the_bots_advice() -> None:
    world = BabyAI("KeyInBox")
    faults = 0
    for index in range(10):
        begin(world, world.task("train", index))
        try:
            for _ in range(40):
                advance(world, world.expert_action())
        except EnvironmentFault:
            faults += 1
    assert faults, "minigrid documents that its bot cannot solve this level"


@pytest.mark.parametrize("level", ["UnlockPickup", "PutNextLocal", "GoToSeqS5R2"])
def test_a_snapshot_goes_on_alike_with_and_without_its_bot(level: str) -> None:
    world, other = BabyAI(level), BabyAI(level)
    for index in range(3):
        begin(world, world.task("train", index))
        begin(other, world.task("train", index + 100))
        for _ in range(index):
            advance(world, world.expert_action())
        state = world.snapshot()
        key, advice = world.state_key(), world.expert_action()
        original = play_on(world, 5, 12)
        for again in (world, other):
            again.restore(state)
            assert (again.state_key(), again.expert_action()) == (key, advice)
            assert play_on(again, 5, 12).observations == original.observations
        other.restore(state)
        assert follow(other) == follow_from(world, state)


def follow(world: BabyAI) -> list[str]:
    """Follow the bot to the end and return the views."""
    seen: list[str] = []
    for _ in range(world.max_turns):
        result = advance(world, world.expert_action())
        seen.append(str(result.observation))
        if result.is_terminated:
            return seen
    raise AssertionError("the bot does not arrive")


def follow_from(world: BabyAI, state: Any) -> list[str]:
    """Restore `state`, then follow the bot."""
    world.restore(state)
    return follow(world)


def test_copies_share_nothing_that_changes() -> None:
    level = start_level("PutNextLocal", 4)
    twin, _ = copy_level(level)
    mine = {id(cell) for cell in level.grid.grid if cell is not None and cell.type != "wall"}
    theirs = {id(cell) for cell in twin.grid.grid if cell is not None and cell.type != "wall"}
    assert mine and not mine & theirs
    instruction: Any = twin.instrs
    assert instruction.env is twin and id(instruction.desc_move.obj_set[0]) in theirs


def test_keys_tell_states_apart() -> None:
    world, other = BabyAI("UnlockPickup"), BabyAI("UnlockPickup")
    task = world.task("train", 0)
    begin(world, task)
    begin(other, task)
    assert world.state_key() == other.state_key()
    keys = {world.state_key()}
    for word in ("left", "left", "left", "left"):
        advance(world, Action(text=word))
        keys.add(world.state_key())
    assert len(keys) == 4 and world.state_key() == other.state_key(), "four turns lead back"
    begin(other, world.task("train", 1))
    assert world.state_key() != other.state_key()


def test_unknown_levels_and_options_are_refused() -> None:
    with pytest.raises(UsageError, match="BabyAI level: got 'GoToLocl'; did you mean 'GoToLocal'"):
        BabyAI("GoToLocl")
    with pytest.raises(UsageError, match="reward of babyai: got 'dense'"):
        BabyAI(reward="dense")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="max_turns of babyai: got -1"):
        BabyAI(max_turns=-1)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "minigrid"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "minigrid", None)
    uncached = level_ids.__wrapped__
    monkeypatch.setattr(babyai_level, "level_ids", uncached)
    babyai_level._template.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[minigrid\]"'):
        BabyAI("GoToDoor")


def test_steps_are_much_less_work_than_the_packages() -> None:
    package = gymnasium.make("BabyAI-GoToRedBallNoDists-v0", disable_env_checker=True).unwrapped
    package.reset(seed=0)
    world = BabyAI()
    begin(world, world.task("train", 0))
    ours = count_calls(lambda: [world.step(Action(text="left")) for _ in range(60)])
    assert ours < count_calls(lambda: [package.step(0) for _ in range(60)]) / 2


@pytest.mark.slow
def test_a_bot_that_would_plan_for_ever_gives_up() -> None:
    world = BabyAI("Unlock")
    with pytest.raises(EnvironmentFault, match="100 searches for a way"):
        play(world, world.task("eval", 3), expert)


@pytest.mark.parametrize(
    "level",
    [
        "ActionObjDoor",
        "BlockedUnlockPickup",
        "FindObjS5",
        "GoToObjMazeS4",
        "GoToSeqS5R2",
        "KeyCorridorS3R1",
        "MiniBossLevel",
        "MoveTwoAcrossS5N2",
        "OneRoomS8",
        "OpenRedBlueDoors",
        "PickupDist",
        "PutNextS4N1",
        "SynthLoc",
        "UnlockPickupDist",
    ],
)
def test_the_bot_solves_a_level_of_each_kind(level: str) -> None:
    world = BabyAI(level)
    assert play(world, world.task("eval", 0), expert).is_success
