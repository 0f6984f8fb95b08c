"""Demonstrations are written as the tokens the policy should have sampled; what cannot be written failed."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from quintain.agents.harness import Choice, JsonTools, PlainText
from quintain.agents.protocol import Agent, Brief
from quintain.engines.scripted import Script, Scripted
from quintain.environments.protocol import Environment
from quintain.errors import FailureRateError
from quintain.rollout.collect import Limits, Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Failure, Observation, Score, StepResult, Stop, Task, Trajectory, as_content
from quintain.worlds.guess.game import Guess
from quintain.worlds.keydoor.game import KeyDoor


def expert(environment: Environment, rng: Random, seen: Sequence[Any]) -> Action:
    assert isinstance(environment, Guess | KeyDoor)
    return environment.expert_action()


def demonstrated(
    agent: Agent, make: type[Environment], count: int, demonstrator: Any = expert, **limits: Any
) -> list[Trajectory]:
    rollout = Rollout(agent, make, None, limits=Limits(**limits))
    tasks = [make().task("train", n) for n in range(count)]
    groups = rollout.demonstrations(tasks, demonstrator, seed=4)
    rollout.close()
    assert [group.task for group in groups] == tasks
    return [trajectory for group in groups for trajectory in group.trajectories]


def replayed(agent: Agent, environment: Environment, trajectory: Trajectory) -> None:
    """Check that a session that goes the same way writes the same prompts and tokens."""
    assert isinstance(environment, Guess | KeyDoor)
    observation: Observation = environment.reset(trajectory.task)
    legal = environment.legal_actions if isinstance(environment, KeyDoor) else tuple
    told = Brief(
        task=trajectory.task,
        instructions=environment.instructions(),
        tools=environment.tools(),
        legal_actions=legal(),
    )
    session = agent.open(told)
    for turn in trajectory.turns:
        assert turn.observation == as_content(observation)
        assert turn.prompt_ids == session.observe(observation, legal()).token_ids
        assert turn.completion.token_ids == session.write(environment.expert_action())
        assert (turn.completion.logprobs, turn.completion.stop) == ((), "stop")
        action = session.read(turn.completion)
        assert turn.action == action
        observation = environment.step(action).observation


@pytest.mark.parametrize("make", [Guess, KeyDoor])
def test_demonstrations_are_what_the_session_writes(chat: Chat, make: type[Environment]) -> None:
    agent: Agent = JsonTools(chat) if make is Guess else Choice(chat)
    for trajectory in demonstrated(agent, make, 3):
        assert trajectory.outcome == Score(value=1.0, is_success=True)
        assert trajectory.stop is Stop.TERMINATED
        replayed(agent, make(), trajectory)


def test_a_demonstrator_is_told_what_was_seen_and_has_chance_of_its_own(chat: Chat) -> None:
    heard: list[tuple[float, tuple[Any, ...]]] = []

    def listening(environment: Environment, rng: Random, seen: Sequence[Any]) -> Action:
        heard.append((rng.random(), tuple(seen)))
        return Action(text="left")

    demonstrated(PlainText(chat), Still, 2, listening)
    once = heard.copy()
    heard.clear()
    demonstrated(PlainText(chat), Still, 2, listening, num_workers=1, concurrency=1)
    assert sorted(once) == sorted(heard)
    assert len({number for number, _ in heard}) == 4
    assert [len(seen) for _, seen in heard] == [1, 2, 1, 2]


class Still(Environment):
    """Go."""

    max_turns = 2

    def reset(self, task: Task) -> str:
        return "A wall."

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="A wall.")


def test_an_expert_that_raises_is_a_failure(chat: Chat) -> None:
    def lost(environment: Environment, rng: Random, seen: Sequence[Any]) -> Action:
        raise LookupError("no way")

    (trajectory,) = demonstrated(PlainText(chat), Still, 1, lost, max_failure_share=1.0)
    failure = trajectory.outcome
    assert isinstance(failure, Failure) and (failure.owner, failure.kind) == ("environment", "LookupError")
    assert failure.message.startswith("no way (test_samplers.py, line ")
    assert (trajectory.stop, trajectory.turns) == (Stop.FAILURE, ())
    with pytest.raises(FailureRateError, match="no way"):
        demonstrated(PlainText(chat), Still, 1, lost)


def test_an_action_that_cannot_be_written_is_a_failure(chat: Chat) -> None:
    def wrong(environment: Environment, rng: Random, seen: Sequence[Any]) -> Action:
        return Action(text="fly")

    (trajectory,) = demonstrated(Choice(chat), KeyDoor, 1, wrong, max_failure_share=1.0)
    assert isinstance(trajectory.outcome, Failure)
    assert "not a legal action: got 'fly'" in trajectory.outcome.message


def test_sampled_streams_are_released_when_their_episode_ends(chat: Chat) -> None:
    class Watched(Scripted):
        def __init__(self, script: Script) -> None:
            super().__init__(script)
            self.released: list[str] = []

        def release(self, session: str) -> None:
            self.released.append(session)
            super().release(session)

    left = chat.write("left")
    engine = Watched(lambda request, stream: left)
    tasks = [Still().task("train", n) for n in range(3)]
    Rollout(PlainText(chat), Still, engine).groups(tasks, size=2, seed=0)
    assert sorted(engine.released) == sorted({request.session for request in engine.requests})


def test_a_failed_reply_of_an_engine_is_tried_again(chat: Chat) -> None:
    replies: list[Failure | tuple[int, ...]] = [
        Failure(owner="engine", kind="lost", message="no reply"),
        *[chat.write("left")] * 2,
    ]
    engine = Scripted(lambda request, stream: replies.pop(0))
    (group,) = Rollout(PlainText(chat), Still, engine).groups([Still().task("train", 0)], size=1, seed=0)
    (trajectory,) = group.trajectories
    assert (len(trajectory.turns), trajectory.outcome) == (2, Score(value=0.0, is_success=False))
    assert len({request.session for request in engine.requests}) == 2
    assert engine.requests[0].seed == engine.requests[1].seed
