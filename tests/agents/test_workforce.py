"""A workforce: who is asked what, what a card refuses, and when the planner plans again."""

import random

import pytest
from tests.build import shorten_corpus

from quintain.agents.protocol import Brief
from quintain.agents.workforce import (
    COORDINATOR,
    PLANNER,
    State,
    Workforce,
    WorkforceWorld,
    describe_cards,
    read_cards,
    verb_of,
)
from quintain.environments.baselines import expert, noop, play
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import begin
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Task, as_text
from quintain.warm_start.start import new_tokenizer

CRAFT = "craft?depth=2&places=2"
CARDS = read_cards("mover:go;maker:gather,make,eat")


def workforce(**fields: int) -> WorkforceWorld:
    return WorkforceWorld(find(CRAFT)(), CARDS, **fields)


def said(world: WorkforceWorld, text: str) -> str:
    return as_text(world.step(Action(text=text)).observation)


def test_cards_are_read_and_told() -> None:
    assert CARDS == {"mover": ("go",), "maker": ("gather", "make", "eat")}
    assert (
        read_cards("worker") == {"worker": ()}
        and describe_cards(read_cards("a;b:go")) == "Workers: a: all; b: go."
    )
    assert verb_of("go(hill)") == verb_of("go hill") == verb_of("go") == "go"
    for text in ("", "a;a", "planner", "a:go;;"):
        with pytest.raises(UsageError, match="name each worker once"):
            read_cards(text)


@pytest.mark.parametrize("cards", [CARDS, read_cards("worker")])
def test_experts_in_every_seat_solve_what_the_expert_solves(cards: dict[str, tuple[str, ...]]) -> None:
    inner = find(CRAFT)
    for index in range(8):
        world = WorkforceWorld(inner(), cards)
        task = world.task("train", index)
        assert world.seats() == (PLANNER, COORDINATOR, *cards)
        done = play(world, task, expert)
        assert done.is_success and sum(done.rewards) == sum(play(inner(), task, expert).rewards)
        assert not play(world, task, noop).is_success


def test_a_part_goes_from_the_planner_over_the_coordinator_to_a_worker() -> None:
    world = workforce()
    first = as_text(begin(world, world.task("train", 0)))
    assert "Goal" in first and first.endswith(f"{describe_cards(CARDS)}\nWrite the plan.")
    assert said(world, "1. eat()\n2. go(hill)") == f"Part: eat()\n{describe_cards(CARDS)} Who does it?"
    assert world.seat() == COORDINATOR
    order = said(world, "maker")
    assert world.seat() == "maker" and order.startswith("Part: eat()\n") and "mover" not in order
    assert said(world, "done") == f"Part: go(hill)\n{describe_cards(CARDS)} Who does it?"
    said(world, "maker")
    assert said(world, "failed").startswith("maker failed at go(hill). ") and world.seat() == PLANNER


def test_what_is_on_no_card_is_refused_and_the_planner_plans_again_so_often() -> None:
    world = workforce(max_replans=2)
    begin(world, world.task("train", 0))
    said(world, "1. go(hill)")
    refused = world.step(Action(text="nobody"))
    assert not refused.is_valid and as_text(refused.observation).startswith("'nobody' is no worker. ")
    said(world, "1. go(hill)")
    said(world, "maker")
    refused = world.step(Action(text="go hill"))
    assert not refused.is_valid and as_text(refused.observation).startswith("maker cannot go. ")
    last = world.step(Action(text="  "))
    assert last.is_truncated and last.is_success is False and not last.is_valid


def test_a_part_ends_after_so_many_actions_and_an_episode_after_its_own_turns() -> None:
    world = workforce(actions=2)
    begin(world, world.task("train", 0))
    said(world, "1. eat()\n2. make(table)")
    said(world, "maker")
    said(world, "eat")
    assert world.seat() == "maker"
    assert said(world, "eat").startswith("Part: make(table)") and world.seat() == COORDINATOR
    saved, key = world.snapshot(), world.state_key()
    said(world, "maker")
    assert world.state_key() != key
    world.restore(saved)
    assert world.state_key() == key and world.seat() == COORDINATOR
    inner, own = saved
    late = {"_num_done": world.inner.max_turns - 1, "_state": own["_state"]._replace(worker="maker")}
    world.restore((inner, late))
    assert world.step(Action(text="eat")).is_truncated


def test_an_expert_who_errs_names_another_worker_and_fails_the_part() -> None:
    world = workforce()
    begin(world, world.task("train", 0))
    rng = random.Random(0)
    assert world.mistaken_action(rng) == world.expert_action(), "a plan has no mistake"
    said(world, "1. go(hill)")
    assert {world.mistaken_action(rng).text for _ in range(20)} == set(CARDS)
    said(world, "maker")
    assert world.expert_action().text == "failed" and world.mistaken_action(rng).text != "failed"


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Chat:
    shorten_corpus(monkeypatch)
    return Chat(new_tokenizer(find(CRAFT), seed=0))


def test_demonstrations_of_one_who_errs_fail_now_and_then(chat: Chat) -> None:
    make = find(CRAFT)
    rollout = Rollout(Workforce(chat, workers="mover:go;maker:gather,make,eat", max_tokens=512), make, None)
    groups = rollout.demonstrations([make().task("train", index) for index in range(12)], noisy(0.3), seed=0)
    rollout.close()
    solved = [each.is_success for group in groups for each in group.trajectories]
    assert 0 < sum(solved) < len(solved)
    spoke = {turn.speaker for group in groups for each in group.trajectories for turn in each.turns}
    assert spoke == {PLANNER, COORDINATOR, "mover", "maker"}


def test_a_worker_reads_its_part_and_not_what_the_planner_read(chat: Chat) -> None:
    agent = Workforce(chat, workers="mover:go;maker")
    world = agent.equip(find(CRAFT)())
    assert isinstance(world, WorkforceWorld) and world.seats() == (PLANNER, COORDINATOR, "mover", "maker")
    brief = Brief(
        task=Task(id="t", environment="craft", seed=4, prompt=""), instructions=world.instructions()
    )
    session = agent.open(brief)
    first = session.observe("Part: go(hill)\nhave 1 wood")
    session.read(Completion(token_ids=chat.write("done"), logprobs=(), stop="stop"))
    again = session.observe("Part: go(shore)\nhave 2 wood")
    assert "wood" in chat.text(first.token_ids) and again.starts_segment
    assert "have 1 wood" not in chat.text(again.token_ids) and "have 2 wood" in chat.text(again.token_ids)
    planner = agent.open(brief)
    planner.observe("Goal")
    planner.read(Completion(token_ids=chat.write("1. go(hill)"), logprobs=(), stop="stop"))
    assert not planner.observe("maker failed at go(hill).").starts_segment


def test_a_workforce_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="give actions of 1 or more"):
        Workforce(chat=None, actions=0)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="workforce: got calc, which has tools"):
        WorkforceWorld(find("calc")(), CARDS)
    assert State().plan == ()
