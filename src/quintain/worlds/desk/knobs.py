"""The knobs of `desk`: how large the shop is, how difficult its customers, and who plays them."""

from dataclasses import dataclass
from typing import Literal, cast

from quintain.environments.protocol import Environment
from quintain.errors import UsageError, suggestion
from quintain.worlds.desk.case import KINDS, WINDOWS, Kind, Shape
from quintain.worlds.desk.endpoint import EndpointUser
from quintain.worlds.desk.user import ScriptedUser, User

USUAL_KINDS = "cancel,cancel,refund,refund,exchange,exchange,city,city,price,other"


@dataclass(kw_only=True, eq=False)
class DeskKnobs(Environment):
    """What a desk is built with; shares are between 0 and 1.

    Raises:
        UsageError: a knob is out of its range.
    """

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

    def __post_init__(self) -> None:
        """Check the knobs."""
        shares = (
            self.denied,
            self.vague,
            self.pushy,
            self.changes_of_mind,
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
            self.user, model=self.user_model, key_file=self.user_key_file, deadline=self.user_deadline
        )


def _kinds(text: str) -> tuple[Kind, ...]:
    """Return the kinds of wishes that `text` lists."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in KINDS:
            raise UsageError(f"desk: got the kind {name!r}; {suggestion(name, KINDS)}")
    return cast("tuple[Kind, ...]", tuple(names))
