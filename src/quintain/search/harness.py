"""A harness that searches: any model goes back to states it left, and the best way counts.

``searched?by=best&size=3&steps=40+react``: in each state that the search picks the model is asked for `size` ways on,
each of which is carried out, seen and taken back; then the state that looks best is gone on from, until the task is
solved or `steps` actions were carried out or asked for again. The episode ends in the best state that was reached, and
is paid for the way to it alone: what was tried beside it costs steps and pays nothing. With ``score=plans`` that is
A* by what solved plans say of the way and of the rest (ToolChain*, arXiv 2310.13227; see `quintain.search.astar`).

Every action that is tried is a turn of the episode, sampled and recorded like others, so that a search is data: the
observation after it begins with where the search stands, ``[search 0 3 7]`` (the numbers of the actions that lead
there), which the model is not shown. `keep_found` leaves of an episode the turns of the way that was found.

The search sees what the agent sees. It reads no progress, nothing hidden and no expert; that a task is solved it learns
from an action that was carried out, and counts. A state is brought back whole, chance included: the same action does
the same again. What an environment says cannot be undone (`Reversible`) is gone on from, and never taken back.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, cast

from quintain.agents.context import Exchange, Rewriting
from quintain.agents.deliberation import Words, describe_action, with_words
from quintain.agents.experience import as_experience
from quintain.agents.protocol import Agent, Brief, Prompt, equip
from quintain.data.searched import follow_searches, split_head, with_head
from quintain.environments.protocol import (
    Environment,
    Reversible,
    Snapshot,
    advance,
    environment_name,
    sum_parts,
)
from quintain.environments.states import SavedState, restore_state, save_state
from quintain.environments.wrapped import Wrapped
from quintain.errors import DataError, UsageError
from quintain.memory.bank import load_bank
from quintain.search.agent import MOST_STATES, ends_solved, require_searchable
from quintain.search.astar import PlanMemory, read_plan
from quintain.search.tree import BestFirstTree, Node, Path, Seen, ValueTree
from quintain.search.tree_search import SearchTree
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.types import (
    Action,
    Completion,
    Observation,
    StepResult,
    Task,
)

Pick = Literal["best", "breadth", "depth", "mcts"]
Judged = Literal["return", "votes", "model", "plans"]
IMAGINE = "What is left to do until the task is solved? Write the actions in order, with ; between."
JUDGE = "How promising is this, from 0 (hopeless) to 10 (solved)? Write a number."
SURE = "10"
"""What a demonstration says of a state."""
NUMBER = re.compile(r"\d+(?:\.\d+)?")
MOST = 10.0


@dataclass(frozen=True, slots=True)
class Searched:
    """Any harness, searching: ``Searched(ReAct(chat), chat, by="best", size=3, steps=40)``."""

    agent: Agent
    chat: Chat
    by: Pick = "best"
    """Which state is gone on from: that of the highest score, the shallowest, the deepest, or by UCT over mean scores
    (mcts)."""
    size: int = 3
    """Ways on that are asked for in a state."""
    steps: int = 40
    """Actions of an episode, tried ones included."""
    score: Judged = "votes"
    """What a state is worth: the share of the ways from the state before that led to it, times what that is worth; what
    its way has paid so far; what the model says of it when it is asked, a turn of its own; or minus what its way and
    the rest cost by solved plans (plans), where the model is asked for the rest."""
    max_tokens: int = 64
    """Tokens of what the model says of a state."""
    solved: str = ""
    """Solved plans for `score=plans`: a run, by its solved training episodes, or the file of a bank; empty: none."""
    memory: PlanMemory = field(default=PlanMemory(), init=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a search of nothing; read the plans.

        Raises:
            UsageError: there is nothing to search, or nobody reads the plans.
            DataError: what is named holds no solved plan.
        """
        if min(self.size, self.steps) < 1:
            raise UsageError(f"searched: got size={self.size}, steps={self.steps}; give 1 or more of each")
        if self.steps > MOST_STATES:
            raise UsageError(
                f"searched: got steps={self.steps}, each of which may keep a state; give at most {MOST_STATES}"
            )
        if self.solved and self.score != "plans":
            raise UsageError(
                f"searched: got solved={self.solved} with score={self.score}; give score=plans as well"
            )
        if self.solved:
            object.__setattr__(self, "memory", PlanMemory.learn(read_plans(pathlib.Path(self.solved))))

    @property
    def question(self) -> str:
        """What the model is asked of each new state; empty: nothing."""
        return {"model": JUDGE, "plans": IMAGINE}.get(self.score, "")

    def open(self, brief: Brief) -> SearchedSession:
        """See `Agent.open`."""
        return SearchedSession(self, brief)

    def equip(self, environment: Environment) -> Environment:
        """Return `environment`, as the harness inside needs it, in which the search walks.

        Raises:
            UsageError: it cannot be brought back, or several seats act in it.
        """
        return SearchedWorld(equip(self.agent, environment), self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How a state is brought back, and what led to it: ``Reached(state=…, way=(0, 3), total=0.5, last=result)``."""

    state: SavedState | None
    way: tuple[int, ...]
    """numbers of the actions that lead to it from the beginning"""
    observation: Observation
    actions: tuple[str, ...] = ()
    """those of the way"""
    total: float = 0.0
    """what the way paid"""
    terms: Mapping[str, float] = field(default_factory=dict[str, float])
    """what it paid, by name"""
    last: StepResult | None = None
    """what the last action of the way was answered"""


class SearchedWorld(Wrapped):
    """`inner` as a search walks in it: ``SearchedWorld(KeyDoor(), settings)``; it ends in the best state reached."""

    drops: ClassVar[frozenset[type]] = frozenset({Snapshot})

    def __init__(self, inner: Environment, settings: Searched) -> None:
        """Walk in `inner`.

        Raises:
            UsageError: it cannot be brought back, or several seats act in it.
        """
        asked = f"a searching agent in {environment_name(inner)}"
        require_searchable(inner, asked, "take another agent")
        self._settings = settings
        super().__init__(inner)
        self._number = self._num_tried = 0
        self._ways: dict[str, tuple[Reached, int]] = {}
        self._judged: str | None = None
        self._scores: dict[str, float] = {}
        self._costs: dict[str, float] = {}
        self._rests: dict[str, list[str]] = {}

    def count_turns(self) -> int:
        """Return the actions of a search, and the turns in which the model says what they led to."""
        return self._settings.steps * (2 if self._settings.question else 1) + 1

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside; the search stands at its beginning."""
        observation = self.begin_inner(task)
        self._depth = self.inner.max_turns
        self._number = self._num_tried = 0
        self._judged, self._scores, self._ways = None, {}, {}
        self._costs, self._rests = {}, {}
        self._best = start = Reached(state=save_state(self.inner), way=(), observation=observation)
        self._plant(start)
        return observation

    def step(self, action: Action) -> StepResult:
        """Try `action` in the state where the search stands, or take in what the model says of the state before."""
        number, self._number = self._number, self._number + 1
        if self._judged is not None:
            if self._settings.score == "plans":
                self._rests[self._judged] = read_plan(action.text)
            else:
                self._scores[self._judged] = read_score(action.text)
            self._judged = None
            return self._go_on()
        key, self._num_tried = describe_action(action), self._num_tried + 1
        self._asked += 1
        if key in self._ways:
            reached, votes = self._ways[key]
            self._ways[key] = reached, votes + 1
            return self._go_on()
        reached = self._try(action, number)
        last = cast(StepResult, reached.last)
        if not last.is_valid and not last.is_over:
            return self._go_on()
        self._ways[key] = reached, 1
        if rank_of(reached) > rank_of(self._best):
            self._best = reached
        if is_solved(reached):
            return self._end()
        if isinstance(self.inner, Reversible) and not self.inner.can_go_back():
            self._best = reached
            if last.is_over:
                return self._end()
            self._plant(reached)
        elif self._settings.question and reached.state is not None:
            self._judged = str(reached.way)
            return StepResult(observation=with_head(reached.observation, "judge", reached.way), reward=0.0)
        return self._go_on()

    def _plant(self, root: Reached) -> None:
        """Let the search begin at `root`."""
        scores = self._scores
        seen = Seen(key="", text=str(root.way), place=root)
        picks: dict[str, Callable[[Node], float]] = {
            "best": lambda node: -scores.get(node.seen.text, 0.0),
            "breadth": lambda _: 0.0,
            "depth": lambda node: -float(node.depth),
        }
        self._tree: SearchTree = (
            ValueTree(seen, lambda text: scores.get(text, 0.0), mixing=0.0, gate=float("inf"))
            if self._settings.by == "mcts"
            else BestFirstTree(seen, picks[self._settings.by])
        )
        self._stand(cast(Node, self._tree.select()))

    def _stand(self, node: Node) -> None:
        """Let the search ask for ways on from `node`."""
        self._node, self._ways, self._asked = node, {}, 0

    def _try(self, action: Action, number: int) -> Reached:
        """Carry `action` out where the search stands; return where it leads."""
        before = cast(Reached, self._node.seen.place)
        restore_state(self.inner, cast(SavedState, before.state))
        result = advance(self.inner, action)
        way = (*before.way, number)
        if not result.is_over and len(way) >= self._depth:
            result = replace(result, is_truncated=True)
        return Reached(
            state=None if result.is_over else save_state(self.inner),
            way=way,
            actions=(*before.actions, describe_action(action)),
            observation=result.observation,
            total=before.total + result.reward,
            terms=sum_parts((before.terms, result.reward_terms)),
            last=result,
        )

    def _go_on(self) -> StepResult:
        """Return what the model is shown next: where the search stands, or its end."""
        if self._num_tried >= self._settings.steps:
            return self._end()
        if self._asked >= self._settings.size:
            self._take_in()
            node = self._tree.select()
            if node is None:
                return self._end()
            self._stand(node)
        place = cast(Reached, self._node.seen.place)
        restore_state(self.inner, cast(SavedState, place.state))
        return StepResult(observation=with_head(place.observation, "", place.way), reward=0.0)

    def _take_in(self) -> None:
        """Let the tree take in the ways on from where the search stands."""
        paths: list[Path] = [
            [Seen(key=key, text=str(reached.way), is_over=reached.state is None, place=reached)]
            for key, (reached, _) in self._ways.items()
        ]
        scores = self._score_ways(list(self._ways.values()))
        self._scores.update((path[0].text, score) for path, score in zip(paths, scores, strict=True))
        self._tree.back_up(self._node, paths, scores)

    def _score_ways(self, ways: Sequence[tuple[Reached, int]]) -> list[float]:
        """Return what each of `ways` on from where the search stands is worth, with how often each was chosen."""
        if self._settings.score == "return":
            return [reached.total for reached, _ in ways]
        if self._settings.score == "plans":
            return [-self._cost(reached, votes / self._asked) for reached, votes in ways]
        if self._settings.score == "votes":
            before = self._scores.get(self._node.seen.text, 1.0)
            return [before * votes / self._asked for _, votes in ways]
        return [self._scores.get(str(reached.way), 0.0) for reached, _ in ways]

    def _cost(self, reached: Reached, share: float) -> float:
        """Return what the way to a state costs, which a `share` of the samples chose, and the rest of it: g + h."""
        memory, text = self._settings.memory, str(reached.way)
        spent = self._costs.get(self._node.seen.text, 0.0) + memory.cost_of_step(reached.actions, share)
        self._costs[text] = spent
        return spent + memory.cost_of_rest(reached.actions, self._rests.get(text, ()))

    def _end(self) -> StepResult:
        """Return the end of the episode: that of the best way."""
        best = self._best
        last = best.last
        has_ended = last is not None and last.is_over
        return StepResult(
            observation=with_head(best.observation, "end", best.way),
            reward=best.total,
            reward_terms=best.terms,
            is_terminated=has_ended and cast(StepResult, last).is_terminated,
            is_truncated=not has_ended or cast(StepResult, last).is_truncated,
            is_success=is_solved(best),
        )


class SearchedSession(Rewriting):
    """An episode of `Searched`: a conversation for each state that the search stands in, with the way to it alone."""

    def __init__(self, settings: Searched, brief: Brief) -> None:
        """Begin where nothing was tried."""
        super().__init__(settings.agent, brief)
        self._words, self._question = Words(settings.chat, settings.max_tokens), settings.question
        self._taken: list[Exchange] = []
        """what each action was an answer to, by its number"""
        self._way: tuple[int, ...] = ()
        """to where the search stands"""
        self._goes_on = self._is_judging = False

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; what the search stands in is asked of in a conversation that knows the way to it."""
        what, way, shown = split_head(observation)
        was_judging, self._is_judging = self._is_judging, what == "judge"
        self._goes_on = not was_judging and way == (*self._way, len(self._taken) - 1)
        self._way = way
        question = self._question
        prompt = super().observe(with_words(shown, question) if self._is_judging else shown, legal_actions)
        self._taken.append(self._history[-1])
        return self._words.ask(prompt, "judge", question) if self._is_judging else prompt

    def kept(self, history: Sequence[Exchange]) -> Sequence[Exchange] | None:
        """See `Rewriting.kept`: the way to where the search stands, unless the conversation is there."""
        return None if self._goes_on or not history else [self._taken[number] for number in self._way]

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: an action, or what is said of a state."""
        if self._is_judging:
            return Action(text=self._words.read(completion))
        return super().read(completion)

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a demonstration thinks well of every state that it is in, and knows the next step."""
        said = describe_action(action) if self._question == IMAGINE else SURE
        return self._words.write(said) if self._is_judging else self._inner.write(action)


def read_plans(source: pathlib.Path) -> list[list[str]]:
    """Return the actions of the solved episodes that a run trained on, or of the entries of a bank that were worth it.

    Raises:
        DataError: there is none, or `source` is neither.
    """
    if source.is_dir():
        with Run.open(source, writable=False) as run:
            made = list(
                follow_searches(t for t in run.trajectories() if t.is_success and not t.task.is_held_out)
            )
        plans = [list(as_experience(t).actions) for t in made if t.turns]
    else:
        plans = [read_plan(entry.text) for entry in load_bank(source).entries if entry.value > 0]
    if not plans:
        raise DataError(f"plans: got {source}, which holds no solved one; name a run or a bank that does")
    return plans


def read_score(text: str) -> float:
    """Return the first number in `text` as a share of 10, 0 where there is none. Example: "7 of 10": 0.7."""
    match = NUMBER.search(text)
    return min(float(match[0]) / MOST, 1.0) if match else 0.0


def is_solved(reached: Reached) -> bool:
    """Return whether the way to a state ended in a solution."""
    last = reached.last
    return last is not None and ends_solved(last, reached.total)


def rank_of(reached: Reached) -> tuple[bool, float, bool]:
    """Return by what a state is better than another: solved, else of a higher return, else over."""
    return is_solved(reached), reached.total, reached.last is not None and reached.last.is_over
