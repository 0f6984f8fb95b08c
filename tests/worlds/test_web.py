import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.mixture import MixedEnvironment
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, StepResult
from quintain.worlds.web.game import POP_UPS, Web
from quintain.worlds.web.site import (
    CLUB,
    GONE,
    HOME,
    NUM_LAYOUTS,
    SIGN_UP,
    Goal,
    Page,
    Site,
    SiteShape,
    draw_site,
    restyle,
    wording,
)  # fmt: skip

LAMP = "red lamp"
PAGES = (
    (HOME, Page((("lamps", "lamps"), (SIGN_UP, SIGN_UP)))),
    ("lamps", Page(((LAMP, LAMP), ("best red lamp", GONE)))),
    (LAMP, Page((("buy", f"order {LAMP}"),), (("price", 12), ("stock", 30)))),
    (f"order {LAMP}", Page(is_form=True)),
    (SIGN_UP, Page(is_form=True)),
    (CLUB, Page()),
    (GONE, Page()),
)
ORDER = Goal(kind="order", target=LAMP, fields=(("name", "anna"), ("city", "oslo")))
ROUTE = (HOME, "lamps", LAMP, f"order {LAMP}")
WAY = ("click lamps", "click red lamp", "click buy", "type name anna", "type city oslo", "submit")


def world_at_start(goal: Goal = ORDER, route: tuple[str, ...] = ROUTE, **options: Any) -> Web:
    world = Web(popups=0.0, **options)
    begin(world, world.task("train", 0))
    site = Site(goal=goal, pages=PAGES, route=route)
    world.restore((site, (HOME,), (), -1, frozenset({HOME}), False, (0, 0, 0)))
    return world


def act(world: Web, *words: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in words]


def test_an_order_by_value() -> None:
    world = world_at_start()
    results = act(world, *WAY)
    assert [result.observation for result in results] == [
        "lamps: links: red lamp, best red lamp",
        "red lamp: price 12; stock 30; links: buy",
        "order red lamp: name empty; city empty",
        "order red lamp: name anna; city empty",
        "order red lamp: name anna; city oslo",
        "Done.",
    ]
    assert [result.reward for result in results] == [0.0] * 5 + [1.0]
    assert results[-1].is_success and results[-1].is_terminated


def test_dense_rewards_are_the_change_of_progress() -> None:
    world = world_at_start(reward="dense")
    # Six subgoals: three pages, two fields, the end. Going back gives up what was reached.
    results = act(world, "click lamps", "back", *WAY)
    assert [round(result.reward * 6) for result in results] == [1, -1, 1, 1, 1, 1, 1, 1]
    assert sum(result.reward for result in results) == pytest.approx(1.0)


def test_the_tasks_in_words() -> None:
    assert ORDER.words() == "Task: order red lamp with name anna, city oslo."
    fields = (("name", "ben"),)
    assert Goal(kind="form", target=SIGN_UP, fields=fields).words() == "Task: sign up with name ben."
    assert Goal(kind="open", target=LAMP).words() == "Task: open red lamp."
    answer = Goal(kind="answer", target=LAMP, fact="stock", answer="30")
    assert answer.words() == "Task: answer the stock of red lamp."


def test_an_answer_counts_on_its_own_page_and_once() -> None:
    goal = Goal(kind="answer", target=LAMP, fact="stock", answer="30")
    world = world_at_start(goal, ROUTE[:3])
    act(world, *WAY[:2])
    assert world.legal_actions() == ("click buy", "answer 12", "answer 30", "back", "back 2")
    state = world.snapshot()
    [wrong] = act(world, "answer 12")
    assert (wrong.observation, wrong.reward, wrong.is_terminated) == ("Wrong.", 0.0, True)
    world.restore(state)
    assert world.expert_action().text == "answer 30"
    assert act(world, "answer 30")[0].reward == 1.0


