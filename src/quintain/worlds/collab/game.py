"""Find out by asking what a user has in mind, then hand it in: the wish is hidden until it is asked for.

Families it stands for: ColBench and SWEET-RL (arXiv 2503.15478) and CollabLLM (2502.00640): an answer that comes too
soon is wrong, one that comes too late costs. The user answers one question a turn, truly, and grades what is handed
in, not how nicely it was asked.
"""

import re
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, derive_seed
from quintain.worlds.collab.wish import (
    SLOTS,
    STOP,
    THINGS,
    Shape,
    Wish,
    detail,
    draw_wish,
    find_slot,
    opening,
)

SUBMISSION = re.compile(r"submit\b(.*)", re.IGNORECASE | re.DOTALL)
MAX_COMBINATIONS = 1296
PROCESS_SHARE = 0.5
"""What `process` pays for details found out, out of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A talk as a value: ``State(wish=wish, known=frozenset({0}))``."""

    wish: Wish
    known: frozenset[int]
    """slots of which the user has said what it wants"""
    hesitated: frozenset[int] = frozenset()
    """vague slots that were asked for once"""
    has_changed: bool = False
    num_questions: int = 0
    num_submissions: int = 0

    @property
    def values(self) -> tuple[str, ...]:
        """What the user wants now."""
        changed = {self.wish.changed: self.wish.changed_to} if self.has_changed else {}
        return tuple(changed.get(slot, value) for slot, value in enumerate(self.wish.values))


