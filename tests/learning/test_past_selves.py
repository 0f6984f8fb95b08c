"""Past selves: who is drawn how often, what a run keeps and records of them, and that it resumes bit for bit."""

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from safetensors.torch import load_file
from tests.build import make_episode, make_turn
from tests.methods.test_seats import METHOD, SEATS
from tests.methods.test_training import interrupting, rows

from quintain.config import build
from quintain.errors import ConfigError, UsageError
from quintain.learning.past_selves import PastSelves, check_past
from quintain.learning.policies import Policies, plan_policies
from quintain.learning.sections import PolicySettings
from quintain.learning.train_config import MAIN, GroupConfig, TrainConfig
from quintain.methods.method import sample_groups
from quintain.rollout.collect import Rollout
from quintain.rollout.request import USUAL
from quintain.store.run import Run
from quintain.types import Completion, Score

POOL: dict[str, Any] = {"past": 2, "every": 2, "drawn": "hard", "swaps": True}
WHOLE = {**SEATS, "steps": 5, "eval_every": 3, "seats": {"B": "past"}, "lora_rank": 2}


class Double:
    """What past selves ask of a policy."""

    def __init__(self, name: str, version: int = 0) -> None:
        self.name, self.copied_version, self.version = name, 0, version

    def follow(self, leader: "Double", *, polyak: float) -> None:
        assert polyak == 1.0
        self.version = leader.version


def pool(**given: Any) -> tuple[PastSelves, Double]:
    """Return past selves of three versions in the seat B of two, and their leader."""
    config = TrainConfig(policies={"past": PolicySettings(past=3, every=2, **given)}, seats={"B": "past"})
    doubles = {name: Double(name) for name in (MAIN, "past-0", "past-1", "past-2")}
    made = Policies(cast(Any, doubles))
    return PastSelves(config, made, {"A": MAIN, "B": "past"}), doubles[MAIN]


def frequencies(selves: PastSelves, seat: str = "B") -> dict[str, float]:
    drawn = Counter(selves.draw_seats(seed)[seat] for seed in range(4000))
    return {name: count / 4000 for name, count in drawn.items()}


def play_against(by: str, value: float) -> Any:
    """Return an episode of the policy in A and `by` in B that ends with `value` for A and its negative for B."""
    said = replace(
        make_turn(seat="B"), completion=Completion(token_ids=(1,), logprobs=(-1.0,), stop="stop", policy=by)
    )
    turns = (make_turn(seat="A"), replace(said, rewards={"A": value, "B": -value}))
    return make_episode(*turns, outcome=Score(value=0.0, is_success=False))


def test_the_oldest_is_replaced_and_the_newest_drawn_most() -> None:
    selves, leader = pool()
    assert [each.name for each in selves.keep(0)] == ["past-0"]
    assert frequencies(selves) == {"past-0": 1.0}, "what was never kept is never drawn"
    for step, name in ((2, "past-1"), (4, "past-2"), (6, "past-0")):
        assert selves.keep(step - 1) == []
        leader.version = 10 * step
        assert [each.name for each in selves.keep(step)] == [name]
    kept = {each.name: each.version for each in selves.kept}
    assert kept == {"past-0": 60, "past-1": 20, "past-2": 40}
    found = frequencies(selves)
    assert found == pytest.approx({"past-0": 4 / 7, "past-2": 2 / 7, "past-1": 1 / 7}, abs=0.03)
    assert selves.draw_seats(7) == selves.draw_seats(7)
    assert all(selves.draw_seats(seed)["A"] == MAIN for seed in range(20)), "seats stay without swaps"
    assert selves.usual == {"A": MAIN, "B": MAIN}, "demonstrations are of the policy in all seats"


def test_by_score_the_policy_meets_those_it_loses_to() -> None:
    selves, _ = pool(drawn="hard")
    for step in (0, 2, 4):
        selves.keep(step)
    assert frequencies(selves) == pytest.approx(
        dict.fromkeys(("past-0", "past-1", "past-2"), 1 / 3), abs=0.03
    )
    selves.observe(
        [
            *[play_against("past-0", 1.0)] * 8,
            *[play_against("past-1", -1.0)] * 8,
            *[play_against("partner", 1.0)] * 5,
        ]
    )
    # rates of success 9/10, 1/10 and 1/2, squared distances to 1: .01, .81, .25
    assert frequencies(selves) == pytest.approx(
        {"past-0": 0.01 / 1.07, "past-1": 0.81 / 1.07, "past-2": 0.25 / 1.07}, abs=0.03
    )
    assert selves.measure()["past/success/past-0"] == 1.0 and selves.measure()["past/success/past-1"] == 0.0
    selves.keep(6)
    assert "past/success/past-0" not in selves.measure(), "a new version begins without a score"
    assert selves.draw_seats(3).keys() == {"A", "B"}


