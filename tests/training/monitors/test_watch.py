"""Thresholds as text, what is kept with an alarm, and what ends a run."""

from dataclasses import replace

import pytest
from tests.training.monitors.test_measures import episode, group

from quintain.errors import ConfigError, FailureRateError
from quintain.training.job import Job
from quintain.training.monitors.alarms import Alarm
from quintain.training.monitors.watch import NUM_KEPT, Monitors, best, transcript
from quintain.training.thresholds import Thresholds, thresholds
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
        Job(monitors=text).check()
    assert str(caught.value) == message


def test_the_best_episodes_are_kept_with_an_alarm_of_hacking() -> None:
    call = (ToolCall(name="pay", arguments={"sum": 2}),)
    groups = [group(*(episode(float(n), (1, 2), index=n, calls=call) for n in range(NUM_KEPT + 3)))]
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
    monitors.measure([group(good, replace(good, index=1, turns=(lost,)))])
    line = monitors.describe(Alarm(name="unreadable", message="m"))
    assert line.startswith(
        "m, such as '<tool_call> { oh'; go on from the best step, 3: --model runs/a@best, or lower"
    )


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
