"""A shop's help desk: a database behind tools, a written policy, and a customer who wants something of them.

Family it stands for: tool-agent-user benchmarks such as τ-bench (arXiv 2406.12045). The database after the talk
is compared with the one that the policy leads to; where the policy changes nothing, the right refusal, answer
or transfer is asked for instead. An agent that does nothing is never paid.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal, cast

from quintain.engines.chat_client import Spending
from quintain.environments.dialogue import STOP, Persona
from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.environments.tools import tool
from quintain.errors import UsageError, suggestion
from quintain.rewards.execution import state_reached
from quintain.types import Action, StepResult, Task, ToolSpec, derive_seed
from quintain.worlds.desk.case import KINDS, WINDOWS, Case, Kind, Reason, Shape, draw_case
from quintain.worlds.desk.endpoint import EndpointUser
from quintain.worlds.desk.state import Digests, State, expert_action, is_solved, mistaken_action
from quintain.worlds.desk.store import RefusedWriteError, Store, Write
from quintain.worlds.desk.text import (
    COMMANDS_INSTRUCTION,
    customer_text,
    injection_text,
    order_text,
    policy_text,
    read_command,
    stock_text,
    write_command,
)
from quintain.worlds.desk.user import REFUSAL, Dialogue, ScriptedUser, User

USUAL_KINDS = "cancel,cancel,refund,refund,exchange,exchange,city,city,price,other"
DENSE = {"customer": 0.1, "order": 0.1, "decision": 0.3}
"""What a dense reward pays for on the way; success pays the rest of 1."""
DOWN = "Error: the service is down, try again."
Size = Literal["large", "medium", "small"]


@dataclass(kw_only=True, eq=False)
class Desk(Environment):
    """The policy of the desk is its instruction; see `instructions`."""

    name = "desk"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "planning", "memory", "reasoning"})

    # The options; shares are between 0 and 1.
    customers: int = 3
    orders: int = 3
    """orders of each customer"""
    kinds: str = USUAL_KINDS
    """kinds of wishes with commas, the frequent ones more than once"""
    denied: float = 0.35
    """share of wishes that the policy forbids"""
    vague: float = 0.0
    """share of customers who know the item, not the number of their order"""
    pushy: float = 0.0
    """share of customers who insist once"""
    changes_of_mind: float = 0.0
    """share of customers who want another size or city when they are asked to confirm"""
    mishears: float = 0.0
    """share of messages to which the customer says again what it said last"""
    patience: int = 0
    """messages after which the customer leaves; 0: it stays"""
    hidden: bool = False
    """whether customers do not say at first what they want"""
    varied_policy: bool = False
    """whether the days within which goods may come back are drawn for each task"""
    noisy: bool = False
    """whether all texts are long and hold things that do not matter"""
    tool_failures: float = 0.0
    """share of look-ups and writes that fail"""
    injections: float = 0.0
    """share of orders whose note gives a harmful instruction"""
    dense: bool = False
    """whether the right look-ups and the right decision are paid for, too"""
    max_turns: int = 20
    interface: Literal["tools", "text"] = "tools"
    """JSON tools, or the same as short commands in plain text"""
    user: str = "scripted"
    """``scripted``, or the base URL of an OpenAI-compatible endpoint that plays the customer"""
    user_model: str = "user"
    user_key_file: str = ""
    """a file whose first word is the key of the endpoint"""
    user_deadline: float = 20.0
    """seconds that the endpoint has for a message"""
    user_tape: str = ""
    """a file that keeps what the endpoint says; what it holds is not asked again"""
    user_replays: bool = False
    """whether only the tape is heard, and nothing is asked"""
    user_calls: int = 0
    """questions that desks of a process ask the endpoint together; 0: no limit"""
    user_tokens: int = 0
    """tokens of questions and answers, as the endpoint counts them; 0: no limit"""

    def __post_init__(self) -> None:
        """Check the options and open the shop, which is empty until `reset`.

        Raises:
            UsageError: an option is out of its range.
        """
        shares = (
            self.denied,
            self.vague,
            self.pushy,
            self.changes_of_mind,
            self.mishears,
            self.tool_failures,
            self.injections,
        )
        if not all(0 <= share <= 1 for share in shares) or self.tool_failures == 1:
            raise UsageError(
                f"desk: got the shares {shares}; give numbers from 0 to 1, tool_failures below 1"
            )
        if not 2 <= self.customers <= 9 or not 1 <= self.orders <= 9 or self.max_turns < 1:
            raise UsageError(
                f"desk: got customers={self.customers}, orders={self.orders}, max_turns={self.max_turns}; "
                "give 2 to 9 customers, 1 to 9 orders and at least 1 turn"
            )
        if min(self.user_calls, self.user_tokens, self.patience) < 0:
            raise UsageError(
                f"desk: got user_calls={self.user_calls}, user_tokens={self.user_tokens}, patience={self.patience}; "
                "give no negative numbers"
            )
        self._shape, self._user = self.shape(), self.customer()
        self._store = Store()
        self._state: State | None = None
        self._start = self._goal = ""

    def shape(self) -> Shape:
        """Return how cases are drawn."""
        return Shape(
            customers=self.customers,
            orders=self.orders,
            kinds=_kinds(self.kinds),
            denied=self.denied,
            vague=self.vague,
            pushy=self.pushy,
            changes_of_mind=self.changes_of_mind,
            windows=WINDOWS if self.varied_policy else (30,),
        )

    def customer(self) -> User:
        """Return who plays the customer."""
        if self.user == "scripted":
            return ScriptedUser(is_hidden=self.hidden, is_noisy=self.noisy)
        return EndpointUser(
            self.user,
            model=self.user_model,
            key_file=self.user_key_file,
            deadline=self.user_deadline,
            tape=self.user_tape,
            replays=self.user_replays,
            budget=Spending(calls=self.user_calls or None, tokens=self.user_tokens or None),
        )

    def instructions(self) -> str:
        """Return the written policy, and the commands where they take the place of tools."""
        window = self._state.case.window if self._state else self._shape.windows[0]
        has_confirmation = self._shape.changes_of_mind > 0
        policy = policy_text(window, has_confirmation=has_confirmation, is_noisy=self.noisy)
        return policy + (COMMANDS_INSTRUCTION if self.interface == "text" else "")

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools; none where the desk takes commands."""
        return super().tools() if self.interface == "tools" else ()

    def reset(self, task: Task) -> str:
        """Open the desk for the task's customer and return what they say."""
        case = split_draw(task, lambda rng: draw_case(rng, self._shape))
        self._open(case)
        said = self._user.opening(case).replace(STOP, "").strip()
        self._state = State(case=case, rows=case.rows, dialogue=(("user", said),))
        self._is_done_for_good = False
        return said

    def step(self, action: Action) -> StepResult:
        """Carry out the tool calls, or the command; text without any is said to the customer."""
        if self.interface == "text" and action.error is None and not action.tool_calls:
            action = read_command(action.text)
        elif action.error is None and not action.tool_calls and action.text.strip():
            action = tool_action("respond", text=action.text)
        before = self._now.dialogue, self._store.digest()
        result = super().step(action)
        self._is_done_for_good = (self._now.dialogue, self._store.digest()) != before
        return result if result.is_success is not None else replace(result, is_success=False)

    def can_go_back(self) -> bool:
        """Return whether the last action was a look: what was said to a customer, or changed, stays."""
        return not self._is_done_for_good

    @tool
    def find_customer(self, name: str) -> str:
        """Find a customer's orders."""
        if self._is_down():
            return self.failure(DOWN)
        orders = self._store.customer_orders(name.strip().capitalize())
        if orders is None:
            return "Error: there is no customer of that name."
        if name.strip().capitalize() == self._now.case.name:
            self._see("customer")
        return customer_text(name.strip().capitalize(), orders, is_noisy=self.noisy)

    @tool
    def show_order(self, order: int) -> str:
        """Look at an order."""
        if self._is_down():
            return self.failure(DOWN)
        found = self._store.order(order)
        if found is None:
            return f"Error: there is no order {str(order)[:20]}."
        case = self._now.case
        self._see(str(order))
        if order == case.order:
            self._see("order")
        text = order_text(found, is_noisy=self.noisy)
        if derive_seed("injection", case.name, order) % 1000 < 1000 * self.injections:
            target = min(cast(int, row[0]) for row in case.rows[1] if row[0] != case.order)
            text += injection_text(found, target)
        return text

    @tool
    def check_stock(self, item: str) -> str:
        """Look at what is in stock."""
        if self._is_down():
            return self.failure(DOWN)
        counts = self._store.stock(item.strip().lower())
        if not counts:
            return "Error: there is no such item."
        self._see(f"stock {item.strip().lower()}")
        return stock_text(item.strip().lower(), counts)

    @tool
    def cancel(self, order: int) -> str:
        """Cancel an order."""
        return self._write(Write(name="cancel", order=order))

    @tool
    def refund(self, order: int) -> str:
        """Refund an order."""
        return self._write(Write(name="refund", order=order))

    @tool
    def exchange(self, order: int, size: Size) -> str:
        """Exchange an order for another size."""
        return self._write(Write(name="exchange", order=order, value=size))

    @tool
    def change_city(self, order: int, city: str) -> str:
        """Send an order to another city."""
        return self._write(Write(name="change_city", order=order, value=city.strip().capitalize()[:30]))

    @tool
    def respond(self, text: str) -> str:
        """Say something to the customer."""
        case = self._now.case
        if case.kind == "price" and case.reason is None and "?" not in text:
            numbers = "".join(letter if letter.isdigit() else " " for letter in text).split()
            has_told = numbers == [str(case.price)]
            self._state = replace(self._now, has_told=has_told)
            if has_told:
                self._pay("decision")
        return self._say(text)

    @tool
    def refuse(self, reason: Reason) -> str:
        """Tell the customer that the policy forbids it."""
        self._state = replace(self._now, refusals=(*self._now.refusals, reason))
        if self._now.refusals == (self._now.case.reason,):
            self._pay("decision")
        return self._say(f"{REFUSAL} {reason.replace('_', ' ')}.")

    @tool
    def transfer(self) -> str:
        """Transfer the customer to a colleague."""
        is_right = self._now.case.kind == "other" and self._store.digest() == self._start
        return self._end("Transferred.", is_right)

    def expert_action(self) -> Action:
        """Return the next action of a clerk who follows the policy; after a wrong change it ends the talk."""
        confirms, digests = self._shape.changes_of_mind > 0, self._digests()
        action = expert_action(self._now, digests, self._store, is_hidden=self.hidden, confirms=confirms)
        return self._as_written(action)

    def mistaken_action(self, rng: Random) -> Action:
        """Return a typical mistake of a clerk; see `noisy.Fallible`."""
        return self._as_written(mistaken_action(self._now, rng))

    def privileged(self) -> str:
        """Return what the agent cannot see: the wish, and what the policy says to it."""
        case = self._now.case
        right = (
            f"refuse {case.reason}" if case.reason else ", ".join(map(_write_text, case.writes)) or "answer"
        )
        return f"{case.name}: {case.kind}, order {case.order}; right: {right}"

    def snapshot(self) -> State:
        """Return the episode as a value."""
        return replace(self._now, rows=self._store.rows())

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._open(state.case)
        self._store.load(state.rows)
        self._state = state

    def state_key(self) -> str:
        """Return a hash of the database, the dialogue and what was seen."""
        now = self._now
        parts = (now.dialogue, sorted(now.seen), now.refusals, now.has_told, now.paid, now.num_calls)
        return str(derive_seed(repr(now.case), self._store.digest(), repr(parts)))

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def _as_written(self, action: Action) -> Action:
        """Return `action` as this desk's interface takes it."""
        return action if self.interface == "tools" else write_command(action)

    @property
    def _now(self) -> State:
        assert self._state is not None, "reset comes first"
        return self._state

    def _open(self, case: Case) -> None:
        """Fill the database for `case` and find out where the policy leads to."""
        self._store.load(case.rows)
        self._start, self._goal = self._store.digest(), self._store.digest_after(case.writes)

    def _digests(self) -> Digests:
        return Digests(start=self._start, goal=self._goal, now=self._store.digest())

    def _write(self, write: Write) -> str:
        """Carry out `write` if the database allows it; the policy is the agent's business."""
        if self._is_down():
            return self.failure(DOWN)
        try:
            self._store.write(write)
        except RefusedWriteError as error:
            return f"Error: {error}."
        if state_reached(self._store.digest(), goal=self._goal, start=self._start):
            self._pay("decision")
        return f"Order {write.order}: {write.name} done."

    def _say(self, text: str) -> str:
        """Say `text` to the customer and return the answer; STOP ends the talk and has it graded."""
        asked: Dialogue = (*self._now.dialogue, ("agent", text))
        said = self._ask_user(self._now.case, asked)
        self._state = replace(self._now, dialogue=(*asked, ("user", said)))
        return self._end(said, is_solved(self._now, self._digests())) if STOP in said else said

    def _ask_user(self, case: Case, asked: Dialogue) -> str:
        """Return what the customer says to the last line, as it listens."""
        seed = derive_seed("desk mishears", case.name, case.order, case.price)
        listener = Persona(mishears=self.mishears, patience=self.patience)
        return listener.reply(asked, seed, lambda understood: self._user.reply(case, tuple(understood)))

    def _end(self, said: str, is_right: bool) -> str:
        """End the episode with the text `said`."""
        if is_right:
            value = 1.0 - (sum(DENSE[part] for part in self._now.paid) if self.dense else 0.0)
            self.reward(value, goal=value)
        return self.finish(said, reward=0.0, success=is_right)

    def _pay(self, part: str) -> None:
        """Pay for a step on the way, once."""
        if self.dense and part not in self._now.paid:
            self._state = replace(self._now, paid=(*self._now.paid, part))
            self.reward(DENSE[part], **{part: DENSE[part]})

    def _see(self, *things: str) -> None:
        """Note that `things` were shown, and pay for those that are on the way."""
        self._state = replace(self._now, seen=self._now.seen.union(things))
        for part in things:
            if part in DENSE:
                self._pay(part)

    def _is_down(self) -> bool:
        """Whether this call fails, by a chance that depends on the case and the number of calls alone."""
        if not self.tool_failures:
            return False
        now = self._now
        self._state = replace(now, num_calls=now.num_calls + 1)
        chance = derive_seed("desk failure", now.case.name, now.case.order, now.num_calls)
        return chance % 10_000 < 10_000 * self.tool_failures


def _write_text(write: Write) -> str:
    return f"{write.name} {write.order} {write.value}".strip()


def _kinds(text: str) -> tuple[Kind, ...]:
    """Return the kinds of wishes that `text` lists."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in KINDS:
            raise UsageError(f"desk: got the kind {name!r}; {suggestion(name, KINDS)}")
    return cast("tuple[Kind, ...]", tuple(names))
