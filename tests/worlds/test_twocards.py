from typing import Any

import pytest

from quintain.environments.baselines import expert, noop, play, random_policy
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import Environment, Seats, advance, begin
from quintain.errors import UsageError
from quintain.types import Action, StepResult, as_text
from quintain.worlds.twocards.deal import (
    PADDING,
    Deal,
    answer_from,
    claims,
    expert_talk,
    progress,
    resolve,
)
from quintain.worlds.twocards.game import State, TwoCards

DEAL = Deal(
    cards=((("red", "4"), ("tin", "1")), (("blue", "3"), ("fox", "0"))),
    question=("red", "blue"),
    answer=7,
    needed=(("blue", "3"), ("red", "4")),
)
CHAIN = Deal(
    cards=((("blue", "fox"), ("tin", "1")), (("red", "blue"), ("fox", "3"))),
    question=("red",),
    answer=3,
    needed=(("blue", "fox"), ("fox", "3"), ("red", "blue")),
)


def table(deal: Deal = DEAL, **options: Any) -> TwoCards:
    world = TwoCards(**options)
    world.restore(State(deal=deal))
    return world


def act(world: TwoCards, *texts: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in texts]


def test_a_talk_by_value() -> None:
    world = table()
    assert world.seat() == "A"
    first, last = act(world, "say red 4", "answer 7")
    assert first.observation == "B. blue = 3. fox = 0. red + blue? A: say red 4."
    assert (first.reward, dict(first.reward_terms)) == (-0.02, {"messages": -0.02})
    assert last.observation == "Right." and last.is_success and last.reward == pytest.approx(0.98)
    assert act(table(), "answer 8")[0].is_success is False


def test_an_episode_of_a_task_by_value() -> None:
    world = TwoCards(terms=1, hops=3, facts=3)
    assert play(world, world.task("train", 2), expert).observations == GOLDEN


GOLDEN = (
    "A. corn = melon. melon = blue. gray = 3. corn?",
    "B. black = 2. bread = 2. blue = 3. corn? A: say corn melon.",
    "A. corn = melon. melon = blue. gray = 3. corn? B: ask melon.",
    "B. black = 2. bread = 2. blue = 3. corn? A: say melon blue.",
    "Right.",
)


def test_seats_act_in_turn_and_observations_are_addressed_to_them() -> None:
    world = table()
    assert isinstance(world, Seats) and world.seats() == ("A", "B")
    seen = [
        (world.seat(), str(act(world, text)[0].observation)[:2])
        for text in ("pass", "pass", "ask fox", "pass")
    ]
    assert seen == [("A", "B."), ("B", "A."), ("A", "B."), ("B", "A.")]
    assert table(partner="scripted").seats() == ("A",)


def heard_and_owned(world: TwoCards) -> tuple[set[str], set[str]]:
    """Return the keys that the acting seat may know the value of, and the others."""
    now = world.snapshot()
    own = {key for key, _ in now.deal.cards[now.acting]}
    told = {key for speaker, text in now.messages if speaker != now.acting for key in text.split()[1:2]}
    return own | told, {key for card in now.deal.cards for key, _ in card} - own - told


def test_no_fact_is_seen_before_its_owner_said_it() -> None:
    one: dict[str, Any] = {"facts": 4, "hops": 2, "informed": "one"}
    chain: dict[str, Any] = {"terms": 1, "hops": 4, "facts": 3}
    for world in (TwoCards(), TwoCards(**one), TwoCards(**chain)):
        for index in range(15):
            observation = begin(world, world.task("train", index))
            while True:
                _, hidden = heard_and_owned(world)
                assert not any(f"{key} = " in as_text(observation) for key in hidden)
                result = advance(world, world.expert_action())
                observation = result.observation
                if result.is_terminated:
                    break


def test_a_seat_that_does_not_know_the_question_is_asked() -> None:
    world = table(informed="one")
    assert [str(result.observation) for result in act(world, "ask blue", "say blue 3")] == [
        "B. blue = 3. fox = 0. A: ask blue.",
        "A. red = 4. tin = 1. red + blue? B: say blue 3.",
    ]
    assert expert_talk(DEAL, (), 0, (True, False)) == "ask blue"
    assert expert_talk(DEAL, ((0, "ask blue"),), 1, (True, False)) == "say blue 3"
    assert expert_talk(DEAL, ((0, "nice weather"),), 1, (True, False)) == "pass"
    assert expert_talk(DEAL, ((0, "ask blue"), (1, "say blue 3")), 0, (True, False)) == "answer 7"


