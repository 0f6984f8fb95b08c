"""A shelf of tools that nobody can list: a retriever shows a few, and of four that do the same, one fits the data.

Families it stands for: agents over large collections of functions (DARE, ToolBench): what is asked for is found by what
it does *and* by what the data look like. A group of tools belongs to train or to eval, so a retriever that learns from
training tasks has seen no tool of the others.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import ClassVar

from quintain.environments.protocol import Environment, Ranker
from quintain.environments.splitting import is_eval, split_draw
from quintain.errors import UsageError
from quintain.models.embedder import Embedder
from quintain.retrieval.bm25 import BM25
from quintain.retrieval.dense import Dense
from quintain.types import Action, StepResult, Task, derive_seed
from quintain.worlds.shelf.stock import GROUP, MAX_TOOLS, Tool, ask, draw_numbers, draw_tools

WORDS, NOBODY = "bm25", "none"


@dataclass(frozen=True, slots=True)
class Need:
    """What is asked for: ``Need("estimates centers", 7, (12480, 3, 14))``; it belongs to a split by what is done."""

    does: str
    tool: int = field(repr=False)
    """number of the one tool that fits the data"""
    numbers: tuple[int, ...] = field(repr=False)


State = tuple[Need, frozenset[str], int]
"""what is asked for, the tools that were called, and the turn"""


class Shelf(Environment):
    """Find the tool that does what is needed to such data, call it, and answer with what it tells.

    Act: search WORDS, call TOOL, or answer NUMBER.
    """

    name = "shelf"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "memory"})

    def __init__(
        self, *, tools: int = 500, group: int = GROUP, shown: int = 4, retriever: str = WORDS, shelf: int = 0
    ) -> None:
        """Fill the shelf that `shelf` numbers with `tools` tools, of which groups of `group` do the same.

        The `retriever` shows the `shown` that fit a need best: bm25, none (nothing is shown or found), or the folder of
        an embedder, such as a run of dare.

        Raises:
            UsageError: there is no such shelf.
            ModelError: there is no embedder in that folder.
        """
        if not (
            1 <= group <= GROUP and 2 * group <= tools <= MAX_TOOLS * group // GROUP and 1 <= shown <= tools
        ):
            raise UsageError(
                f"shelf: got tools={tools}, group={group}, shown={shown}; give groups of 1 to {GROUP}, two groups or "
                f"more up to {MAX_TOOLS // GROUP}, and show 1 tool or more"
            )
        self.stock: tuple[Tool, ...] = draw_tools(tools, group, shelf)
        self.ranker: Ranker | None = ranker_of(retriever, self.documents())
        self._shown = shown
        self.max_turns = 6
        self._numbers = {tool.name: number for number, tool in enumerate(self.stock)}
        self._need, self._called, self._turn = Need("", 0, ()), frozenset[str](), 0

    def documents(self) -> tuple[str, ...]:
        """Return what is said of each tool."""
        return tuple(tool.line() for tool in self.stock)

    def query(self, document: int, rng: Random) -> str:
        """Return a need that the tool of this number answers, and no other."""
        tool = self.stock[document]
        return ask(tool.does, draw_numbers(tool.profile, rng))

    def is_held_out(self, document: int) -> bool:
        """Whether the tool of this number is asked for by held-out tasks."""
        return is_eval(Need(self.stock[document].does, 0, ()))

    def reset(self, task: Task) -> str:
        """State a need, and show the tools that the retriever finds for it."""
        self._need = split_draw(task, self._draw)
        self._called, self._turn = frozenset(), 0
        need = ask(self._need.does, self._need.numbers)
        return f"Needed: {need}. {self._search(need)}"

    def _draw(self, rng: Random) -> Need:
        number = rng.randrange(len(self.stock))
        tool = self.stock[number]
        return Need(tool.does, number, draw_numbers(tool.profile, rng))

    def step(self, action: Action) -> StepResult:
        """Search, call or answer."""
        self._turn += 1
        verb, _, rest = " ".join(action.text.split()).partition(" ")
        if action.error is not None or verb not in ("search", "call", "answer") or not rest:
            said = action.error or "write search WORDS, call TOOL or answer NUMBER"
            return StepResult(observation=f"Error: {said}.", is_valid=False)
        if verb == "search":
            return StepResult(observation=self._search(rest))
        if verb == "call":
            if rest not in self._numbers:
                return StepResult(observation=f"Error: there is no {rest}.", is_valid=False)
            self._called |= {rest}
            return StepResult(observation=f"{rest} says {self._run_tool(self._numbers[rest])}.")
        wanted = self.stock[self._need.tool]
        is_right = rest == str(self._run_tool(self._need.tool))
        is_success = is_right and wanted.name in self._called
        said = "Done." if is_success else "Nobody told you." if is_right else "Wrong."
        return StepResult(
            observation=said, reward=float(is_success), is_terminated=True, is_success=is_success
        )

    def _search(self, words: str) -> str:
        """Return what the retriever shows for `words`."""
        found = () if self.ranker is None else self.ranker.best(words, self._shown)
        shown = "; ".join(f"{self.stock[k].name} {self.stock[k].line()}" for k in found)
        return f"Tools: {shown or 'none found'}."

    def _run_tool(self, number: int) -> int:
        """Return what a tool makes of the data; tools of a group differ."""
        place = sum(other.does == self.stock[number].does for other in self.stock[:number])
        return (derive_seed("told", self._need.does, repr(self._need.numbers)) + 23 * place) % 100

    def progress(self) -> float:
        """Return 1 once the tool that fits was called."""
        return float(self.stock[self._need.tool].name in self._called)

    def expert_action(self) -> Action:
        """Return a call of the tool that fits, as one does who knows the shelf, and then the answer."""
        wanted = self.stock[self._need.tool].name
        done = wanted in self._called
        return Action(text=f"answer {self._run_tool(self._need.tool)}" if done else f"call {wanted}")

    def trusting_action(self) -> Action:
        """Return what one does who trusts the retriever: call what it finds first, and answer what that says."""
        found = () if self.ranker is None else self.ranker.best(ask(self._need.does, self._need.numbers), 1)
        if not found:
            return Action(text="answer nothing")
        name = self.stock[found[0]].name
        return Action(text=f"answer {self._run_tool(found[0])}" if name in self._called else f"call {name}")

    def mistaken_action(self, rng: Random) -> Action:
        """Return a call of another tool that does the same, or of any."""
        alike = [tool.name for tool in self.stock if tool.does == self._need.does]
        return Action(text=f"call {rng.choice(alike if rng.random() < 0.8 else [*self._numbers])}")

    def snapshot(self) -> State:
        """Return the need and what was called."""
        return self._need, self._called, self._turn

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._need, self._called, self._turn = state

    def state_key(self) -> str:
        """Return the need in words and what was called, not which tool fits."""
        return f"{self._need.does} {self._need.numbers} {sorted(self._called)} {self._turn}"


def ranker_of(retriever: str, documents: tuple[str, ...]) -> Ranker | None:
    """Return what finds `documents`: ``bm25``, the embedder in a folder, or for ``none`` nothing."""
    return None if retriever == NOBODY else index_of(retriever, documents)


@lru_cache(maxsize=8)
def index_of(retriever: str, documents: tuple[str, ...]) -> Ranker:
    """Return the index over `documents`, made once."""
    return BM25(documents) if retriever == WORDS else Dense(documents, Embedder.load(Path(retriever)))
