"""The monitors of one run: they measure each step, and say once when an alarm begins.

There is no state but the rows of the curve; a resumed run takes them from its journal.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from quintain.errors import FailureRateError
from quintain.learning.thresholds import Thresholds
from quintain.runs.monitors.alarms import NOISE_ROWS, Alarm, Row, alarms, is_lasting
from quintain.runs.monitors.cures import Advice
from quintain.runs.monitors.measures import Retry, measures
from quintain.store.best import best_step
from quintain.types import Group, Score, Trajectory, as_text

QUOTED = 120
"""Characters of an answer that are quoted with an alarm."""
NUM_KEPT, LONGEST = 5, 2000
"""Transcripts kept with an alarm of reward hacking, and the characters of each."""


class Monitors:
    """Watches a run whose curve so far is `rows`, in an environment with `tools`.

    Cures name `options` of its method's configuration, and its folder `run`; those of an agent that `is_outside` are
    what can be changed in a program of the user's own.
    """

    def __init__(
        self,
        bounds: Thresholds,
        rows: Sequence[Row],
        tools: Collection[str] = (),
        *,
        options: Collection[str] = (),
        run: str = "RUN",
        is_outside: bool = False,
    ) -> None:
        self.bounds, self.tools, self.options, self.run = bounds, tools, options, run
        self.is_outside = is_outside
        self._rows: list[Row] = []
        self._num_training = 0
        self._whole: list[int] = []
        """places of the rows after the first ones that are kept as they are"""
        for row in rows:
            self._keep(row)
        self._raised = {(alarm.name, alarm.subject) for alarm in alarms(self._rows, bounds)}
        self.new: list[Alarm] = []
        """alarms that began with the last row"""
        self._groups: Sequence[Group] = ()

    def measure(self, groups: Sequence[Group], retries: Sequence[Retry] = ()) -> dict[str, float]:
        """Return the metrics of the step whose episodes are `groups`; `retries` were begun anew."""
        self._groups = groups
        return measures(groups, self.tools, retries)

    def judge(self, row: Row) -> dict[str, float]:
        """Take in the next `row` of the curve and return ``alarm/NAME`` for the alarms that hold now."""
        self._keep(row)
        if not {"monitor/failures", "preference/chosen_log_ratio", "branch/lost"} & set(row):
            self.new = []
            return {}
        found = alarms(self._rows, self.bounds)
        self.new = [alarm for alarm in found if (alarm.name, alarm.subject) not in self._raised]
        self._raised = {(alarm.name, alarm.subject) for alarm in found}
        return {f"alarm/{alarm.name}": 1.0 for alarm in found if not alarm.is_note}

    def _keep(self, row: Row) -> None:
        """Add `row`; of one that is neither among the first nor among the last only what is asked of any row stays."""
        is_training, window = "monitor/failures" in row, int(self.bounds.window)
        self._rows.append(row)
        self._num_training += is_training
        if is_training and self._num_training <= window:
            return
        self._whole.append(len(self._rows) - 1)
        training = [place for place in self._whole if "monitor/failures" in self._rows[place]][-window:]
        late = [place for place in self._whole[: -max(NOISE_ROWS, window)] if place not in training]
        for place in late:
            old = self._rows[place]
            self._rows[place] = {name: value for name, value in old.items() if is_lasting(name)}
            self._whole.remove(place)

    def evidence(self, alarm: Alarm) -> Mapping[str, Any]:
        """Return what is kept with `alarm` in the journal."""
        evidence: dict[str, Any] = {"name": alarm.name, "subject": alarm.subject}
        if alarm.name == "hacking":
            evidence["transcripts"] = best(self._groups)
        return evidence

    def describe(self, alarm: Alarm) -> str:
        """Return the line of `alarm`: what is wrong, what to change in this run, and where more is said."""
        best_so_far = best_step(self._rows)
        advice = Advice(options=self.options, run=self.run, best=best_so_far, is_outside=self.is_outside)
        return advice.describe(alarm, unread_answer(self._groups) if alarm.name == "unreadable" else "")

    def stop_if_fatal(self, step: int) -> None:
        """Raise for an alarm with which a run must not go on.

        Raises:
            FailureRateError: too many episodes failed for reasons outside of the policy.
        """
        for alarm in self.new:
            if alarm.is_fatal:
                raise FailureRateError(
                    f"the last {self.bounds.window:.0f} steps up to {step}: got {alarm.message}, more than "
                    f"{self.bounds.stop_failures:.0%}; mend what failed (quintain view shows it) or set "
                    "monitors=stop_failures=SHARE, then resume"
                )


def unread_answer(groups: Sequence[Group]) -> str:
    """Return the first answer of `groups` that could not be read, in one line; empty where all could."""
    turns = (turn for group in groups for t in group.trajectories for turn in t.turns)
    actions = (turn.action for turn in turns if turn.action.error is not None)
    text = next((action.text or action.error or "" for action in actions), "")
    line = " ".join(text.split())
    return line if len(line) <= QUOTED else f"{line[:QUOTED]}…"


def best(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the episodes of highest reward as text, at most `NUM_KEPT`."""
    scored = [(t.outcome, t) for group in groups for t in group.scored if isinstance(t.outcome, Score)]
    scored.sort(key=lambda pair: -pair[0].value)
    return [
        {
            "group": t.group,
            "index": t.index,
            "reward": score.value,
            "is_success": score.is_success,
            "text": transcript(t)[:LONGEST],
        }
        for score, t in scored[:NUM_KEPT]
    ]


def transcript(trajectory: Trajectory) -> str:
    """Return `trajectory` as lines: what was seen after ``<``, what was done after ``>``."""
    lines: list[str] = []
    for turn in trajectory.turns:
        calls = "; ".join(f"{call.name}({dict(call.arguments)})" for call in turn.action.tool_calls)
        lines += [f"< {as_text(turn.observation)}", f"> {calls or turn.action.text}"]
    return "\n".join(lines)
