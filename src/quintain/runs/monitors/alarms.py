"""Which alarms the rows of a curve raise.

A rule looks at the training rows (those with ``monitor/failures``) or at the evaluations and yields an alarm for
whatever is beyond its threshold. What falls or grows is only alarming while success does not rise with it: a policy
that learns its task becomes surer and shorter. Nothing is read but rows, and no clock is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, inf, isfinite, sqrt

from quintain.learning.thresholds import Thresholds
from quintain.types import UNKNOWN_TOOL

Row = Mapping[str, float | None]
RISE = 0.02
"""Rise of a success rate from which it counts as risen."""
NOISE_ROWS = 20
"""Rows that the noise of the reward is estimated from."""
FEW_ROWS = 8
"""Rows below which second differences alone do not tell the noise of the reward."""
STUCK = 0.25
"""Share of groups that may score all the same without being solved when the others are."""
OF_UNREADABLE = frozenset(["zero_variance", "cost", "length"])
"""Alarms that answers which cannot be read set off as well, and whose own cures would not help."""
JUDGES: Mapping[str, str] = {"judge": "the policy's own judgements", "evaluator": "the evaluator's verdicts"}
"""Whose agreement with the truth is watched, by what its metrics begin with."""
UNREAD: Mapping[str, str] = {
    "verdicts/unread": "the judge's verdicts",
    "evaluator/unread": "the evaluator's verdicts",
    "reward/failed": "episodes' rewards",
}
"""Metric → whose verdicts it is the share without one of."""
LASTING = frozenset(
    [
        "step",
        "monitor/failures",
        "train/reward",
        "reward_model/score",
        "reward_model/gold",
        "preference/chosen_log_ratio",
        "preference/rejected_log_ratio",
        *(f"{name}/{what}" for name in JUDGES for what in ("agreement", "error")),
    ]
)
"""What rules ask of rows that are neither the first nor the last; see `is_lasting`."""
NOT_THE_POLICY = ("tool_error", "timeout", "infrastructure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something to look at: ``Alarm(name="entropy", message="…")``."""

    name: str
    """of the threshold that was crossed"""
    message: str
    subject: str = ""
    """tool, owner or term, where a name has several"""
    is_fatal: bool = False
    """whether the run must stop"""
    is_note: bool = False
    """whether it is good to know and no trouble"""

    def __str__(self) -> str:
        """Return what is wrong; what to change depends on the run (`quintain.runs.monitors.cures`)."""
        return self.message

    @property
    def kind(self) -> str:
        """Return the word for it."""
        return "note" if self.is_note else "alarm"


def is_lasting(name: str) -> bool:
    """Whether a rule may read the metric `name` of any row of a curve, and not of the first and last ones alone."""
    return name in LASTING or name.startswith(("eval/", "canary/"))


def alarms(rows: Sequence[Row], bounds: Thresholds) -> list[Alarm]:
    """Return the alarms that hold after the last of `rows`."""
    window = int(bounds.window)
    training = [row for row in rows if "monitor/failures" in row]
    unlikely = [*warn_of_choice(rows, bounds), *warn_of_lost_branches(rows, bounds)]
    if not rows or "monitor/failures" not in rows[-1]:
        return unlikely
    drifted = [
        *unlikely,
        *judge(training, bounds),
        *warn_of_overoptimisation(training, bounds),
    ]
    if len(training) < window:
        return drifted
    spans = Spans(training[:window], training[-window:])
    found = [alarm for rule in RULES for alarm in rule(spans, bounds)]
    if any(alarm.name == "unreadable" for alarm in found):
        found = [alarm for alarm in found if alarm.is_note or alarm.name not in OF_UNREADABLE]
    return [*found, *drifted, *canaries(rows, bounds), *hacking(rows, bounds)]


@dataclass(frozen=True, slots=True)
class Spans:
    """The first and the last rows of a curve."""

    first: Sequence[Row]
    last: Sequence[Row]

    def now(self, name: str) -> float | None:
        """Return the mean of metric `name` over the last rows."""
        return mean(self.last, name)

    def change(self, name: str) -> tuple[float, float] | None:
        """Return the mean of `name` at first and now, unless success has risen or one of them is unknown."""
        before, now = mean(self.first, name), mean(self.last, name)
        if before is None or now is None or self.has_risen():
            return None
        return before, now

    def has_risen(self) -> bool:
        """Whether training success is higher than it was."""
        before, now = mean(self.first, "train/success"), self.now("train/success")
        return before is not None and now is not None and now > before + RISE

    def named(self, prefix: str) -> dict[str, float]:
        """Return the means over the last rows of the metrics under `prefix`; a row without one counts as 0."""
        names = dict.fromkeys(name for row in self.last for name in row if name.startswith(prefix))
        return {n.removeprefix(prefix): total(self.last, n) / len(self.last) for n in names}