@dataclass(kw_only=True, eq=False)
class Collab(Environment):
    """The slots are named in the instruction; see `instructions`. Chances are between 0 and 1."""

    name = "collab"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory", "reasoning"})

    slots: int = 3
    values: int = 4
    """values of each slot"""
    told: float = 0.3
    """chance that a slot is told at the start"""
    vague: float = 0.0
    """chance that the user must be asked twice about a slot"""
    indifferent: float = 0.0
    """chance that any value of a slot will do"""
    changes_of_mind: float = 0.0
    """chance that one slot is corrected on the way"""
    patience: int = 0
    """questions that are answered before the user leaves; 0: two more than twice the slots"""
    tries: int = 1
    """submissions; a wrong one may be mended until there were so many"""
    cost: float = 0.02
    """what a question costs"""
    noise: int = 0
    """sentences that say nothing, after each answer"""
    graded: Literal["sparse", "dense", "process"] = "sparse"
    """1 if all is right; the share of slots that are right; or half of it for details found out"""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            UsageError: one is out of its range.
        """
        self.shape = self._check_shape()
        self._patience = self.patience or 2 * self.slots + 2
        is_negative = min(self.patience, self.noise) < 0
        if is_negative or self.tries < 1 or not 0 <= self.cost * self._patience < 1:
            raise UsageError(
                f"collab: got patience={self.patience}, tries={self.tries}, noise={self.noise}, cost={self.cost}; "
                "give no negative numbers, at least 1 try, and questions that together cost less than 1"
            )
        self.max_turns = self._patience + self.tries + 2
        self.return_range = (-self.cost * (self._patience + 1), 1.0)
        options = [self.shape.options(slot) for slot in range(self.slots)]
        self._legal = (
            *(f"ask {name}" for name in self.shape.names),
            *(f"submit {', '.join(combination)}" for combination in product(*options)),
        )
        wish = Wish(thing=THINGS[0], values=("",) * self.slots, told=(), vague=())
        self._state = State(wish=wish, known=frozenset())

    def _check_shape(self) -> Shape:
        """Return how wishes are drawn."""
        slots, values = self.slots, self.values
        shares = (self.told, self.vague, self.indifferent, self.changes_of_mind)
        if not all(0 <= share <= 1 for share in shares):
            raise UsageError(f"collab: got the shares {shares}; give numbers from 0 to 1")
        if not 1 <= slots <= len(SLOTS) or not 2 <= values <= 6 or values**slots > MAX_COMBINATIONS:
            raise UsageError(
                f"collab: got slots={slots}, values={values}; give 1 to {len(SLOTS)} slots of 2 to 6 values "
                f"with at most {MAX_COMBINATIONS} combinations"
            )
        told, vague, indifferent, changes_of_mind = shares
        return Shape(
            slots=slots,
            values=values,
            told=told,
            vague=vague,
            indifferent=indifferent,
            changes_of_mind=changes_of_mind,
        )

    def instructions(self) -> str:
        """Return what to do, with the slots and their values."""
        shape = self.shape
        options = "; ".join(
            f"{name}: {', '.join(shape.options(slot))}" for slot, name in enumerate(shape.names)
        )
        order = ", ".join(name.upper() for name in shape.names)
        return f"Find out what the user wants, then hand it in. {options}. Act: ask and a name, or submit {order}."

    def reset(self, task: Task) -> str:
        """Meet the user of the task and hear what it says first."""
        wish = split_draw(task, lambda rng: draw_wish(rng, self.shape))
        self._state = State(wish=wish, known=frozenset(wish.told))
        return opening(wish, self.shape, self.noise)

    def step(self, action: Action) -> StepResult:
        """Hand in a submission; anything else is said to the user."""
        text = action.text.strip()
        if action.error is not None or not text:
            return self._invalid(action.error or "ask the user something, or submit")
        submission = SUBMISSION.fullmatch(text)
        return self._submit(submission[1]) if submission else self._answer_question(text)

    def legal_actions(self) -> tuple[str, ...]:
        """Return a question for each slot, and all submissions."""
        return self._legal

    def expert_action(self) -> Action:
        """Ask for the first slot that is not known, else hand in what is."""
        now = self._state
        for slot, name in enumerate(self.shape.names):
            if slot not in now.known:
                return Action(text=f"ask {name}")
        chosen = (value or self.shape.options(slot)[0] for slot, value in enumerate(now.values))
        return Action(text=f"submit {', '.join(chosen)}")

    def mistaken_action(self, rng: Random) -> Action:
        """Hand in a guess, or ask for what may be known; see `noisy.Fallible`."""
        now, shape = self._state, self.shape
        if rng.random() < 0.5:
            return Action(text=f"ask {rng.choice(shape.names)}")
        chosen = (
            now.values[slot] if slot in now.known and now.values[slot] else rng.choice(shape.options(slot))
            for slot in range(shape.slots)
        )
        return Action(text=f"submit {', '.join(chosen)}")

    def privileged(self) -> str:
        """Return what the user wants now, which the agent cannot see: for critics in training."""
        return ", ".join(value or "any" for value in self._state.values)

    def snapshot(self) -> State:
        """Return the talk as a value."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._state = state

    def state_key(self) -> str:
        """Return a key of the wish, what is known of it, and how patient the user still is."""
        now = self._state
        counts = (now.has_changed, now.num_questions, now.num_submissions)
        return f"{derive_seed(repr(now.wish))}:{sorted(now.known)}:{sorted(now.hesitated)}:{counts}"

    def _invalid(self, problem: str) -> StepResult:
        return StepResult(observation=f"Error: {problem}", is_valid=False, is_success=False)

    def _answer_question(self, text: str) -> StepResult:
        """Answer one question; one too many makes the user leave."""
        before = self._state
        self._state = replace(before, num_questions=before.num_questions + 1)
        terms = {"questions": -self.cost}
        is_over = self._state.num_questions > self._patience
        if is_over:
            said = f"I have no more time. {STOP}"
        else:
            slot = find_slot(text, self.shape.names)
            said = "Sorry?" if slot is None else self._detail(slot)
            said += self._correction(before) + chatter(
                self.noise, "collab", repr(before.wish), before.num_questions
            )
            hidden = self.shape.slots - len(before.wish.told)
            if self.graded == "process" and self._state.known != before.known:
                terms["found"] = PROCESS_SHARE / hidden
        return StepResult(
            observation=said,
            reward=sum(terms.values()),
            is_terminated=is_over,
            is_success=False,
            reward_terms=terms,
        )

    def _detail(self, slot: int) -> str:
        """Say what is wanted of `slot`, at the second question where the user is not sure at first."""
        now = self._state
        if slot in now.wish.vague and slot not in now.hesitated:
            self._state = replace(now, hesitated=now.hesitated | {slot})
            return f"{self.shape.names[slot]}: not sure."
        self._state = replace(now, known=now.known | {slot})
        return detail(self.shape, slot, now.values[slot])

    def _correction(self, before: State) -> str:
        """Change the user's mind about a slot that was known before the question, once."""
        wish = before.wish
        if before.has_changed or wish.changed not in before.known:
            return ""
        self._state = replace(self._state, has_changed=True)
        return f" No, {detail(self.shape, wish.changed, wish.changed_to)}"

    def _submit(self, text: str) -> StepResult:
        """Grade what is handed in; with tries left, say how much of it is right."""
        now, shape = self._state, self.shape
        values = tuple(text.lower().replace(",", " ").rstrip(" .!").split())
        fits = [value in shape.options(slot) for slot, value in enumerate(values[: shape.slots])]
        if len(values) != shape.slots or not all(fits):
            return self._invalid(f"write submit {', '.join(name.upper() for name in shape.names)}")
        self._state = replace(now, num_submissions=now.num_submissions + 1)
        num_right = sum(wanted in ("", value) for wanted, value in zip(now.values, values, strict=True))
        is_right = num_right == shape.slots
        if not is_right and self._state.num_submissions < self.tries:
            return StepResult(observation=f"{num_right} of {shape.slots} are right.", is_success=False)
        value = num_right / shape.slots if self.graded == "dense" else float(is_right)
        if self.graded == "process":
            value *= 1 - PROCESS_SHARE
        return StepResult(
            observation=f"{'Thank you' if is_right else 'That is not it'}. {STOP}",
            reward=value,
            is_terminated=True,
            is_success=is_right,
            reward_terms={"match": value},
        )
