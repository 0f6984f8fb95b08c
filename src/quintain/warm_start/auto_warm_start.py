"""The warm start that goes on until tasks are solved, where nobody says how much is to be imitated.

An expert shows fresh episodes for every update, so that nothing can be learned by heart, and now and then writes a call
that cannot be read, so that the policy knows how to go on after one. Where there is no expert, many episodes of random
play are looked through and the best are imitated: filtered behaviour cloning, the %BC of arXiv 2106.01345. Then the
policy plays, and the best of what it and chance have found is imitated (rejection sampling, 2308.01825).

Imitation ends as soon as half of the training tasks are solved, for methods that compare episodes learn most where some
are solved and some are not; with an expert at three quarters, for from it the rest is learned soonest. Or
it ends when an amount of arithmetic is spent, which depends on no clock. A run thus repeats bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from quintain.agents.catalog import is_outside
from quintain.curriculum.streams import TaskStream
from quintain.data.pack import micro_batches
from quintain.data.samples import imitation_samples
from quintain.environments.boundary import has_expert, tasks_of
from quintain.environments.catalog import find
from quintain.environments.probes import UNREWARDED
from quintain.environments.protocol import Factory
from quintain.learning.learner import Learner
from quintain.learning.pass_size import fit_pass
from quintain.learning.sections import DataSection, UpdateSection
from quintain.learning.train_config import TrainConfig
from quintain.losses.imitation import imitation
from quintain.models.device import find_device
from quintain.models.origin import is_pretrained
from quintain.rollout.collect import Rollout
from quintain.rollout.progress import Display
from quintain.rollout.request import Limits
from quintain.rollout.samplers import Demonstrator
from quintain.store.run import Run
from quintain.types import Sample, Score, Task, Trajectory, derive_seed
from quintain.warm_start.probe import Probe, probe_steps
from quintain.warm_start.start import end_imitation, fumbling, harness, imitator, new_model, teacher

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ENOUGH, TAUGHT = 0.5, 0.75
"""Success at which imitation ends: of one's own luck, and of an expert, from whom the same is learned for less."""
MAX_WORK, MIN_WORK = 2e13, 3e12
"""Multiplications and additions of the whole warm start: three minutes of one core; and those of half a minute, which
it may have however short the training is. Between the two it may have as many as the training after it."""
MIN_UPDATES, MAX_UPDATES = 72, 2000
"""Updates that are made whatever they cost, if they are needed, and the most."""
FLOPS_PER_TOKEN = 6
"""Of a forward and a backward pass, for each parameter."""
EPISODES = 4
"""Of an update: more updates on fewer episodes learn to copy sooner than fewer on more."""
CHUNK = 64
"""Episodes that an expert is asked for at once."""
EXPERT_FUMBLES = 0.05
"""Share of an expert's tool calls that cannot be read; they are not imitated, only what follows them."""
RISING = 20
"""Updates over which the learning rate rises: the first of Adam are as large as any, and mostly noise."""
TIMED = 8
"""Updates after which it is said how long all of them would take."""
SEARCH_CHUNK, MAX_TURNS, MAX_SECONDS = 512, 100_000, 120.0
"""Random episodes played at once, and the turns and seconds after which there are enough."""
KEPT, GOOD = 128, 0.9
"""Episodes of chance that are imitated; and the share of the greatest return with which none better are looked for."""
ROUND_UPDATES, FRESH, AGAIN = 64, 64, 192
"""Updates between two times that the policy plays; its episodes of tasks it meets first, and of those never solved."""
LIKELY = 1.0
"""Nats of an expert's average turn under which it is worth while to let the policy play."""
SMOOTHED = 16
"""Updates whose loss is averaged for that."""
ROOM = 2
"""Tokens of a turn in the policy's own episodes, in multiples of the longest turn that it was shown."""
PROBES: dict[str, Any] = {"first": 32, "between": 16, "growth": 1.4}
MEASURED, LEVEL = 5, 0.03
"""Measurements in a row that differ by no more than this where a warm start no longer gets anywhere."""
LEARNS_PAGE = "docs/it-does-not-learn.md"
EVENT = "warm start"
"""The event of a run that says how it ended."""
SEARCH, PHASE = "random play", "practice"
"""The event of a run that says how much random play there was, and the phase of the policy's own episodes."""


