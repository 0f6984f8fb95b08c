"""A planner who names things and a grounder who finds them: what each sees, and who may stand in for whom."""

import random
from typing import Any

import pytest
from tests.build import shorten_corpus

from quintain.agents.grounded import (
    FIND,
    GROUNDER,
    PLANNER,
    Do,
    Grounded,
    GroundedWorld,
    in_words,
    read_do,
    write_do,
)
from quintain.agents.protocol import Brief, equip
from quintain.environments.baselines import expert, noop, play
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import advance, begin
from quintain.errors import DataError, UsageError
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Task, ToolCall, as_text
from quintain.warm_start.start import new_tokenizer
from quintain.worlds.screen.game import Screen

FORM = "screen?interface=text&goal=form&fields=2"


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Chat:
    shorten_corpus(monkeypatch)
    return Chat(new_tokenizer(find(FORM), seed=0))


def test_plans_are_read_as_they_are_written() -> None:
    assert write_do(Do("click", "save")) == "do(click, save)"
    assert read_do(" do(type, red, or (so)) ") == Do("type", "red, or (so)")
    for text in ("click save", "do(click)", "do(click, )", "do(click, save", ""):
        with pytest.raises(DataError, match=r"a plan: got .*; write do\(ACTION, THING\)"):
            read_do(text)
    assert in_words(Action(tool_calls=(ToolCall(name="click", arguments={"x": 3, "y": 4}),))) == "click 3 4"


@pytest.mark.parametrize("experts", [(), (PLANNER,), (GROUNDER,)])
@pytest.mark.parametrize("interface", ["tools", "text", "labels"])
def test_two_experts_and_one_beside_a_policy_do_what_the_expert_does(interface: str, experts: Any) -> None:
    inner = find(f"screen?goal=any&interface={interface}")
    world = GroundedWorld(inner(), experts=frozenset(experts))
    assert world.tools() == () and "Say do(ACTION, THING)" in world.instructions()
    for index in range(12):
        task = world.task("train", index)
        done, wanted = play(world, task, expert), play(inner(), task, expert)
        assert done.is_success and sum(done.rewards) == sum(wanted.rewards) == 1
        if not experts:
            assert set(world.seats()) == {PLANNER, GROUNDER}
            assert not play(world, task, noop).is_success
        else:
            assert len(world.seats()) == 1 and world.seat() == world.seats()[0]


def test_the_grounder_is_shown_the_screen_and_the_thing_and_never_the_task(chat: Chat) -> None:
    agent = Grounded(chat)
    world = agent.equip(find(FORM)())
    task = Task(id="t", environment="screen", seed=4, prompt="Secret.")
    brief = Brief(task=task, instructions=world.instructions())
    question = "Screen: ok 3 4, city 9 9\nFind: city"
    prompts = []
    for seen in ((), ("Screen: name 1 2\nFind: name",)):
        session = agent.open(brief)
        for text in seen:
            session.observe(text)
            session.read(session_completion(chat, "1 2"))
        prompts.append(session.observe(question))
    assert prompts[0] == prompts[1], "what was asked before changes nothing"
    told = chat.text(prompts[0].token_ids)
    assert prompts[0].starts_segment and "Secret" not in told and "Find: city" in told
    planner = agent.open(brief)
    first = planner.observe("Task: find it. ok 3 4")
    planner.read(session_completion(chat, "do(click, ok)"))
    later = planner.observe("Screen: that is what the page says")
    assert "Secret" in chat.text(first.token_ids) and not later.starts_segment


def session_completion(chat: Chat, text: str) -> Completion:
    """Return `text` as a policy samples it."""
    return Completion(token_ids=chat.write(text), logprobs=(), stop="stop")


def test_episodes_have_two_seats_and_only_the_planner_hears_of_the_task(chat: Chat) -> None:
    agent = Grounded(chat)
    make = find(FORM)
    with_experts = Rollout(agent, make, None)
    try:
        (group,) = with_experts.demonstrations([make().task("train", 3)], noisy(0.0), seed=0)
    finally:
        with_experts.close()
    (played,) = group.scored
    assert played.is_success and {turn.speaker for turn in played.turns} == {PLANNER, GROUNDER}
    for turn in played.turns:
        text = as_text(turn.observation)
        assert ("Task:" in chat.text(turn.prompt_ids)) == (turn is played.turns[0])
        assert (FIND in text) == (turn.speaker == GROUNDER) == (turn.action.text[0].isdigit())


def test_a_mistake_is_the_planners() -> None:
    world = GroundedWorld(Screen(interface="text"))
    begin(world, world.task("train", 0))
    plan = world.mistaken_action(random.Random(3))
    shown = advance(world, plan)
    thing = read_do(plan.text).thing
    assert world.mistaken_action(random.Random(3)).text == Screen.elements(world.inner)[thing]  # type: ignore[arg-type]
    assert as_text(shown.observation).endswith(f"Find: {thing}")


def test_plans_that_cannot_be_read_cost_turns_and_points_that_miss_do_nothing() -> None:
    world = GroundedWorld(Screen(interface="text", goal="click"))
    begin(world, world.task("train", 0))
    said = advance(world, Action(text="save"))
    assert not said.is_valid and as_text(said.observation).startswith("Error: a plan: got 'save'")
    advance(world, Action(text="do(click, nowhere)"))
    assert world.expert_action().text == "nowhere", "who does not know it says it again"
    saved = world.snapshot()
    key = world.state_key()
    missed = advance(world, Action(text="nowhere"))
    assert not missed.is_valid and not missed.is_terminated and world.state_key() != key
    world.restore(saved)
    assert world.state_key() == key and world.seat() == GROUNDER
    said_again = [advance(world, Action(text="?")) for _ in range(world.inner.max_turns)]
    assert said_again[-1].is_truncated
    world.close()


def test_what_lacks_a_screen_or_a_player_is_refused(chat: Chat) -> None:
    with pytest.raises(UsageError, match="a planner and a grounder: got guess, which cannot show its screen"):
        equip(Grounded(chat), find("guess")())
    with pytest.raises(UsageError, match="grounded: got an expert as planner and as grounder"):
        Grounded(chat, planner="expert", grounder="expert")
