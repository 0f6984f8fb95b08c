"""An airline's help desk whose customers have a phone that the agent cannot touch.

Family it stands for: the airline domain of τ-bench (arXiv 2406.12045) and dual control as in τ²-bench (2506.07982): a
boarding pass appears only where the agent has issued it and the customer has updated the app, signed in and opened it.
The runner, the verdict and the end of a talk are `quintain.environments.dialogue`'s.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal, cast

from quintain.environments.dialogue import Call, Line, Persona, Service, Talk, Wanted
from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.environments.tools import tool
from quintain.errors import UsageError, suggestion
from quintain.types import Action, StepResult, Task, derive_seed
from quintain.worlds.flights.case import KINDS, MAX_BAGS, Case, Kind, Reason, draw_case
from quintain.worlds.flights.store import Dumped, Store
from quintain.worlds.flights.user import Customer

POLICY = (
    "You are the help desk of an airline. Ask for name and booking and look at the booking before you act. Policy: "
    "act only on the customer's own bookings (else refuse: not_yours). Cancel within 1 day of booking, or if it is "
    "insured, or of the fare business (else: not_refundable). Rebook no basic fare (basic_fare), and only to a flight "
    f"with free seats (else: full). At most {MAX_BAGS} bags (else: too_many). The first reason that holds is the one "
    "to give. Who finds no boarding pass: issue it, then have the customer update the app, sign in and open the pass "
    "on the phone. When all is done, or refused, say so."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """An episode: ``State(case=case, rows=…, lines=(("user", "I want …"),), calls=(), turn=0)``."""

    case: Case
    rows: Dumped
    lines: tuple[Line, ...]
    calls: tuple[Call, ...]
    turn: int


class Flights(Service):
    """The policy of the desk is its instruction; see `instructions`."""

    name = "flights"

    def __init__(
        self,
        *,
        kinds: str = "cancel,rebook,bags,pass",
        denied: float = 0.3,
        hidden: bool = False,
        mishears: float = 0.0,
        patience: int = 0,
        max_turns: int = 20,
    ) -> None:
        """Open the desk, which is empty until `reset`.

        Args:
            kinds: kinds of wishes with commas, the frequent ones more than once.
            denied: share of wishes that the policy forbids.
            hidden: whether customers do not say at first what they want.
            mishears: share of messages to which the customer says again what it said last.
            patience: messages after which the customer leaves; 0: it stays.
            max_turns: turns after which the talk is cut.

        Raises:
            UsageError: an option is out of its range.
        """
        if not (0 <= denied <= 1 and 0 <= mishears <= 1) or patience < 0 or max_turns < 1:
            raise UsageError(
                f"flights: got denied={denied}, mishears={mishears}, patience={patience}, max_turns={max_turns}; give "
                "shares from 0 to 1, no negative patience and at least 1 turn"
            )
        self._kinds = _kinds(kinds)
        self.denied, self.hidden, self.max_turns = denied, hidden, max_turns
        self._persona = Persona(mishears=mishears, patience=patience)
        self._store, self._reference = Store(), Store()
        self._case: Case | None = None

    def instructions(self) -> str:
        """Return the written policy."""
        return POLICY

    def open(self, task: Task) -> Talk:
        """Return the talk of the case that the task draws."""
        case = split_draw(task, lambda rng: draw_case(rng, self._kinds, self.denied))
        return self._open(case)

    def _open(self, case: Case) -> Talk:
        """Fill both databases for `case`."""
        self._case = case
        for store in (self._store, self._reference):
            store.load(case.flights, case.bookings, case.phone)
        is_dual = case.kind == "pass" and case.reason is None
        wanted = Wanted(
            basis=("database", "assertions") if is_dual else ("database",),
            calls=case.calls,
            assertions=({"pass": True},) if is_dual else (),
        )
        user = Customer(case=case, persona=self._persona, is_hidden=self.hidden)
        return Talk(domain=self._store, reference=self._reference, wanted=wanted, user=user)

    def _carry_out(self, action: Action) -> StepResult:
        """Return what the tools, which are methods, come to."""
        return Environment.step(self, action)

    @tool
    def find_customer(self, name: str) -> str:
        """Find a customer's bookings."""
        return self.use("find_customer", name=name.strip().capitalize())

    @tool
    def show_booking(self, booking: int) -> str:
        """Look at a booking."""
        return self.use("show_booking", booking=booking)

    @tool
    def show_flight(self, flight: int) -> str:
        """Look at a flight."""
        return self.use("show_flight", flight=flight)

    @tool
    def cancel(self, booking: int) -> str:
        """Cancel a booking."""
        return self.use("cancel", booking=booking)

    @tool
    def rebook(self, booking: int, flight: int) -> str:
        """Move a booking to another flight."""
        return self.use("rebook", booking=booking, flight=flight)

    @tool
    def set_bags(self, booking: int, bags: Literal[0, 1, 2, 3, 4, 5]) -> str:
        """Set how many bags a booking has."""
        return self.use("set_bags", booking=booking, bags=bags)

    @tool
    def issue_pass(self, booking: int) -> str:
        """Issue the boarding pass of a booking."""
        return self.use("issue_pass", booking=booking)

    @tool
    def refuse(self, reason: Reason) -> str:
        """Note that the policy forbids it; then tell the customer."""
        return self.use("refuse", reason=reason)

    def expert_action(self) -> Action:
        """Return the next action of a clerk who follows the policy."""
        case = self._now_case
        made = {call.name for call in self._calls}
        asked = " ".join(self._own_words())
        if "Who are you" not in asked:
            return Action(text="Who are you, and which booking is it?")
        if "find_customer" not in made:
            return tool_action("find_customer", name=case.name)
        if "show_booking" not in made:
            return tool_action("show_booking", booking=case.number)
        if (
            case.kind == "rebook"
            and case.reason not in ("not_yours", "basic_fare")
            and "show_flight" not in made
        ):
            return (
                tool_action("show_flight", flight=case.flight)
                if "Which flight" in asked
                else Action(text="Which flight?")
            )
        if case.kind == "bags" and "How many" not in asked:
            return Action(text="How many bags?")
        for call in self._open_calls():
            if call.by == "agent":
                return tool_action(call.name, **call.arguments)
            told = {
                "update_app": "Update the app.",
                "sign_in": "Sign in.",
                "get_pass": "Open the pass on your phone.",
            }
            return Action(text=told[call.name])
        return Action(text="I cannot do that, the policy forbids it." if case.reason else "All is done.")

    def mistaken_action(self, rng: Random) -> Action:
        """Return a typical mistake of a clerk; see `noisy.Fallible`."""
        case = self._now_case
        return rng.choice(
            (
                tool_action("show_booking", booking=rng.choice(case.bookings).number),
                tool_action("cancel", booking=case.number),
                tool_action("issue_pass", booking=case.number),
                tool_action("refuse", reason="not_yours"),
                Action(text="All is done."),
            )
        )

    def snapshot(self) -> State:
        """Return the episode as a value."""
        return State(
            case=self._now_case,
            rows=self._store.dump(),
            lines=tuple(self._lines),
            calls=tuple(self._calls),
            turn=self._turn,
        )

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._talk = self._open(state.case)
        self._store.fill(state.rows)
        self._lines, self._calls, self._turn = list(state.lines), list(state.calls), state.turn

    def state_key(self) -> str:
        """Return a hash of the databases, what was said and what was looked at."""
        looked = sorted(repr(call) for call in self._calls)
        return str(
            derive_seed(repr(self._now_case), repr(self._store.digests()), repr((self._lines, looked)))
        )

    def close(self) -> None:
        """Close the databases."""
        self._store.close()
        self._reference.close()

    @property
    def _now_case(self) -> Case:
        assert self._case is not None, "reset comes first"
        return self._case


def _kinds(text: str) -> tuple[Kind, ...]:
    """Return the kinds of wishes that `text` lists."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in KINDS:
            raise UsageError(f"flights: got the kind {name!r}; {suggestion(name, KINDS)}")
    return cast("tuple[Kind, ...]", tuple(names))
