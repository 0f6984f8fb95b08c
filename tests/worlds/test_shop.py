from typing import Any

import pytest

from quintain.environments.baselines import expert, noop, play, random_policy
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, Split, StepResult
from quintain.worlds.shop.game import Shop, Visit
from quintain.worlds.shop.stock import Item, Stock, Wish

WISH = Wish(kind="hat", feature="wool", color="red", size="small", limit=40)


def item(**other: Any) -> Item:
    """What is wanted, but for `other`."""
    fields: dict[str, Any] = {
        "kind": "hat",
        "feature": "wool",
        "price": 30,
        "colors": ("red", "blue"),
        "sizes": ("small", "large"),
    }
    return Item(**(fields | other))


ITEMS = (
    item(kind="shoe"),
    item(feature="silk"),
    item(price=50),
    item(colors=("blue", "grey")),
    item(sizes=("medium", "large")),
    item(),
)


def world_with(**options: Any) -> Shop:
    world = Shop(**options)
    begin(world, world.task("train", 0))
    world.restore((Stock(wish=WISH, items=ITEMS), Visit(), 7))
    return world


def act(world: Shop, *words: str) -> list[StepResult]:
    return [advance(world, Action(text=word)) for word in words]


def test_a_purchase_by_value() -> None:
    world = world_with()
    results = act(
        world,
        "search hat",
        "click c",
        "click back",
        "click next",
        "click a",
        "click red",
        "click small",
        "click buy",
    )
    assert [result.observation for result in results] == [
        "a: silk, hat, 30; b: wool, hat, 50; c: wool, hat, 30; d: wool, hat, 30; next",
        "wool, hat, 30; blue, grey; small, large; chosen: nothing",
        "a: silk, hat, 30; b: wool, hat, 50; c: wool, hat, 30; d: wool, hat, 30; next",
        "a: wool, hat, 30",
        "wool, hat, 30; red, blue; small, large; chosen: nothing",
        "wool, hat, 30; red, blue; small, large; chosen: red",
        "wool, hat, 30; red, blue; small, large; chosen: red, small",
        "Bought. Score 1.",
    ]
    assert (results[-1].reward, results[-1].is_success, results[-1].is_terminated) == (1.0, True, True)
    assert not any(result.is_terminated for result in results[:-1])


def test_the_first_page_tells_the_wish() -> None:
    world = Shop()
    text = str(begin(world, world.task("train", 0)))
    assert text == f"{world.snapshot()[0].wish.words()} home"
    assert WISH.words() == "Goal: wool, hat, red, small, at most 40."


@pytest.mark.parametrize(
    ("bought", "color", "size", "score"),
    [
        (item(), "red", "small", 1.0),
        (item(), "red", "", 0.75),
        (item(), "blue", "large", 0.5),
        (item(price=50), "red", "small", 0.75),
        (item(price=40), "red", "small", 1.0),
        (item(feature="silk", price=50), "", "", 0.0),
        (item(kind="shoe"), "red", "small", 0.0),
    ],
)
def test_scores_by_value(bought: Item, color: str, size: str, score: float) -> None:
    assert WISH.score(bought, color, size) == score


def test_half_a_purchase_is_paid_when_rewards_are_dense_only() -> None:
    words = ("search hat", "click a", "click blue", "click buy")
    dense, sparse = act(world_with(), *words)[-1], act(world_with(reward="sparse"), *words)[-1]
    assert (dense.observation, dense.reward, dense.is_success) == ("Bought. Score 0.25.", 0.25, False)
    assert (sparse.observation, sparse.reward, sparse.is_success) == ("Bought. Score 0.25.", 0.0, False)


def test_search_ranks_by_words_and_keeps_the_order() -> None:
    stock = Stock(wish=WISH, items=ITEMS)
    assert stock.found("wool hat", by_feature=True) == (2, 3, 4, 5, 0, 1)
    assert stock.found("wool hat", by_feature=False) == (1, 2, 3, 4, 5)
    assert stock.found("trousers", by_feature=True) == ()
    world = world_with()
    assert act(world, "search trousers")[0].observation == "nothing found"
    assert world.legal_actions() == ("click back",)