def test_the_talk_along_a_chain() -> None:
    assert expert_talk(CHAIN, (), 0, (True, True)) == "ask red"
    messages = ((0, "ask red"), (1, "say red blue"))
    assert expert_talk(CHAIN, messages, 0, (True, True)) == "say blue fox"
    assert expert_talk(CHAIN, (*messages, (0, "say blue fox")), 1, (True, True)) == "answer 3"
    assert resolve("red", {"red": "blue", "blue": "red"}) == (["red", "blue"], "red"), (
        "a lie may go in circles"
    )
    assert expert_talk(CHAIN, ((1, "say red red"),), 0, (True, True)) == "ask red"
    assert answer_from(("red",), {"red": "²"}) is None and answer_from(("red",), {"red": "9" * 10}) is None
    assert claims(((0, "say red 4"), (0, "say red 5."), (1, "say fox 2")), 1) == {"red": "5"}


def test_progress_is_what_the_better_informed_seat_knows() -> None:
    assert progress(DEAL, ()) == 0.5 and progress(DEAL, ((0, "say red 4"),)) == 1.0
    assert progress(DEAL, ((0, "say red 5"),)) == 0.5, "a lie is no progress"
    assert progress(CHAIN, ()) == pytest.approx(2 / 3)
    world = table(dense=True, cost=0.0)
    results = act(world, "say tin 1", "pass", "say red 4", "answer 7")
    assert [result.reward for result in results] == [0, 0, 0.5, 0.5]
    assert dict(results[2].reward_terms) == {"messages": 0.0, "passed_on": 0.5}
    lied = act(table(dense=True, cost=0.0), "say red 4", "pass", "say red 5", "answer 7")
    assert [result.reward for result in lied] == [0.5, 0, -0.5, 0.5]


def test_a_scripted_partner_answers_at_once() -> None:
    world = table(partner="scripted", informed="one")
    assert act(world, "ask blue")[0].observation == "A. red = 4. tin = 1. red + blue? B: say blue 3."
    assert world.seat() == "A"
    assert act(table(partner="scripted"), "say red 4")[0].is_success, "the partner knows enough and answers"
    fooled = act(table(partner="scripted"), "say red 5")[0]
    assert fooled.is_terminated and not fooled.is_success, "it believes what it is told"


def test_consensus_needs_both_seats() -> None:
    world = table(consensus=True)
    first, second = act(world, "answer 7", "answer 7")
    assert first.observation == "B. blue = 3. fox = 0. red + blue? A: answer 7." and second.is_success
    assert act(table(consensus=True), "answer 7", "answer 6")[1].is_success is False
    alone = act(table(consensus=True), "answer 7", "pass", "answer 7")
    assert not alone[-1].is_terminated, "one seat does not agree with itself"
    agreeing = table(consensus=True, informed="one")
    act(agreeing, "answer 9")
    assert agreeing.expert_action() == Action(text="answer 9")
    act(knowing := table(consensus=True), "say red 4", "pass", "answer 9")
    assert knowing.expert_action() == Action(text="answer 7"), "it knows better"


@pytest.mark.parametrize("text", ["", "say", "ask ", "answer", "answer seven", "hello", "pass on"])
def test_other_words_change_nothing(text: str) -> None:
    world = table()
    key = world.state_key()
    (result,) = act(world, text)
    assert str(result.observation).startswith("Error: write say KEY VALUE") and not result.is_valid
    assert result.reward == 0 and world.state_key() == key and world.seat() == "A"
    assert advance(world, Action(text="pass", error="unreadable")).observation == "Error: unreadable"


def test_messages_are_free_and_cut_to_a_length() -> None:
    world = table()
    (result,) = act(world, "say I hold   red,\n which is 4; " + "x" * 300)
    assert str(result.observation).startswith(
        "B. blue = 3. fox = 0. red + blue? A: say I hold red, which is 4; xxx"
    )
    assert len(str(result.observation)) == 38 + 200


def test_what_may_be_said_is_listed() -> None:
    world = table(CHAIN, terms=1, hops=3, values=3)
    assert world.legal_actions() == (
        *("say blue fox", "say tin 1", "ask red", "ask fox"),
        *("answer 0", "answer 1", "answer 2", "pass"),
    )
    act(world, "ask red")
    assert world.legal_actions()[:3] == ("say red blue", "say fox 3", "ask blue")


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 50),
        ({"facts": 4, "terms": 3, "hops": 2, "max_turns": 30}, 20),
        ({"informed": "one", "hops": 2, "facts": 3, "consensus": True, "max_turns": 30}, 20),
        ({"partner": "scripted", "terms": 1, "hops": 4, "facts": 3, "noise": 2}, 20),
        ({"message_failures": 0.4, "max_turns": 40}, 20),
    ],
)
def test_the_expert_wins(options: dict[str, Any], count: int) -> None:
    world = TwoCards(**options)
    for index in range(count):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and all(end[3] for end in episode.ends)


def test_lost_messages_do_not_arrive() -> None:
    world = table(message_failures=0.9)
    replies = [str(result.observation) for result in act(world, *["say red 4", "pass"] * 20)]
    arrived = sum("A: say red 4." in reply for reply in replies)
    assert 0 < arrived < 20
    assert act(table(message_failures=0.9), "answer 7")[0].is_success, "answers are not messages"