@dataclass(slots=True)
class ImitationReport:
    """How a warm start went: ``Lesson(most=300, updates=120, shown=960, success=[(24, 0.02), (120, 0.53)])``."""

    enough: float = ENOUGH
    most: int = 0
    updates: int = 0
    shown: int = 0
    success: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """after how many updates how much of the training tasks was solved"""
    has_expert: bool = False
    is_rewarded: bool = True
    """whether any of what was imitated was rewarded"""

    @property
    def is_stuck(self) -> bool:
        """Whether the last measurements of success are all the same, or nearly."""
        latest = [share for _, share in self.success[-MEASURED:]]
        return len(latest) == MEASURED and max(latest) - min(latest) <= LEVEL

    @property
    def is_enough(self) -> bool:
        """Whether there is no need to go on."""
        return bool(self.success) and self.success[-1][1] >= self.enough

    def __str__(self) -> str:
        """Return it in words."""
        if not self.updates:
            return f"{self.success[-1][1]:.0%} of training tasks solved without any"
        end = f"{self.success[-1][1]:.0%}" if self.success else "unknown"
        why = "" if self.is_enough else f", {self.why()}"
        return f"{self.shown:,} episodes imitated in {self.updates} updates: training tasks solved {end}{why}"

    def why(self) -> str:
        """Return why it ends before enough is solved, and what helps."""
        if not self.is_rewarded:
            return f"because {UNREWARDED} ({LEARNS_PAGE})"
        if self.is_stuck:
            cause = (
                "the expert knows what the agent is not shown" if self.has_expert else "the rest is too hard"
            )
            return f"where it stays: {cause}, or the model is too small ({LEARNS_PAGE})"
        return "where it ends for lack of time (more: --demonstrations N)"


def is_taught(config: DataSection) -> bool:
    """Whether the warm start of `config` finds out for itself how much is imitated."""
    return config.demonstrations is None and not is_outside(config.agent)


def teach(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: TrainConfig,
    run: Run,
    display: Display,
    *,
    rate: float | None = None,
) -> None:
    """Let `model` imitate, at `rate`, until it solves enough of its training tasks, and note in `run` how that went."""
    make_environment = find(config.environment)
    device = model.device
    learner = imitator(model, config, rate)
    model.to(cast("Any", find_device(config.device)))
    fit_pass(learner, config.tokens_per_microbatch)
    is_shown = has_expert(make_environment)
    report = ImitationReport(enough=TAUGHT if is_shown else ENOUGH, has_expert=is_shown)
    with Probe(config, make_environment, model, tokenizer) as probe:
        if new_model(config.model) is None:
            display.phase("what the model can do", 1)
            report.success.append((0, probe.success(learner.version)))
            if is_pretrained(model) and not has_expert(make_environment) and report.success[0][1] > 0:
                report.enough = report.success[0][
                    1
                ]  # it acts already, and random play would teach it to act at random
        if not report.is_enough:
            limits = Limits(max_failure_share=0.5)
            agent = harness(config, tokenizer, make_environment)
            with closing(Rollout(agent, make_environment, None, limits=limits)) as rollout:
                auto = AutoWarmStart(config, run, display, learner, probe, rollout, report)
                if has_expert(make_environment):
                    auto.follow_expert(make_environment)
                else:
                    auto.follow_luck(make_environment)
    end_imitation(model, device)
    run.event(EVENT, str(report), updates=report.updates, shown=report.shown, success=report.success)
    display.say(f"warm start: {report}")


