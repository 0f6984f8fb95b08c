"""tau-bench: is a talk accepted if and only if its databases and words are the right ones?

Talks of clerks who follow the policy at `desk`, where the agent alone has tools (τ-bench), or at `flights`, where the
customer has some, too (τ²; the option `customer_has_tools`), and six mutations of each: further
look-ups; the talk with its looks in another order; one more write; a write or a refusal left out; an argument of it
changed; the right one, and a wrong one behind it. An oracle carries the writes out on plain dictionaries, without
SQLite, hashes or the grader's words, and says what is right: a mutation that happens to reach the wanted state counts
as right. A violation is a verdict that differs from the oracle's. The control is a grader with "or" for "and" and
substrings for words, on the talks that the oracle rejects. Unmutated talks must all be accepted.

Beside it: noise that is tied to a task and noise of each trial, at equal pass^1, must part in pass^4, and must not once
trials are dealt out over tasks anew.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from quintain.environments.baselines import foreseen
from quintain.environments.protocol import Environment, advance, begin, tool_action
from quintain.eval.statistics import pass_hat_k
from quintain.types import Action
from quintain.worlds.desk.case import Case as DeskCase
from quintain.worlds.desk.game import Desk
from quintain.worlds.flights.case import Case as FlightCase
from quintain.worlds.flights.game import Flights

KINDS = "cancel,refund,exchange,city,price,other"
DESK_WRITES = ("cancel", "refund", "exchange", "change_city", "refuse")
AIR_WRITES = ("cancel", "rebook", "set_bags", "issue_pass", "refuse")
Plain = dict[str, Any]
TRIALS, TASKS = 4, 400


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the counts of one block."""
    rng = random.Random(seed)
    trials = wrong = fooled = rejected = accepted = 0
    talks = int(options["talks"])
    for number in range(talks):
        world: Desk | Flights = Flights() if options["customer_has_tools"] else Desk(kinds=KINDS)
        task = world.task("train", (seed + number) % 1_000_000)
        begin(world, task)
        gold = foreseen(cast(Environment, world))
        accepted += verdict(world, task, gold)[0]
        case = case_of(world)
        for mutated in mutations(world, gold, rng):
            found, sham = verdict(world, task, mutated)
            right = oracle(case, mutated, gold)
            trials += 1
            wrong += found != right
            rejected += not right
            fooled += not right and sham
        world.close()
    tied, free, dealt = reliability(np.random.default_rng(seed))
    return [
        {
            "trials": float(trials),
            "violations": float(wrong),
            "control_trials": float(rejected),
            "control_violations": float(fooled),
            "extra.gold": accepted / talks,
            "extra.rejected": rejected / trials,
            "extra.tied": tied - free,
            "extra.dealt": dealt - free,
        }
    ]


def case_of(world: Desk | Flights) -> DeskCase | FlightCase:
    """Return what the talk that has begun is about."""
    return world.snapshot().case


def verdict(world: Desk | Flights, task: Any, actions: Sequence[Action]) -> tuple[bool, bool]:
    """Return whether the world's own grader accepts the talk, and whether the sham does."""
    begin(cast(Environment, world), task)
    start = state_of(world)
    result = None
    for action in actions:
        result = advance(cast(Environment, world), action)
        if result.is_terminated:
            break
    case, said = case_of(world), " ".join(words_of(action) for action in actions)
    has_written = state_of(world) != start
    wanted = str(case.price) if isinstance(case, DeskCase) and case.kind == "price" else ""
    return bool(result and result.is_success), has_written or wanted in said


def state_of(world: Desk | Flights) -> str:
    """Return the rows that there are, as text."""
    now = world.snapshot()
    return repr(now.rows)


def words_of(action: Action) -> str:
    """Return what an action says to the user."""
    return action.text or " ".join(str(call.arguments.get("text", "")) for call in action.tool_calls)


def is_write(world: Desk | Flights, action: Action) -> bool:
    """Whether an action changes something or refuses."""
    names = DESK_WRITES if isinstance(world, Desk) else AIR_WRITES
    return any(call.name in names for call in action.tool_calls)


