"""An episode at the desk as a value, when it is solved, and what the clerk who follows the policy does next."""

from dataclasses import dataclass
from random import Random
from typing import cast, get_args

from quintain.environments.protocol import tool_action
from quintain.types import Action
from quintain.worlds.desk.case import Case, Reason
from quintain.worlds.desk.store import Rows, Store
from quintain.worlds.desk.user import Dialogue, Topic, has_asked


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """An episode: ``State(case=..., rows=..., dialogue=(("user", "I want ..."),))``."""

    case: Case
    rows: Rows
    dialogue: Dialogue
    seen: frozenset[str] = frozenset()
    """what tools have shown: customer, orders by number, stock"""
    refusals: tuple[Reason, ...] = ()
    has_told: bool = False
    """whether the last number said was the right price and nothing else"""
    paid: tuple[str, ...] = ()
    num_calls: int = 0
    """calls that could have failed, for the chance of the next"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Hashes of the database: at the start, where the policy leads to, and now."""

    start: str
    goal: str
    now: str


def is_solved(state: State, digests: Digests) -> bool:
    """Whether the talk, if it ends here with the customer's STOP, came to what the policy asks for."""
    case = state.case
    if case.kind == "other" or digests.now != digests.goal:
        return False
    if case.reason is not None:
        return bool(state.refusals) and set(state.refusals) == {case.reason}
    return not state.refusals and (case.kind != "price" or state.has_told)


def expert_action(state: State, digests: Digests, store: Store, *, is_hidden: bool, confirms: bool) -> Action:
    """Return the clerk's next action; after a wrong change it ends the talk."""
    case = state.case
    if digests.now not in (digests.start, digests.goal):
        return tool_action("respond", text="Done.")
    if is_hidden and not has_asked(state.dialogue, "wish"):
        return tool_action("respond", text="What do you want?")
    if case.kind == "other":
        return tool_action("transfer")
    return _look(state, store) or _decision(state, digests, confirms)


def mistaken_action(state: State, rng: Random) -> Action:
    """Return a clerk's typical mistake: looks up the wrong thing, gives in, refuses wrongly or stops early."""
    case = state.case
    number = rng.choice([case.order, *(cast(int, row[0]) for row in case.rows[1])])
    name = rng.choice([cast(str, row[1]) for row in case.rows[0]])
    return rng.choice(
        (
            tool_action("find_customer", name=name),
            tool_action("show_order", order=number),
            tool_action("cancel", order=number),
            tool_action("refund", order=case.order),
            tool_action("refuse", reason=rng.choice(get_args(Reason))),
            tool_action("respond", text="Done."),
        )
    )


def _look(state: State, store: Store) -> Action | None:
    """Return the next question or look that finds customer and order, None when they are found."""
    case = state.case
    if not has_asked(state.dialogue, "name"):
        return tool_action("respond", text="What is your name?")
    if "customer" not in state.seen:
        return tool_action("find_customer", name=case.name)
    if not has_asked(state.dialogue, "order"):
        return tool_action("respond", text="Which order?")
    if "order" in state.seen:
        return None
    known = (store.customer_orders(case.name) or ()) if case.is_vague else (case.order,)
    return next(tool_action("show_order", order=number) for number in known if str(number) not in state.seen)


def _decision(state: State, digests: Digests, confirms: bool) -> Action:
    """Return what to do with an order that was looked at."""
    case = state.case
    if case.reason is not None and case.reason != "no_stock":
        return tool_action("refuse", reason=case.reason)
    if case.kind == "price":
        return tool_action("respond", text=f"It was {case.price}.")
    if digests.now == digests.goal and digests.goal != digests.start:
        return tool_action("respond", text="Done.")
    topics: dict[str, Topic] = {"exchange": "size", "city": "city"}
    topic = topics.get(case.kind)
    if topic and not has_asked(state.dialogue, topic):
        return tool_action("respond", text=f"Which {topic}?")
    if case.kind == "exchange" and f"stock {case.item}" not in state.seen:
        return tool_action("check_stock", item=case.item)
    if case.reason == "no_stock":
        return tool_action("refuse", reason=case.reason)
    if confirms and not has_asked(state.dialogue, "confirm"):
        return tool_action("respond", text="Shall I go ahead?")
    (write,) = case.writes
    if write.name == "exchange":
        return tool_action("exchange", order=write.order, size=write.value)
    if write.name == "change_city":
        return tool_action("change_city", order=write.order, city=write.value)
    return tool_action(write.name, order=write.order)
