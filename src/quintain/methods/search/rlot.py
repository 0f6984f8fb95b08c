"""RL of Thoughts (arXiv 2505.14140): a network of 2,566 numbers learns which block of reasoning comes next.

y = r + γ Q_old(s', argmax over legal blocks of Q(s', ·)), loss (Q(s, a) - y)²: double and dueling deep Q-learning.

A state is seven scores from 1 to 3 that the solver gives itself, an action one of five blocks: a step, a decomposition,
a debate, a refinement, the end. A block is paid what it changes in the score of the process, which only training
sees; what may not be done is masked where blocks are chosen and in the target. In every step tasks are played with
ε-greedy choices, then the network makes updates on transitions of the newest ones; no weights of the model change.
Evaluations choose the best block. The network is a fold over recorded episodes, so that a resumed run has it again, and
stands in the run's file ``navigator.safetensors``, for ``navigated?file=…`` on this and on other solvers.

Differences to the paper: the score of the process is what the environment knows of the steps, not a reward model's, and
a block is paid its difference, so that no block pays by being taken again; layout, discount, exploration and rates are
not published and ours. Measured with a scripted solver of sums in steps; the paper has MATH with models of up to 10B.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch

from quintain.agents.navigated import Asked, navigate, read_asked
from quintain.agents.protocol import Agent
from quintain.config.ranges import PositiveFloat, PositiveInt, PositiveShare, Share
from quintain.learning.train_config import StepRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, CombinedState, Needs
from quintain.models.navigator import BLOCKS, Navigator, double_targets, mask_blocks
from quintain.types import Group, Stop, Task, Trajectory, as_text, derive_seed, flatten_scored

FILE = "navigator.safetensors"
"""Where a run keeps its navigator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(StepRoundsConfig):
    """Configuration of RL of Thoughts."""

    tasks: PositiveInt = 32
    """Tasks of a step, each played once."""
    discount: Share = 0.9
    """γ per block."""
    updates: PositiveInt = 40
    """Updates of the navigator in a step."""
    transitions: PositiveInt = 128
    """Blocks of an update."""
    memory: PositiveInt = 10_000
    """Blocks that are learned from, the newest ones."""
    navigator_rate: PositiveFloat = 1e-3
    """Learning rate of the navigator."""
    polyak: PositiveShare = 0.01
    """What the target network moves towards the one that learns in an update; it is the one that chooses blocks."""
    explored_steps: PositiveInt = 60
    """Steps in which the share of random blocks falls from 1 to its least."""
    least_explored: Share = 0.1
    """Share of random blocks after that."""


class Transition(NamedTuple):
    """A block and what came of it: ``Transition(asked, "step", .3, then)``; then None: nothing, it was the end."""

    asked: Asked
    block: str
    reward: float
    then: Asked | None


def read_transitions(trajectory: Trajectory) -> list[Transition]:
    """Return the blocks that were chosen in `trajectory`, each paid all that was paid until the next choice.

    A block after which the episode was cut is left out: what would have followed is not known.
    """
    asked = [read_asked(as_text(turn.observation)) for turn in trajectory.turns]
    places = [place for place, each in enumerate(asked) if each is not None]
    found: list[Transition] = []
    for place, after in pairwise([*places, len(asked)]):
        this, turn = asked[place], trajectory.turns[place]
        is_last = after == len(asked)
        if (
            this is None
            or turn.action.text not in this.legal
            or (is_last and trajectory.stop != Stop.TERMINATED)
        ):
            continue
        reward = sum(each.reward for each in trajectory.turns[place:after])
        found.append(Transition(this, turn.action.text, reward, None if is_last else asked[after]))
    return found


