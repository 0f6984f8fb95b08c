"""Fit a target by features of three columns: write a program, see what it is worth, hand the best one in.

Family it stands for: automated data science (MLE-bench, arXiv 2410.07095; AutoMind, 2506.10974). A solution is a
program (`program`) that is run and measured as often as there are turns; what is handed in is paid by rows that nobody
saw. Which features help depends on the kind of the task (`table`), so that what worked on others of its kind is worth
knowing.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from quintain.environments.protocol import Environment, SolutionRun
from quintain.environments.splitting import split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task
from quintain.worlds.fit.program import ProgramError, fit_columns, run_lines, score_fit, split_lines
from quintain.worlds.fit.table import (
    COLUMNS,
    ROWS,
    SHAPES,
    Problem,
    draw_problem,
    fill_shape,
    name_columns,
)

SUBMIT = "submit"
GOOD = 0.8
"""R² on hidden rows that solves a task."""
MAX_TURNS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A problem, and the last program that ran: ``State(problem=problem, text="fit(a)")``."""

    problem: Problem
    text: str = ""


class Fit(Environment):
    """Predict y. Write a program: lines NAME = EXPRESSION over the columns, then fit(NAMES). Then say: submit."""

    name = "fit"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "reasoning", "self-improvement"})

    def __init__(self, *, features: int = 2, turns: int = 15) -> None:
        """Hide `features` features in the target, and let `turns` programs be tried.

        Raises:
            UsageError: there are no such tables.
        """
        if not 0 <= features <= 2 or not 1 <= turns <= MAX_TURNS:
            raise UsageError(
                f"fit: got features={features}, turns={turns}; give 0 to 2 features and 1 to {MAX_TURNS} turns"
            )
        self._num_features, self.max_turns = features, turns + 1
        self._state = State(problem=draw_problem(Random(0), features))

    def reset(self, task: Task) -> str:
        """Draw a table."""
        self._start(State(problem=split_draw(task, lambda rng: draw_problem(rng, self._num_features))))
        return f"{self._state.problem.words}. Columns {', '.join(COLUMNS)} from 1 to 9."

    def step(self, action: Action) -> StepResult:
        """Run a program, or hand one in: the one after ``submit``, else the last that ran."""
        head, _, rest = action.text.strip().partition("\n")
        if action.error is not None or head.strip().lower() != SUBMIT:
            found = SolutionRun(output=f"{action.error}") if action.error else self.run_solution(action.text)
            if found.metric is not None:
                self._state = State(problem=self._state.problem, text=action.text)
            return StepResult(observation=found.output, is_valid=found.metric is not None, is_success=False)
        text = rest.strip() or self._state.text
        try:
            score = self._measure(text, is_hidden=True)
        except ProgramError as error:
            told = f"Error: {error}" if text else "Error: no program ran; write one, then submit."
            return StepResult(observation=told, is_valid=False, is_success=False)
        return StepResult(
            observation=f"R2 {score:.3f} on hidden rows.",
            reward=score,
            is_terminated=True,
            is_success=score >= GOOD,
        )

    def run_solution(self, text: str) -> SolutionRun:
        """See `RunsSolutions`."""
        try:
            score = self._measure(text, is_hidden=False)
        except ProgramError as error:
            return SolutionRun(output=f"Error: {error}")
        return SolutionRun(output=f"R2 {score:.3f}", metric=score)

    def check_solution(self, text: str) -> str:
        """See `RunsSolutions`."""
        try:
            run_lines(text, name_columns(self._rows))
        except ProgramError as error:
            return f"Error: {error}"
        return ""

    def hand_in(self, text: str) -> Action:
        """See `RunsSolutions`."""
        return Action(text=f"{SUBMIT}\n{text}")

    def expert_action(self) -> Action:
        """Return the program that has all features, then that it is handed in."""
        solution = self._state.problem.solution()
        return Action(text=SUBMIT if self._state.text == solution else solution)

    def mistaken_action(self, rng: Random) -> Action:
        """Return a program with any one feature; see `noisy.Fallible`."""
        feature = fill_shape(rng.choice(SHAPES), rng)
        return Action(text=f"x1 = {feature}\nfit({', '.join(COLUMNS)}, x1)")

    def privileged(self) -> str:
        """Return the features."""
        return "; ".join(self._state.problem.features)

    def snapshot(self) -> State:
        """Return the problem, and the last program that ran."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._start(state)

    def state_key(self) -> str:
        """Return all that counts."""
        return repr(self._state)

    def _start(self, state: State) -> None:
        """Take `state` and draw its table."""
        self._state = state
        self._rows, self._target = state.problem.draw()

    def _measure(self, text: str, *, is_hidden: bool) -> float:
        """Return R² of the program `text` on the rows to measure on, or on the hidden ones.

        Raises:
            ProgramError: it does not run, or fits nothing.
        """
        known, chosen = run_lines(text, name_columns(self._rows))
        if not chosen:
            raise ProgramError(len(split_lines(text)) + 1, "nothing is fitted; end with fit(NAMES)")
        features = np.column_stack([known[name] for name in chosen])
        place = slice(2 * ROWS, None) if is_hidden else slice(ROWS, 2 * ROWS)
        said = fit_columns(features[:ROWS], self._target[:ROWS], features[place])
        return score_fit(said, self._target[place])
