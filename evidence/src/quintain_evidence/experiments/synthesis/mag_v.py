"""MAG-V: do features of two trajectories, one on a question made of the other's end, tell right from wrong?

Talks at `desk` (nothing is forbidden, half of the customers are vague) by an assistant who errs in a share of its
turns. A reverse engineer reads which rows have changed and writes a back-question; the assistant answers that in the
same shop. The classifier is fitted on other seeds by distant supervision: talks of a clerk, with and without a further
look, and talks into which an error was planted (the write left out, on another order, of another kind). The number is
the area under ROC on the assistant's talks, labelled by the database, and on planted ones of held-out seeds. In the
control each talk is compared with the back-question of another seed of the same kind. The rival looks at the likeness
of answers alone: of what was last said to the customer. In the null world both classes are right: talks with a further
look early on or late, which of them is called wrong is drawn for each seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

from quintain.environments.baselines import foreseen
from quintain.environments.protocol import Environment, advance, begin, tool_action
from quintain.methods.synthesis.mag_v import Asked, features_of, fit
from quintain.rewards.trajectory_features import NAMES, Told
from quintain.rewards.verifier import Verifier, area_under_roc
from quintain.types import Action, derive_seed
from quintain.worlds.desk.case import Case, Kind, verdict
from quintain.worlds.desk.game import Desk
from quintain.worlds.desk.state import State
from quintain.worlds.desk.store import Order, Rows

OPTIONS: Mapping[str, Any] = {"denied": 0.0, "vague": 0.5, "kinds": "cancel,refund,exchange,city"}
MAX_TURNS = 16
WRITES = ("cancel", "refund", "exchange", "change_city")
Choose = Callable[[Desk, int], Action | None]
"""What is done in a turn; None: nothing is left to do"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A talk: ``Played(told=…, rows=…, is_success=True)``."""

    told: Told
    rows: Rows
    is_success: bool


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` replications."""
    return [
        replication(options, derive_seed("mag_v", seed, number)) for number in range(int(options["seeds"]))
    ]


def replication(options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return the areas of one classifier, its control, and its rival."""
    desk, rng, noise = Desk(**OPTIONS), Random(seed), float(options["noise"])
    first = seed % 1_000_000
    train = [case_of(desk, first + number) for number in range(int(options["train"]))]
    test = [case_of(desk, first + len(train) + number) for number in range(int(options["test"]))]
    planted = [asked for case in train for asked in plant(desk, case, rng)]
    tried = [ask_back(desk, case, err(noise, rng), err(noise, rng), case.name) for case in test]
    kinds = [case.kind for case in test]
    for case in test[::4]:
        errors = plant(desk, case, rng)
        tried += errors
        kinds += [case.kind] * len(errors)
    flips = [rng.random() < 0.5 for _ in test]
    null = [
        replace(
            ask_back(desk, case, look_further(desk, case, rng, is_late=is_late), follow, case.name),
            label=is_late ^ flips[number],
        )
        for number, case in enumerate(test[: int(options["null"])])
        for is_late in (False, True)
    ]
    verifier = fit(planted)
    null_kinds = [case.kind for case in test for _ in range(2)][: len(null)]
    other, null_other = (derange(part, own, rng) for part, own in ((tried, kinds), (null, null_kinds)))
    desk.close()
    answer = NAMES.index("answer")
    return {
        "method": area(verifier, tried),
        "control": area(verifier, other),
        "null_method": area(verifier, null),
        "null_control": area(verifier, null_other),
        "extra.answer": area_under_roc([row[answer] for row in features_of(tried)], labels_of(tried)),
        "extra.success": sum(labels_of(tried)) / len(tried),
    }


def case_of(desk: Desk, number: int) -> Case:
    """Return the case of a task."""
    begin(desk, desk.task("train", number))
    return desk.snapshot().case


def labels_of(asked: Sequence[Asked]) -> list[bool]:
    """Return what is known of each."""
    return [bool(each.label) for each in asked]


def area(verifier: Verifier, asked: Sequence[Asked]) -> float:
    """Return the area under ROC of the verifier."""
    return area_under_roc(verifier.score(features_of(asked)).tolist(), labels_of(asked))


def derange(asked: Sequence[Asked], kinds: Sequence[str], rng: Random) -> list[Asked]:
    """Return `asked` with the back-trajectory of another seed of the same kind; one that is alone keeps its own."""
    found = list(asked)
    for kind in sorted(set(kinds)):
        places = [place for place, own in enumerate(kinds) if own == kind]
        rng.shuffle(places)
        for place, other in zip(places, [*places[1:], *places[:1]], strict=True):
            found[place] = replace(asked[place], back=asked[other].back)
    return found


def follow(desk: Desk, _: int) -> Action | None:
    """Do what the clerk does."""
    return desk.expert_action()


def err(noise: float, rng: Random) -> Choose:
    """Return an assistant who errs in a share of its turns."""
    return lambda desk, _: desk.mistaken_action(rng) if rng.random() < noise else desk.expert_action()


def repeat(actions: Sequence[Action]) -> Choose:
    """Return who does `actions`, and nothing after."""
    return lambda _, turn: actions[turn] if turn < len(actions) else None


def look_further(desk: Desk, case: Case, rng: Random, *, is_late: bool) -> Choose:
    """Return the clerk who looks at one order more, early on or before it ends the talk."""
    gold = clerk(desk, case)
    place = len(gold) - 1 if is_late else 2
    look = tool_action("show_order", order=cast(int, rng.choice(case.rows[1])[0]))
    return repeat([*gold[:place], look, *gold[place:]])


def clerk(desk: Desk, case: Case) -> list[Action]:
    """Return what the clerk does in `case`."""
    open_talk(desk, case)
    return foreseen(cast(Environment, desk))


def plant(desk: Desk, case: Case, rng: Random) -> list[Asked]:
    """Return talks of which is known, by how they are made, whether they are right."""
    gold = clerk(desk, case)
    place = next(
        n for n, action in enumerate(gold) if action.tool_calls and action.tool_calls[0].name in WRITES
    )
    (call,) = gold[place].tool_calls
    others = [cast(int, row[0]) for row in case.rows[1] if row[0] != case.order]
    elsewhere = tool_action(call.name, **{**call.arguments, "order": rng.choice(others)})
    kind = rng.choice([name for name in ("cancel", "refund") if name != call.name])
    otherwise = tool_action(kind, order=case.order)
    made: list[tuple[Choose, bool]] = [
        (repeat(gold), True),
        (look_further(desk, case, rng, is_late=rng.random() < 0.5), True),
        (repeat([*gold[:place], *gold[place + 1 :]]), False),
        (repeat([*gold[:place], elsewhere, *gold[place + 1 :]]), False),
        (repeat([*gold[:place], otherwise, *gold[place + 1 :]]), False),
    ]
    return [replace(ask_back(desk, case, choose, follow, case.name), label=label) for choose, label in made]


def ask_back(desk: Desk, case: Case, choose: Choose, again: Choose, seed: str) -> Asked:
    """Return the talk of `case` with that of the back-question, and the database's verdict on the former."""
    first = play(desk, case, choose)
    back_case = read_back(case, first.rows)
    nothing = Told(question="", calls=(), answer="")
    back = nothing if back_case is None else play(desk, back_case, again).told
    return Asked(seed=seed, first=first.told, back=back, label=first.is_success)


def read_back(case: Case, rows: Rows) -> Case | None:
    """Return the case that asks for what has changed, as the rows alone tell; None where nothing has."""
    names = {row[0]: str(row[1]) for row in case.rows[0]}
    for before, after in zip(case.rows[1], rows[1], strict=True):
        if before == after:
            continue
        number, customer, item, size, status, days, price, city = before
        kind: Kind = "refund"
        value = ""
        if after[4] == "cancelled":
            kind = "cancel"
        elif after[3] != size:
            kind, value = "exchange", str(after[3])
        elif after[7] != city:
            kind, value = "city", str(after[7])
        order = Order(
            id=cast(int, number), customer=names[customer], item=str(item), size=str(size),
            status=cast(Any, status), days=cast(int, days), price=cast(int, price), city=str(city),
        )  # fmt: skip
        stock = {(row[0], row[1]): cast(int, row[2]) for row in case.rows[2]}
        reason = verdict(order, case.name, kind, case.window, stock.get((item, value), 0) > 0)
        return replace(
            case, kind=kind, order=order.id, item=order.item, price=order.price, value=value, first_value=value,
            reason=reason, is_vague=False,
        )  # fmt: skip
    return None


def open_talk(desk: Desk, case: Case) -> None:
    """Open the desk for `case`."""
    desk.restore(State(case=case, rows=case.rows, dialogue=(("user", "Hello."),)))


def play(desk: Desk, case: Case, choose: Choose) -> Played:
    """Return the talk of `case`."""
    open_talk(desk, case)
    calls: list[tuple[str, Mapping[str, Any]]] = []
    answer, is_success = "", False
    for turn in range(MAX_TURNS):
        action = choose(desk, turn)
        if action is None:
            break
        result = advance(cast(Environment, desk), action)
        for call in action.tool_calls:
            if call.name == "respond":
                answer = str(call.arguments["text"])
            else:
                calls.append((call.name, dict(call.arguments)))
        if result.is_terminated:
            is_success = bool(result.is_success)
            break
    thing = f"the {case.item}" if case.is_vague else f"order {case.order}"
    question = f"{case.kind} {thing} {case.value}".strip()
    told = Told(question=question, calls=tuple(calls), answer=answer)
    return Played(told=told, rows=desk.snapshot().rows, is_success=is_success)