@pytest.mark.parametrize("text", ["click a", "click buy", "search", "look", "", "click", "search "])
def test_what_is_not_on_the_page_changes_nothing(text: str) -> None:
    world = world_with()
    key = world.state_key()
    [result] = act(world, text)
    assert (result.observation, result.is_valid) == ("Nothing happens. home", False)
    assert world.state_key() == key


def test_pages_offer_their_links() -> None:
    world = world_with()
    assert world.legal_actions()[:2] == ("search shirt", "search shoe")
    act(world, "search[hat]")
    assert world.legal_actions() == ("click a", "click b", "click c", "click d", "click next", "click back")
    act(world, "click[next]")
    assert world.legal_actions() == ("click a", "click previous", "click back")
    act(world, "click a")
    links = ("red", "blue", "small", "large", "description", "back", "buy")
    assert world.legal_actions() == tuple(f"click {link}" for link in links)
    assert act(world, "click description")[0].observation == "description: wool"
    assert world.legal_actions() == ("click back",)
    assert not act(world, "search hat")[0].is_valid, "there is no search box on this page"


def test_going_back_forgets_the_options() -> None:
    world = world_with()
    act(world, "search hat", "click a", "click red", "click description", "click back")
    assert world.snapshot()[1].color == "red"
    act(world, "click back", "click a")
    assert world.snapshot()[1].color == ""
    act(world, "click back", "click back")
    assert world.state_key() == world_with().state_key(), "home again"


def test_hidden_features_are_in_the_description_only() -> None:
    world = world_with(hidden=True)
    assert act(world, "search hat")[0].observation == "a: hat, 30; b: hat, 50; c: hat, 30; d: hat, 30; next"
    words: list[str] = []
    while not words or not act(world, words[-1])[0].is_terminated:
        words.append(world.expert_action().text)
    assert words == [
        *("click a", "click description", "click back", "click back"),
        *("click c", "click back", "click d", "click back", "click next"),
        *("click a", "click description", "click back", "click red", "click small", "click buy"),
    ]


@pytest.mark.parametrize(
    "options", [{}, {"hidden": True}, {"items": 10, "near": 9, "reward": "sparse"}, {"items": 1, "near": 0}]
)
def test_the_expert_buys_what_is_wanted_within_two_thirds_of_the_turns(options: dict[str, Any]) -> None:
    world = Shop(**options)
    for index in range(50):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == 1.0
        assert len(episode.rewards) <= world.max_turns * 2 / 3 and all(end[3] for end in episode.ends)


def test_the_expert_recovers_unless_something_was_bought() -> None:
    world = Shop()
    for index in range(10):
        begin(world, world.task("train", index))
        act(world, "search hat", "click next", "click a", "click description")
        ends = [advance(world, world.expert_action()) for _ in range(30)]
        assert any(end.is_success for end in ends)
    scores = [play(world, world.task("train", i), noisy_policy(0.3, i)).total for i in range(40)]
    assert 0.2 < sum(scores) / 40 < 1, "an imperfect expert buys the wrong thing now and then"


def test_the_expert_beats_chance_which_beats_nothing() -> None:
    world = Shop()
    tasks = [world.task("train", index) for index in range(30)]
    chance = [play(world, task, random_policy(task.seed)).total for task in tasks]
    assert sum(play(world, task, noop).total for task in tasks) == 0 < sum(chance) < 10


def test_a_snapshot_goes_on_alike_and_noise_is_no_part_of_the_state() -> None:
    one, other = world_with(noise=1), world_with()
    [first], [second] = act(one, "search hat"), act(other, "search hat")
    assert (
        str(first.observation).startswith(f"{second.observation} ") and one.state_key() == other.state_key()
    )
    other.restore(one.snapshot())
    act(one, "click c")
    act(other, "click c")
    assert one.expert_action() == other.expert_action() == Action(text="click back")


def test_splits_have_no_wish_in_common() -> None:
    world = Shop(items=1, near=0)
    wishes: dict[Split, set[str]] = {"train": set(), "eval": set()}
    for split, seen in wishes.items():
        for index in range(300):
            begin(world, world.task(split, index))
            seen.add(world.snapshot()[0].wish.words())
    assert not wishes["train"] & wishes["eval"] and len(wishes["train"]) > 270


@pytest.mark.parametrize(
    "options", [{"items": 0}, {"items": 201}, {"near": -1}, {"items": 3, "near": 3}, {"noise": -1}]
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="shop: got items="):
        Shop(**options)
