"""Whoever waits for long is named, with what for."""

import logging
import threading
from dataclasses import replace

import pytest
from tests.rollout.test_collect import Book, World, tasks

from quintain.agents.harness import PlainText
from quintain.engines.protocol import Reply, Request
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.episode import LiveEpisode, Wait
from quintain.rollout.request import Cast, EpisodeRequest
from quintain.rollout.watchdog import Patience, describe_waits
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, Task

TIMEOUT = 30.0


class Heard(logging.Handler):
    """Sets `found` when a message says `text`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.found = text, threading.Event()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        if self.text in self.messages[-1]:
            self.found.set()


def listening(text: str) -> Heard:
    handler = Heard(text)
    logging.getLogger("quintain.rollout").addHandler(handler)
    return handler


class Stuck(World):
    """Acts only when the watchdog has spoken."""

    heard: threading.Event

    def step(self, action: Action) -> StepResult:
        assert self.heard.wait(TIMEOUT)
        return super().step(action)


class Slow(Scripted):
    """Answers only when the watchdog has spoken."""

    heard: threading.Event

    def advance(self) -> list[Reply]:
        assert self.heard.wait(TIMEOUT)
        return super().advance()


def said(chat: Chat, request: Request) -> tuple[int, ...]:
    return chat.write("right")


@pytest.mark.parametrize(
    ("who", "owner"), [("environment", "its environment to act"), ("engine", "a reply of the engine Slow")]
)
def test_what_a_rollout_hangs_on_is_said_while_it_hangs(chat: Chat, who: str, owner: str) -> None:
    handler = listening(f"2 of 2 episodes wait for 0.05 s or more: 2 for {owner}, the longest ")
    Stuck.heard, Slow.heard = handler.found, handler.found
    engine = (Slow if who == "engine" else Scripted)(lambda request, stream: said(chat, request))

    def make() -> Environment:
        return (Stuck if who == "environment" else World)(Book())

    rollout = Rollout(PlainText(chat), make, engine, limits=Limits(silence=0.05, num_workers=2))
    try:
        groups = rollout.groups(tasks(2), size=1, seed=0)
    finally:
        logging.getLogger("quintain.rollout").removeHandler(handler)
    assert len(groups) == 2
    assert handler.messages[0].endswith("(task 0:world/train/0, episode 0, turn 0) for 0 s")
    rollout.close()


def test_who_goes_on_is_not_named() -> None:
    episodes = [waiting(index, since=100.0 + index) for index in range(3)]
    assert describe_waits(episodes, 105.0, 60.0, Patience()) == ""
    assert describe_waits([], 105.0, 60.0, Patience()) == ""
    assert describe_waits(episodes, 161.5, 60.0, Patience()) == (
        "2 of 3 episodes wait for 60 s or more: 2 for the bell, the longest (task g, episode 0, turn 0) for 62 s"
    )


def test_many_are_counted_and_of_each_kind_the_longest_is_named() -> None:
    episodes = [waiting(index, since=float(-index)) for index in range(64)]
    episodes[0].wait = replace(episodes[0].wait, owner="the postman")
    assert describe_waits(episodes, 60.0, 60.0, Patience()) == (
        "64 of 64 episodes wait for 60 s or more: 63 for the bell, the longest (task g, episode 63, turn 0) for 123 s; "
        "1 for the postman, the longest (task g, episode 0, turn 0) for 60 s"
    )


def test_a_slow_machine_is_told_of_once_and_what_hangs_again_and_again() -> None:
    patience = Patience()
    spoken = [
        now
        for now in range(60, 1000, 10)
        if describe_waits([waiting(0, since=0.0)], float(now), 60.0, patience)
    ]
    assert spoken == [60, 120, 240, 480, 960]
    slow = [bool(describe_waits([waiting(0, since=0.0)], 75.0, 60.0, patience)) for _ in range(20)]
    assert not any(slow), "each of these waited for long, and none for longer than what was told"


def waiting(index: int, *, since: float) -> LiveEpisode:
    task = Task(id="t", environment="e", seed=0)
    request = EpisodeRequest(task=task, group="g", index=index, seed=0)
    episode = LiveEpisode(request=request, players=Cast(agents={}))
    episode.wait = Wait("the bell", since)
    return episode