def test_even_is_even_and_swapped_seats_are_drawn() -> None:
    selves, _ = pool(drawn="even", swaps=True)
    for step in (0, 2, 4):
        selves.keep(step)
    assert frequencies(selves)[MAIN] == pytest.approx(0.5, abs=0.03)
    drawn = [selves.draw_seats(seed) for seed in range(300)]
    assert all(sorted(each.values())[1] == MAIN or MAIN in each.values() for each in drawn)
    assert {sum(by != MAIN for by in each.values()) for each in drawn} == {1}, (
        "one seat is theirs, never both"
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five steps that nobody broke off."""
    return run_in(tmp_path_factory.mktemp("past") / "whole")


def run_in(folder: Path) -> Path:
    config = build(GroupConfig, {**WHOLE, "tasks": 4, "policies": {"past": POOL}}, "test")
    with Run.create(folder, recipe="test", config=asdict(config)) as run:
        replace(METHOD, collect=sample_groups(4, 2)).train(run, config)
    return folder


@pytest.mark.slow
def test_a_run_keeps_versions_of_itself_and_says_who_played(whole: Path) -> None:
    with Run.open(whole, writable=False) as run:
        for step, kept in (
            (1, {"past-0": 0}),
            (3, {"past-0": 0, "past-1": 2}),
            (5, {"past-0": 4, "past-1": 2}),
        ):
            episodes = list(run.trajectories(step=step, phase="train"))
            said = [turn.completion for t in episodes for turn in t.turns if turn.completion.policy != MAIN]
            assert said and {(each.policy, each.policy_version) for each in said} <= set(kept.items())
            for task in {t.group for t in episodes}:
                own = [{(u.seat, u.completion.policy) for u in t.turns} for t in episodes if t.group == task]
                assert own[0] == own[1] and len(own[0]) == 2, (
                    "a group is played with one past self in one seat"
                )
        row = run.metrics()[-1]
        assert (row["past/version/past-0"], row["past/version/past-1"]) == (4.0, 2.0)
        assert not any("past-0/train" in name for name in row), "they learn nothing"
    checkpoint = whole / "checkpoints" / "step-000005"
    own = whole / "checkpoints" / "step-000003"
    kept = load_file(checkpoint / "past-1" / "follower.safetensors")
    before = load_file(own / "past-1" / "follower.safetensors")
    assert kept and all(kept[name].equal(before[name]) for name in kept), "version 2 rests from step 2 on"
    newest = load_file(checkpoint / "past-0" / "follower.safetensors")
    assert any(not newest[name].equal(kept[name.replace("past-0", "past-1")]) for name in newest)


@pytest.mark.slow
def test_a_resumed_run_draws_and_plays_the_same(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        interrupting(patched, 4)
        with pytest.raises(KeyboardInterrupt):
            run_in(tmp_path / "broken")
    with Run.open(tmp_path / "broken") as run:
        config = build(GroupConfig, {**WHOLE, "tasks": 4, "policies": {"past": POOL}}, "test")
        replace(METHOD, collect=sample_groups(4, 2)).train(run, config)
    assert rows(tmp_path / "broken") == rows(whole)
    last = [folder / "checkpoints" / "step-000005" for folder in (whole, tmp_path / "broken")]
    for name in ("weights-0.safetensors", "past-0/follower.safetensors", "past-1/learner.json"):
        assert (last[0] / name).read_bytes() == (last[1] / name).read_bytes(), name


def refusal(**given: Any) -> str:
    with pytest.raises(ConfigError) as found:
        config = build(GroupConfig, {**SEATS, "seats": {"B": "past"}, **given}, "test")
        plan_policies(config, {})
        check_past(config, {"A": given.get("first", MAIN), "B": "past"})
    return str(found.value)


def test_what_past_selves_cannot_be_is_refused() -> None:
    assert "policies.past.shares: got 'policy' with past 2; past selves are frozen copies" in refusal(
        policies={"past": {**POOL, "shares": "policy"}}
    )
    assert "policies.past.every: got 5 without past selves" in refusal(
        policies={"past": {"every": 5, "is_trained": False}}
    )
    assert "past: got 2 with max_staleness 1" in refusal(
        policies={"past": POOL}, rollout="async", max_staleness=1
    )
    config = build(
        GroupConfig, {**SEATS, "seats": {"A": "past", "B": "past"}, "policies": {"past": POOL}}, "test"
    )
    with pytest.raises(ConfigError, match="no seat is left to policy"):
        check_past(config, {"A": "past", "B": "past"})


def test_episodes_are_not_continued_by_another_self() -> None:
    drawing = cast(Rollout, SimpleNamespace(_draw_seats=lambda seed: {}))
    with pytest.raises(UsageError, match="take a method without branches"):
        Rollout.continuations(drawing, [], size=1, seed=0, options=USUAL)
