"""Continuing recorded episodes: the same state, the same conversation, the same tokens."""

from dataclasses import replace
from typing import Any

import pytest

from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, InvariantError, UsageError
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.replay import prefixes_of
from quintain.rollout.request import Options
from quintain.text.chat import Chat
from quintain.types import (
    Action,
    Group,
    Score,
    StepResult,
    Stop,
    Task,
    Trajectory,
    as_content,
    as_text,
)


class Count(Environment):
    """Say left or right."""

    max_turns = 4
    drift = 0
    limit = 99

    def __init__(self) -> None:
        self.acted: list[str] = []

    def reset(self, task: Task) -> str:
        self.place = task.rng.randrange(5) + Count.drift
        self.acted = []
        return f"At {self.place}."

    def step(self, action: Action) -> StepResult:
        self.acted.append(action.text)
        self.place += 1 if action.text == "right" else -1
        return StepResult(
            observation=f"At {self.place}.",
            reward=float(self.place),
            is_terminated=self.place > 6 or len(self.acted) == self.limit,
        )


class Saved(Count):
    """Say left or right."""

    def snapshot(self) -> int:
        return self.place

    def restore(self, state: int) -> None:
        self.place = state


def made(
    chat: Chat, kind: type[Count], text: str = "right", *, has_state_keys: bool = False
) -> tuple[Rollout, Scripted, list[Count]]:
    brief = Brief(task=Task(id="t", environment="e", seed=0), instructions="")
    session = PlainText(chat).open(brief)
    session.observe("Go.")
    ids = session.write(Action(text=text))

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        return ids

    engine = Scripted(script)
    environments: list[Count] = []

    def make() -> Count:
        environments.append(kind())
        return environments[-1]

    return (
        Rollout(PlainText(chat), make, engine, limits=Limits(max_turns=4, has_state_keys=has_state_keys)),
        engine,
        environments,
    )


def recorded(rollout: Rollout) -> Trajectory:
    (group,) = rollout.groups([Task(id="t", environment="e", seed=3)], size=1, seed=0)
    return group.trajectories[0]


@pytest.mark.parametrize("kind", [Count, Saved])
def test_a_continuation_begins_where_the_turn_began(chat: Chat, kind: type[Count]) -> None:
    rollout, engine, _ = made(chat, kind)
    original = recorded(rollout)
    assert len(original.turns) > 2
    left, other, made_there = made(chat, kind, "left")
    (walk,) = left.replay_episodes([original])
    assert (walk.states is None) == (kind is Count)
    groups = left.continuations([walk.prefix(k) for k in (0, 2)], size=2, seed=7)
    for group, kept in zip(groups, (0, 2), strict=True):
        assert [t.index for t in group.trajectories] == [0, 1]
        for t in group.trajectories:
            assert t.turns[:kept] == original.turns[:kept]
            assert t.turns[kept].observation == original.turns[kept].observation
            assert t.turns[kept].prompt_ids == original.turns[kept].prompt_ids
            assert t.turns[kept].action.text == "left"
            assert t.turns[kept].reward == original.turns[kept].reward - 2
            assert isinstance(t.outcome, Score)
            assert t.outcome.value == sum(turn.reward for turn in t.turns)
    expected = [i for turn in original.turns[:2] for i in (*turn.prompt_ids, *turn.completion.token_ids)]
    first = [r for r in other.requests if r.prompt_ids[: len(expected)] == tuple(expected)]
    assert [r.prompt_ids for r in first] == [tuple(expected) + original.turns[2].prompt_ids] * 2
    lengths = {len(e.acted) for e in made_there}
    assert min(lengths) == (2 if kind is Saved else 4)
    assert engine.requests


