"""Which groups of episodes brought a metric down: the updates before its fall are made again without each of them.

What a replay without a group ends with is played on a fixed set of tasks, beside the replay that leaves nothing out.
Leaving any episodes out changes something, so that as many as a group has, drawn at random from the other groups of the
same steps than the worst one, are left out as controls: their effects are the noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from quintain.config.trust import admit
from quintain.curriculum.streams import draw_held_out
from quintain.environments.boundary import tasks_of
from quintain.environments.smoke_test import find_ready
from quintain.errors import DataError, UsageError
from quintain.eval.statistics import Difference, bootstrap_pairs
from quintain.rollout.progress import Display
from quintain.rollout.request import Limits
from quintain.runs.evaluation import find_acting
from quintain.store.run import Run
from quintain.time_travel.falls import Fall, find_fall
from quintain.time_travel.rederivation import Left, Part, RederivedRun, find_base, make_again, open_original
from quintain.types import Score, Trajectory, derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What leaving episodes out does: ``Effect(name="24 guess/train/97", change=Difference(…), score=0.55)``."""

    name: str
    """step and task of a group, ``step N`` of all groups of a step, ``control N``"""
    steps: tuple[int, ...]
    episodes: int
    score: float
    """of the metric, in the end"""
    change: Difference
    """from the replay that leaves nothing out, over the same tasks; above 0: the metric is better without them"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """Which groups did harm: ``print(quintain.bisect("runs/grpo-1", metric="success"))``."""

    run: str
    metric: str
    fall: Fall | None
    """None where the updates were named"""
    first: int
    last: int
    base: int | None
    tasks: int
    score: float
    """of the replay that leaves nothing out"""
    before: float | None
    """of the state before the first of the updates, where its checkpoint is kept"""
    groups: tuple[Effect, ...]
    """those that harm most first; whole steps, where there were more groups than may be left out"""
    controls: tuple[Effect, ...]
    num_untried: int
    """groups that were not left out alone"""

    @property
    def noise(self) -> float:
        """The largest effect of a control, in either direction."""
        return max((abs(each.change.mean) for each in self.controls), default=0.0)

    @property
    def culprits(self) -> tuple[Effect, ...]:
        """Groups without which the metric is better: by more than any control, and by an interval above 0."""
        return tuple(each for each in self.groups if each.change.mean > self.noise and each.change.low > 0)

    def __str__(self) -> str:
        """Return it in lines."""
        lines: list[str] = []
        if self.fall is not None:
            lines.append(
                f"{self.run}: {self.fall.metric} falls for good after step {self.fall.step}: {self.fall.before:.3f} → "
                f"{self.fall.after:.3f}, seen at step {self.fall.seen}"
            )
        begun = "the start" if self.base is None else f"the checkpoint of step {self.base}"
        was = "" if self.before is None else f", {self.before:.3f} before them"
        lines.append(
            f"updates {self.first} to {self.last} made again from {begun}: {self.metric} {self.score:.3f}{was}, on "
            f"{self.tasks} fixed tasks"
        )
        chosen = self.culprits
        lines.append(
            f"{len(chosen)} of {len(self.groups)} left out do better than {len(self.controls)} controls "
            f"(±{self.noise:.3f})"
        )
        if self.num_untried:
            lines.append(
                f"note: {self.num_untried} groups were not left out alone; --most raises how many are"
            )
        return "\n".join(lines)


COLUMNS = ("left out", "episodes", "result", "change", "95 % interval", "")


def list_rows(found: Bisection) -> list[tuple[str, ...]]:
    """Return a row of a table for each of what was left out, controls last; see `COLUMNS`."""
    chosen = set(map(id, found.culprits))
    return [
        (
            each.name,
            str(each.episodes),
            f"{each.score:.3f}",
            f"{each.change.mean:+.3f}",
            f"[{each.change.low:+.3f}, {each.change.high:+.3f}]",
            "did harm" if id(each) in chosen else "",
        )
        for each in (*found.groups, *found.controls)
    ]


def bisect_run(
    folder: Path,
    *,
    environment: str,
    agent: str,
    metric: str = "success",
    steps: tuple[int, int] | None = None,
    most: int = 24,
    controls: int = 4,
    episodes: int = 128,
    seed: int = 0,
    is_trusted: bool = False,
    display: Display | None = None,
) -> Bisection:
    """Find where `metric` falls in the run in `folder`, or take the updates `steps`, and which groups it fell by.

    Up to `most` groups are left out one at a time. Where there are more, each step is left out first, and then the
    groups of the worst one. `controls` is the number of random sets of episodes, of the size of a group. What
    comes of a replay acts in `environment` through the harness `agent`.

    Raises:
        DataError: the metric does not fall for good, or these steps collected nothing. UsageError: there are no such
            steps, several policies learn, or nothing is played. ConfigError: the run is somebody else's, not trusted.
    """
    with open_original(folder, is_trusted=is_trusted, to="bisecting") as run:
        config = admit(run, is_trusted=is_trusted, to="bisecting")
        if config.get("policies"):
            raise UsageError(
                f"bisecting {folder}: got several policies; one that plays all seats is evaluated alone"
            )
        fall = None if steps is not None else find_fall(run.metrics(), metric)
        first, last = _check_steps(run, fall.updates if fall is not None else steps or (0, 0))
        groups = _groups_of(run, first, last)
        judge = Judge(
            environment=environment,
            agent=agent,
            metric=metric.rpartition("/")[2],
            episodes=episodes,
            seed=seed,
        )
        trial = Trial(run, first, last, judge, display)
        return trial.find_harm(groups, fall, most=most, num_controls=controls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Plays the same held-out tasks with the same seeds, whatever it is given."""

    environment: str
    agent: str
    metric: str
    episodes: int
    seed: int

    def values(self, target: str) -> list[float]:
        """Return the metric of `target`, a folder of a run with the step, in each task; 0 where an episode failed."""
        make_environment = find_ready(self.environment, for_model=True)
        acting = find_acting(
            target, make_environment, agent=self.agent, temperature=1.0, seed=self.seed, limits=Limits()
        )
        tasks = draw_held_out(tasks_of(make_environment), self.episodes)
        try:
            with closing(acting.rollout):
                seed = derive_seed("evaluation", self.seed)
                played = acting.play(tasks, seed=seed, on_episode=lambda _: None)
        finally:
            if acting.rollout.engine is not None:
                acting.rollout.engine.close()
        outcomes = [each.outcome if isinstance(each.outcome, Score) else None for each in played]
        is_success = self.metric == "success"
        return [
            0.0 if each is None else float(each.is_success if is_success else each.value) for each in outcomes
        ]


