"""What the league says of a method as a column: better, not worse, unresolved, worse, or none with the reasons.

A comparison is none where the arms differ in more than the idea, or where nothing could be told apart: other starts,
another world, model, reward or teacher in one arm, other numbers of optimizer steps, a warm-up that is most of a run,
settings that are not the method's defaults, a baseline that hardly learns, values that are the same for every seed.
What cannot be computed from what is stored is a reason, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from quintain.methods.find import find_method
from quintain.methods.imitation.imitation_phase import ImitationPhase
from quintain.methods.loops.offline import Offline
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.loops.replay import Replay
from quintain.methods.loops.rounds import Rounds, no_demonstrations
from quintain.methods.method import MAIN, Method
from quintain_evidence.layers.league import (
    BASELINE,
    METHOD,
    Entry,
    Outcome,
    Values,
    value_of,
)
from quintain_evidence.layers.settings import AMOUNTS, differing
from quintain_evidence.layers.spec import League, Signature
from quintain_evidence.layers.verdict import Check
from quintain_evidence.trials import Trial, makes_own_start, updates_of_step

NONE = "none"
WORST = ("worse", "unresolved", "not worse", "better")
"""Verdicts from the worst."""
VERSIONS = 2
"""How often a comparison, or a claim, may be registered."""
START, STEPS, WARM_UP, GAIN = 0.03, 1.25, 0.1, 0.05
"""Most difference of starts, most ratio of optimizer steps, most share of a run that is warm-up, least gain of a
baseline."""
FALSE_DISCOVERIES = 0.05
PLACES = (
    "environment", "eval_environment", "model", "agent", "seats", "teacher", "expert_noise", "demonstrations",
    "imitation_epochs", "imitation_lr", "temperature", "max_turns", "reward_model",
)  # fmt: skip
"""Settings that make the world, the model, the teacher and the start of an arm."""
HARNESS = ("agent", "seats")
"""Those of them that are a part of the method where they are as it has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is said of a comparison: ``Comparison(verdict="better", baseline="grpo", world="sokoban", …)``."""

    verdict: str
    """one of `WORST`, or none"""
    reasons: tuple[str, ...]
    """why it is none"""
    by_values: str
    """what the values alone say"""
    worst: str
    """the worst that the values of any version say"""
    baseline: str
    world: str
    model: str
    outcome: Outcome
    power: float | None
    """chance that a loss of twice the margin would have been found"""
    loss: float
    """twice the margin"""


def comparison_of(
    signature: Signature,
    entry: Entry,
    outcome: Outcome,
    objective: Sequence[Check] | None,
    values: Values,
    corrected: float | None,
) -> Comparison:
    """Return the column of a registered comparison; `values` are its recorded runs, `corrected` its p-value over all
    versions of all comparisons.
    """
    league = signature.league
    assert league is not None
    reasons = (*stored_reasons(signature, outcome, objective), *reasons_of(entry, league, outcome, values))
    by_values = outcome.verdict
    if by_values == "better" and corrected is not None and corrected > FALSE_DISCOVERIES:
        by_values = "not worse"
    every = [by_values, *(each.verdict for each in outcome.earlier)]
    told = [verdict for verdict in WORST if verdict in every]
    return Comparison(
        verdict=NONE if reasons else by_values,
        reasons=reasons,
        by_values=by_values,
        worst=told[0] if told else "",
        baseline=league.baseline,
        world=league.world,
        model=str(entry.benchmark.shared.get("model", "mini")),
        outcome=outcome,
        power=None if outcome.bound is None else outcome.bound.power(-2 * entry.margin),
        loss=2 * entry.margin,
    )


def stored_reasons(
    signature: Signature, outcome: Outcome, objective: Sequence[Check] | None
) -> Iterator[str]:
    """Yield what of the results as a whole forbids a verdict."""
    if outcome.bound is None:
        yield "not run with six seeds"
    if outcome.version > VERSIONS:
        yield f"version {outcome.version}, where {VERSIONS} are allowed"
    if signature.outdated and "league" in signature.outdated_layers:
        yield "measured before a change of the method"
    if outcome.refused:
        yield f"alarms at the end ({', '.join(outcome.refused)})"
    if objective is None:
        yield "objective not run"
    else:
        for check in objective:
            if not check.has_passed:
                yield f"objective: {check.name}"


def reasons_of(entry: Entry, league: League, outcome: Outcome, values: Values) -> Iterator[str]:
    """Yield what of the two arms forbids a verdict."""
    if outcome.bound is None:
        return
    seen = {arm: [values[arm, 1.0, seed] for seed in range(outcome.bound.num)] for arm in (METHOD, BASELINE)}
    trials = {arm: entry.trial(arm, 0, outcome.rate) for arm in seen}
    methods = {arm: find_method(each.recipe).make(each.config) for arm, each in trials.items()}
    yield from place_reasons(trials, methods, league.idea)
    starts, start_reasons = starts_of(entry, seen, trials, methods)
    yield from start_reasons
    updates = {arm: mean(float(line["updates"]) for line in found) for arm, found in seen.items()}
    low, high = sorted(updates.values())
    if high > STEPS * low and "updates" not in league.idea:
        yield f"optimizer steps differ: {updates[METHOD]:.0f} and {updates[BASELINE]:.0f}"
    for arm, each in trials.items():
        if isinstance(method := methods[arm], OnPolicy) and isinstance(method.companion, ImitationPhase):
            yield f"the updates of rehearsal of the {arm} are not stored"
        rising, steps = warm_up(method, config_of(each)), updates[arm] / updates_of(method, config_of(each))
        if rising > WARM_UP * steps:
            yield f"warm-up of {rising} of {steps:.0f} steps of the {arm}"
    given = {name: value for name, value in config_of(trials[METHOD]).items() if name not in AMOUNTS}
    if others := differing(trials[METHOD].recipe, given, league.idea):
        yield f"not at the defaults: {', '.join(others)}"
    ends = {arm: [value_of(entry, line) for line in found] for arm, found in seen.items()}
    if starts:
        gain = mean(ends[BASELINE]) - mean(starts[BASELINE])
        if gain < GAIN:
            yield f"the baseline gains {gain:+.3f}"
    for arm, found in ends.items():
        if len(set(found)) == 1:
            yield f"every seed of the {arm} ends alike"


def place_reasons(
    trials: Mapping[str, Trial], methods: Mapping[str, Method], idea: Sequence[str]
) -> Iterator[str]:
    """Yield where the arms are of other worlds, models, starts or teachers."""
    first, second = (config_of(trials[arm]) for arm in (METHOD, BASELINE))
    usual = {each.name: each.default for each in fields(trials[METHOD].config)}
    others = [
        name
        for name in PLACES
        if name in first
        and name in second
        and first[name] != second[name]
        and name not in idea
        and not (name in HARNESS and first[name] == usual[name])
    ]
    if others:
        yield f"arms differ in {', '.join(others)}"
    if has_teacher(methods[METHOD]) and not has_teacher(methods[BASELINE]) and "teacher" not in idea:
        yield "the method alone has a teacher after the start"


def has_teacher(method: Method) -> bool:
    """Return whether `method` learns from an expert, or from demonstrations, after the start."""
    if isinstance(method, OnPolicy) and method.companion is not None and method.companion.has_teacher:
        return True
    return method.needs.expert or (isinstance(method, Rounds) and method.base is not no_demonstrations)


def starts_of(
    entry: Entry,
    seen: Mapping[str, Sequence[Mapping[str, Any]]],
    trials: Mapping[str, Trial],
    methods: Mapping[str, Method],
) -> tuple[dict[str, list[float]], list[str]]:
    """Return the values before training of both arms, by seed, and what is wrong with them.

    Where one arm's are not stored they are the other's, if both begin with one policy.
    """
    sign = -1.0 if entry.benchmark.is_lower_better else 1.0
    found: dict[str, list[float]] = {}
    for arm, lines in seen.items():
        curves: list[list[list[float]]] = [line.get("curve") or [] for line in lines]
        if all(len(curve) > 1 and curve[0][0] == 0 for curve in curves):
            found[arm] = [sign * curve[0][1] for curve in curves]
    if len(found) == len(seen):
        apart = mean(found[METHOD]) - mean(found[BASELINE])
        return found, [f"starts differ by {abs(apart):.3f}"] if abs(apart) > START else []
    own = [makes_own_start(methods[arm], trials[arm].config) for arm in seen]
    first, second = (trials[arm] for arm in (METHOD, BASELINE))
    is_one = not any(own) and first.start == second.start
    if not found:
        return {}, ["what the baseline gains is not stored: no arm was evaluated before it began"]
    if is_one:
        (only,) = found.values()
        return dict.fromkeys(seen, only), []
    return {}, ["the start of one arm is not stored"]


def updates_of(method: Method, config: Mapping[str, Any]) -> int:
    """Return the optimizer steps of a step of the run, as they were counted."""
    if isinstance(method, (OnPolicy, Replay)):
        return int(config.get("num_epochs", 1)) * int(config.get("num_minibatches", 1))
    return updates_of_step(config)


def warm_up(method: Method, config: Mapping[str, Any]) -> int:
    """Return the steps over which the learning rate rises."""
    if config.get("lr_schedule", "method") != "method":
        return int(config.get("lr_warmup", 0))
    if isinstance(method, OnPolicy):
        return method.update.lr_warmup
    if isinstance(method, Rounds):
        return 0 if method.steps is not None else method.update.lr_warmup
    if isinstance(method, Replay):
        return max((each.update.lr_warmup for each in method.updates if each.policy == MAIN), default=0)
    if isinstance(method, Offline):
        return next((step - 1 for step in range(1, 1_000) if method.lr_schedule(step) >= 1), 0)
    return 0


def config_of(chosen: Trial) -> dict[str, Any]:
    """Return the configuration of a run, by name."""
    return {name: getattr(chosen.config, name) for name in chosen.config.__dataclass_fields__}


def mean(values: Any) -> float:
    """Return the mean of `values`."""
    found = list(values)
    return sum(found) / len(found)
