"""A navigator chooses in the model's place where reasoning is steered (RL of Thoughts, arXiv 2505.14140).

``navigated?file=runs/NAME/navigator.safetensors``: what is shown with a line ``Scores: 3 2 3 1 1 3 2`` and a line
``Blocks: step, debate`` asks which block comes next. A network of 2,566 numbers answers by the scores alone, and the
model is made to say so: the choice is a turn like others. Everything else, the steps of a solver with a seat of its own
among it, is the model's, which stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.engines.protocol import Capability
from quintain.models.navigator import BLOCKS, NUM_SCORES, load_navigator
from quintain.types import Action, Grammar, Observation, Task, as_text

_ASKED = re.compile(rf"^Scores:((?: [123]){{{NUM_SCORES}}})\nBlocks: ([a-z, ]+)$", re.MULTILINE)


class Asked(NamedTuple):
    """What a navigator is asked: ``Asked(scores=(3, 2, 3, 1, 1, 3, 2), legal=("step", "debate"))``."""

    scores: tuple[int, ...]
    legal: tuple[str, ...]


Choose = Callable[[Asked, Task, int], str]
"""(what is asked, the task, choices before in the episode) → the block"""


def read_asked(shown: str) -> Asked | None:
    """Return what `shown` asks of a navigator; None: nothing."""
    found = _ASKED.search(shown)
    if found is None:
        return None
    legal = tuple(block for block in found[2].split(", ") if block in BLOCKS)
    return Asked(tuple(map(int, found[1].split())), legal) if legal else None


@dataclass(frozen=True, slots=True)
class Navigated:
    """A harness in which a navigator chooses: ``navigated?file=runs/NAME/navigator.safetensors+text``."""

    agent: Agent
    file: str = ""
    """The navigator's weights, as a run of `rlot` keeps them; empty: the model chooses."""
    needs: ClassVar[frozenset[Capability]] = frozenset({"tokens"})
    """What the engine must be able to do."""
    choose: Choose | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Read the weights, where a file is named.

        Raises:
            DataError: it holds none.
        """
        if self.file:
            navigator = load_navigator(Path(self.file))
            object.__setattr__(self, "choose", lambda asked, _, __: navigator.choose(*asked))

    def open(self, brief: Brief) -> NavigatedSession:
        """See `Agent.open`."""
        return NavigatedSession(self.agent, brief, self.choose)


def navigate(agent: Agent, choose: Choose) -> Navigated:
    """Return `agent` in which `choose` says which block comes next."""
    made = Navigated(agent)
    object.__setattr__(made, "choose", choose)
    return made


class NavigatedSession(Deliberation):
    """An episode of `Navigated`."""

    def __init__(self, agent: Agent, brief: Brief, choose: Choose | None) -> None:
        """Open the inner session."""
        super().__init__(agent, brief)
        self._choose, self._num_chosen = choose, 0

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; where a navigator is asked, nothing but its choice can be sampled."""
        prompt = self._inner.observe(observation, legal_actions)
        asked = read_asked(as_text(observation))
        if asked is None or self._choose is None:
            return prompt
        block = self._choose(asked, self._brief.task, self._num_chosen)
        self._num_chosen += 1
        ids = self._inner.write(Action(text=block))
        sampling = prompt.sampling.under(Grammar.of_tokens(ids), is_masked=False)
        return replace(prompt, sampling=replace(sampling, candidates=None, max_tokens=len(ids)))