@pytest.mark.parametrize("kind", [Count, Saved])
def test_an_episode_of_fewer_turns_than_the_task_has_is_continued_after_its_last(
    chat: Chat, kind: type[Count], monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout, _, _ = made(chat, kind)
    whole = recorded(rollout)
    task = Task(id="t", environment="e", seed=3)
    (group,) = rollout.groups([task], size=1, seed=0, options=Options(limits=Limits(max_turns=2)))
    (cut,) = group.trajectories
    assert cut.stop is Stop.CUT and cut.turns == whole.turns[:2]
    (walk,) = rollout.replay_episodes([cut])
    assert len(walk.views) == 3
    ((again,),) = (g.trajectories for g in rollout.continuations([walk.prefix(2)], size=1, seed=0))
    assert again.turns == whole.turns and again.outcome == whole.outcome
    (other,) = rollout.replay_episodes([whole])
    with pytest.raises(UsageError, match=r"got turn \d of \d; continue where the task goes on"):
        other.prefix(len(whole.turns))
    monkeypatch.setattr(Count, "max_turns", 9)
    monkeypatch.setattr(Count, "limit", 2)
    with pytest.raises(EnvironmentFault, match="turn 1: got the end of the episode"):
        rollout.replay_episodes([cut])


def test_a_continuation_in_the_same_way_is_the_same_episode(chat: Chat) -> None:
    rollout, _, _ = made(chat, Saved)
    original = recorded(rollout)
    prefixes = prefixes_of(rollout.replay_episodes([original]))
    assert [len(p.turns) for p in prefixes] == list(range(len(original.turns)))
    assert len(prefixes_of(rollout.replay_episodes([original]), first=1)) == len(original.turns) - 1
    found: list[Group] = rollout.continuations(prefixes, size=1, seed=0)
    assert all(g.trajectories[0].turns == original.turns for g in found)
    assert all(g.trajectories[0].outcome == original.outcome for g in found)


def test_an_episode_that_does_not_repeat_is_a_fault(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout, _, _ = made(chat, Saved)
    original = recorded(rollout)
    with monkeypatch.context() as patch:
        patch.setattr(Count, "drift", 1)
        with pytest.raises(EnvironmentFault, match="turn 0: got another observation"):
            rollout.replay_episodes([original])

    def generous(environment: Any, action: Action) -> StepResult:
        return StepResult(observation=f"At {environment.place + 1}.", reward=9.0)

    monkeypatch.setattr(Count, "step", generous)
    with pytest.raises(EnvironmentFault, match=r"got reward 9.0 instead of"):
        rollout.replay_episodes([original])


def test_another_harness_cannot_continue(chat: Chat) -> None:
    rollout, _, _ = made(chat, Saved)
    original = recorded(rollout)
    (walk,) = rollout.replay_episodes([original])
    other, _, _ = made(chat, Saved)
    wrong = walk.prefix(1)
    views = (*wrong.views[:0], *walk.views[1:2], *walk.views[1:2])
    with pytest.raises(InvariantError, match="prompt of turn 0 of t: got other tokens than were recorded"):
        other.continuations([type(wrong)(task=wrong.task, turns=wrong.turns, views=views)], size=1, seed=0)


class Clock(Saved):
    """The same on a page that shows the time."""

    now = 0

    def reset(self, task: Task) -> str:
        return self._dated(super().reset(task))

    def step(self, action: Action) -> StepResult:
        result = super().step(action)
        return replace(result, observation=self._dated(as_text(result.observation)))

    def _dated(self, text: str) -> str:
        Clock.now += 1
        return f"{text} It is {Clock.now}."


class Keyed(Clock):
    """The same, and the time is no part of its states."""

    def state_key(self) -> str:
        return str(self.place)


def test_states_are_compared_by_their_keys(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout, _, _ = made(chat, Keyed, has_state_keys=True)
    original = recorded(rollout)
    assert all(turn.state_key for turn in original.turns)
    (walk,) = rollout.replay_episodes([original])
    # What is seen there is what was seen then: the conversation goes on as it was recorded.
    assert [as_content(view.observation) for view in walk.views] == [t.observation for t in original.turns]
    (group,) = rollout.continuations([walk.prefix(2)], size=1, seed=0)
    assert [turn.prompt_ids for turn in group.trajectories[0].turns[:3]] == [
        turn.prompt_ids for turn in original.turns[:3]
    ]
    monkeypatch.setattr(Keyed, "state_key", lambda self: f"{self.place} elsewhere")
    with pytest.raises(EnvironmentFault, match="turn 0: got another state instead of the recorded one"):
        rollout.replay_episodes([original])


def test_what_does_not_repeat_can_be_left_out(chat: Chat) -> None:
    rollout, _, _ = made(chat, Clock, has_state_keys=True)
    dated = recorded(rollout)
    with pytest.raises(EnvironmentFault, match="turn 0: got another observation"):
        rollout.replay_episodes([dated])
    steady, _, _ = made(chat, Saved)
    original = recorded(steady)
    lost, walk, again = steady.replay_episodes([dated, original, dated], may_differ=True)
    assert [each.is_repeated for each in (lost, walk, again)] == [False, True, False]
    prefixes = [lost.prefix(2), walk.prefix(2), again.prefix(99)]
    groups = steady.continuations(prefixes, size=2, seed=0)
    assert [len(group.trajectories) for group in groups] == [0, 2, 0]
    assert [group.task.id for group in groups] == ["t", "t", "t"]
    assert steady.continuations([lost.prefix(0)], size=2, seed=0)[0].trajectories == ()
