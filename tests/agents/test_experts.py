"""Experts who propose and a manager who chooses: who sees what, who is paid for what, and what is said in the end."""

import random
from dataclasses import replace

import pytest
from tests.build import shorten_corpus

from quintain.agents.catalog import engine_needs
from quintain.agents.experts import LABEL, MANAGER, Experts, ExpertsWorld
from quintain.agents.protocol import Brief
from quintain.engines.protocol import Candidates
from quintain.environments.baselines import expert, noop, play
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, as_text
from quintain.warm_start.start import new_tokenizer

WORLD = "collab?slots=2&values=2&told=0"
INTENTS = ("asks", "decides")


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Chat:
    shorten_corpus(monkeypatch)
    return Chat(new_tokenizer(find(WORLD), seed=0))


def test_one_candidate_is_said_and_everybody_is_paid_for_his_own() -> None:
    world = ExpertsWorld(find(WORLD)(), INTENTS)
    first = as_text(begin(world, world.task("train", 0)))
    assert first.startswith("other: I want a") and first.endswith("\nasks:") and world.legal_actions() == ()
    asked = advance(world, Action(text=" ask  color "))
    assert dict(asked.rewards) == {"asks": 1.0} == {"asks": asked.reward_terms[LABEL]} and asked.reward == 0
    assert world.seat() == "decides"
    chatted = advance(world, Action(text="ask size"))
    assert dict(chatted.rewards) == {"decides": 0.0}, "a question decides nothing"
    shown = as_text(chatted.observation)
    assert world.seat() == MANAGER and world.legal_actions() == ("1", "2")
    place = next(n for n in "12" if f"{n}: ask color" in shown)
    done = advance(world, Action(text=place))
    assert dict(done.rewards) == {MANAGER: -0.02} and done.reward == -0.02
    assert "\nme: ask color\nother: color: " in as_text(done.observation)


def test_a_manager_who_names_nobody_costs_a_turn_and_talks_end() -> None:
    world = ExpertsWorld(find(WORLD)(), INTENTS)
    begin(world, world.task("train", 0))
    for text in ("ask color", "ask color"):
        advance(world, Action(text=text))
    wrong = advance(world, Action(text="ask size"))
    assert not wrong.is_valid and world.seat() == "asks"
    last = wrong
    for _ in range(3 * world.inner.max_turns):
        last = advance(world, Action(text="1" if world.seat() == MANAGER else "hm"))
        if last.is_terminated or last.is_truncated:
            break
    assert last.is_terminated or last.is_truncated
    world.close()


def test_the_order_of_candidates_is_drawn_anew_each_turn_and_repeats() -> None:
    def places(seed: int) -> list[int]:
        world = ExpertsWorld(find("collab?slots=2&values=2&told=0&patience=20")(), INTENTS)
        begin(world, world.task("train", seed))
        found: list[int] = []
        for _ in range(16):
            advance(world, Action(text="mine"))
            shown = as_text(advance(world, Action(text="other")).observation)
            found.append(int("\n2: mine" in shown))
            advance(world, Action(text="1"))
        return found

    assert places(0) == places(0) != places(1)
    assert 0 < sum(places(0)) < 16


def test_candidates_that_keep_their_order_name_their_experts(chat: Chat) -> None:
    world = Experts(chat, intents="asks,decides", order="kept").equip(find(WORLD)())
    assert isinstance(world, ExpertsWorld)
    for seed in range(4):
        begin(world, world.task("train", seed))
        advance(world, Action(text="ask size"))
        shown = as_text(advance(world, Action(text="submit red, small")).observation)
        assert shown.endswith("\n1: ask size\n2: submit red, small")
        assert world.legal_actions() == ("1", "2")
    with pytest.raises(UsageError, match="did you mean 'kept'"):
        Experts(chat, order="kep")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_experts_are_shown_what_has_their_intent_and_the_manager_who_says_it(chat: Chat) -> None:
    world = Experts(chat, order="kept").equip(find(WORLD)())
    assert isinstance(world, ExpertsWorld)
    begin(world, world.task("train", 0))
    for teacher in (lambda: world.expert_action(), lambda: world.mistaken_action(random.Random(1))):
        for _ in range(2):
            advance(world, teacher())
        assert teacher().text.startswith("submit "), "who decides is shown a guess, and not the question"
        advance(world, teacher())
        assert world.seat() == MANAGER and world.expert_action().text == "1", "who asks says the right thing"
        advance(world, Action(text="1"))
    advance(world, Action(text="hm"))
    advance(world, Action(text="hm"))
    advance(world, Action(text="submit red, small"))
    assert world.expert_action().text == "3", "all is known, and what is said has the intent of what is right"


