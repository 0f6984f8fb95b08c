"""Exploration forces actions in training alone, and records what the policy would have given them."""

from dataclasses import replace
from random import Random
from typing import cast

import pytest

from quintain.agents.harness import Choice
from quintain.agents.protocol import Agent, Brief
from quintain.methods.rl.parts.exploring import Exploring, explored
from quintain.rollout.request import USUAL, Options
from quintain.text.chat import Chat
from quintain.training.context import Work
from quintain.training.start import new_tokenizer
from quintain.types import Action, Completion, Group
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


class Rolling:
    """Work with a rollout that has an agent, and nothing else."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.rollout = self


def test_only_what_is_collected_explores(choice: Choice) -> None:
    seen: list[object] = []

    def collect(work: Work, step: int, /, options: Options = USUAL) -> list[Group]:
        seen.append(options.agent)
        return []

    work = cast(Work, Rolling(choice))
    assert explored(collect, tries_all=False, epsilon=0.0) is collect
    forced = explored(collect, tries_all=True, epsilon=0.1)
    forced(work, 1)
    assert seen == [Exploring(agent=choice, tries_all=True, epsilon=0.1)] and work.rollout.agent is choice