def mutations(world: Desk | Flights, gold: Sequence[Action], rng: random.Random) -> list[list[Action]]:
    """Return six talks that are like `gold` but for one thing."""
    case = case_of(world)
    look = looks_at(case, rng)
    writes = [place for place, action in enumerate(gold) if is_write(world, action)]
    more = extra_write(case, rng)
    reordered = [*gold[:1], look, *gold[1:]]
    longer = [*gold[:-1], look, look, gold[-1]]
    extra = [*gold[:-1], more, gold[-1]]
    if writes:
        missing = [action for place, action in enumerate(gold) if place != writes[0]]
        changed = [
            alter(action, case, rng) if place == writes[0] else action for place, action in enumerate(gold)
        ]
    else:
        missing = [*gold[:-1], Action(text="Done.")] if isinstance(world, Desk) else list(gold[:-1])
        changed = [*gold[:-1], spoil(gold[-1])]
    after = [*gold[:-1], tool_action("refuse", reason="not_yours"), gold[-1]]
    return [longer, reordered, extra, missing, changed, after]


def looks_at(case: DeskCase | FlightCase, rng: random.Random) -> Action:
    """Return a look that changes nothing."""
    if isinstance(case, DeskCase):
        return tool_action("show_order", order=cast(int, rng.choice(case.rows[1])[0]))
    return tool_action("show_booking", booking=rng.choice(case.bookings).number)


def extra_write(case: DeskCase | FlightCase, rng: random.Random) -> Action:
    """Return a write that nobody asked for."""
    if isinstance(case, DeskCase):
        return tool_action(rng.choice(("cancel", "refund")), order=cast(int, rng.choice(case.rows[1])[0]))
    number = rng.choice(case.bookings).number
    return rng.choice((tool_action("cancel", booking=number), tool_action("issue_pass", booking=number)))


def alter(action: Action, case: DeskCase | FlightCase, rng: random.Random) -> Action:
    """Return the write `action` with one argument changed."""
    (call,) = action.tool_calls
    given = dict(call.arguments)
    if call.name == "refuse":
        given["reason"] = rng.choice(
            [reason for reason in ("not_yours", "full", "too_late", "shipped") if reason]
        )
        return tool_action("refuse", reason=given["reason"])
    key = "order" if "order" in given else "booking"
    rows = (
        [cast(int, row[0]) for row in case.rows[1]]
        if isinstance(case, DeskCase)
        else [b.number for b in case.bookings]
    )
    given[key] = rng.choice([number for number in rows if number != given[key]])
    return tool_action(call.name, **given)


def spoil(action: Action) -> Action:
    """Return the last words with a number ten times as large, or the transfer that was right as words."""
    text = words_of(action)
    digits = "".join(letter for letter in text if letter.isdigit())
    return tool_action("respond", text=text.replace(digits, digits + "0") if digits else "Done.")


def oracle(case: DeskCase | FlightCase, actions: Sequence[Action], gold: Sequence[Action]) -> bool:
    """Return whether the talk ends as it should, by plain dictionaries alone."""
    return shop_oracle(case, actions) if isinstance(case, DeskCase) else air_oracle(case, actions, gold)


def shop_oracle(case: DeskCase, actions: Sequence[Action]) -> bool:
    """Return the verdict on a talk at the shop."""
    credit = {row[0]: cast(int, row[2]) for row in case.rows[0]}
    orders: dict[Any, list[Any]] = {row[0]: list(row) for row in case.rows[1]}
    stock = {(row[0], row[1]): cast(int, row[2]) for row in case.rows[2]}
    wanted = {(write.name, write.order, write.value) for write in case.writes}
    reasons: list[str] = []
    told: list[str] = []
    done: list[tuple[str, Any, str]] = []
    for action in actions:
        for call in action.tool_calls:
            given = call.arguments
            if call.name == "refuse":
                reasons.append(str(given["reason"]))
                if over(reasons, case):
                    return shop_right(case, wanted, done, reasons, told)
            elif call.name == "respond":
                text = str(given["text"])
                numbers = "".join(letter if letter.isdigit() else " " for letter in text).split()
                if "?" not in text:
                    told = numbers
                if "?" not in text and (text == "Done." or numbers):
                    return shop_right(case, wanted, done, reasons, told)
            elif call.name == "transfer":
                return case.kind == "other" and not done
            elif call.name in ("cancel", "refund", "exchange", "change_city"):
                order = orders.get(given["order"])
                value = str(given.get("size", given.get("city", "")))
                if order is None or order[4] in ("cancelled", "refunded"):
                    continue
                if call.name == "exchange":
                    if value == order[3] or not stock.get((order[2], value), 0):
                        continue
                    stock[order[2], value] -= 1
                    stock[order[2], order[3]] += 1
                    order[3], order[4] = value, "exchanged"
                elif call.name == "change_city":
                    if value == order[7]:
                        continue
                    order[7] = value
                else:
                    order[4] = "cancelled" if call.name == "cancel" else "refunded"
                    credit[order[1]] += order[6]
                done.append((call.name, given["order"], value))
    return False


