"""MEM1: a state of bounded length carries what later questions need; that of another book carries nothing.

Books of pages with a fact each ask for several keys, answered one after the other. One model is imitated to keep a
state, and another, of as many trained tokens, to read with a window of turns: the largest whose longest prompt is no
longer than the longest with a state. Both play the same new books. In the control the frozen model's state is replaced
at every turn by that of another book with the same questions: each value in it becomes another one, and its length
stays. In the null world the questions say what they ask for, and the state is of no use. Longest prompts over 4 to 32
pages stand beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quintain.agents.catalog import build
from quintain.agents.context import StateSession
from quintain.agents.protocol import Agent, Brief, Session
from quintain.data.pipeline import as_example, example_samples
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy
from quintain.methods.horizon.mem1 import Config
from quintain.rollout.collect import Rollout
from quintain.testing.pupil import Pupil, new_pupil, tasks_from
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Task, Trajectory, derive_seed, flatten_scored

STATE = Config().agent
VALUES = 5
FAR = 100_000
"""Number of the first book that is played; models learn from those before."""
SEEN = 40
"""books of which the longest prompt is measured"""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A harness whose state is that of another book with the same questions: ``Exchanged(agent)``."""

    agent: Agent

    def open(self, brief: Brief) -> Session:
        """See `Agent.open`."""
        session = self.agent.open(brief)
        assert isinstance(session, StateSession), "it keeps a state"
        return _ExchangedSession(session, 1 + brief.task.seed % (VALUES - 1))


class _ExchangedSession:
    """An episode whose state says other values."""

    def __init__(self, session: StateSession, shift: int) -> None:
        self.session, self.shift = session, shift
        self.observe, self.write, self.more = session.observe, session.write, session.more

    def read(self, completion: Completion) -> Action:
        """See `Session.read`."""
        before = self.session.memory
        action = self.session.read(completion)
        if self.session.memory != before:
            self.session.memory = exchange(self.session.memory, self.shift)
        return action


def exchange(state: str, shift: int) -> str:
    """Return `state` with every value moved on by `shift`: ``red = 4.`` by 2 is ``red = 1.`` of five values."""
    return re.sub(r"= (\d+)", lambda found: f"= {(int(found[1]) + shift) % VALUES}", state)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` pairs, one for each book: whether it was read rightly with its own state and another's."""
    world, null = (world_of(options, closed=closed) for closed in (0, 1))
    taught = world_of(options, closed=0.25)
    keeper = imitated(STATE, taught, options, seed)
    turns, most = fitting_window(keeper, world, options)
    looker = imitated(f"window?turns={turns}+text", taught, options, seed)
    books = tasks_from(world, int(options["seeds"]), first=FAR)
    own = play(keeper, world, books, seed)
    swapped = play(keeper, world, books, seed, is_exchanged=True)
    others = tasks_from(null, int(options["seeds"]), first=FAR)
    null_own = play(keeper, null, others, seed)
    null_swapped = play(keeper, null, others, seed, is_exchanged=True)
    window = play(looker, world, books, seed)
    peaks = {
        f"extra.peak{pages}": float(longest(keeper, world_of({**options, "pages": pages}, closed=0)))
        for pages in (4, 8, 16, 32)
    }
    return [
        {
            "method": float(own[k].is_success),
            "control": float(swapped[k].is_success),
            "null_method": float(null_own[k].is_success),
            "null_control": float(null_swapped[k].is_success),
            "extra.window": float(window[k].is_success),
            "extra.turns": float(turns),
            "extra.peak": float(most),
            **peaks,
        }
        for k in range(len(books))
    ]


def world_of(options: Mapping[str, Any], *, closed: float) -> str:
    """Return the name of the world, of which the share `closed` says beforehand what it asks for."""
    pages, questions = int(options.get("pages", 12)), int(options.get("questions", 2))
    return f"stream?pages={pages}&facts=1&questions={questions}&keys=8&values={VALUES}&cost=0.01&closed_book={closed}"


def imitated(agent: str, world: str, options: Mapping[str, Any], seed: int) -> Pupil:
    """Return a model that was taught to read through `agent`, on so many trained tokens."""
    pupil = new_pupil(
        [world],
        seed=derive_seed("mem1", seed) % (1 << 31),
        model=str(options.get("model", "mini?tokens=words")),
        agent=agent,
    )
    shown = pupil.show(
        world, tasks_from(world, int(options.get("demonstrations", 300))), noisy(0.0), seed=seed
    )
    samples = example_samples([as_example(t) for t in shown])
    each = sum(float((sample.loss_weight > 0).sum()) for sample in samples) / len(samples)
    size = int(options.get("size", 16))
    updates = round(float(options.get("tokens", 60_000)) / (each * size))
    pupil.learn(samples, updates=updates, rate=float(options.get("rate", 2e-3)), size=size, seed=seed)
    return pupil


def fitting_window(keeper: Pupil, world: str, options: Mapping[str, Any]) -> tuple[int, int]:
    """Return the most turns of a window whose longest prompt is not longer than the keeper's, and that length."""
    most, turns = longest(keeper, world), 0
    while longest(keeper, world, f"window?turns={turns + 1}+text") <= most and turns < int(
        options.get("pages", 12)
    ):
        turns += 1
    return turns, most


def longest(pupil: Pupil, world: str, agent: str = STATE) -> int:
    """Return the tokens of the longest prompt, with what is said to it, of the expert's episodes through `agent`."""
    seen = Pupil(pupil.model, pupil.tokenizer, 0, agent)
    lengths: list[int] = []
    for trajectory in seen.show(world, tasks_from(world, SEEN, first=FAR), noisy(0.0), seed=0):
        length = 0
        for turn in trajectory.turns:
            length = (
                len(turn.prompt_ids) + len(turn.completion.token_ids) + (0 if turn.starts_segment else length)
            )
            lengths.append(length)
    return max(lengths)


def play(
    pupil: Pupil, world: str, books: Sequence[Task], seed: int, *, is_exchanged: bool = False
) -> list[Trajectory]:
    """Return an episode of each of `books`; equal seeds have common uniforms."""
    make = find(world)
    agent = build(pupil.agent, Chat(pupil.tokenizer), make())
    engine = build_engine(EngineSettings(), pupil.model, pupil.tokenizer)
    rollout = Rollout(Exchanged(agent) if is_exchanged else agent, make, engine)
    try:
        return list(flatten_scored(rollout.groups(books, size=1, seed=derive_seed("mem1", seed, "played"))))
    finally:
        rollout.close()