@dataclass(slots=True)
class AutoWarmStart:
    """Who shows what, and what is learned from it."""

    config: TrainConfig
    run: Run
    display: Display
    learner: Learner
    probe: Probe
    rollout: Rollout
    report: ImitationReport
    losses: list[float] = field(default_factory=list[float])
    """of each update, in nats per token"""
    tokens: float = 0.0
    """of an average turn that was shown"""
    unsolved: set[int] = field(default_factory=set[int])
    """numbers of the tasks that the policy has tried, never with success"""
    started: float = 0.0
    """when the first update began, in seconds of the clock that only goes on"""

    @property
    def lowest(self) -> float:
        """What an episode returns in which nothing is achieved: nothing, or less where nothing is the most there is."""
        low, high = self.probe.return_range
        return low if high <= 0 else max(low, 0.0)

    def follow_expert(self, make_environment: Factory) -> None:
        """Imitate episodes of the expert, each once, until enough is solved."""
        demonstrator = fumbling(
            teacher(make_environment, expert_noise=self.config.expert_noise), EXPERT_FUMBLES
        )
        tasks = TaskStream(tasks_of(make_environment), first=self.config.task_offset)
        probes: set[int] = set()
        for number in count():
            shown = self._demonstrate(tasks.draw(number, CHUNK), demonstrator)
            if self.run.next_step == 0:
                self.run.append(shown, step=0, phase="demonstrations")
            if not self.report.most:
                self._plan(shown)
                probes = probe_steps(self.report.most, **PROBES)
            for first in range(0, len(shown), EPISODES):
                self._imitate(shown[first : first + EPISODES])
                is_last = self.report.updates == self.report.most
                if (self.report.updates in probes and self._is_likely()) or is_last:
                    self._probe()
                if self.report.is_enough or is_last:
                    return

    def follow_luck(self, make_environment: Factory) -> None:
        """Imitate the best episodes of random play, then the best of the policy's own, until enough is solved."""
        tasks = TaskStream(tasks_of(make_environment), first=self.config.task_offset)
        best = self._search_random(tasks, teacher(make_environment))
        if self.run.next_step == 0:
            self.run.append(best, step=0, phase="demonstrations")
        self._plan(best)
        self.report.is_rewarded = value_of(best[0]) > self.lowest
        rounds = range(self.report.most // ROUND_UPDATES if self.report.is_rewarded else 1)
        for number in rounds:
            for update in range(ROUND_UPDATES):
                rng = np.random.default_rng(derive_seed(self.config.seed, "round", number, update))
                size = min(EPISODES, len(best))
                self._imitate([best[place] for place in rng.choice(len(best), size, replace=False)])
            own = self._practise(number)
            if self.run.next_step == 0:
                self.run.append(own, step=0, phase=PHASE)
            if self.report.is_enough:
                return
            best = self._best_of([*own, *best])

    def _practise(self, number: int) -> list[Trajectory]:
        """Return what the policy plays by itself in round `number`, and note what it solves of tasks it first meets.

        Those come first. If anything comes of them, it tries again what it met before and never solved: of what is
        solved at once most is easy, and to imitate nothing else teaches the habits that suffice for it.
        """
        fresh = range(number * FRESH, (number + 1) * FRESH)
        own = self._try_tasks(fresh, number)
        self._note(sum(each.is_success for each in own) / max(len(own), 1))
        if any(value_of(each) > self.lowest for each in own):
            rng = np.random.default_rng(derive_seed(self.config.seed, "again", number))
            old = sorted(self.unsolved.difference(fresh))
            chosen = rng.choice(len(old), min(len(old), AGAIN), replace=False)
            own += self._try_tasks([old[place] for place in chosen], number)
        return own

    def _try_tasks(self, numbers: Sequence[int], occasion: int) -> list[Trajectory]:
        """Return what the policy plays of the tasks of these `numbers`, as the `occasion`-th of their group."""
        played = self.probe.play(self.learner.version, numbers, occasion)
        for task, trajectory in played.items():
            (self.unsolved.discard if trajectory.is_success else self.unsolved.add)(task)
        return [replace(each, index=occasion) for each in played.values()]

    def _search_random(self, tasks: TaskStream, demonstrator: Demonstrator) -> list[Trajectory]:
        """Return the best of many episodes of random play."""
        known = [event["data"]["chunks"] for event in self.run.events() if event["kind"] == SEARCH]
        started, best, turns, number = time.monotonic(), list[Trajectory](), 0, 0
        self.display.say(
            f"warm start: looks through random play, at most {MAX_TURNS:,} turns or {MAX_SECONDS:.0f} s"
        )
        self.display.phase("turns of random play", MAX_TURNS)
        while True:
            shown = self._demonstrate(tasks.draw(number, SEARCH_CHUNK), demonstrator)
            number += 1
            new = sum(len(each.turns) for each in shown)
            turns += new
            self.display.advance(new)
            best = self._best_of([*best, *shown])[:KEPT]
            is_done = (
                number >= known[0]
                if known
                else turns >= MAX_TURNS
                or time.monotonic() - started > MAX_SECONDS
                or (len(best) >= KEPT and value_of(best[-1]) >= GOOD * self.probe.return_range[1])
            )
            if is_done:
                break
        values = [value_of(each) for each in best]
        if not known:
            played = number * SEARCH_CHUNK
            said = f"{played:,} random episodes, the best {len(best)} returned {min(values):.2g} to {max(values):.2g}"
            if max(values, default=self.lowest) <= self.lowest:
                said = f"{played:,} random episodes, none of which was rewarded"
            self.run.event(SEARCH, said, chunks=number)
            self.display.say(f"warm start: {said}")
        return best

    def _best_of(self, episodes: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the best of `episodes`; where some were paid for something, none that was not."""
        ranked = best_of(episodes)
        return [each for each in ranked if value_of(each) > self.lowest] or ranked

    def _demonstrate(self, tasks: Sequence[Task], demonstrator: Demonstrator) -> list[Trajectory]:
        """Return the scored episodes of `demonstrator` on `tasks`."""
        seed = derive_seed(self.config.seed, "demonstrations")
        groups = self.rollout.demonstrations(tasks, demonstrator, seed=seed)
        return [trajectory for group in groups for trajectory in group.scored]

    def _plan(self, shown: Sequence[Trajectory]) -> None:
        """Find out how many updates there may be, from the length of what is `shown`."""
        samples = self._samples(shown)
        tokens = EPISODES * sum(len(each.token_ids) for each in samples) / len(shown)
        turns = [turn for each in shown for turn in each.turns if turn.action.error is None]
        self.tokens = sum(len(turn.completion.token_ids) for turn in turns) / max(len(turns), 1)
        longest = max((len(turn.completion.token_ids) for turn in turns), default=self.config.max_turn_tokens)
        self.probe.limit(ROOM * longest)
        parameters = sum(each.numel() for each in self.learner.model.parameters())
        self.report.most = most_updates(
            parameters, tokens, trained=count_episodes(self.config, self.config.episodes_of_step)
        )
        self.display.phase("warm start, at most", self.report.most)

    def _imitate(self, shown: Sequence[Trajectory]) -> None:
        """Make one update on what is `shown`, at a rate that rises, then falls to 0 with the most there may be."""
        samples = self._samples(shown)
        self.started = self.started or time.monotonic()
        if samples:
            batches = micro_batches(samples, max_tokens=self.learner.max_tokens)
            begun = min((self.report.updates + 1) / RISING, 1.0)
            scale = begun * (1 - self.report.updates / (self.report.most + 1))
            report = self.learner.step(batches, imitation(), rate_scale=scale)
            self.losses.append(report.loss)
        self.report.updates += 1
        self.report.shown += len(shown)
        self.display.advance()
        if self.report.updates == TIMED:
            seconds = (time.monotonic() - self.started) / TIMED * self.report.most
            self.display.say(
                f"warm start: until {self.report.enough:.0%} of training tasks are solved, at most "
                f"{self.report.most:,} updates, "
                f"which would take about {seconds:.0f} s here"
            )

    def _is_likely(self) -> bool:
        """Whether the policy would write an average turn as the expert does, so that it can be let play."""
        latest = self.losses[-SMOOTHED:]
        return bool(latest) and self.tokens * sum(latest) / len(latest) < LIKELY

    def _probe(self) -> None:
        """Measure how much is solved."""
        self._note(self.probe.success(self.learner.version))

    def _note(self, solved: float) -> None:
        """Note that the share `solved` is solved now, and say so."""
        self.report.success.append((self.report.updates, solved))
        self.display.say(
            f"warm start: {solved:.0%} of training tasks solved after {self.report.updates} updates"
        )

    def _samples(self, shown: Sequence[Trajectory]) -> list[Sample]:
        """Return what is trained of `shown`: all that could be read."""
        return imitation_samples(shown, is_left_out=lambda turn: turn.action.error is not None)


def most_updates(parameters: int, tokens: float, *, trained: float | None = None) -> int:
    """Return how many updates on `tokens` each a model of so many parameters may imitate.

    They are as much work as the `trained` episodes after them, where that is known; see `MAX_WORK`.
    """
    update = FLOPS_PER_TOKEN * parameters * tokens
    work = MAX_WORK if trained is None else min(max(trained / EPISODES * update, MIN_WORK), MAX_WORK)
    return round(min(max(work / update, MIN_UPDATES), MAX_UPDATES))


def count_episodes(update: UpdateSection, episodes: int | None) -> float | None:
    """Return how many of the `episodes` of a step are trained on, and played, in forward and backward passes over one.

    None where a step has no fixed number of them.
    """
    return None if episodes is None else update.steps * episodes * (update.passes + 1 / 3)


def value_of(trajectory: Trajectory) -> float:
    """Return the return of a scored episode."""
    assert isinstance(trajectory.outcome, Score), "only scored episodes are shown"
    return trajectory.outcome.value


def best_of(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Return of each task the best episode: all that solved theirs, and others of highest return up to `KEPT` in all.

    Of equal return the shorter is better, then the first.
    """
    best: dict[str, Trajectory] = {}
    for each in sorted(trajectories, key=lambda each: (-value_of(each), len(each.turns))):
        best.setdefault(each.task.id, each)
    return [each for place, each in enumerate(best.values()) if place < KEPT or each.is_success]
