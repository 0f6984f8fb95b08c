"""A script acts for a strategist: it goes for what is named, and for nothing else."""

import random
from typing import Any

import pytest

from quintain.agents.catalog import build
from quintain.agents.plan import PlanAndAct
from quintain.agents.protocol import Brief, equip
from quintain.agents.scripted_actor import LedWorld
from quintain.engines.local import Local
from quintain.engines.protocol import Engine
from quintain.environments.baselines import expert, noop, play
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment, FindsWay, advance, begin
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, Task, ToolError
from quintain.warm_start.start import make_start

SPECS = ("keydoor?rooms=2&distractors=3", "keydoor?rooms=3", "house", "house?rooms=2&things=2")


@pytest.mark.parametrize("spec", SPECS)
def test_few_strategies_solve_what_takes_many_actions(spec: str) -> None:
    plain, led, deaf = find(spec)(), LedWorld(find(spec)()), LedWorld(find(spec)(), is_deaf=True)
    tasks = [led.task("train", index) for index in range(12)]
    told = [play(led, task, expert) for task in tasks]
    assert all(episode.is_success for episode in told)
    acted = [play(plain, task, expert) for task in tasks]
    assert sum(len(e.rewards) for e in told) < 0.9 * sum(len(e.rewards) for e in acted)
    assert not any(play(led, task, noop).is_success for task in tasks)
    by_expert = [play(deaf, task, expert) for task in tasks]
    by_nobody = [play(deaf, task, noop) for task in tasks]
    assert [e.observations for e in by_expert] == [e.observations for e in by_nobody]
    assert sum(e.is_success for e in by_expert) < len(tasks)


def test_what_is_not_named_is_not_done() -> None:
    world: Any = LedWorld(find(SPECS[0])())
    begin(world, world.task("train", 1))
    inner: Any = world.inner
    before = world.state_key()
    result = advance(world, Action(text="the moon"))
    assert not result.is_valid and "Things here: blue door, blue key, red ball" in str(result.observation)
    assert world.state_key() == before
    assert not advance(world, Action(error="no text")).is_valid
    taken = advance(world, Action(text=" Blue  key "))
    assert taken.is_valid and "holding blue key" in str(taken.observation)
    state = world.snapshot()
    swapped = advance(world, Action(text="red ball"))
    assert "holding red ball" in str(swapped.observation) and "blue key" in str(swapped.observation)
    world.restore(state)
    assert not advance(world, Action(text="blue key")).is_valid, "it is held already"
    assert inner.expert_thing() == "blue door"
    assert world.mistaken_action(random.Random(0)).text in inner.things()


def test_what_the_actor_did_adds_up_and_its_actions_are_the_limit() -> None:
    world = LedWorld(find("keydoor?dense=true&distractors=3")())
    for index in range(6):
        episode = play(world, world.task("train", index), expert)
        assert sum(episode.rewards) == pytest.approx(1.0) and min(episode.rewards) > 0
    begin(world, world.task("train", 0))
    ends = [advance(world, Action(text="?")).is_truncated for _ in range(world.max_turns)]
    assert ends == [*[False] * (world.max_turns - 1), True]


@pytest.mark.slow
def test_the_policy_speaks_to_the_actor_and_nobody_else_has_tokens() -> None:
    make = find(SPECS[0])
    model, tokenizer = make_start("micro", make, seed=0)
    agent = build("plan?actor=scripted", Chat(tokenizer), make(), max_tokens=8)
    assert isinstance(agent, PlanAndAct)
    engine: Engine = Local(model)
    rollout = Rollout(agent, make, engine)
    try:
        world = LedWorld(make())
        tasks = [world.task("train", index) for index in range(3)]
        shown = [t for g in rollout.demonstrations(tasks, noisy(0.0), seed=0) for t in g.trajectories]
        sampled = [t for g in rollout.groups(tasks, size=1, seed=0) for t in g.trajectories]
    finally:
        rollout.close()
    assert [t.is_success for t in shown] == [True] * 3
    for t in shown:
        names = [turn.action.text for turn in t.turns]
        assert names[-1] == "flag" and names[0].endswith("key") and len(names) <= 4
    assert all(not turn.is_internal for t in (*shown, *sampled) for turn in t.turns)


def test_what_the_world_says_of_an_end_and_of_failed_calls_is_handed_on() -> None:
    class Walk(Environment):
        """A thing that is three steps away."""

        max_turns = 9

        def __init__(self) -> None:
            self.at = 0

        def reset(self, task: Task) -> str:
            self.at = 0
            return "go"

        def step(self, action: Action) -> StepResult:
            self.at += 1
            return StepResult(
                observation=str(self.at),
                reward=0.25,
                reward_terms={"step": 0.25},
                is_truncated=self.at == 3,
                is_success=True if self.at == 2 else None,
                tool_errors=(ToolError(tool="walk", cause="tool_error"),),
            )

        def things(self) -> tuple[str, ...]:
            return ("flag",)

        def follow(self, thing: str) -> Action | None:
            return Action(text="step") if thing == "flag" else None

        def expert_thing(self) -> str:
            return "flag"

        def state_key(self) -> str:
            return str(self.at)

        def snapshot(self) -> object:
            return self.at

        def restore(self, state: object) -> None:
            self.at = int(str(state))

    world = LedWorld(Walk())
    begin(world, Task(id="t", environment="walk", seed=0))
    lost = world.step(Action(text="nothing"))
    assert (lost.is_success, lost.is_valid, lost.reward) == (False, False, 0.0)
    result = world.step(Action(text="flag"))
    assert (result.is_truncated, result.is_terminated, result.is_success) == (True, False, True)
    assert (result.reward, dict(result.reward_terms), len(result.tool_errors)) == (0.75, {"step": 0.75}, 3)


def test_a_scripted_actor_has_no_plan_to_revise(small_chat: Chat) -> None:
    with pytest.raises(UsageError, match=r"replan_every=4 with actor=deaf.*leave replan_every out"):
        build("plan?actor=deaf&replan_every=4", small_chat, find(SPECS[0])())


def test_a_world_that_does_not_know_the_way_is_refused(small_chat: Chat, brief_of: Any) -> None:
    def world(name: str) -> Environment:
        return find(name)()

    with pytest.raises(
        UsageError, match=r"got guess, which does not know the way.*take keydoor, house or craft"
    ):
        equip(build("plan?actor=deaf", small_chat, world("guess")), world("guess"))
    plain = build("plan", small_chat, world("keydoor"))
    assert not isinstance(equip(plain, world("keydoor")), LedWorld)
    assert isinstance(world("keydoor"), FindsWay) and not isinstance(world("guess"), FindsWay)
    brief: Brief = brief_of()
    prompt = (
        PlanAndAct(plain, small_chat, actor="scripted", temperature=0.5, max_tokens=4)
        .open(brief)
        .observe("A.")
    )
    assert (prompt.sampling.temperature, prompt.sampling.max_tokens, prompt.role) == (0.5, 4, "")