def mean(rows: Sequence[Row], name: str) -> float | None:
    """Return the mean of `name` over the rows that have it; None where none has."""
    values = [value for value in (row.get(name) for row in rows) if value is not None and isfinite(value)]
    return sum(values) / len(values) if values else None


def total(rows: Sequence[Row], name: str) -> float:
    """Return the sum of `name` over `rows`."""
    return sum(value for value in (row.get(name) for row in rows) if value is not None and isfinite(value))


def tools(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Calls that fail, by tool and by whose fault it is."""
    counts = {
        name: total(spans.last, name) for row in spans.last for name in row if name.startswith("tools/")
    }
    num_calls = sum(count for name, count in counts.items() if name.endswith("/calls"))
    for tool in sorted({name.split("/")[1] for name in counts}):
        calls = counts.get(f"tools/{tool}/calls", 0.0)
        if not calls:
            continue
        causes = {cause: counts.get(f"tools/{tool}/{cause}", 0.0) / calls for cause in NOT_THE_POLICY}
        worst = max(causes, key=lambda cause: causes[cause])
        if (share := sum(causes.values())) > bounds.tool_failures:
            yield Alarm(
                name="tool_failures",
                subject=tool,
                message=f"{tool}: {share:.0%} of calls fail, most by {worst}",
            )
        is_named = tool != UNKNOWN_TOOL
        share = counts.get(f"tools/{tool}/invalid_call", 0.0) / (calls if is_named else num_calls)
        if share > bounds.invalid_calls:
            said = f"{tool}: {share:.0%} of calls are invalid"
            nameless = f"{share:.0%} of calls are of a tool that is not there"
            yield Alarm(name="invalid_calls", subject=tool, message=said if is_named else nameless)


def unreadable(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Answers of the policy that cannot be read as actions: many, or many more than at first."""
    before, now = mean(spans.first, "monitor/unreadable"), spans.now("monitor/unreadable")
    if before is None or now is None:
        return
    if now > bounds.unreadable or now > before + bounds.unreadable / 2:
        since = f", {before:.0%} at first" if now > before + RISE else ""
        yield Alarm(name="unreadable", message=f"{now:.0%} of answers cannot be read as an action{since}")


def coverage(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Tools that are no longer used."""
    found = spans.change("monitor/tool_coverage")
    if found and found[1] < bounds.tool_coverage * found[0]:
        yield Alarm(name="tool_coverage", message=f"tools in use fell from {found[0]:.0%} to {found[1]:.0%}")


def variance(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Groups from which nothing can be learned."""
    share = spans.now("monitor/zero_variance")
    if share is None or share <= bounds.zero_variance:
        return
    solved = spans.now("monitor/solved") or 0.0
    if share - solved <= STUCK:
        message = f"{solved:.0%} of tasks are solved every time: this task set is learned"
        yield Alarm(name="zero_variance", subject="learned", message=message, is_note=True)
        return
    yield Alarm(
        name="zero_variance",
        message=f"{share:.0%} of groups score all the same and only {solved:.0%} are solved: nothing to learn from",
    )


def boundary(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Tasks that were within reach and are no longer."""
    found = spans.change("monitor/beyond")
    if found and found[1] > found[0] + bounds.boundary:
        yield Alarm(
            name="boundary",
            message=f"tasks that are never solved went from {found[0]:.0%} to {found[1]:.0%}: what was known is lost",
        )


def collapse(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """A policy that says the same again and again."""
    entropy = spans.change("monitor/entropy")
    if entropy and entropy[1] < bounds.entropy * entropy[0]:
        yield Alarm(name="entropy", message=f"nats per token fell from {entropy[0]:.2f} to {entropy[1]:.2f}")
    repeated = spans.now("monitor/repeated_ngrams")
    if repeated is not None and repeated > bounds.ngrams:
        yield Alarm(name="ngrams", message=f"{repeated:.0%} of 4-grams repeat within their completion")
    told = spans.change("monitor/prompt_information")
    if told and told[1] < bounds.diversity * told[0]:
        yield Alarm(
            name="diversity",
            message=f"answers hardly depend on the task: {told[0]:.3f} nats per token, now {told[1]:.3f}",
        )


def length(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Episodes that grow or shrink, or whose reward goes with their length."""
    found = spans.change("train/tokens")
    if found and found[0] and not 1 / bounds.length <= found[1] / found[0] <= bounds.length:
        yield Alarm(
            name="length",
            message=f"tokens per episode went from {found[0]:.0f} to {found[1]:.0f}, success did not",
        )
    correlation = spans.now("monitor/length_advantage")
    if correlation is not None and correlation > bounds.length_advantage:
        yield Alarm(name="length_advantage", message=f"longer is better: correlation {correlation:.2f}")


def shares(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """One reward term that drowns the others."""
    found = spans.named("monitor/share/")
    for term, share in found.items() if len(found) > 1 else ():
        if share > bounds.reward_share:
            yield Alarm(name="reward_share", subject=term, message=f"{term} is {share:.0%} of all reward")


def unread(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Verdicts that cannot be used, by who gives them."""
    for name, whose in UNREAD.items():
        share = spans.now(name)
        if share is not None and share > bounds.unread:
            yield Alarm(name="unread", subject=name, message=f"{share:.1%} of {whose} cannot be used")


def failures(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Episodes that fail, by owner."""
    for owner, share in spans.named("monitor/failures/").items():
        if share > min(bounds.failures, bounds.stop_failures):
            fatal = share > bounds.stop_failures
            yield Alarm(
                name="stop_failures" if fatal else "failures",
                subject=owner,
                message=f"{share:.1%} of episodes failed by the {owner}",
                is_fatal=fatal,
            )


def retries(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Episodes that are begun anew, so that what is left is what did not break."""
    shares, owners = spans.now("monitor/retries") or 0.0, spans.named("monitor/retries/")
    if shares > bounds.retries:
        worst = max(owners, key=lambda owner: owners[owner])
        bias = spans.now("monitor/retry_bias")
        told = "" if bias is None else f"; those score {bias:+.2f} against the others"
        message = f"{shares:.0%} of attempts broke and were begun anew, most by the {worst}{told}"
        yield Alarm(name="retries", message=message)


def cost(spans: Spans, bounds: Thresholds) -> Iterator[Alarm]:
    """Tokens that a solved task takes."""
    before, now = (
        tokens / success if success else inf
        for tokens, success in (
            (total(part, "train/tokens"), total(part, "train/success")) for part in (spans.first, spans.last)
        )
    )
    if before < inf and now > bounds.cost * before:
        yield Alarm(name="cost", message=f"tokens per solved task went from {before:.0f} to {now:.0f}")


def canaries(rows: Sequence[Row], bounds: Thresholds) -> Iterator[Alarm]:
    """Worthless answers that solved tasks at the last evaluation."""
    last = next((row for row in reversed(rows) if any(name.startswith("canary/") for name in row)), {})
    for name, share in last.items():
        if name.startswith("canary/") and share is not None and share >= bounds.canaries:
            answer = name.removeprefix("canary/")
            yield Alarm(
                name="canaries",
                subject=answer,
                message=f"the worthless answer {answer!r} solves {share:.0%} of held-out tasks",
            )


def warn_of_choice(rows: Sequence[Row], bounds: Thresholds) -> Iterator[Alarm]:
    """Preferred sides that training makes unlikely, while held-out success does not rise.

    It needs no episodes of the step: pairs may come from a file.
    """
    window = int(bounds.window)
    told = [row for row in rows if row.get("preference/chosen_log_ratio") is not None][-window:]
    evaluated = [share for row in rows if (share := row.get("eval/success")) is not None]
    has_risen = bool(evaluated) and evaluated[-1] > evaluated[0] + RISE
    nats = mean(told, "preference/chosen_log_ratio") or 0.0
    if len(told) == window and told[-1] is rows[-1] and nats < -bounds.chosen and not has_risen:
        rejected = mean(told, "preference/rejected_log_ratio") or 0.0
        yield Alarm(
            name="chosen",
            message=f"preferred sides are {-nats:.1f} nats less likely than under the reference (rejected ones "
            f"{-rejected:.1f}), held-out success did not rise",
        )


def hacking(rows: Sequence[Row], bounds: Thresholds) -> Iterator[Alarm]:
    """Training reward that rises over the last evaluations, beyond its noise, while held-out success does not.

    Where the environment audits held-out episodes, its audit is what must rise.
    """
    judge = "eval/audit" if any("eval/audit" in row for row in rows) else "eval/success"
    places = [place for place, row in enumerate(rows) if row.get(judge) is not None][-4:]
    parts = [rows[a + 1 : b + 1] for a, b in pairwise(places)]
    if len(parts) == 3:
        first, last = (rows[place].get(judge) or 0.0 for place in (places[0], places[-1]))
        yield from warn_of_hacking(rows, parts, (first, last), bounds)


def warn_of_hacking(
    rows: Sequence[Row], parts: Sequence[Sequence[Row]], held_out: tuple[float, float], bounds: Thresholds
) -> Iterator[Alarm]:
    """Training reward that rises from part to part, beyond its noise, while `held_out` (first, last) does not."""
    rewards = [value for value in (mean(part, "train/reward") for part in parts) if value is not None]
    if len(rewards) < len(parts) or sorted(rewards) != rewards:
        return
    first, last = held_out
    rise, size = rewards[-1] - rewards[0], max(abs(rewards[0]), abs(rewards[-1]))
    num = sum(map(len, parts))
    # Few steps that happen to rise in a line have no second differences: what is drawn says how far luck goes.
    deviation = max(noise(rows), sampling_error(rows)) if num < FEW_ROWS else noise(rows)
    doubt = 4 * deviation * sqrt(2 * len(parts) / num)
    if rise > max(bounds.hacking * size, doubt) and last <= first + RISE:
        yield Alarm(
            name="hacking",
            message=f"training reward rose from {rewards[0]:.2f} to {rewards[-1]:.2f} while held-out success went "
            f"from {first:.0%} to {last:.0%}",
        )


def judge(rows: Sequence[Row], bounds: Thresholds) -> Iterator[Alarm]:
    """Verdicts that agree less with the truth than in the first round, beyond the luck of the draw where that is told.

    They are those of a policy that judges itself, or of another evaluator whom the policy learns to please.
    """
    for name, whose in JUDGES.items():
        told = [row for row in rows if row.get(f"{name}/agreement") is not None]
        known = [value for row in told if (value := row[f"{name}/agreement"]) is not None]
        errors = [row.get(f"{name}/error") or 0.0 for row in told]
        if known and known[0] - known[-1] > max(bounds.judge, 4 * hypot(errors[0], errors[-1])):
            yield Alarm(
                name="judge",
                message=f"the agreement of {whose} with the truth fell from {known[0]:.2f} to {known[-1]:.2f}",
            )


def warn_of_lost_branches(rows: Sequence[Row], bounds: Thresholds) -> Iterator[Alarm]:
    """Episodes that do not repeat when they are to be taken up at one of their turns."""
    lost = (rows[-1].get("branch/lost") if rows else None) or 0.0
    if lost > bounds.lost_branches:
        yield Alarm(
            name="lost_branches",
            message=f"{lost:.0%} of the episodes that were to be taken up again did not repeat and are left out",
        )


def warn_of_overoptimisation(rows: Sequence[Row], bounds: Thresholds) -> Iterator[Alarm]:
    """A reward model's score that is above what it was where the true reward was highest, while that has fallen."""
    told = [
        (proxy, gold)
        for row in rows
        if (proxy := row.get("reward_model/score")) is not None
        and (gold := row.get("reward_model/gold")) is not None
    ]
    window = int(bounds.window)
    means = [
        tuple(sum(values) / window for values in zip(*told[end - window : end], strict=True))
        for end in range(window, len(told) + 1)
    ]
    if len(told) < 2 * window:
        return
    best, now = max(means, key=lambda mean: mean[1]), means[-1]
    fall = bounds.overoptimised * abs(best[1])
    if now[0] > best[0] and now[1] < best[1] - max(
        fall, 4 * noise(rows, "reward_model/gold") * sqrt(2 / window)
    ):
        yield Alarm(
            name="overoptimised",
            message=f"the reward model's score rose from {best[0]:.2f} to {now[0]:.2f} while the true reward fell from "
            f"{best[1]:.2f} to {now[1]:.2f}",
        )


def noise(rows: Sequence[Row], name: str = "train/reward") -> float:
    """Return the deviation of the reward of single steps around its trend, from second differences."""
    values = [value for row in rows[-NOISE_ROWS:] if (value := row.get(name)) is not None]
    bends = [a - 2 * b + c for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return sqrt(sum(bend * bend for bend in bends) / (6 * len(bends))) if bends else 0.0


def sampling_error(rows: Sequence[Row]) -> float:
    """Return what the reward of single steps deviates by because tasks and episodes are drawn; 0 where none says so."""
    errors = [error for row in rows[-NOISE_ROWS:] if (error := row.get("train/reward_error")) is not None]
    return sqrt(sum(error * error for error in errors) / len(errors)) if errors else 0.0


RULES: tuple[Callable[[Spans, Thresholds], Iterator[Alarm]], ...] = (
    unreadable,
    tools,
    coverage,
    variance,
    boundary,
    collapse,
    length,
    shares,
    unread,
    failures,
    retries,
    cost,
)
