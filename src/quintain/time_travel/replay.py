"""One recorded step, made again to be looked at: its groups, and a run that stands before or after it.

Each group's part of the step's gradient is computed alone, by the method's own loss, before the step is taken: loss
weights are normalised over the whole step, so that these parts add up to its gradient.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from quintain.errors import InvariantError, UsageError
from quintain.learning.update import PROBE
from quintain.store.creation import check_free
from quintain.store.run import Run
from quintain.time_travel.differences import Difference, DifferenceFound
from quintain.time_travel.rederivation import (
    Comparison,
    Part,
    RederivedRun,
    find_base,
    make_again,
    open_original,
)
from quintain.types import Batch, Loss, Score, Trajectory, Use

if TYPE_CHECKING:
    from quintain.learning.learner import Learner

OTHERS = "(others)"
"""What streams are called that are of no recorded group, or of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """A group of a step: ``GroupReport(group="0:guess/train/7", task="guess/train/7", rewards=(0.0, 1.0), …)``."""

    group: str
    task: str
    collected: int
    """step that its episodes were collected in"""
    rewards: tuple[float | None, ...]
    """of each episode; None of one that failed"""
    successes: int
    advantages: tuple[float, ...]
    """mean over the trained tokens of each episode that was used and has some"""
    tokens: int
    """trained ones"""
    gradient: float | None
    """norm of its part of the gradient of the whole step, at the weights before it; None where it had none"""
    along: float | None
    """cosine of that with the whole gradient"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReplay:
    """A step that was made again: ``print(quintain.replay("runs/grpo-1", step=31))``."""

    run: str
    step: int
    base: int | None
    metrics: Mapping[str, float | None]
    """as they are now"""
    groups: tuple[GroupReport, ...]
    weights: tuple[str | None, str | None]
    """fingerprints of the weights before and after the step, as recorded"""
    difference: Difference | None
    """in what the step does not follow"""
    folder: Path | None
    """the run that stands after the step, with the checkpoint before it"""


@dataclass(slots=True)
class GradientProbe:
    """Takes the gradient of what is learned from apart by group: ``GradientProbe.of(episodes)``."""

    groups: Mapping[str, str]
    """episode → the group that it is of"""
    turns: Mapping[bytes, frozenset[str]]
    """sampled turn, by `key_of`, → the groups with such a turn"""
    norms: dict[str, float] = field(default_factory=dict[str, float])
    along: dict[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def of(cls, episodes: Iterable[Trajectory]) -> GradientProbe:
        """Return one that knows the groups of `episodes`."""
        groups: dict[str, str] = {}
        turns: dict[bytes, frozenset[str]] = {}
        for episode in episodes:
            name = groups[episode.id] = group_name(episode)
            for turn in episode.turns:
                ids = turn.completion.token_ids
                key = key_of(ids, turn.completion.logprobs or (0.0,) * len(ids))
                turns[key] = turns.get(key, frozenset()) | {name}
        return cls(groups=groups, turns=turns)

    def __call__(
        self, learner: Learner, batches: Sequence[Batch], loss: Loss, trajectories: Sequence[Trajectory]
    ) -> None:
        """Look at these micro-batches; of a group that was seen before nothing is taken."""
        names = [
            [self._name(batch, place, trajectories) for place in range(len(batch.lengths))]
            for batch in batches
        ]
        fresh = dict.fromkeys(name for own in names for name in own if name not in self.norms)
        if not fresh:
            return
        whole = self._gradient(learner, batches, loss)
        if whole is None:
            learner.optimizer.zero_grad(set_to_none=True)
            return
        for name in fresh:
            part = [
                keep_streams(batch, [each == name for each in own])
                for batch, own in zip(batches, names, strict=True)
            ]
            gradient = self._gradient(learner, part, loss)
            if gradient is None:
                continue
            self.norms[name] = norm = float(gradient.norm())
            self.along[name] = float(gradient @ whole) / max(norm * float(whole.norm()), 1e-30)
        learner.optimizer.zero_grad(set_to_none=True)

    def _name(self, batch: Batch, place: int, trajectories: Sequence[Trajectory]) -> str:
        """Return the group of a stream: that of its trajectory, else the one that has all turns which it samples."""
        if trajectories:
            return self.groups.get(trajectories[int(batch.extra.trajectory[place])].id, OTHERS)
        start = sum(batch.lengths[:place])
        own = slice(start, start + batch.lengths[place])
        ids, logprobs, turns = batch.token_ids[own], batch.logprobs[own], batch.turn_id[own]
        found = [
            self.turns.get(key_of(ids[turns == turn], logprobs[turns == turn]), frozenset[str]())
            for turn in turns.unique().tolist()
            if turn >= 0
        ]
        known = frozenset[str].intersection(*found) if found else frozenset[str]()
        return next(iter(known)) if len(known) == 1 else OTHERS

    def _gradient(self, learner: Learner, batches: Sequence[Batch], loss: Loss) -> Tensor | None:
        """Return the gradient of `loss` on `batches`, flat; None where there is none, or it cannot be taken apart."""
        learner.optimizer.zero_grad(set_to_none=True)
        for batch in batches:
            if not bool(batch.loss_weight.any()):
                continue
            try:
                report = loss(learner.forward(batch), batch)
            except InvariantError:  # one that compares wants both sides
                return None
            report.loss.backward()
        found = [
            torch.zeros_like(each).flatten() if each.grad is None else each.grad.flatten()
            for each in learner.parameters
        ]
        gradient = torch.cat(found)
        return gradient if bool(gradient.any()) else None


def keep_streams(batch: Batch, kept: Sequence[bool]) -> Batch:
    """Return `batch` with the loss weights of those streams alone that are `kept`."""
    device = batch.loss_weight.device
    mask = torch.repeat_interleave(
        torch.tensor(kept, device=device), torch.tensor(batch.lengths, device=device)
    )
    return replace(batch, loss_weight=batch.loss_weight * mask)


def key_of(ids: Tensor | Sequence[int], logprobs: Tensor | Sequence[float]) -> bytes:
    """Return what a sampled turn is known by: its tokens and their log-probs."""
    tokens = np.asarray(ids.cpu() if isinstance(ids, Tensor) else ids, np.int64)
    sampled = np.asarray(logprobs.cpu() if isinstance(logprobs, Tensor) else logprobs, np.float32)
    return tokens.tobytes() + b"|" + sampled.tobytes()


@contextmanager
def probe_updates(probe: GradientProbe) -> Generator[None]:
    """Let `probe` see the updates that are made within."""
    token = PROBE.set(probe)
    try:
        yield
    finally:
        PROBE.reset(token)


def replay_step(folder: Path, step: int, *, out: Path | None = None, is_trusted: bool = False) -> StepReplay:
    """Make `step` of the run in `folder` again and return what it was made of.

    In `out`, where that is given, a run is left with the checkpoints before and after the step, which goes on from
    there.

    Raises:
        UsageError: there is no such step, or `out` is there already.
    """
    with open_original(folder, is_trusted=is_trusted, to="replaying") as run:
        last = run.last_step or 0
        if not 1 <= step <= last:
            raise UsageError(
                f"--step: got {step} for {folder}, whose steps are 1 to {last}; name one of them"
            )
        if out is not None:
            check_free(out, replace=False)
        with tempfile.TemporaryDirectory(prefix="quintain-replay-") as home:
            into = Path(home) / run.name
            found = _make_step(run, step, into)
            if out is not None:
                out.parent.mkdir(parents=True, exist_ok=True)
                if out.exists():
                    out.rmdir()
                shutil.move(into, out)
            return replace(found, folder=out)


def _make_step(run: Run, step: int, into: Path) -> StepReplay:
    """Make `step` of `run` again in the new folder `into`, from the state before it, which is saved as well."""
    base = find_base(run, step)
    done = -1 if base is None else base.step
    if done < step - 1:
        make_again(run, Part(base=base, first=done + 1, last=step - 1), into=into)
    comparison = Comparison(run)
    episodes = {each.id: each for each in _episodes_used(run, step)}
    probe = GradientProbe.of(episodes.values())
    difference: Difference | None = None
    uses: list[Use] = []
    metrics: dict[str, float | None] = {}

    def look(made: RederivedRun, each: int) -> None:
        nonlocal difference
        if each != step:
            return
        uses.extend(use for _, use in made.uses(step))
        metrics.update({k: v for k, v in made.commits()[step].metrics.items() if k not in ("step", "phase")})
        try:
            comparison.compare(made, step)
        except DifferenceFound as found:
            difference = found.found

    with probe_updates(probe):
        make_again(run, Part(base=base, first=step, last=step), on_step=look, into=into)
    commits = run.commits()
    before, after = (commits[each].weights if each in commits else None for each in (step - 1, step))
    return StepReplay(
        run=run.name, step=step, base=None if base is None else base.step, metrics=metrics,
        groups=tuple(_report_groups(episodes, uses, probe)), weights=(before, after),
        difference=difference, folder=None,
    )  # fmt: skip


def _episodes_used(run: Run, step: int) -> list[Trajectory]:
    """Return the episodes of `run` that `step` used, and those that were collected for it."""
    own = [each.trajectory for each in run.read_rows(step) if each.phase != "eval"]
    known = {each.id for each in own}
    names = dict.fromkeys(use.episode for _, use in run.uses(step))
    return [*own, *(run.episode(name) for name in names if name not in known)]


def group_name(episode: Trajectory) -> str:
    """Return the name of the group of `episode`, with the step that it was collected in."""
    return f"{int(episode.id[:8], 16)}|{episode.group}"


def _report_groups(
    episodes: Mapping[str, Trajectory], uses: Sequence[Use], probe: GradientProbe
) -> Generator[GroupReport]:
    """Yield the groups of a step, those with the largest gradient first."""
    signals = {use.episode: use.signals for use in uses}
    members: dict[str, list[Trajectory]] = {}
    for episode in episodes.values():
        members.setdefault(group_name(episode), []).append(episode)
    for name in sorted(members, key=lambda name: -probe.norms.get(name, 0.0)):
        advantages: list[float] = []
        tokens = 0
        for episode in members[name]:
            known = signals.get(episode.id)
            if known is None or known.weights is None:
                continue
            is_trained = known.weights != 0
            tokens += int(is_trained.sum())
            if known.advantages is not None and is_trained.any():
                advantages.append(float(known.advantages[is_trained].mean()))
        first = members[name][0]
        scores = [each.outcome if isinstance(each.outcome, Score) else None for each in members[name]]
        yield GroupReport(
            group=first.group, task=first.task.id, collected=int(name.partition("|")[0]),
            rewards=tuple(None if score is None else score.value for score in scores),
            successes=sum(score is not None and score.is_success for score in scores),
            advantages=tuple(advantages), tokens=tokens,
            gradient=probe.norms.get(name), along=probe.along.get(name),
        )  # fmt: skip


COLUMNS = ("group of task", "solved", "reward", "advantage", "tokens", "gradient", "along")
"""Of `list_rows`: rewards and advantages as mean and range, the norm of the group's gradient, its cosine with all."""


def list_rows(replay: StepReplay) -> list[tuple[str, ...]]:
    """Return a row of a table for each group of `replay`; see `COLUMNS`."""
    return [
        (
            each.task,
            f"{each.successes}/{len(each.rewards)}",
            _write_range([reward for reward in each.rewards if reward is not None]),
            _write_range(each.advantages),
            str(each.tokens),
            "–" if each.gradient is None else f"{each.gradient:.3g}",
            "–" if each.along is None else f"{each.along:+.2f}",
        )
        for each in replay.groups
    ]


def _write_range(values: Sequence[float]) -> str:
    """Return mean and range of `values`."""
    if not values:
        return "–"
    return f"{fmean(values):.2f} [{min(values):.2f}, {max(values):.2f}]"