def test_a_form_sent_wrong_can_be_mended_only_where_that_is_allowed() -> None:
    [*_, ended] = act(world_at_start(), *WAY[:4], "submit")
    assert ended.is_terminated and not ended.is_success and ended.observation == "Wrong."
    world = world_at_start(irreversible=False)
    [*_, refused] = act(world, *WAY[:4], "type city anna", "submit")
    assert refused.observation == "Wrong: city. order red lamp: name anna; city anna"
    assert not refused.is_terminated and world.expert_action().text == "type city oslo"
    [*_, other] = act(world, "back 3", "click sign up", "submit")
    assert str(other.observation).startswith("Wrong: form.") and world.expert_action().text == "back"


def test_dead_ends_are_left_by_going_back() -> None:
    world = world_at_start()
    [*_, dead] = act(world, "click lamps", "click best red lamp")
    assert dead.observation == "not found: dead end"
    assert world.legal_actions() == ("back", "back 2")
    assert world.expert_action().text == "back"
    assert act(world, "back 2")[0].observation == "home: links: lamps, sign up"


def test_a_pop_up_hides_the_page_until_it_is_answered() -> None:
    world = world_at_start()
    site, stack, filled, _, seen, is_done, counters = world.snapshot()
    world.restore((site, stack, filled, 2, seen, is_done, counters))
    [blocked] = act(world, "click lamps")
    assert blocked.observation == "Nothing happens. pop-up: join the club? no or yes"
    assert not blocked.is_valid and world.expert_action().text == "no"
    assert world.mistaken_action(random.Random(0)).text == "yes"
    state = world.snapshot()
    assert act(world, "yes")[0].observation == "club: dead end"
    world.restore(state)
    assert act(world, "no")[0].observation == "home: links: lamps, sign up"


def test_the_share_of_pages_with_pop_ups_is_as_asked() -> None:
    for changing in (False, True):
        world = Web(popups=0.4, changing=changing)
        first = [str(begin(world, world.task("train", index))) for index in range(300)]
        share = sum("pop-up: " in text for text in first) / len(first)
        assert share == pytest.approx(0.4, abs=0.08)
    begin(world, world.task("train", 0))
    keys = {world.state_key() for _ in range(4) if act(world, "nothing")}
    assert len(keys) == 1 and len(POP_UPS) == 3


@pytest.mark.parametrize(
    "words", ["click red lamp", "back", "submit", "type name anna", "answer 12", "", "fly"]
)
def test_what_has_no_effect_changes_nothing_and_says_so(words: str) -> None:
    world = world_at_start()
    key = world.state_key()
    [result] = act(world, words)
    assert result.observation == "Nothing happens. home: links: lamps, sign up"
    assert not result.is_valid and world.state_key() == key
    assert not advance(world, Action(text="click lamps", error="unreadable")).is_valid


def test_forms_have_fields_to_type_to_choose_and_to_tick() -> None:
    fields = (("name", "ben"), ("city", "oslo"), ("delivery", "fast"), ("gift", "on"))
    world = world_at_start(Goal(kind="form", target=SIGN_UP, fields=fields), (HOME, SIGN_UP), fields=4)
    [shown] = act(world, "click sign up")
    assert shown.observation == "sign up: name empty; city empty; delivery (slow or fast) empty; gift off"
    words: list[str] = []
    while world.expert_action().text != "submit":
        words.append(world.expert_action().text)
        act(world, words[-1])
    assert words == ["type name ben", "type city oslo", "choose delivery fast", "tick gift"]
    act(world, "tick gift")
    assert world.expert_action().text == "tick gift", "ticked twice is off"
    act(world, "tick gift")
    assert act(world, "submit")[0].reward == 1.0


def test_vague_labels_have_to_be_searched() -> None:
    world = Web(labels="vague", kinds=6, depth=3, popups=0.3, changing=True)
    taken = [play(world, world.task("train", index), expert) for index in range(40)]
    assert all(episode.is_success for episode in taken)
    assert max(len(episode.rewards) for episode in taken) > 10
    assert "section 1" in str(taken[0].observations)


