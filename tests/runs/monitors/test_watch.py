"""Thresholds as text, what is kept with an alarm, and what ends a run."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.build import make_group
from tests.runs.monitors.test_measures import episode

from quintain.errors import ConfigError, FailureRateError
from quintain.learning.thresholds import Thresholds, thresholds
from quintain.learning.train_config import TrainConfig
from quintain.runs.monitors.alarms import NOISE_ROWS, Alarm, alarms
from quintain.runs.monitors.watch import NUM_KEPT, Monitors, best, transcript
from quintain.store.best import best_step
from quintain.types import Action, ToolCall


def test_thresholds_are_written_as_text() -> None:
    assert thresholds("") == Thresholds()
    assert thresholds("entropy=0.5, window=10") == Thresholds(entropy=0.5, window=10.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entropi=0.5", "monitors: got 'entropi'; did you mean 'entropy'?"),
        ("entropy=low", "monitors: got entropy='low'; give a number above 0"),
        ("entropy", "monitors: got entropy=''; give a number above 0"),
        ("cost=0", "monitors: got cost='0'; give a number above 0"),
        ("cost=inf", "monitors: got cost='inf'; give a number above 0"),
        ("window=2.5", "monitors: got window=2.5; give a whole number of steps"),
    ],
)
def test_what_is_no_threshold_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainConfig(monitors=text).check()
    assert str(caught.value) == message


NAMES = (
    "train/success", "train/reward", "train/reward_error", "train/tokens", "monitor/entropy", "monitor/zero_variance",
    "monitor/solved", "monitor/unreadable", "monitor/beyond", "monitor/failures/tool", "monitor/repeated_ngrams",
    "monitor/share/a", "monitor/share/b", "tools/pay/calls", "tools/pay/tool_error", "eval/success", "eval/audit",
    "canary/empty", "reward_model/score", "reward_model/gold", "judge/agreement", "preference/chosen_log_ratio",
    "preference/rejected_log_ratio", "branch/lost", "monitor/retries/tool", "verdicts/unread",
)  # fmt: skip


@st.composite
def curves(draw: st.DrawFn) -> list[dict[str, float]]:
    """Return rows with some of the metrics that rules read, most of them of training."""
    rng = random.Random(draw(st.integers(0, 10_000)))
    often = {name: rng.choice((0.05, 0.5, 1.0)) for name in ("monitor/failures", *NAMES)}
    drift = {name: rng.choice((-0.02, 0.0, 0.02)) for name in NAMES}
    rows: list[dict[str, float]] = []
    for step in range(draw(st.integers(1, 70))):
        row = {name: abs(rng.random() + drift[name] * step) for name in NAMES if rng.random() < often[name]}
        if "preference/chosen_log_ratio" in row:
            row["preference/chosen_log_ratio"] *= -20
        if rng.random() < often["monitor/failures"]:
            row["monitor/failures"] = 0.0
        rows.append({"step": step, **row})
    return rows


@given(rows=curves(), window=st.integers(1, 30))
@settings(max_examples=60)
def test_what_is_kept_of_old_rows_raises_the_same_alarms(rows: list[dict[str, float]], window: int) -> None:
    bounds = Thresholds(window=window)
    monitors = Monitors(bounds, [])
    for number, row in enumerate(rows, 1):
        monitors.judge(row)
        whole = rows[:number]
        for kept in (vars(monitors)["_rows"], vars(Monitors(bounds, whole))["_rows"]):
            assert alarms(kept, bounds) == alarms(whole, bounds) and best_step(kept) == best_step(whole)


def test_of_old_rows_little_is_kept() -> None:
    monitors = Monitors(Thresholds(), [])
    for step in range(500):
        monitors.judge({"step": step, "monitor/failures": 0.0, **{f"rewards/{n}": 0.5 for n in range(50)}})
    sizes = [len(row) for row in vars(monitors)["_rows"]]
    assert len(sizes) == 500 and sum(size > 10 for size in sizes) <= 5 + NOISE_ROWS


def test_the_best_episodes_are_kept_with_an_alarm_of_hacking() -> None:
    call = (ToolCall(name="pay", arguments={"sum": 2}),)
    groups = [make_group(*(episode(float(n), (1, 2), index=n, calls=call) for n in range(NUM_KEPT + 3)))]
    monitors = Monitors(Thresholds(), [])
    monitors.measure(groups)
    kept = monitors.evidence(Alarm(name="hacking", message="m"))["transcripts"]
    assert [each["reward"] for each in kept] == [7.0, 6.0, 5.0, 4.0, 3.0]
    assert kept == best(groups)
    assert kept[0]["text"] == transcript(groups[0].trajectories[7]) == "< \n> pay({'sum': 2})"
    assert monitors.evidence(Alarm(name="cost", message="m")) == {"name": "cost", "subject": ""}


def test_the_line_of_an_alarm_is_of_the_run_and_quotes_an_answer() -> None:
    options = ["learning_rate", "max_turn_tokens", "model"]
    monitors = Monitors(Thresholds(), [{"step": 3, "eval/success": 0.5}], options=options, run="runs/a")
    entropy = monitors.describe(Alarm(name="entropy", message="m"))
    assert entropy == (
        "m; lower --learning-rate, or take a method with an entropy bonus (--entropy-coef of grpo or policy_gradient), "
        "or go on from the best step, 3: --model runs/a@best "
        "(docs/alarms.md#entropy, docs/it-does-not-learn.md, docs/which-method.md)"
    )
    none = Monitors(Thresholds(), [], options=[*options, "entropy_coef"])
    assert none.describe(Alarm(name="entropy", message="m")).startswith(
        "m; lower --learning-rate, or set --entropy-coef (docs"
    )
    good = episode(1.0, (1, 2))
    lost = replace(good.turns[0], action=Action(text="<tool_call>\n{ oh", error="it is not written right"))
    monitors.measure([make_group(good, replace(good, index=1, turns=(lost,)))])
    line = monitors.describe(Alarm(name="unreadable", message="m"))
    assert line.startswith(
        "m, such as '<tool_call> { oh'; go on from the best step, 3: --model runs/a@best, or lower"
    )


def test_an_agent_of_the_users_own_is_told_what_it_can_change() -> None:
    ours, own = (
        Monitors(Thresholds(), [], options=["agent", "demonstrations"], is_outside=is_outside)
        for is_outside in (False, True)
    )
    unread, idle = (Alarm(name=name, message="m") for name in ("unreadable", "zero_variance"))
    assert "--agent constrained" in ours.describe(unread) and "expert_action()" in ours.describe(idle)
    assert 'ask for a call alone: tool_choice="required"' in own.describe(unread)
    assert "--agent constrained" not in own.describe(unread)
    assert own.describe(idle).startswith("m; warm start it: --agent …&expert=FUNCTION, or take easier")


def test_failures_above_the_threshold_end_the_run_once() -> None:
    row = {"monitor/failures": 0.2, "monitor/failures/judge": 0.2}
    monitors = Monitors(thresholds("window=2,stop_failures=0.1"), [row])
    monitors.stop_if_fatal(0)
    assert monitors.judge(row) == {"alarm/stop_failures": 1.0}
    with pytest.raises(
        FailureRateError, match=r"the last 2 steps up to 7: got 20.0% of episodes failed by the judge, "
    ):
        monitors.stop_if_fatal(7)
    monitors.judge(row)
    monitors.stop_if_fatal(8)


def test_rows_of_recipes_without_episodes_are_no_steps() -> None:
    monitors = Monitors(Thresholds(), [])
    assert monitors.measure(()) == {}
    assert all(monitors.judge({"train/loss": 1.0}) == {} for _ in range(9))
