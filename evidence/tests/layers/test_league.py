"""The league: one rate, tasks by seed, a sequence that spends its error, bounds over all arms of a baseline."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.environments.catalog import find
from quintain.errors import UsageError
from quintain_evidence.layers import league as league_module
from quintain_evidence.layers.audits import audit_objective
from quintain_evidence.layers.inference import Look
from quintain_evidence.layers.league import (
    BASELINE,
    METHOD,
    REPEAT,
    TASKS_APART,
    Entry,
    Season,
    chosen_entries,
    entries,
    entry_of,
    outcome_of,
)
from quintain_evidence.layers.records import append, formulas_key, found_of, lines, record
from quintain_evidence.layers.spec import Signature, signatures
from quintain_evidence.layers.verdict import Check
from quintain_evidence.trials import ENOUGH, Benchmark

SMALL: dict[str, Any] = {
    "model": "micro", "demonstrations": 2, "imitation_epochs": 1, "steps": 2, "eval_every": 1, "eval_episodes": 2,
    "tasks": 1, "group_size": 2, "max_env_steps": 3, "max_sampled_tokens": None,
}  # fmt: skip


def entry(row: str = "one", **fields: Any) -> Entry:
    given: dict[str, Any] = {
        "recipe": "rloo", "baseline": "grpo", "environment": "guess?max_turns=1&high=3", 
        "shared": SMALL, "settings": {"kl_coef": 0.0}, **fields,
    }  # fmt: skip
    return Entry(row=row, benchmark=Benchmark(name=row, **given), seeds=10, settings={"eval_episodes": 2})


def put(
    folder: Path, of: Entry, arm: str, values: Sequence[float], *, factor: float = 1.0, **fields: Any
) -> None:
    """Append runs of an arm, one a seed."""
    for seed, value in enumerate(values):
        line = {
            "layer": "league", "row": of.row, "spec": of.digest(), "version": 1, "arm": arm, "factor": factor,
            "seed": seed, "rate": 1e-3, "value": value, "area": value, "turns": 100, "tokens": 200, "updates": 7,
            "seconds": 1.0, "alarms": [], "command": "again", "run": f"{arm}-{factor}-{seed}", **fields,
        }  # fmt: skip
        append(folder, of.row, line)


BASE = [0.50, 0.52, 0.48, 0.51, 0.49, 0.50, 0.53, 0.47, 0.50, 0.50]


def shifted(by: float, noise: float = 0.01, num: int = 10) -> list[float]:
    return [value + by + noise * (1 if k % 2 else -1) for k, value in enumerate(BASE[:num])]


@pytest.mark.parametrize(
    ("values", "verdict", "num", "is_complete"),
    [
        (shifted(0.2, num=6), "better", 6, True),
        (shifted(-0.2, num=6), "worse", 6, True),
        (shifted(0.0005, 0.01), "not worse", 10, True),
        (shifted(0.02, 0.3), "unresolved", 10, True),
        (shifted(-0.001, 0.01, num=6), "not worse", 6, False),
        (shifted(-0.04, 0.04, num=6), "worse", 6, False),
        (shifted(0.02, 0.3, num=6), "unresolved", 6, False),
        (shifted(0.2, num=5), "unfinished", None, False),
    ],
)
def test_verdicts(
    tmp_path: Path, values: list[float], verdict: str, num: int | None, is_complete: bool
) -> None:
    """What ends before its last look has all that is left of the error, and is no verdict that nobody asked for."""
    one = entry()
    put(tmp_path, one, METHOD, values)
    put(tmp_path, one, BASELINE, BASE[: len(values)])
    found = outcome_of(one, [one], tmp_path)
    assert (found.verdict, found.bound.num if found.bound else None) == (verdict, num)
    assert found.is_complete == is_complete
    assert found.look is None or found.look.alpha == pytest.approx(
        {6: 0.01 if is_complete else 0.05, 10: 0.04}[num or 6]
    )


def test_an_outcome_tells_budgets_signs_and_noise(tmp_path: Path) -> None:
    one = entry()
    put(tmp_path, one, METHOD, shifted(0.2, num=6))
    put(tmp_path, one, BASELINE, BASE[:6])
    put(tmp_path, one, REPEAT, [value + 0.01 for value in BASE[:6]])
    for factor, gain in ((0.5, 0.1), (2.0, -0.1)):
        for arm, value in ((METHOD, 0.5 + gain), (BASELINE, 0.5)):
            for seed in league_module.TUNING:
                line = {
                    **lines(tmp_path, "one")[0],
                    "arm": arm,
                    "factor": factor,
                    "seed": seed,
                    "value": value,
                }
                append(tmp_path, "one", line)
    found = outcome_of(one, [one], tmp_path)
    assert found.signs == pytest.approx({0.5: 0.1, 2.0: -0.1})
    assert found.verdict == "unresolved", "at double the rate it is worse"
    assert found.again is not None and found.again.mean == pytest.approx(0.01)
    assert found.used[METHOD] == {"turns": 100, "tokens": 200, "updates": 7, "seconds": 1.0}
    assert found.arms[BASELINE].mean == pytest.approx(0.5)
    assert (found.rate, found.command, found.version) == (1e-3, "again", 1)


@pytest.mark.parametrize(
    ("gain", "before", "after"), [(0.2, "not worse", "better"), (-0.2, "worse", "worse")]
)
def test_a_claim_waits_for_the_runs_at_other_rates(
    tmp_path: Path, gain: float, before: str, after: str
) -> None:
    one = entry(rates=(1e-3,))
    put(tmp_path, one, METHOD, shifted(gain, num=6))
    put(tmp_path, one, BASELINE, BASE[:6])
    for arm, factor, seed in league_module.elsewhere():
        found = outcome_of(one, [one], tmp_path)
        assert (found.verdict, found.is_claimed) == (before, True)
        own = {"value": 0.5 + gain if arm == METHOD else 0.5, "seed": seed, "factor": factor}
        append(tmp_path, "one", {**lines(tmp_path, "one")[0], "arm": arm, **own})
    assert outcome_of(one, [one], tmp_path).verdict == after


def test_what_is_lower_is_turned_and_alarms_refuse(tmp_path: Path) -> None:
    fewer = entry(is_lower_better=True)
    put(tmp_path, fewer, METHOD, shifted(-0.2, num=6))
    put(tmp_path, fewer, BASELINE, BASE[:6])
    found = outcome_of(fewer, [fewer], tmp_path)
    assert found.verdict == "better" and found.arms[METHOD].mean == pytest.approx(0.3)
    refused = entry("two")
    put(tmp_path, refused, METHOD, shifted(0.2, num=6), alarms=["hacking", "entropy"])
    put(tmp_path, refused, BASELINE, BASE[:6])
    found = outcome_of(refused, [refused], tmp_path)
    assert (found.verdict, found.refused) == ("better", ("method: hacking",))
    passed = entry("three")
    put(tmp_path, passed, METHOD, shifted(0.2, num=6), alarms=["length"], alarms_at_end=[])
    put(tmp_path, passed, BASELINE, BASE[:6])
    assert outcome_of(passed, [passed], tmp_path).refused == (), "it went over before the end"


def test_versions_before_stay(tmp_path: Path) -> None:
    first, second, third = entry(), entry(settings={"kl_coef": 0.1}), entry(settings={"kl_coef": 0.2})
    for each, gain, alarms in ((first, 0.1, ["length"]), (second, -0.2, [])):
        put(tmp_path, each, METHOD, [value + gain for value in BASE[:6]], alarms=alarms)
        put(tmp_path, each, BASELINE, BASE[:6])
        put(tmp_path, each, BASELINE, BASE[:1], factor=2.0)
    found = outcome_of(third, [third], tmp_path)
    assert (found.version, found.verdict, found.seconds) == (3, "unfinished", {})
    assert [(e.version, e.num, e.refused) for e in found.earlier] == [(1, 6, ("method: length",)), (2, 6, ())]
    assert [e.mean for e in found.earlier] == pytest.approx([0.1, -0.2])
    assert [e.verdict for e in found.earlier] == ["better", "worse"]
    assert all(e.p_value is not None for e in found.earlier)
    again = outcome_of(second, [second], tmp_path)
    assert [e.version for e in again.earlier] == [1] and len(again.seconds) == 13
    put(tmp_path, second, REPEAT, BASE[:1], processor_seconds=0.25)
    assert sum(outcome_of(second, [second], tmp_path).seconds.values()) == 13.25
    fewer = entry(is_lower_better=True)
    assert [e.mean for e in outcome_of(fewer, [fewer], tmp_path).earlier] == pytest.approx([-0.1, 0.2])


def test_bounds_are_of_all_arms_of_a_baseline(tmp_path: Path) -> None:
    many = [entry(f"row{k}", settings={"kl_coef": k / 10}) for k in range(5)]
    for each in many:
        put(tmp_path, each, METHOD, shifted(0.04, 0.02, num=6))
        put(tmp_path, each, BASELINE, BASE[:6])
    alone = outcome_of(many[0], many[:1], tmp_path).bound
    among = outcome_of(many[0], many, tmp_path).bound
    other = outcome_of(many[0], [many[0], entry("far", environment="guess?high=9")], tmp_path).bound
    assert alone is not None and among is not None and alone.mean == among.mean
    assert other == alone, "another world has another baseline"
    assert among.low != alone.low


def test_runs_on_tuning_tasks_start_from_the_first_policies_and_are_judged_at_their_end() -> None:
    one, seed = entry(), league_module.TUNING[1]
    tried, base = one.trial(METHOD, seed, 1e-3), one.trial(METHOD, 1, 1e-3)
    assert tried.start == base.start and tried.name != base.name
    assert tried.config.task_offset == seed * TASKS_APART
    assert (tried.config.eval_start, base.config.eval_start) == (False, True)
    assert tried.config.eval_every > tried.config.steps
    assert (
        replace(one, benchmark=replace(one.benchmark, at="run")).trial(METHOD, seed, 1e-3).config.eval_start
    )


def test_a_seed_has_tasks_of_its_own_and_a_repeat_has_them_too() -> None:
    one = entry()
    first, second = one.trial(METHOD, 0, 1e-3), one.trial(METHOD, 1, 1e-3)
    assert (first.config.task_offset, second.config.task_offset) == (0, TASKS_APART)
    base, again = one.trial(BASELINE, 1, 1e-3), one.trial(REPEAT, 1, 1e-3)
    assert again.start == base.start and again.config.task_offset == base.config.task_offset
    assert again.config.seed != base.config.seed and again.name != base.name


@pytest.mark.slow
def test_the_season_runs_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 2)
    short = (Look(num=2, alpha=0.05),)
    for place in ("inference.LOOKS", "league.LOOKS"):
        monkeypatch.setattr(f"quintain_evidence.layers.{place}", short)
    monkeypatch.setattr(league_module, "TUNING", (1000,))
    monkeypatch.setattr(league_module, "FACTORS", (0.5,))
    monkeypatch.setattr(league_module, "CLAIMED", ("better", "worse", "not worse", "unresolved"))
    one = replace(entry(rates=(1e-3, 5e-4)), seeds=2)
    season = Season(tmp_path / "runs", tmp_path / "results", 1, lambda row: f"run {row}", [one])
    found = season([one])["one"]
    assert found.verdict != "unfinished" and found.rate in (1e-3, 5e-4)
    stored = lines(tmp_path / "results", "one", "league")
    seeds = {(line["arm"], line["factor"], line["seed"]) for line in stored}
    assert {(METHOD, 1.0, 0), (BASELINE, 1.0, 1), (METHOD, 0.5, 1000), (REPEAT, 1.0, 1)} <= seeds
    assert len(stored) == len(seeds) and {line["command"] for line in stored} == {"run one"}
    assert all(line["rate"] == found.rate for line in stored if line["factor"] == 1.0)
    assert all(line["processor_seconds"] > 0 for line in stored)
    assert "runs for learning rates done" in capsys.readouterr().err
    assert season([one])["one"] == found and not capsys.readouterr().err
    assert len(lines(tmp_path / "results", "one", "league")) == len(stored)


def test_a_season_goes_on_at_the_rate_of_its_recorded_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, asked = entry(rates=(1e-3, 5e-4)), list[tuple[str, int, float]]()
    put(tmp_path, one, METHOD, shifted(0.02, 0.3, num=6), rate=5e-4)
    put(tmp_path, one, BASELINE, BASE[:6], rate=5e-4)

    def told(season: Season, plan: Sequence[tuple[Entry, str, int, float, float]], what: str) -> None:
        asked.extend((arm, seed, rate) for _, arm, seed, _, rate in plan)
        put(tmp_path, one, METHOD, shifted(0.02, 0.3))
        put(tmp_path, one, BASELINE, BASE)

    monkeypatch.setattr(Season, "_run", told)
    monkeypatch.setattr(Season, "_played", lambda season, left: left and pytest.fail("rates are tried"))
    Season(tmp_path / "runs", tmp_path, 1, lambda row: f"run {row}", [one])([one])
    assert asked == [(arm, seed, 5e-4) for arm in (METHOD, BASELINE) for seed in range(6, 10)]


def test_registered_rows_make_the_league(claim: Callable[..., Signature]) -> None:
    table = {
        "baseline": "grpo",
        "world": "keydoor?length=3",
        "budget": 900,
        "axis": "tokens",
        "recipe": "gigpo",
    }
    registered = claim(league=table)
    made = entry_of(registered)
    assert made is not None
    shared = made.benchmark.shared
    assert (shared["max_env_steps"], shared["max_sampled_tokens"], shared["model"]) == (None, 900, "mini")
    found = entry_of(claim(league={**table, "axis": "updates"}))
    assert found is not None and found.benchmark.shared["steps"] == 900
    assert entry_of(claim()) is None
    known = {"toy": registered, "more": replace(registered, row="more")}
    all_rows = {**known, "far": replace(registered, row="far", family="far"), "none": claim()}
    every = entries("toys", all_rows)
    assert [e.row for e in every] == ["toy", "more"]
    assert [e.row for e in entries(None, all_rows)] == ["toy", "more", "far"]
    assert [e.row for e in chosen_entries(every, "more", {})] == ["more"]
    assert chosen_entries(every, None, {"steps": 1})[0].digest() != every[0].digest()
    with pytest.raises(UsageError, match="--only: got 'toi'; did you mean 'toy'"):
        chosen_entries(every, "toi", {})


def test_where_imitation_ends_is_told_where_it_is_not_as_usual() -> None:
    usual, said, whole = entry(), entry(enough=ENOUGH), entry(enough=1.0)
    assert usual.digest() == said.digest() != whole.digest()
    assert usual.baseline_key() != whole.baseline_key()


def test_what_was_a_default_when_a_comparison_was_registered_stays_so_and_its_lines_with_it() -> None:
    registered = {row: entry_of(signature) for row, signature in signatures().items()}
    ipr, agent_q, sweet_rl = registered["ipr"], registered["agent_q"], registered["sweet_rl"]
    assert ipr is not None and agent_q is not None and sweet_rl is not None
    assert (
        ipr.trial("method", 0, None).config.likelihood
        == "mean"
        != type(ipr.trial("method", 0, None).config)().likelihood
    )
    assert agent_q.trial("method", 0, None).config.imitation_weight == 0.0
    assert agent_q.trial("method", 0, None).config.outcome_weight == 0.8
    assert sweet_rl.trial("baseline", 0, None).config.imitation_weight == 0.0
    plain = replace(ipr.benchmark, former={})
    assert replace(ipr, benchmark=plain).digest() == ipr.digest()
    other = replace(sweet_rl.benchmark, baseline_former={})
    assert replace(sweet_rl, benchmark=other).digest() == sweet_rl.digest()
    assert replace(sweet_rl, benchmark=other).baseline_key() != sweet_rl.baseline_key()


def test_both_arms_are_paid_alike_or_say_what_is_under_test(tmp_path: Path) -> None:
    fair = audit_objective(entry())
    assert [check.name for check in fair][-1] == "equal rewards" and fair[-1].has_passed
    for penalty, is_fair in ((0.1, False), (0.0, True)):
        taught = entry(recipe="gigpo", settings={"invalid_penalty": penalty})
        assert audit_objective(taught)[-1].has_passed is is_fair, "a penalty of one arm alone"
    shaped = entry(recipe="grpo_tcr", settings={})
    assert not audit_objective(shaped)[-1].has_passed
    assert audit_objective(replace(shaped, reward="turns"))[-1].detail.endswith("which is under test: turns")
    record(tmp_path, "one", "objective", "a", fair, "command")
    record(tmp_path, "one", "objective", "a", [Check(name="x", has_passed=False, detail="d")], "command")
    found = found_of(tmp_path, "one", "objective", "a")
    assert found == (Check(name="x", has_passed=False, detail="d"),), "the newest counts"
    assert found_of(tmp_path, "one", "objective", "b") is None
    assert formulas_key(["b", "a", "b"]) == "a, b"
    assert json.loads((tmp_path / "one.jsonl").read_text().splitlines()[0])["layer"] == "objective"


def test_every_registered_league_can_be_configured() -> None:
    for entry in filter(None, map(entry_of, signatures().values())):
        assert entry.trial(METHOD, 0, None).name != entry.trial(BASELINE, 0, None).name
        find(entry.benchmark.environment)