class Navigation:
    """A navigator as it learns, a state of a run: ``Navigation(Config()).update(groups)``."""

    def __init__(self, config: Config, seed: int = 0) -> None:
        """Begin with weights of `seed`."""
        self.config, self.seed = config, seed
        self.navigator = Navigator(seed)
        """the target network, which chooses"""
        self._learner = deepcopy(self.navigator)
        self._optimizer = torch.optim.Adam(self._learner.parameters(), config.navigator_rate)
        self._known = deque[Transition](maxlen=config.memory)
        self.num_steps = 0
        self.loss = 0.0

    @property
    def explored(self) -> float:
        """ε of the step at hand."""
        return max(self.config.least_explored, 1 - self.num_steps / self.config.explored_steps)

    def explore(self, asked: Asked, task: Task, number: int) -> str:
        """Return the block of a training episode: with probability ε any that may be done, else the best."""
        rng = Random(derive_seed("rlot", self.seed, self.num_steps, task.id, number))
        return rng.choice(asked.legal) if rng.random() < self.explored else self.exploit(asked)

    def exploit(self, asked: Asked, *_: Task | int) -> str:
        """Return the best block."""
        return self.navigator.choose(*asked)

    def update(self, groups: Sequence[Group]) -> None:
        """Learn from the episodes of a step, and from those before; see `State`."""
        for trajectory in flatten_scored(groups):
            if not trajectory.task.is_held_out:
                self._known += read_transitions(trajectory)
        rng = np.random.default_rng(derive_seed("rlot", self.seed, "draw", self.num_steps))
        self.num_steps += 1
        if not self._known:
            return
        known = Table(list(self._known))
        for _ in range(self.config.updates):
            self._learn(known, torch.from_numpy(rng.integers(0, len(self._known), self.config.transitions)))

    def _learn(self, known: Table, rows: torch.Tensor) -> None:
        """Make an update on `rows` of what is known."""
        with torch.no_grad():
            then = known.then[rows]
            targets = double_targets(
                known.rewards[rows], self._learner(then), self.navigator(then), known.legal[rows],
                known.is_over[rows], self.config.discount,
            )  # fmt: skip
        values = self._learner(known.scores[rows]).gather(1, known.blocks[rows, None]).squeeze(1)
        loss = (values - targets).square().mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self.loss = loss.item()
        with torch.no_grad():
            for old, new in zip(self.navigator.parameters(), self._learner.parameters(), strict=True):
                old.lerp_(new, self.config.polyak)


class Table:
    """Transitions as tensors, a row each."""

    def __init__(self, known: Sequence[Transition]) -> None:
        """Lay `known` out; what follows an end are its own scores, which nobody reads."""
        thens = [each.then or each.asked for each in known]
        self.scores = torch.tensor([each.asked.scores for each in known], dtype=torch.float32)
        self.blocks = torch.tensor([BLOCKS.index(each.block) for each in known])
        self.rewards = torch.tensor([each.reward for each in known])
        self.then = torch.tensor([each.scores for each in thens], dtype=torch.float32)
        self.legal = mask_blocks([each.legal for each in thens])
        self.is_over = torch.tensor([each.then is None for each in known])


def method(config: Config) -> Rounds:
    """Return RL of Thoughts as `config` describes it."""
    learned = Navigation(config, config.seed)
    folders: list[Path] = []

    def collect(collector: Collector, step: int) -> list[Group]:
        folders[:] = [collector.run.folder]
        tasks = collector.tasks(step, config.tasks)
        return collector.sample(step, tasks, size=1, agent=lambda agent: navigate(agent, learned.explore))

    def measure(groups: Sequence[Group], _decode: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
        for folder in folders:
            learned.navigator.save(folder / FILE)
        episodes = flatten_scored(groups)
        blocks = sum(len(read_transitions(each)) for each in episodes)
        return {
            "rlot/loss": learned.loss,
            "rlot/explored": learned.explored,
            "rlot/blocks": blocks / max(len(episodes), 1),
        }

    def wrap_evaluated(agent: Agent) -> Agent:
        return navigate(agent, learned.exploit)

    return Rounds(
        collect=collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        trains=False,
        evaluated=wrap_evaluated,
        needs=Needs(turn_rewards=True),
        state=CombinedState(learned),
        measure=measure,
    )