def test_the_expert_solves_and_errs_as_its_world_does(chat: Chat) -> None:
    world = Experts(chat).equip(find(WORLD)())
    assert isinstance(world, ExpertsWorld) and world.seats() == (MANAGER, "asks", "repeats", "decides")
    assert all(play(world, world.task("train", n), expert).is_success for n in range(4))
    assert not play(world, world.task("train", 0), noop).is_success
    begin(world, world.task("train", 0))
    assert world.mistaken_action(random.Random(0)).text.split()[0] in ("ask", "submit")
    for _ in range(3):
        advance(world, Action(text="hm"))
    assert world.mistaken_action(random.Random(0)).text in ("1", "2", "3")
    assert world.expert_action().text in ("1", "2", "3"), (
        "where nobody says what the expert would, anyone does"
    )


def test_every_question_is_a_conversation_of_its_own(chat: Chat) -> None:
    agent, make = Experts(chat, intents="asks,decides"), find(WORLD)
    rollout = Rollout(agent, make, None)
    try:
        (group,) = rollout.demonstrations([make().task("train", 3)], noisy(0.0), seed=0)
    finally:
        rollout.close()
    (played,) = group.scored
    assert played.is_success and {turn.speaker for turn in played.turns} == {MANAGER, "asks", "decides"}
    assert all(turn.starts_segment for turn in played.turns)
    assert {len(turn.completion.token_ids) for turn in played.turns if turn.speaker == MANAGER} == {1}
    assert sum(turn.reward for turn in played.turns) == played.outcome.value  # type: ignore[union-attr]
    brief = Brief(task=played.task, instructions="Go.")
    first, second = agent.open(brief), agent.open(brief)
    second.observe("asks:")
    assert first.observe("decides:") == second.observe("decides:")


def test_a_manager_can_say_nothing_but_the_number_of_a_candidate(chat: Chat) -> None:
    agent = Experts(chat, intents="asks,decides")
    brief = Brief(task=find(WORLD)().task("train", 0), instructions="Go.")
    asked = agent.open(brief).observe("other: I want a lamp.\nasks:").sampling
    manager = agent.open(replace(brief, legal_actions=("1", "2")))
    chosen = manager.observe("1: ask size\n2: submit small", ("1", "2")).sampling
    assert asked.candidates is None, "experts say what they like"
    assert chosen.candidates == Candidates(
        token_ids=(chat.answer_ids("1"), chat.answer_ids("2")), lengths=(1.0, 1.0)
    )
    assert engine_needs("experts?intents=asks,decides") == {"candidates"}


def test_policies_with_harnesses_of_their_own_are_put_into_one_world(chat: Chat) -> None:
    make = find(WORLD)
    rollout = Rollout(
        {"policy": Experts(chat), "experts": Experts(chat)}, make, None, seats={MANAGER: "policy", "asks": "experts",
        "repeats": "experts", "decides": "experts"},
    )  # fmt: skip
    try:
        (group,) = rollout.demonstrations([make().task("train", 0)], noisy(0.0), seed=0)
    finally:
        rollout.close()
    assert "other: other:" not in chat.text(group.trajectories[0].turns[0].prompt_ids)


@pytest.mark.parametrize(
    ("intents", "said"),
    [
        ("asks", "name two or more different ones"),
        ("asks,asks", "name two or more different ones"),
        ("asks,decide", "did you mean 'decides'"),
    ],
)
def test_what_is_no_mixture_is_refused(chat: Chat, intents: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Experts(chat, intents=intents)


def test_tools_are_not_said(chat: Chat) -> None:
    with pytest.raises(
        UsageError, match="experts: got desk, which is acted in by tools; take its interface=text"
    ):
        Experts(chat).equip(find("desk")())


def test_the_desk_is_spoken_to_as_well() -> None:
    world = ExpertsWorld(
        find("desk?interface=text&kinds=cancel,price")(), ("asks", "looks", "decides", "talks")
    )
    seen: set[str] = set()
    for number in range(6):
        task = world.task("train", number)
        assert play(world, task, expert).is_success
        begin(world, task)
        is_over = False
        while not is_over:
            result = advance(world, world.expert_action())
            seen |= {seat for seat, paid in result.rewards.items() if paid > 0}
            is_over = result.is_terminated or result.is_truncated
    assert seen == {"asks", "looks", "decides", "talks", MANAGER}, "each of them is right now and then"


def test_what_is_hidden_is_shown_to_nobody() -> None:
    world = ExpertsWorld(find(WORLD)(), INTENTS)
    shown: dict[str, set[str]] = {}
    for number in range(200):
        opening = as_text(begin(world, world.task("train", number)))
        shown.setdefault(opening, set()).add(world.inner.privileged())  # type: ignore[attr-defined]
    assert max(len(wishes) for wishes in shown.values()) > 1, "the same talk, and other wishes"
