"""An adapter, an adviser and an agent: what each is shown, when the adviser is asked, and what is paid."""

import random

import pytest
from tests.build import shorten_corpus

from quintain.agents.adviser import ADAPTER, ADVISER, AGENT, REACHED, UNDERSTOOD, Advised, AdvisedWorld
from quintain.environments.advice import clauses
from quintain.environments.baselines import expert, play
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Observation, StepResult, Task, as_text
from quintain.warm_start.start import new_tokenizer

SPEC = "craft?recipes=drawn&depth=2&reward=dense"


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Chat:
    shorten_corpus(monkeypatch)
    return Chat(new_tokenizer(find(SPEC), seed=0))


def world_of(*, every: int = 4, played: tuple[str, ...] = (ADAPTER, AGENT)) -> AdvisedWorld:
    return AdvisedWorld(find(SPEC)(), every=every, queries=3, played=played)


def task_for(world: AdvisedWorld, goal: str) -> Task:
    """Return the first training task with `goal`."""
    tasks = (world.task("train", n) for n in range(99))
    return next(t for t in tasks if as_text(world.inner.reset(t)).startswith(f"Goal: {goal}."))


def test_clauses() -> None:
    assert clauses("Goal: table.  Recipes: a: 2 wood; hill:\nempty. ") == [
        "goal: table", "recipes: a: 2 wood", "hill:", "empty",
    ]  # fmt: skip


def test_the_adviser_is_asked_every_so_many_steps_and_no_more_than_it_may_be() -> None:
    world = world_of()
    begin(world, task_for(world, "wood sword"))
    asked: list[int] = []
    steps = 0
    last = StepResult(observation="")
    while not (last.is_terminated or last.is_truncated):
        if world.seat() == ADAPTER:
            asked.append(steps)
            last = advance(world, Action(text="no facts"))
            assert world.subgoal == "nothing"
        else:
            steps += 1
            last = advance(world, Action(text="wait"))
    assert asked == [0, 4, 8] and world.num_queries == 3
    assert last.is_truncated and steps == world.inner.max_turns


def test_a_subgoal_that_is_reached_by_a_paid_step_pays_the_adapter_and_is_done() -> None:
    world = world_of(every=8)
    begin(world, task_for(world, "wood sword"))
    told = advance(world, Action(text="wood sword: 1 wood at table"))
    assert world.subgoal == "table" and as_text(told.observation).endswith("\nSub-goal: table")
    results = [told]
    while world.seat() == AGENT:
        results.append(advance(world, world.expert_action()))
    end = results[-1]
    assert end.reward_terms[REACHED] == 1 and 0 < end.reward_terms[UNDERSTOOD] < 1
    assert dict(end.rewards) == {ADAPTER: 1.0, AGENT: end.reward} and end.reward > 0
    shown = as_text(end.observation)
    assert "done: table" in world.facts() and "\nDone: table.\nAdvice: table. Understood: 0." in shown
    # What is done already is no sub-goal that could be reached.
    advance(world, Action(text="wood sword: 1 wood at table"))
    assert world.subgoal == "table" and world.expert_action().text == "wait"
    idle = [advance(world, world.expert_action()) for _ in range(8)][-1]
    assert idle.reward_terms[REACHED] == 0 == idle.reward


def test_a_thing_that_is_reached_and_not_paid_for_pays_nobody() -> None:
    world = world_of(every=8)
    task = task_for(world, "wood sword")
    begin(world, task)
    end = advance(world, Action(text="recipes: table: 1 wood"))
    while world.seat() == AGENT:
        end = advance(world, world.expert_action())
    end = advance(world, Action(text="wood pickaxe: 1 wood; done: table"))
    assert world.subgoal == "wood pickaxe"
    while world.seat() == AGENT and not (end.is_terminated or end.is_truncated):
        end = advance(world, world.expert_action())
    assert end.reward_terms[REACHED] == 0, "a pickaxe is not on the way to a sword"


class Blind(AdvisedWorld):
    """Advice is asked for twice: in this world, and with another one open."""

    def advise(self, message: str) -> str:
        here = super().advise(message)
        other = find(SPEC)()
        begin(other, other.task("eval", 7))
        assert other.advise(message) == here  # type: ignore[attr-defined]
        return here


def test_the_adviser_sees_the_message_alone() -> None:
    world = Blind(find(SPEC)(), every=4, queries=3)
    for number in range(6):
        play(world, world.task("train", number), expert)


def test_scripts_play_who_is_not_played() -> None:
    adapter = world_of(played=(ADAPTER,))
    begin(adapter, task_for(adapter, "wood sword"))
    assert adapter.seats() == (ADAPTER,) == (adapter.seat(),)
    done = advance(adapter, Action(text="wood sword: 1 wood at table"))
    assert done.reward > 0 and dict(done.rewards) == {ADAPTER: 1.0} and adapter.done == ["table"]
    fixed = world_of(played=(AGENT,))
    task = task_for(fixed, "table")
    assert as_text(begin(fixed, task)).endswith("\nSub-goal: table"), "the goal is its first fact"
    assert play(fixed, task, expert).is_success
    three = world_of(played=(ADAPTER, ADVISER, AGENT))
    begin(three, task)
    heard = advance(three, Action(text="done: nothing"))
    assert three.seat() == ADVISER and heard.observation == "done: nothing"
    assert three.expert_action().text == "nothing"
    advance(three, Action(text=" Wood  Sword "))
    assert three.subgoal == "wood sword" and three.seat() == AGENT


def test_mistakes_are_the_agents(chat: Chat) -> None:
    world = Advised(chat).equip(find(SPEC)())
    assert isinstance(world, AdvisedWorld)
    begin(world, world.task("train", 0))
    assert world.mistaken_action(random.Random(0)) == world.expert_action()
    advance(world, world.expert_action())
    assert world.mistaken_action(random.Random(0)).text in world.inner.legal_actions()  # type: ignore[attr-defined]
    world.close()


def test_a_demonstrated_message_is_of_two_facts_that_are_shown(chat: Chat) -> None:
    make = find(SPEC)
    rollout = Rollout(Advised(chat), make, None)
    try:
        groups = rollout.demonstrations([make().task("train", n) for n in range(4)], noisy(0.0), seed=0)
    finally:
        rollout.close()
    messages = [(turn.action.text, turn.observation) for g in groups for t in g.scored for turn in t.turns
                if turn.speaker == ADAPTER]  # fmt: skip
    assert len({text for text, _ in messages}) > 2
    for text, seen in messages:
        shown: Observation = seen
        assert set(text.split("; ")) <= set(clauses(as_text(shown))) and text.count("; ") == 1


def test_what_cannot_be_is_refused(chat: Chat) -> None:
    with pytest.raises(UsageError, match="advised: got every=0, queries=4; give at least 1 of each"):
        Advised(chat, every=0)
    with pytest.raises(UsageError, match="advised: got no policy as adapter, adviser or actor"):
        Advised(chat, actor="scripted", adapter="fixed")
    with pytest.raises(UsageError, match="an advised agent: got guess, which has no adviser"):
        Advised(chat).equip(find("guess")())
