from typing import Any

import pytest

from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, Split, StepResult
from quintain.worlds.house.game import House, minutes
from quintain.worlds.house.plan import Chore, HousePlan, Thing, draw_rules
from quintain.worlds.house.scene import Scene

MUG, PEN, EGG = Thing("mug"), Thing("pen"), Thing("egg")


def world_with(chore: Chore, *, rooms: tuple[str, ...] = ("kitchen",), **options: Any) -> House:
    """A house with a mug and a pen on the counter and an egg in the fridge."""
    world = House(**options)
    begin(world, world.task("train", 0))
    lying = {
        place: () for room in rooms for place in HousePlan(chore=chore, rooms=rooms, contents=()).places(room)
    }
    lying |= {"counter": (MUG, PEN), "fridge": (EGG,)}
    plan = HousePlan(chore=chore, rooms=rooms, contents=tuple(lying.items()))
    world.restore((plan, Scene(room="kitchen", contents=lying), 7))
    return world


def act(world: House, *words: str) -> list[StepResult]:
    return [advance(world, Action(text=word)) for word in words]


def said(world: House, *words: str) -> list[str]:
    return [str(result.observation) for result in act(world, *words)]


COOL = Chore(kind="cool", name="mug", target="drawer")


def test_a_chore_by_value() -> None:
    world = world_with(COOL)
    assert said(world, "go to counter", "take mug", "go to fridge", "open", "cool", "go to drawer") == [
        "counter: mug, pen; holding: nothing",
        "counter: pen; holding: mug",
        "fridge: closed; holding: mug",
        "fridge: egg; holding: mug",
        "fridge: egg; holding: mug (cold)",
        "drawer: closed; holding: mug (cold)",
    ]
    results = act(world, "open", "put")
    assert (results[0].observation, results[0].is_terminated) == ("drawer: empty; holding: mug (cold)", False)
    assert (results[1].observation, results[1].reward, results[1].is_success) == ("Done.", 1.0, True)


def test_the_first_observation_tells_chore_and_places() -> None:
    world = House(rooms=2, kind="heat")
    text = str(begin(world, world.task("train", 0)))
    assert text == (
        f"{world.snapshot()[0].chore.words()} Rooms: kitchen, bedroom. "
        "kitchen: fridge, microwave, sink, counter, table, drawer; holding: nothing"
    )
    assert "(hot), " in text


@pytest.mark.parametrize(
    "word",
    [
        "take mug",
        "put",
        "open",
        "close",
        "go to bed",
        "walk to bedroom",
        "clean",
        "fly",
        "",
    ],
)
def test_what_has_no_effect_changes_nothing_and_says_so(word: str) -> None:
    world = world_with(COOL)
    key = world.state_key()
    [result] = act(world, word)
    assert str(result.observation).startswith("Nothing happens. kitchen: fridge")
    assert not result.is_valid and world.state_key() == key and world.snapshot()[1].minutes == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("take mug",), "Not here"),
        (("go to fridge", "take egg"), "Closed"),
        (("go to fridge", "go to fridge"), "No use"),
        (("go to bed",), "No such place"),
        (("walk to bedroom",), "No such place"),
        (("put",), "Nothing in hand"),
        (("clean",), "Nothing in hand"),
        (("open",), "No use"),
        (("light",), "Not here"),
        (("fly",), "No such action"),
        (("go to counter", "take pen", "take mug"), "Hands full"),
        (("go to counter", "take pen", "go to fridge", "put"), "Closed"),
        (("go to counter", "take pen", "go to sink", "clean"), "No use"),
        (("go to counter", "take pen", "heat"), "Not here"),
    ],
)
def test_typed_errors_say_why(words: tuple[str, ...], told: str) -> None:
    world = world_with(COOL, errors="typed")
    result = act(world, *words)[-1]
    assert str(result.observation).startswith(f"{told}. ") and not result.is_valid


def test_closed_places_hide_and_keep_their_contents() -> None:
    world = world_with(COOL)
    act(world, "go to fridge")
    assert world.legal_actions()[-2:] == ("open", "look")
    act(world, "open")
    assert world.legal_actions()[-3:] == ("close", "take egg", "look")
    assert said(world, "close", "look") == ["fridge: closed; holding: nothing"] * 2


