"""Add numbers, then judge your own answer, then mend it: self-verification in turns (PAG, SCoRe).

Two roles take turns in one conversation: an answer, then the verdict "right" or "wrong" on it, and after "wrong" one
more answer. Legal actions are not listed: numbers are written. An episode earns 1 if its last answer is right, and
nothing else: whoever were paid by the turn would earn more by erring and saying so. What each turn did for its own job,
an answer for being right and a verdict for being true, stands in the reward terms ``answer`` and ``verdict``.
"""

import re
from dataclasses import dataclass, replace
from typing import ClassVar

from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, derive_seed

NUMBER = re.compile(r"\s*(-?\d{1,18})\s*\.?\s*")
VERDICTS = ("right", "wrong")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What is on the table: ``Sheet(numbers=(12, 30), answer=41, revisions_left=1)``."""

    numbers: tuple[int, ...]
    answer: int | None = None
    """the answer that waits for its verdict; None while an answer is asked for"""
    revisions_left: int = 1
    was_right: bool | None = None
    """whether the answer before was right; None for the first"""
    turn: int = 0


class Sums(Environment):
    """Add the numbers and write the sum. Then say whether it is right or wrong; after wrong, answer again."""

    name = "sums"
    tags: ClassVar[frozenset[str]] = frozenset({"reasoning", "self-improvement"})

    def __init__(
        self, *, digits: int = 2, terms: int = 2, revisions: int = 1, bonus: float = 0.0, slips: float = 0.5
    ) -> None:
        """Draw `terms` numbers of up to `digits` digits; an answer may be mended `revisions` times.

        `bonus` is added to the term of an answer that turns a wrong one right, and taken for the reverse. The expert's
        first answer is wrong at the rate `slips`, so that it shows how a wrong one is found.

        Raises:
            UsageError: a number is out of range.
        """
        if not (1 <= digits <= 6 and 2 <= terms <= 6 and revisions >= 0 and 0 <= slips <= 1):
            raise UsageError(
                f"sums: got digits={digits}, terms={terms}, revisions={revisions}, slips={slips}; give 1 to 6 digits, "
                "2 to 6 terms, 0 or more revisions, and slips from 0 to 1"
            )
        self.digits, self.terms, self.revisions, self.bonus, self.slips = (
            digits,
            terms,
            revisions,
            bonus,
            slips,
        )
        self.max_turns = 2 * (revisions + 1)
        self._sheet = Sheet(numbers=(0, 0))
        self._seed = 0

    def reset(self, task: Task) -> str:
        """Draw the numbers."""
        most = 10**self.digits - 1
        numbers = tuple(task.rng.randint(1, most) for _ in range(self.terms))
        self._sheet = Sheet(numbers=numbers, revisions_left=self.revisions)
        self._seed = task.seed
        return f"{' + '.join(map(str, numbers))} = ?"

    def step(self, action: Action) -> StepResult:
        """Take an answer or a verdict, whichever is asked for."""
        self._sheet = replace(self._sheet, turn=self._sheet.turn + 1)
        if action.error is not None:
            return self._unread(f"Error: {action.error}")
        return (
            self._take_answer(action.text) if self._sheet.answer is None else self._take_verdict(action.text)
        )

    def _take_answer(self, text: str) -> StepResult:
        """Take `text` as an answer."""
        found = NUMBER.fullmatch(text)
        if found is None:
            return self._unread("Write the sum as a number.")
        sheet = self._sheet
        number = int(found[1])
        is_right = number == sum(sheet.numbers)
        change = 0.0 if sheet.was_right is None else self.bonus * (is_right - sheet.was_right)
        self._sheet = replace(sheet, answer=number)
        observation = f"{' + '.join(map(str, sheet.numbers))} = {number}. Right or wrong?"
        return StepResult(observation=observation, reward_terms={"answer": float(is_right) + change})

    def _take_verdict(self, text: str) -> StepResult:
        """Take `text` as the verdict on the answer."""
        verdict = text.strip().strip(".").lower()
        if verdict not in VERDICTS:
            return self._unread("Write right or wrong.")
        sheet = self._sheet
        is_right = sheet.answer == sum(sheet.numbers)
        terms = {"verdict": float((verdict == "right") == is_right)}
        if verdict == "right" or not sheet.revisions_left:
            return StepResult(
                observation="Done.",
                reward=float(is_right),
                is_terminated=True,
                is_success=is_right,
                reward_terms=terms,
            )
        self._sheet = replace(sheet, answer=None, was_right=is_right, revisions_left=sheet.revisions_left - 1)
        observation = f"{' + '.join(map(str, sheet.numbers))} = ? Answer again."
        return StepResult(observation=observation, reward_terms=terms)

    def _unread(self, observation: str) -> StepResult:
        """Return what an action that cannot be read gets; its term is that of the job it should have done."""
        job = "answer" if self._sheet.answer is None else "verdict"
        return StepResult(observation=observation, is_valid=False, reward_terms={job: 0.0})

    def expert_action(self) -> Action:
        """Return a first answer that slips at the given rate, a true verdict, and the right answer after that."""
        sheet = self._sheet
        total = sum(sheet.numbers)
        if sheet.answer is not None:
            return Action(text="right" if sheet.answer == total else "wrong")
        draw = derive_seed(self._seed, "slip", sheet.turn) % 1_000_000
        is_slip = sheet.was_right is None and self.revisions > 0 and draw < self.slips * 1_000_000
        return Action(text=str(total + (1, -1, 10, -10)[draw % 4] if is_slip else total))

    def snapshot(self) -> tuple[Sheet, int]:
        """Return the sheet and the seed of the expert's slips."""
        return self._sheet, self._seed

    def restore(self, state: tuple[Sheet, int]) -> None:
        """Continue from a snapshot."""
        self._sheet, self._seed = state

    def state_key(self) -> str:
        """Return the numbers, what was answered, and what is left."""
        sheet = self._sheet
        return f"{sheet.numbers} {sheet.answer} {sheet.was_right} {sheet.revisions_left} {sheet.turn}"
