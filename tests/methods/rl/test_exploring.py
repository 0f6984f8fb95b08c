"""Exploration forces actions in training alone, and records what the policy would have given them."""

from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from quintain.agents.harness import Choice
from quintain.agents.protocol import Agent, Brief
from quintain.methods.method import Collector
from quintain.methods.rl import greedy
from quintain.methods.rl.parts.exploring import Exploring
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Split, Task
from quintain.warm_start.start import new_tokenizer
from quintain.worlds.bandit.game import Bandit

LEGAL = ("pull red", "pull blue", "pull gold")


@pytest.fixture(name="choice", scope="module")
def made_choice() -> Choice:
    return Choice(Chat(new_tokenizer(Bandit, seed=0)))


def played(agent: Agent, *actions: str, seed: int = 0) -> list[set[str]]:
    """What is admitted before each of `actions` and after the last; nothing where the policy is free."""
    task = replace(Bandit().task("train", 0), seed=seed)
    session = agent.open(Brief(task=task, instructions="Pull.", legal_actions=LEGAL))
    written: dict[tuple[int, ...], str] = {}
    found: list[set[str]] = []
    for words in (*actions, None):
        prompt = session.observe("Go.", LEGAL)
        written |= {session.write(Action(text=each)): each for each in LEGAL}
        candidates = prompt.sampling.candidates
        found.append(set() if candidates is None else {written[ids] for ids in candidates.token_ids})
        if words is not None:
            ids = session.write(Action(text=words))
            assert candidates is None or prompt.sampling.max_tokens >= len(ids)
            session.read(Completion(token_ids=ids, logprobs=(-0.5,) * len(ids), stop="stop"))
    return found


def test_all_legal_actions_are_tried_first(choice: Choice) -> None:
    found = played(Exploring(agent=choice, tries_all=True), "pull blue", "pull red", "pull gold", "pull gold")
    assert found == [set(LEGAL), {"pull red", "pull gold"}, {"pull gold"}, set(), set()]


def test_now_and_then_one_action_is_drawn(choice: Choice) -> None:
    rng = Random(0)
    found = [
        admitted
        for seed in range(40)
        for admitted in played(Exploring(agent=choice, epsilon=0.3), rng.choice(LEGAL), seed=seed)
    ]
    forced = [admitted for admitted in found if admitted]
    assert all(len(admitted) == 1 for admitted in forced) and len(forced) / len(found) == pytest.approx(
        0.3, abs=0.13
    )
    assert {words for admitted in forced for words in admitted} == set(LEGAL)
    first, again = (played(Exploring(agent=choice, epsilon=0.3), *LEGAL, seed=3) for _ in range(2))
    assert first == again


class Seen:
    """A collector that keeps the agents that episodes are asked for with."""

    def __init__(self, agent: Agent) -> None:
        self.plain = agent
        self.agents: list[Agent] = []

    def tasks(self, step: int, count: int) -> list[Task]:
        return []

    def sample(self, step: int, tasks: list[Task], *, agent: Any, **limits: object) -> list[Any]:
        self.agents.append(self.plain if agent is None else agent(self.plain))
        return []


@pytest.mark.parametrize(("tries_all", "epsilon"), [(True, 0.0), (False, 0.1), (True, 0.1)])
def test_only_what_is_collected_explores(choice: Choice, tries_all: bool, epsilon: float) -> None:
    seen = Seen(choice)
    method = greedy.method(greedy.Config(tries_all=tries_all, epsilon=epsilon))
    method.collect(cast(Collector, seen), 1)
    greedy.method(greedy.Config()).collect(cast(Collector, seen), 1)
    assert seen.agents == [Exploring(agent=choice, tries_all=tries_all, epsilon=epsilon), choice]
    assert method.needs.legal_actions and not greedy.method(greedy.Config()).needs.legal_actions


def test_evaluations_do_not_explore(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the real loop: sessions that explore are opened for the training episodes of a step, and no others."""
    opened: list[Split] = []
    begin = Exploring.open

    def watched(self: Exploring, brief: Brief) -> Any:
        opened.append(brief.task.split)
        return begin(self, brief)

    monkeypatch.setattr(Exploring, "open", watched)
    runner.train("greedy", episodes=3, tries_all=True, steps=1, eval_episodes=2)
    assert opened == ["train"] * 3