def test_nothing_is_paid_for_nothing_and_chance_is_low() -> None:
    world = TwoCards(dense=True)
    tasks = [world.task("eval", index) for index in range(60)]
    assert all(play(world, task, noop).total == 0 for task in tasks)
    assert sum(play(world, task, random_policy(7)).is_success for task in tasks) < 25
    wins = [sum(play(world, task, noisy_policy(rate, 1)).is_success for task in tasks) for rate in (0, 0.6)]
    assert wins[0] == 60 > wins[1]
    assert "answer" in world.privileged()


def test_snapshots_continue_alike_elsewhere() -> None:
    options: dict[str, Any] = {"message_failures": 0.3, "noise": 1, "hops": 2, "facts": 4}
    world, other = TwoCards(**options), TwoCards(**options)
    for index in range(15):
        begin(world, world.task("train", index))
        act(world, "say something")
        begin(other, world.task("eval", index))
        other.restore(world.snapshot())
        assert world.state_key() == other.state_key() and world.seat() == other.seat() == "B"
        assert play_on(world) == play_on(other)


def play_on(world: TwoCards) -> list[StepResult]:
    results: list[StepResult] = []
    while not (results and results[-1].is_terminated):
        results.append(advance(world, world.expert_action()))
    return results


def test_thousands_of_tasks_and_no_content_in_both_splits() -> None:
    world = TwoCards()
    seen: dict[str, set[str]] = {"train": set(), "eval": set()}
    for split in ("train", "eval"):
        for index in range(150):
            begin(world, world.task(split, index))
            deal = world.snapshot().deal
            assert all(len(card) == 2 for card in deal.cards)
            assert {key for key, _ in deal.needed} == set(deal.question)
            assert all(set(card) & set(deal.needed) for card in deal.cards), "both cards are needed"
            seen[split].add(repr(deal))
    assert len(seen["train"]) == len(seen["eval"]) == 150 and not seen["train"] & seen["eval"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": 1}, "between 2 and twice the facts"),
        ({"facts": 1, "terms": 3}, "between 2 and twice the facts"),
        ({"values": 1}, "2 values or more"),
        ({"facts": 15, "terms": 12}, "as many keys"),
        ({"keys": 41}, "at most 40"),
        ({"cost": 0.1}, "cost less than 1"),
        ({"max_turns": 1}, "2 turns or more"),
        ({"message_failures": 1.0}, "failures below 1"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TwoCards(**options)


def test_an_expert_of_mixed_style_is_understood_and_says_more() -> None:
    plain, mixed = TwoCards(), TwoCards(style="mixed")
    tasks = [plain.task("train", number) for number in range(40)]
    told: list[str] = []

    def watch(environment: Environment, observation: str) -> Action:
        action = expert(environment, observation)
        told.append(action.text)
        assert isinstance(environment, TwoCards) and action.text in environment.legal_actions()
        return action

    assert all(play(mixed, task, watch).is_success for task in tasks)
    facts = [text for text in told if not text.startswith(("ask", "answer", "pass"))]
    forms = [text.startswith("say ") + 2 * text.endswith(PADDING) for text in facts]
    assert all(8 < forms.count(form) < 0.6 * len(facts) for form in (0, 1, 3)) and 2 not in forms
    begin(mixed, tasks[0])
    key, value = mixed.snapshot().deal.cards[0][0]
    for said in (f"say {key} {value}", f"say {key} {value}{PADDING}", f"{key} {value}"):
        assert claims([(0, said)], 1) == {key: value}
        begin(mixed, tasks[0])
        assert advance(mixed, Action(text=said)).is_valid
    for said in ("say hello", f"ask {key}", "hello there", f"{key} {value} and more"):
        assert key not in claims([(0, said)], 1) and "say" not in claims([(0, said)], 1)
    begin(plain, tasks[0])
    assert not advance(plain, Action(text=f"{key} {value}")).is_valid, "only where the style is mixed"


def test_a_share_of_the_deals_needs_one_card_alone() -> None:
    world = TwoCards(alone=0.5)
    held: list[bool] = []
    for number in range(200):
        begin(world, world.task("train", number))
        deal = world.snapshot().deal
        assert all(len(card) == world.facts for card in deal.cards)
        held.append(any({*deal.needed} <= {*card} for card in deal.cards))
    assert 70 < sum(held) < 130
    begin(other := TwoCards(), other.task("train", 1))
    assert not any({*other.snapshot().deal.needed} <= {*card} for card in other.snapshot().deal.cards)


@pytest.mark.parametrize("told", [{"terms": 3}, {"dense": True}, {"alone": 1.5}])
def test_one_card_must_be_able_to_hold_all(told: dict[str, Any]) -> None:
    given: dict[str, Any] = {"alone": 0.5, **told}
    with pytest.raises(UsageError, match=r"twocards: got alone="):
        TwoCards(**given)