@pytest.mark.parametrize(
    "options", [{}, {"depth": 3, "fields": 4, "popups": 0.5, "reward": "dense"}, {"depth": 1}]
)
def test_the_expert_solves_fifty_tasks(options: dict[str, Any]) -> None:
    world = Web(**options)
    for index in range(50):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == pytest.approx(1.0)
        assert all(end[3] for end in episode.ends), "every action of the expert is valid"


def test_the_expert_recovers_from_noise() -> None:
    world = Web(irreversible=False, dead_ends=2)
    won = [
        play(world, world.task("train", index), noisy_policy(0.3, index)).is_success for index in range(30)
    ]
    assert sum(won) >= 25


def test_splits_share_no_site_and_there_are_thousands() -> None:
    shape = SiteShape(2, 3, 2, 2, 1, "any", False)
    assert len({repr(draw_site(shape, random.Random(seed))) for seed in range(300)}) == 300
    world = Web()
    sites = {
        split: {repr(begin(world, world.task(split, n)) and world.snapshot()[0]) for n in range(100)}
        for split in ("train", "eval")
    }
    assert not sites["train"] & sites["eval"]


def test_a_snapshot_continues_alike() -> None:
    world, other = Web(noise=2, changing=True), Web(noise=2, changing=True)
    begin(world, world.task("train", 2))
    advance(world, world.expert_action())
    other.restore(world.snapshot())
    for _ in range(3):
        action = world.expert_action()
        assert other.expert_action() == action and other.state_key() == world.state_key()
        assert advance(other, action) == advance(world, action)


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 0},
        {"depth": 4},
        {"kinds": 9},
        {"items": 0},
        {"fields": 5},
        {"popups": 1.0},
        {"dead_ends": -1},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(UsageError, match=f"{name}={value}"):
        Web(**options)


def test_a_site_that_drifts_calls_one_thing_otherwise_from_layout_to_layout() -> None:
    assert wording(0) == ("buy", "sign up", "close", "{}") == wording(NUM_LAYOUTS)
    assert wording(1) == ("order now", "sign up", "close", "{}")
    assert wording(6) == ("get it", "join us", "dismiss", "all {}")
    told = [wording(number) for number in range(NUM_LAYOUTS + 1)]
    assert len(set(told)) == NUM_LAYOUTS
    for old, new in pairwise(told):
        assert sum(a != b for a, b in zip(old, new, strict=True)) == 1
    world = world_at_start()
    site = world.snapshot()[0]
    assert restyle(site, 0) == site and repr(restyle(site, 2)).count("close=") == 0
    world.restore((restyle(site, 6), (HOME,), (), 0, frozenset({HOME}), False, (0, 0, 0)))
    assert world.legal_actions() == ("dismiss",)
    said = act(world, "close", "dismiss", "click all lamps", "click red lamp", "click get it")
    assert [result.is_valid for result in said] == [False, True, True, True, True]
    assert said[1].observation == "home: links: all lamps, join us"


def test_layouts_are_those_of_the_task_and_splits_stay_what_they_are() -> None:
    plain, world = Web(), Web(drift=4)
    layouts = [world.task("train", index).data["layout"] for index in (0, 3, 4, 47, 48)]
    assert layouts == [0, 0, 1, 11, 0]
    assert [world.task("eval", index).data["layout"] for index in (0, 1, 12)] == [0, 1, 0]
    assert plain.task("train", 5) == replace(world.task("train", 5), data={})
    for index in range(0, 48, 3):
        task = world.task("train", index)
        assert play(world, task, expert).is_success
        begin(world, task)
        begin(plain, plain.task("train", index))
        assert world.snapshot()[0].goal == plain.snapshot()[0].goal
    assert {word for text in world.later_words for word in text.split()} >= {"got", "join", "shop", "all"}
    assert not plain.later_words and MixedEnvironment("web?drift=4,guess").later_words == world.later_words
    with pytest.raises(UsageError, match="drift=-1"):
        Web(drift=-1)