def test_each_treatment_has_its_place_and_its_things() -> None:
    world = world_with(COOL)
    act(world, "go to counter", "take mug", "go to sink")
    assert said(world, "clean")[0] == "sink: empty; holding: mug (clean)"
    assert not act(world, "clean")[0].is_valid, "it is clean already"
    assert said(world, "go to microwave", "heat")[1] == "microwave: closed; holding: mug (clean, hot)"
    assert said(world, "go to fridge", "cool")[1] == "fridge: closed; holding: mug (clean, cold)"
    act(world, "go to counter", "put", "take pen", "go to sink")
    assert "clean" not in world.legal_actions()


def test_a_thing_is_looked_at_under_the_lamp() -> None:
    world = world_with(Chore(kind="look", name="pen", target="lamp"))
    assert world.snapshot()[0].chore.words() == "Goal: pen, lamp."
    early = act(world, "go to lamp", "light")
    assert early[0].observation == "lamp; holding: nothing" and not early[1].is_success
    act(world, "go to counter", "take mug", "go to lamp")
    assert not act(world, "light")[0].is_success, "not the right thing"
    assert act(world, "go to counter", "put", "take pen", "go to lamp", "light")[-1].is_success


def test_dense_rewards_are_differences_of_a_potential() -> None:
    world = world_with(COOL, reward="dense")
    words = [
        "go to counter",
        "take mug",
        "put",
        "take mug",
        "go to fridge",
        "cool",
        "go to microwave",
    ]
    words += ["heat", "go to fridge", "cool", "go to drawer", "open", "put"]
    rewards = [round(3 * result.reward) for result in act(world, *words)]
    assert rewards == [0, 1, -1, 1, 0, 1, 0, -1, 0, 1, 0, 0, 1]
    assert world.progress() == 1.0
    pair = world_with(Chore(kind="two", name="egg", target="table"), reward="dense")
    assert sum(r.reward for r in act(pair, "go to fridge", "open", "take egg", "go to table", "put")) == 0.5


def test_what_is_irreversible_is_a_dead_end() -> None:
    world = world_with(COOL, irreversible=True)
    act(world, "go to counter", "take mug", "go to microwave", "heat")
    assert world.expert_action() == Action(text="look")
    assert not act(world, "go to fridge", "cool")[1].is_valid
    act(world, "go to counter", "put")
    assert "take mug" not in world.legal_actions() and "take pen" in world.legal_actions()


def test_verbs_take_their_minutes_and_a_deadline_ends_the_episode() -> None:
    words = ["walk to bedroom", "go to bed", "heat", "clean", "take mug", "nonsense", ""]
    assert [minutes(Action(text=word)) for word in words] == [4, 2, 5, 3, 1, 1, 1]
    world = world_with(COOL, deadline=5)
    assert said(world, "go to counter", "fly", "take mug") == [
        "counter: mug, pen; holding: nothing; 3 minutes left",
        "Nothing happens. counter: mug, pen; holding: nothing; 3 minutes left",
        "counter: pen; holding: mug; 2 minutes left",
    ]
    [late] = act(world, "go to fridge")
    assert (late.observation, late.is_terminated, late.is_success, late.reward) == (
        "Too late.",
        True,
        False,
        0.0,
    )


def test_noise_follows_every_observation_and_changes_nothing_else() -> None:
    plain, noisy = world_with(COOL), world_with(COOL, noise=2)
    for word in ("go to counter", "take mug", "fly"):
        [one], [other] = act(plain, word), act(noisy, word)
        assert str(other.observation).startswith(f"{one.observation} ") and str(other.observation).endswith(
            "."
        )
        assert plain.state_key() == noisy.state_key()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rooms": 4, "things": 14},
        {"rooms": 2, "irreversible": True},
        {"kind": "two", "reward": "dense"},
        {"rules": 6, "rule_set": 1},
    ],
)
def test_the_expert_does_every_chore_well_within_the_limit(options: dict[str, Any]) -> None:
    world = House(**options)
    for index in range(50):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == pytest.approx(1.0)
        assert len(episode.rewards) <= world.max_turns * 2 / 3
        assert all(end[3] for end in episode.ends), "every action of the expert is valid"