class Trial:
    """The updates `first` to `last` of `run`, made again without this or that."""

    def __init__(self, run: Run, first: int, last: int, judge: Judge, display: Display | None) -> None:
        self.run, self.first, self.last, self.judge, self.display = run, first, last, judge, display
        self.base = find_base(run, first)
        self._usual: list[float] = []

    def find_harm(
        self,
        groups: Mapping[tuple[int, str], Sequence[Trajectory]],
        fall: Fall | None,
        *,
        most: int,
        num_controls: int,
    ) -> Bisection:
        """Leave out each of `groups`, or where they are more than `most` each step and then the groups of the worst."""
        if self.display is not None:
            self.display.phase("replays", min(len(groups), most) + num_controls)
        self._usual = self._play(frozenset())
        is_kept = self.base is not None and self.base.step == self.first - 1
        before = fmean(self.judge.values(f"{self.run.folder}@{self.first - 1}")) if is_kept else None
        found: list[Effect] = []
        chosen = dict(groups)
        if len(chosen) > most:
            for step in range(self.first, self.last + 1):
                own = [each for key, each in groups.items() if key[0] == step]
                if own:
                    found.append(self.leave_out(f"step {step}", step, [t for each in own for t in each]))
            worst = max(found, key=lambda each: each.change.mean).steps[0]
            chosen = {key: each for key, each in groups.items() if key[0] == worst}
        tried = list(chosen.items())[:most]
        singles = [self.leave_out(f"{step} {own[0].task.id}", step, own) for (step, _), own in tried]
        worst_group = max(zip(singles, chosen, strict=False), key=lambda each: each[0].change.mean)[1]
        others = {key: own for key, own in tried if key != worst_group} or dict(tried)
        controls = [self.leave_control(number, worst_group[0], others) for number in range(num_controls)]
        return Bisection(
            run=self.run.name, metric=self.judge.metric, fall=fall, first=self.first, last=self.last,
            base=None if self.base is None else self.base.step, tasks=len(self._usual), score=fmean(self._usual),
            before=before, groups=tuple(sorted([*found, *singles], key=lambda each: -each.change.mean)),
            controls=tuple(controls), num_untried=len(groups) - len(tried),
        )  # fmt: skip

    def leave_control(
        self, number: int, step: int, groups: Mapping[tuple[int, str], Sequence[Trajectory]]
    ) -> Effect:
        """Leave out as many episodes as one of `groups` has, drawn from all of `step`, or of the next with some."""
        rng = np.random.default_rng(derive_seed("control", number))
        steps = sorted({at for at, _ in groups}, key=lambda at: (at < step, at))
        at = steps[number % len(steps)]
        every = [each for (own, _), members in groups.items() if own == at for each in members]
        size = min(max(len(members) for members in groups.values()), len(every))
        drawn = [every[place] for place in rng.choice(len(every), size, replace=False).tolist()]
        return self.leave_out(f"control {number + 1}: {size} of step {at}", at, drawn)

    def leave_out(self, name: str, step: int, episodes: Sequence[Trajectory]) -> Effect:
        """Return what becomes of the metric without these `episodes` of `step`."""
        values = self._play(frozenset((step, each.group, each.index) for each in episodes))
        if self.display is not None:
            self.display.advance()
        return Effect(
            name=name, steps=(step,), episodes=len(episodes), score=fmean(values),
            change=bootstrap_pairs(self._usual, values),
        )  # fmt: skip

    def _play(self, left: Left) -> list[float]:
        """Return the metric of each task after the updates, made again without the episodes `left` out."""
        found: list[float] = []

        def play(made: RederivedRun) -> None:
            found.extend(self.judge.values(f"{made.folder}@{self.last}"))

        first = 0 if self.base is None else self.base.step + 1
        make_again(self.run, Part(base=self.base, first=first, last=self.last), left=left, on_end=play)
        return found


def _check_steps(run: Run, steps: tuple[int, int]) -> tuple[int, int]:
    """Return the first and the last of `steps`, which must be there."""
    first, last = steps
    known = run.last_step or 0
    if not 1 <= first <= last <= known:
        raise UsageError(
            f"--steps: got {first}:{last} for {run.folder}, whose steps are 1 to {known}; name some of them"
        )
    return first, last


def _groups_of(run: Run, first: int, last: int) -> dict[tuple[int, str], list[Trajectory]]:
    """Return the groups that were collected in these steps.

    Raises:
        DataError: there is none.
    """
    found: dict[tuple[int, str], list[Trajectory]] = {}
    for step in range(first, last + 1):
        for row in run.read_rows(step):
            if row.phase != "eval" and isinstance(row.trajectory.outcome, Score):
                found.setdefault((step, row.trajectory.group), []).append(row.trajectory)
    if not found:
        raise DataError(
            f"bisecting {run.folder}: got steps {first} to {last}, which collected no episodes; a run that learns "
            "from data has no groups to leave out"
        )
    return found
