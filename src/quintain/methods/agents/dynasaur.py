"""DynaSaur (arXiv 2411.01747): acts by code, and keeps functions that helped to solve a task as actions of later ones.

The functions at the top level of solved training episodes are kept with all they stand on (`agents/library.py`). Those
that fit a task are listed to its episode, which may look for others by description and calls them like tools; code runs
in the sandbox. Within a step the library stays as it is: it is a fold over the recorded episodes, in the order of their
tasks, so that a resumed run has it again. Evaluations read it and leave nothing, and no weights change. It stands in
the run's file ``actions.jsonl``, for ``code?library=…``.

Differences to the paper: a function is kept with imports as they are called, constants and helpers, where its code
loses aliases and helpers; one of a known name gets a number, where its code writes over it; functions are found by
words, not by embeddings; five are listed without being asked for; a docstring that is missing is not written by a
model. Measured on goals of a tech tree that a script makes, where the paper has GAIA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quintain.agents.catalog import check
from quintain.agents.code import find_shelf
from quintain.agents.code_world import code_of, code_tools
from quintain.agents.library import MAX_LENGTH, ActionLibrary
from quintain.config.ranges import PositiveInt
from quintain.environments.boundary import ask
from quintain.errors import ConfigError
from quintain.learning.train_config import StepRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.memory.bank import Bank, Edit
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector, CombinedState
from quintain.types import Group, Trajectory, flatten_scored

if TYPE_CHECKING:
    from quintain.agents.protocol import Agent

FILE = "actions.jsonl"
"""What a run keeps its library in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(StepRoundsConfig):
    """Configuration of DynaSaur."""

    agent: str = "code"
    """Harness, which must write code; with `library`, a file of functions that are there from the beginning."""
    tasks: PositiveInt = 8
    """Tasks of a step, each played once; the library grows after it."""
    functions: PositiveInt = 200
    """Most functions that are kept; those that were called least make room."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        StepRoundsConfig.check(self)
        if check(self.agent)[-1].name != "code":
            raise ConfigError(f"agent: got {self.agent}, which writes no functions; end it with code")


class Growth:
    """A library, and how it grows: a state of a run."""

    def __init__(self, size: int) -> None:
        """Begin without functions, of at most `size`."""
        self.library = ActionLibrary(Bank(size=size, length=MAX_LENGTH))
        self.tools: frozenset[str] = frozenset()
        """what code can call in the environment"""

    def begin(self, collector: Collector) -> Sequence[Trajectory]:
        """Learn what there are for tools, and take in the functions that the harness has; imitate nothing."""
        made = ask(collector.rollout.make_environment, code_tools)
        self.tools = frozenset(tool.name for tool in made)
        shelf = find_shelf(collector.rollout.agent)
        self.library.bank.edit(
            Edit(kind="add", id=e.id, key=e.key, text=e.text, value=e.value, source=e.source)
            for e in shelf.bank.entries
        )
        return ()

    def update(self, groups: Sequence[Group]) -> None:
        """Keep the functions of the solved episodes of `groups`; see `State`."""
        for trajectory in flatten_scored(groups):
            if trajectory.is_success:
                self.library.learn(trajectory.task, cells_of(trajectory), self.tools)

    def share(self, agent: Agent) -> Agent:
        """Return `agent` with the functions so far, which it cannot change."""
        find_shelf(agent).bank = self.library.bank.freeze()
        return agent


def cells_of(trajectory: Trajectory) -> list[str]:
    """Return the code of an episode, but for turns in which nothing could be carried out."""
    turns = [t for t in trajectory.turns if not t.is_internal and t.is_valid and t.action.error is None]
    return [code_of(t.action) if t.action.tool_calls else t.action.text for t in turns]


def method(config: Config) -> Rounds:
    """Return DynaSaur as `config` describes it."""
    growth = Growth(config.functions)
    keep: list[Callable[[], None]] = []

    def collect(collector: Collector, step: int) -> list[Group]:
        keep[:] = [lambda: growth.library.bank.save(collector.run.folder / FILE)]
        return collector.sample(step, collector.tasks(step, config.tasks), size=1, agent=growth.share)

    def measure(_groups: Sequence[Group], _decode: Callable[[Sequence[int]], str]) -> Mapping[str, float]:
        for save in keep:
            save()
        uses = [entry.value for entry in growth.library.bank.entries]
        return {
            "dynasaur/functions": float(len(uses)),
            "dynasaur/used": float(sum(number > 0 for number in uses)),
            "dynasaur/uses": float(sum(uses)),
            "dynasaur/refused": float(growth.library.num_refused),
        }

    return Rounds(
        collect=collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        base=growth.begin,
        trains=False,
        evaluated=growth.share,
        state=CombinedState(growth),
        measure=measure,
    )