def test_the_expert_recovers_from_mistakes() -> None:
    world = House(rooms=2)
    for index in range(10):
        play(world, world.task("train", index), random_policy(index), 25)
        assert any(advance(world, world.expert_action()).is_terminated for _ in range(50)) or world.is_done
    worse = [play(world, world.task("train", i), noisy_policy(0.6, i)).is_success for i in range(20)]
    assert 0 < sum(worse) < 20


def test_the_expert_knows_only_what_it_saw() -> None:
    one, other = world_with(COOL), world_with(COOL)
    plan, scene, seed = other.snapshot()
    moved = {**scene.contents, "counter": (), "table": (MUG, PEN)}
    other.restore((plan, Scene(room="kitchen", contents=moved), seed))
    first, second = ([], [])
    for world, words in ((one, first), (other, second)):
        for _ in range(6):
            words.append(world.expert_action().text)
            act(world, words[-1])
    assert (
        first == second == ["go to fridge", "open", "go to microwave", "open", "go to sink", "go to counter"]
    )


def test_states_are_recognised_whatever_was_seen_before() -> None:
    one, other = world_with(COOL), world_with(COOL)
    act(one, "go to sink", "go to counter")
    act(other, "go to counter", "look")
    assert one.state_key() == other.state_key()
    act(one, "take mug")
    assert one.state_key() != other.state_key()
    other.restore(one.snapshot())
    assert other.state_key() == one.state_key() and other.expert_action() == one.expert_action()


def test_splits_have_no_house_in_common() -> None:
    world = House(things=2)
    plans: dict[Split, set[str]] = {"train": set(), "eval": set()}
    for split, seen in plans.items():
        for index in range(400):
            begin(world, world.task(split, index))
            seen.add(repr(world.snapshot()[0]))
    assert not plans["train"] & plans["eval"]
    assert len(plans["train"]) > 390


@pytest.mark.parametrize(
    "options",
    [
        {"rooms": 0},
        {"rooms": 5},
        {"things": 15},
        {"deadline": -1},
        {"noise": -1},
        {"rules": 7},
        {"rule_set": -1},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="house: got rooms="):
        House(**options)


def test_a_verb_under_a_rule_has_no_effect_before_its_preparation() -> None:
    world = world_with(COOL, rules=6, rule_set=3)
    rules = draw_rules(6, 3)
    needed = rules["take"]
    said(world, "go to counter")
    assert "take mug" not in world.legal_actions() and needed in world.legal_actions()
    before = world.state_key()
    failed = act(world, "take mug")[0]
    assert (
        failed.observation == "Nothing happens. counter: mug, pen; holding: nothing" and not failed.is_valid
    )
    assert world.state_key() == before
    assert said(world, needed) == ["counter: mug, pen; holding: nothing"]
    assert world.state_key() != before, "a preparation is part of the state"
    assert said(world, "take mug") == ["counter: pen; holding: mug"]
    assert needed not in world.legal_actions(), "once is enough"
    assert said(world, needed)[0].startswith("Nothing happens."), "and a second time has no effect"
    assert world.instructions().endswith("Besides: knock, wipe, press, turn, shake, wave.")
    typed = world_with(COOL, rules=6, rule_set=3, errors="typed")
    assert said(typed, "go to counter", "take mug")[1].startswith(f"First {needed}. counter")
    assert draw_rules(6, 3) == rules != draw_rules(6, 4) and draw_rules(0, 3) == {}


def test_without_rules_nothing_is_prepared() -> None:
    world = world_with(COOL)
    assert said(world, "knock") == ["Nothing happens. kitchen: fridge, microwave, sink, counter, table, drawer, "
                                    "lamp; holding: nothing"]  # fmt: skip
    assert "Besides" not in world.instructions() and "knock" not in world.legal_actions()