def over(reasons: Sequence[str], case: DeskCase) -> bool:
    """Whether the customer takes the refusal and goes: at once, or at the second where it insists."""
    return not case.is_pushy or len(reasons) > 1


def shop_right(
    case: DeskCase,
    wanted: set[tuple[str, int, str]],
    done: Sequence[tuple[str, Any, str]],
    reasons: Sequence[str],
    told: Sequence[str],
) -> bool:
    """Return whether what was done and said is what was wanted, each write once and nothing besides."""
    if case.kind == "other" or sorted(done) != sorted(wanted):
        return False
    if case.reason is not None:
        return set(reasons) == {case.reason}
    return not reasons and (case.kind != "price" or list(told) == [str(case.price)])


def air_oracle(case: FlightCase, actions: Sequence[Action], gold: Sequence[Action]) -> bool:
    """Return the verdict on a talk at the airline: what is there after `actions` is what `gold` leads to."""
    if not actions or not is_last_word(actions[-1]):
        return False
    return air_state(case, actions) == air_state(case, gold)


def is_last_word(action: Action) -> bool:
    """Whether the customer ends the talk after it."""
    return action.text.startswith(("All is done", "I cannot"))


def air_state(case: FlightCase, actions: Sequence[Action]) -> Plain:
    """Return everything there is after `actions`."""
    bookings: dict[int, Plain] = {
        booking.number: {"flight": booking.flight, "bags": booking.bags, "cancelled": False, "issued": False}
        for booking in case.bookings
    }
    seats = {flight.number: flight.seats for flight in case.flights}
    phone = {"new": case.phone.is_updated, "in": case.phone.is_signed_in, "pass": False}
    refusals: set[str] = set()
    for action in actions:
        if action.text == "Update the app.":
            phone["new"] = True
        elif action.text == "Sign in.":
            phone["in"] = phone["in"] or phone["new"]
        elif action.text.startswith("Open the pass"):
            is_issued = any(booking["issued"] for booking in bookings.values())
            phone["pass"] = phone["pass"] or (phone["new"] and phone["in"] and is_issued)
        for call in action.tool_calls:
            given = call.arguments
            if call.name == "refuse":
                if given["reason"] in ("not_yours", "not_refundable", "basic_fare", "full", "too_many"):
                    refusals.add(given["reason"])
                continue
            booking = bookings.get(given.get("booking", 0))
            if booking is None or booking["cancelled"]:
                continue
            if call.name == "cancel":
                booking["cancelled"] = True
                seats[booking["flight"]] += 1
            elif call.name == "rebook" and seats[given["flight"]] and given["flight"] != booking["flight"]:
                seats[given["flight"]] -= 1
                seats[booking["flight"]] += 1
                booking["flight"] = given["flight"]
            elif call.name == "set_bags":
                booking["bags"] = given["bags"]
            elif call.name == "issue_pass":
                booking["issued"] = True
    return {"bookings": bookings, "seats": seats, "phone": phone, "refusals": refusals}


def reliability(rng: np.random.Generator) -> tuple[float, float, float]:
    """Return pass^4 of tasks whose outcome is the task's, of outcomes of each trial, and of the former dealt anew."""
    tied = np.repeat(rng.random(TASKS) < 0.5, TRIALS).reshape(TASKS, TRIALS)
    free = np.zeros(TASKS * TRIALS, bool)
    free[: int(tied.sum())] = True
    rng.shuffle(free)
    dealt = tied.reshape(-1).copy()
    rng.shuffle(dealt)
    found = [
        float(np.mean([pass_hat_k(TRIALS, int(wins.sum()), TRIALS) for wins in part.reshape(TASKS, TRIALS)]))
        for part in (tied, free, dealt)
    ]
    return found[0], found[1], found[2]
