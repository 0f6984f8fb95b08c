"""Decide what a solver does next about a problem, from what it says of itself: blocks of a chain, a graph of thoughts.

Families it stands for: navigators of reasoning (RL of Thoughts, arXiv 2505.14140) and policies over graphs of thoughts
(ARIES, 2502.21208). Whoever decides sees noisy scores and never whether an answer is right. The solver is a script that
errs, or with ``by=model`` a seat of its own, which is asked in words and whose answers are read as they are; both go
through the same questions. Calls of the solver are counted, and cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

from quintain.environments.protocol import Environment
from quintain.environments.splitting import is_eval
from quintain.errors import UsageError
from quintain.types import ALONE, Action, StepResult, Task, as_text, derive_seed
from quintain.worlds.solver.chain import MOST_BLOCKS, Chain
from quintain.worlds.solver.problem import BEGIN, STOP, Problem
from quintain.worlds.solver.thoughts import Slope, Sorting

MOST_QUESTIONS = 4
"""Questions of one action at most."""
DECIDES, SOLVES = "policy", "solver"
"""The seats, where the solver is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A problem, and what is being asked about it: ``State(problem=chain, seed=7)``."""

    problem: Problem
    seed: int
    action: str = ""
    """what the solver is being asked for; empty: whoever decides is to act"""
    said: tuple[str, ...] = ()
    asked: int = 0
    """questions that were answered so far"""


class Solver(Environment):
    """A solver works on a problem and errs. Choose by what is shown what it does next; stop if its answer is right."""

    name = "solver"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "reasoning", "self-improvement"})

    def __init__(
        self,
        *,
        kind: Literal["chain", "sort"] = "chain",
        by: Literal["script", "model"] = "script",
        size: int = 0,
        calls: int = 12,
        errors: float = 1.0,
        noise: float = 0.3,
        slope: Literal["mixed", "flat", "steep", "even"] = "mixed",
        free: bool = False,
        cost: float = 0.02,
    ) -> None:
        """Take chains of up to `size` steps (0: 3), or lists of `size` numbers (0: 16) with `calls` calls to sort them.

        A scripted solver errs `errors` times as often as usual; `noise` is in what is said of its answers. `slope`
        says how its errors rise with a list's length: mildly, steeply, either from list to list, or not. With `free`
        a program splits and merges lists, at no call. Each call costs `cost`.

        Raises:
            UsageError: an option is out of its range.
        """
        self._kind, self._by, self._is_free = kind, by, free
        self._slope: Slope | Literal["mixed"] = slope
        self._size = size or {"chain": 3, "sort": 16}[kind]
        low, high = {"chain": (2, 6), "sort": (4, 32)}[kind]
        if not (low <= self._size <= high and 1 <= calls <= 64 and 0 <= errors <= 8 and 0 <= noise <= 8):
            raise UsageError(
                f"solver: got size={size}, calls={calls}, errors={errors}, noise={noise}; give a {kind} of {low} to "
                f"{high}, 1 to 64 calls, and errors and noise from 0 to 8"
            )
        most = MOST_QUESTIONS * (MOST_BLOCKS + 1) if kind == "chain" else calls
        if not 0 <= cost * most <= 1:
            raise UsageError(f"solver: got cost={cost}; give one with which {most} calls cost no more than 1")
        self._calls, self._errors, self._noise, self._cost = calls, errors, noise, cost
        choices = MOST_BLOCKS + 1 if kind == "chain" else 2 * calls + 1 + (self._size if free else 0)
        questions = MOST_QUESTIONS if kind == "chain" else 1
        self.max_turns = choices if by == "script" else choices * (questions + 1) + 1
        self.return_range = (-1.0, 1.0)
        self._state = State(problem=self._draw(Random(0), 0), seed=0)

    def reset(self, task: Task) -> str:
        """Draw the problem; what it shows of itself is never of the other split."""
        problem = self._draw(task.rng, task.seed)
        while is_eval(problem.content) != task.is_held_out:
            problem = self._draw(task.rng, task.seed)
        self._state = State(problem=problem, seed=task.seed, action=BEGIN)
        return as_text(self._go_on().observation)

    def step(self, action: Action) -> StepResult:
        """Take a choice, or an answer of the solver where that is a seat."""
        now = self._state
        if now.action:
            self._state = replace(now, said=(*now.said, action.text.strip()), asked=now.asked + 1)
            return self._go_on()
        chosen = action.text.strip()
        if action.error is not None or chosen not in now.problem.legal():
            told = f"Error: {chosen[:40]!r} cannot be done."
            return StepResult(
                observation=f"{told}\n{now.problem.describe()}", is_valid=False, is_success=False
            )
        if chosen == STOP:
            return self._stop()
        self._state = replace(now, action=chosen, said=())
        return self._go_on()

    def seats(self) -> tuple[str, ...]:
        """Return who decides, and with ``by=model`` who solves."""
        return (DECIDES, SOLVES) if self._by == "model" else (ALONE,)

    def seat(self) -> str:
        """Return whose turn it is."""
        if self._by == "script":
            return ALONE
        return SOLVES if self._state.action else DECIDES

    def legal_actions(self) -> tuple[str, ...]:
        """Return what may be done; the solver writes what it likes."""
        return () if self._state.action else self._state.problem.legal()

    def expert_action(self) -> Action:
        """Return the choice of one who knows which answers are right, or what a solver that errs says."""
        now = self._state
        return Action(text=self._answer_by_script(now) if now.action else now.problem.choose())

    def mistaken_action(self, rng: Random) -> Action:
        """Return any choice; see `noisy.Fallible`."""
        return Action(text=rng.choice(self.legal_actions() or (self.expert_action().text,)))

    def privileged(self) -> str:
        """Return whether the answer that there is now is right."""
        return "right" if self._state.problem.is_right else "not right"

    @property
    def problem(self) -> Problem:
        """The problem as it is."""
        return self._state.problem

    def snapshot(self) -> State:
        """Return the problem, and what is being asked about it."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._state = state

    def state_key(self) -> str:
        """Return a key of all that counts."""
        return f"{derive_seed(repr(self._state)):x}"

    def _draw(self, rng: Random, seed: int) -> Chain | Sorting:
        """Return a problem."""
        errors, noise = self._errors, self._noise
        if self._kind == "chain":
            return Chain.draw(rng, steps=self._size, errors=errors, noise=noise)
        return Sorting.draw(
            rng,
            size=self._size,
            most=self._calls,
            errors=errors,
            noise=noise,
            slope=self._slope,
            is_free=self._is_free,
            seed=seed,
        )

    def _go_on(self) -> StepResult:
        """Ask the solver until what is to be done is done; a solver that is a seat is asked once a turn."""
        while question := self._state.problem.ask(self._state.action, self._state.said):
            if self._by == "model":
                return StepResult(observation=question, reward=0.0, is_success=False)
            now = self._state
            self._state = replace(now, said=(*now.said, self._answer_by_script(now)), asked=now.asked + 1)
        now = self._state
        after = now.problem.apply(now.action, now.said)
        self._state = State(problem=after, seed=now.seed, asked=now.asked)
        terms = {
            "process": after.process - now.problem.process,
            "calls": -self._cost * (after.calls - now.problem.calls),
        }
        return StepResult(
            observation=after.describe(),
            reward=sum(terms.values()),
            reward_terms=terms,
            is_success=False,
        )

    def _answer_by_script(self, now: State) -> str:
        """Return what the scripted solver says to the question that is asked `now`."""
        return now.problem.answer(now.action, now.said, Random(derive_seed(now.seed, "solver", now.asked)))

    def _stop(self) -> StepResult:
        """Hand in the answer that there is."""
        problem = self._state.problem
        is_right = problem.is_right
        told = "That is right." if is_right else "That is wrong."
        return StepResult(
            observation=told,
            reward=is_right - problem.process,
            reward_terms={"process": is_right - problem.process},
            is_terminated=True,
            is_success=is_right,
        )
