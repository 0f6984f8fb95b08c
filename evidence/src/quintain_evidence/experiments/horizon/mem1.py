"""MEM1: a state of bounded length carries what later questions need; that of another book carries nothing.

Books whose pages have a fact each ask for two keys, which are answered one after the other. A mind reads its prompt
and nothing else: it answers where a fact about the question stands in it, and reads on where none does; asked for a
state, it writes the facts about what is open, one in twenty of which it forgets. The number is the share of books that
are read rightly. In the control the state is that of another book with the same questions, at every turn: each value is
another one, and the length is the same. The rival is a window of turns, the largest whose longest prompt, with what is
said to it, is no longer than the longest with a state. In the null world the questions say what they ask for. The
longest prompts of 4 and of 32 pages stand beside it, with a state and with the whole history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from quintain.agents.context import OPEN, StateSession
from quintain.agents.protocol import Agent, Brief, Session
from quintain.methods.horizon.mem1 import Config
from quintain.rollout.request import Options
from quintain.types import Action, Completion, Trajectory, derive_seed, flatten_scored
from quintain_evidence.labs.mind import Mind, play_mind, require_blindfold

STATE = Config().agent
VALUES, FORGETS = 5, 0.05
FACT, ASKED = re.compile(r"(\w+) = (\d+)"), re.compile(r"(?:\w+\? ?)+")
SEEN = 30
"""books of which the longest prompt is measured"""


def say(prompt: str, draw: int) -> str:
    """Return the state, where one is asked for, and the action."""
    rng, facts = Random(draw), dict(FACT.findall(prompt))
    asked = ASKED.findall(prompt)
    keys = asked[-1].replace("?", "").split() if asked else []
    known = [key for key in keys if key in facts and rng.random() >= FORGETS]
    if keys and keys[0] in facts:
        action = f"answer {facts[keys[0]]}"
    else:
        action = (
            f"answer {rng.randrange(VALUES)}"
            if "no more pages" in prompt.rpartition("<|user|>")[2]
            else "read"
        )
    state = " ".join(f"{key} = {facts[key]}." for key in known)
    return f"<state>{state}</state>\n{action}" if OPEN in prompt else action


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A harness whose state is that of another book with the same questions: ``Exchanged(agent)``."""

    agent: Agent

    def open(self, brief: Brief) -> Session:
        """See `Agent.open`."""
        session = self.agent.open(brief)
        assert isinstance(session, StateSession), "it keeps a state"
        return ExchangedSession(session, 1 + brief.task.seed % (VALUES - 1))


class ExchangedSession:
    """An episode whose state says other values than were written."""

    def __init__(self, session: StateSession, shift: int) -> None:
        self.session, self.shift = session, shift
        self.observe, self.write, self.more = session.observe, session.write, session.more

    def read(self, completion: Completion) -> Action:
        """See `Session.read`."""
        action = self.session.read(completion)
        self.session.memory = exchange(self.session.memory, self.shift)
        return action


def exchange(state: str, shift: int) -> str:
    """Return `state` with every value moved on by `shift`: ``red = 4.`` by 2 is ``red = 1.`` of five values."""
    return FACT.sub(lambda found: f"{found[1]} = {(int(found[2]) + shift) % VALUES}", state)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs, one for each book: whether it was read rightly with its own state and another's."""
    num, pages = int(options["seeds"]), int(options.get("pages", 12))
    world, null = book(pages), book(pages, closed=1)
    for agent in (STATE, "text"):
        require_blindfold(Mind(say), world, seed=seed, agent=agent, num=60)
    own = play(world, STATE, num, seed)
    swapped = play(world, STATE, num, seed, is_exchanged=True)
    null_own = play(null, STATE, num, seed)
    null_swapped = play(null, STATE, num, seed, is_exchanged=True)
    most, turns = longest(own), 0
    while turns < pages and longest(play(world, f"window?turns={turns + 1}+text", SEEN, seed)) <= most:
        turns += 1
    window = play(world, f"window?turns={turns}+text", num, seed)
    short, long = (longest(play(book(count), STATE, SEEN, seed)) for count in (4, 32))
    whole = longest(play(book(32), "text", SEEN, seed)) - longest(play(book(4), "text", SEEN, seed))
    return [
        {
            "method": float(own[k].is_success),
            "control": float(swapped[k].is_success),
            "null_method": float(null_own[k].is_success),
            "null_control": float(null_swapped[k].is_success),
            "extra.window": float(window[k].is_success),
            "extra.turns": float(turns),
            "extra.peak": float(most),
            "extra.window_peak": float(longest(window)),
            "extra.growth": float(long - short),
            "extra.whole_growth": float(whole),
        }
        for k in range(num)
    ]


def book(pages: int, *, closed: float = 0) -> str:
    """Return the name of the world, of which the share `closed` says beforehand what it asks for."""
    return f"stream?pages={pages}&facts=1&filler=8&questions=2&keys=8&values={VALUES}&cost=0.01&closed_book={closed}"


def play(world: str, agent: str, num: int, seed: int, *, is_exchanged: bool = False) -> list[Trajectory]:
    """Return an episode of each of `num` books; equal seeds draw alike in every arm."""
    with play_mind(Mind(say), world, seed=seed, agent=agent) as probe:
        tasks = probe.tasks(num, split="train", first=derive_seed("books", seed) % 1_000_000)
        options = Options(agent=Exchanged(probe.rollout.agent)) if is_exchanged else Options()
        return list(flatten_scored(probe.rollout.groups(tasks, size=1, seed=seed, options=options)))


def longest(played: Sequence[Trajectory]) -> int:
    """Return the tokens of the longest prompt of `played`, with what was said to it."""
    most = 0
    for trajectory in played:
        length = 0
        for turn in trajectory.turns:
            before = 0 if turn.starts_segment else length
            length = before + len(turn.prompt_ids) + len(turn.completion.token_ids)
            most = max(most, length)
    return most
