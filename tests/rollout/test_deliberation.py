"""Turns in which nothing is done are recorded as such, do not count as steps, and must come to an end."""

import pytest

from quintain.agents.deliberation import Deliberation
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Agent, Brief, Session
from quintain.agents.rci import CRITICISE, Critique
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.errors import InvariantError
from quintain.rollout.collect import Limits, Rollout
from quintain.text.chat import Chat
from quintain.types import Action, Completion, as_content
from quintain.worlds.keydoor.game import KeyDoor


class Endless(Deliberation):
    """Asks again and again."""

    def read(self, completion: Completion) -> Action:
        action = super().read(completion)
        self._next = self._inner.observe("Think.")
        return action


class Thinker:
    """A harness that never acts."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def open(self, brief: Brief) -> Session:
        return Endless(self.agent, brief)


def engine(chat: Chat, *words: str) -> Scripted:
    said = iter(words)

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        return chat.write(next(said))

    return Scripted(script)


def test_internal_turns_are_recorded_and_are_no_steps(chat: Chat) -> None:
    agent = Critique(PlainText(chat, max_tokens=64), chat)
    scripted = engine(chat, "west", "no problem", "east", "Hm.", "north")
    rollout = Rollout(agent, KeyDoor, scripted, limits=Limits(max_turns=2, has_state_keys=True))
    (group,) = rollout.groups([KeyDoor().task("train", 0)], size=1, seed=0)
    (episode,) = group.trajectories
    assert [turn.seat for turn in episode.turns] == [
        "agent/draft",
        "agent",
        "agent/draft",
        "agent/critique",
        "agent",
    ]
    assert [turn.action.text for turn in episode.turns if not turn.is_internal] == ["west", "north"]
    assert [turn.starts_segment for turn in episode.turns] == [True, False, False, False, False]
    assert episode.turns[0].observation == episode.turns[1].observation
    assert episode.turns[3].observation == as_content(CRITICISE)
    assert [turn.state_key is None for turn in episode.turns] == [True, False, True, True, False]
    assert len({request.seed for request in scripted.requests}) == 5
    (walk,) = rollout.replay_episodes([episode])
    more = Rollout(agent, KeyDoor, engine(chat, "south"), limits=Limits(max_turns=2))
    (again,) = more.continuations([walk.prefix(4)], size=1, seed=1)
    assert [turn.action.text for turn in again.trajectories[0].turns[:5]] == [
        "west",
        "west",
        "east",
        "east",
        "south",
    ]


def test_a_harness_that_never_acts_is_stopped(chat: Chat) -> None:
    rollout = Rollout(Thinker(PlainText(chat)), KeyDoor, engine(chat, *["left"] * 99))
    with pytest.raises(
        InvariantError, match="a harness must act at last: got 64 turns in which nothing was done"
    ):
        rollout.groups([KeyDoor().task("train", 0)], size=1, seed=0)
