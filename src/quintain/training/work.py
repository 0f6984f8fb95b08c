"""What every recipe does around a step: set up, show progress, record, evaluate, save, stop when asked.

`Work` holds the parts that a loop names (rollout, learner, engine, curriculum) and `steps` yields the steps
that are still to do. The one rule: what happens *in* a step is written in the recipe, not here.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.curriculum.contamination import Apart
from quintain.curriculum.streams import Uniform, held_out
from quintain.data.pack import Aggregation, micro_batches
from quintain.engines.local import Local
from quintain.environments.boundary import asked, tasks_of, trainable_tools
from quintain.environments.catalog import find
from quintain.environments.protocol import Factory
from quintain.errors import InvariantError, StoreError
from quintain.models.fingerprint import fingerprint
from quintain.models.heads import ValueHead
from quintain.models.load import load
from quintain.models.save import save
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.request import USUAL, Options
from quintain.store.run import Run
from quintain.training.canary import Canary
from quintain.training.examining import checked_examination, examiner
from quintain.training.interrupt import Interruption
from quintain.training.job import Job
from quintain.training.learner import Learner, Optimization, StepReport
from quintain.training.monitors.held_out import audited, canaries
from quintain.training.monitors.thresholds import thresholds
from quintain.training.monitors.watch import Monitors
from quintain.training.policy import demonstrate, harness, new_policy
from quintain.training.progress import Display
from quintain.training.report import evaluation_metrics, report_metrics, rollout_metrics
from quintain.training.warm_up import MICRO_TOKENS, warm_up
from quintain.types import Batch, Group, Sample, Task, Trajectory, derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

START, MODEL = "start", "model"
"""Folders of a run: the policy it starts from (after the warm-up), and the one it ends with."""
MOST_NAMED = 50_000_000
"""Parameters up to which the journal names the weights of every step; of larger models those of checkpoints."""


class Work:
    """The parts of a run of `job`, set up and ready; made by `opened`."""

    def __init__(
        self,
        job: Job,
        run: Run,
        display: Display,
        interruption: Interruption,
        *,
        has_critic: bool,
        has_reference: bool,
        limits: Limits | None = None,
    ) -> None:
        self.interruption = interruption
        self.job, self.run, self.display = job, run, display
        self.make_environment = find(job.environment)
        loaded = load(str(run.folder / START))
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.agent = harness(
            self.tokenizer, self.make_environment, temperature=job.temperature, agent=job.agent
        )
        self.engine = Local(self.model)
        self.learner = Learner(
            self.model,
            optimization(job),
            value_head=ValueHead(self.model.config.hidden_size) if has_critic else None,
            has_reference=has_reference,
        )
        self._num_parameters = sum(p.numel() for p in self.model.parameters())
        self.canary = Canary(self.learner)
        limits = replace(limits or Limits(), max_broken_share=job.most_broken)
        self.rollout = Rollout(self.agent, self.make_environment, self.engine, limits=limits)
        self.examiner = examiner(job, self.rollout, self.tokenizer)
        self.curriculum = Uniform(tasks_of(self.make_environment))
        self.held_out = held_out(tasks_of(self.examiner.make_environment), job.eval_episodes)
        self.apart = Apart(self.held_out)
        rows = run.metrics()
        last = rows[-1] if rows else {}
        self._tools = [tool.name for tool in asked(self.make_environment, trainable_tools)]
        self.monitors = Monitors(thresholds(job.monitors), rows, self._tools)
        self._seconds_before = float(last.get("time/seconds", 0.0))
        self.turns_taken = int(last.get("total/turns", 0))
        self.tokens_sampled = int(last.get("total/tokens", 0))
        self.started = self._step_started = time.monotonic()
        self._num_tokens = 0
        self._finished, self._mark = run.next_step - 1, (0, 0)

    def seed(self, *parts: int | str) -> int:
        """Return the seed of this run that `parts` name."""
        return derive_seed("run", self.job.seed, *parts)

    def steps(self) -> Iterator[int]:
        """Yield the steps still to do, from 1 on; before the first, evaluate as step 0.

        Raises:
            KeyboardInterrupt: the user asked to stop; what was done is saved.
        """
        if self.run.next_step == 0:
            self.commit(0, (), None)
        for step in range(self.run.next_step, self.job.steps + 1):
            if self._is_spent():
                break
            self._stop_if_asked(step - 1)
            self._step_started = time.monotonic()
            self._num_tokens = self._num_computed()
            self.rollout.retries.clear()
            yield step
        save(self.model, self.tokenizer, self.run.folder / MODEL)

    def groups(self, step: int, *, tasks: int, size: int, options: Options = USUAL) -> list[Group]:
        """Return `size` episodes of each of the step's `tasks` training tasks, recorded in the journal."""
        return self.sampled(step, self.curriculum.draw(step, tasks), size=size, options=options)

    def sampled(
        self, step: int, tasks: Sequence[Task], *, size: int, options: Options = USUAL
    ) -> list[Group]:
        """Return `size` episodes of each of `tasks`, recorded in the journal of `step`."""
        self.apart.check(tasks)
        self.display.phase("episodes", len(tasks) * size)
        groups = self.rollout.groups(
            tasks,
            size=size,
            seed=self.seed("step", step),
            on_episode=lambda _: self.display.advance(),
            options=options,
        )
        self.run.append([t for group in groups for t in group.trajectories], step=step)
        self.count([t for group in groups for t in group.trajectories])
        return groups

    def count(self, trajectories: Sequence[Trajectory], *, num_known: int = 0) -> None:
        """Count what `trajectories` cost, but for their first `num_known` turns; see `Job.most_turns`."""
        fresh = [turn for t in trajectories for turn in t.turns[num_known:]]
        self.turns_taken += len(fresh)
        self.tokens_sampled += sum(len(turn.completion.token_ids) for turn in fresh)

    def starting_groups(self, *, tasks: int, size: int) -> list[Group]:
        """Return `size` episodes of each of `tasks` tasks by the starting policy; a resumed run reads its journal."""
        known = list(self.run.trajectories(step=0, phase="train"))
        if self.run.next_step == 0 or not known:
            return self.groups(0, tasks=tasks, size=size)
        names = dict.fromkeys(trajectory.group for trajectory in known)
        members = {name: tuple(t for t in known if t.group == name) for name in names}
        return [Group(task=group[0].task, trajectories=group) for group in members.values()]

    def demonstrations(self) -> list[Trajectory]:
        """Return the episodes of the teacher; a resumed run repeats them exactly."""
        return demonstrations(self.job, self.make_environment, self.tokenizer, self.run, self.display)

    def batches(
        self,
        samples: Sequence[Sample],
        *,
        aggregation: Aggregation = "token_mean",
        constant: float | None = None,
    ) -> list[Batch]:
        """Return `samples` as micro-batches, weighted over all of them as `data.pack` says."""
        return micro_batches(samples, max_tokens=MICRO_TOKENS, aggregation=aggregation, constant=constant)

    def commit(
        self,
        step: int,
        groups: Sequence[Group],
        report: StepReport | None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Serve the new weights, record `step` with its metrics, and evaluate and save where that is due."""
        gap = self.sync()
        row = {**rollout_metrics(groups), **(report_metrics(report) if report else {}), **(metrics or {})}
        row |= {"gap/canary": gap, **self.monitors.measure(groups, self.rollout.retries)}
        row["time/step"] = time.monotonic() - self._step_started
        row["tokens_per_second"] = (self._num_computed() - self._num_tokens) / max(row["time/step"], 1e-9)
        row |= {"total/turns": float(self.turns_taken), "total/tokens": float(self.tokens_sampled)}
        is_due = step % self.job.eval_every == 0 or step == self.job.steps or self._is_spent()
        weights = fingerprint(self.model) if is_due or self._num_parameters <= MOST_NAMED else None
        if is_due:
            row |= self.evaluate(step)
        row["time/seconds"] = self._seconds_before + time.monotonic() - self.started
        row |= self.monitors.judge({"step": step, **row})
        self.run.commit(step, row, weights=weights, policy_version=self.learner.version)
        self._finish(step)
        self._raise_alarms(step)
        if is_due:
            self.run.checkpoint(step, self.learner.save)
        self.display.step(step, row)
        self.monitors.stop_if_fatal(step)

    def sync(self) -> float:
        """Let the engine serve the learner's weights, prove it, and return how far they are apart in nats."""
        self.engine.sync(self.learner.version)
        return self.canary.check(self.engine)

    def evaluate(self, step: int) -> dict[str, float]:
        """Return what held-out tasks say of the policy, of a mixture also by environment; see `evaluation_metrics`.

        They are the same tasks and seeds at every step.
        """
        self.display.phase("evaluation", len(self.held_out))
        groups = self.examiner.groups(
            self.held_out, size=1, seed=self.seed("evaluation"), on_episode=lambda _: self.display.advance()
        )
        trajectories = [t for group in groups for t in group.trajectories]
        self.run.append(trajectories, step=step, phase="eval")
        found = evaluation_metrics(trajectories, self._tools)
        return (
            found
            | canaries(self.examiner.make_environment, self.held_out)
            | audited(self.examiner.make_environment, trajectories)
        )

    def take_up(self) -> None:
        """Load the newest checkpoint, if there is one, and let the engine serve its weights.

        Raises:
            InvariantError: they are not what the journal says.
        """
        checkpoint = self.run.latest_checkpoint()
        if checkpoint is not None:
            self.learner.load(Path(checkpoint.folder))
            check_weights(self.run, self.model)
        self.sync()
        self._finish(self.run.next_step - 1)

    def may_break(self) -> bool:
        """Return whether the weights are those of the last finished step, so that ending now tears nothing."""
        return not self.learner.is_updating and self._mark == self._state

    def save_broken_off(self) -> None:
        """Save the last finished step, if the one after it was broken off before anything was learned in it."""
        if self.interruption.is_broken_off and self.run.next_step <= self._finished:
            self.run.checkpoint(self._finished, self.learner.save)

    @property
    def _state(self) -> tuple[int, int]:
        """What is counted when weights are changed, or should have been."""
        return self.learner.version, self.learner.num_skipped

    def _finish(self, step: int) -> None:
        """Note that the weights are those after `step`."""
        self._finished, self._mark = step, self._state

    def _raise_alarms(self, step: int) -> None:
        """Put the alarms that began with `step` into the journal and on the terminal."""
        for alarm in self.monitors.new:
            self.run.event(alarm.kind, alarm.message, step=step, **self.monitors.evidence(alarm))
            self.display.say(f"{alarm.kind} at step {step} ({alarm.name}): {alarm.message}")

    def _num_computed(self) -> int:
        """Return the tokens that the engine has read and sampled so far."""
        return self.engine.num_prefilled + self.engine.num_sampled

    def _is_spent(self) -> bool:
        """Return whether the training episodes so far have used up what the job allows."""
        job = self.job
        return (job.most_turns is not None and self.turns_taken >= job.most_turns) or (
            job.most_tokens is not None and self.tokens_sampled >= job.most_tokens
        )

    def _stop_if_asked(self, step: int) -> None:
        """Save what was done up to `step` and stop, if the user asked to."""
        if not self.interruption.is_asked:
            return
        if self.run.next_step <= step:
            self.run.checkpoint(step, self.learner.save)
        raise KeyboardInterrupt


@contextmanager
def opened(
    job: Job,
    run: Run,
    *,
    has_warm_up: bool = True,
    has_critic: bool = False,
    has_reference: bool = False,
    limits: Limits | None = None,
) -> Generator[Work]:
    """Yield the parts of a run of `job`; a run that was begun continues after its newest checkpoint."""
    job.check()
    started = time.monotonic()
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        display = stack.enter_context(Display(run.recipe, job.steps, max(run.next_step - 1, 0)))
        if not (run.folder / START / "config.json").exists():
            prepare(job, run, display, has_warm_up=has_warm_up)
        parts = {"has_critic": has_critic, "has_reference": has_reference}
        work = Work(job, run, display, interruption, **parts, limits=limits)
        work.started = started
        for rollout in {work.rollout, work.examiner}:
            stack.callback(rollout.close)
        work.take_up()
        interruption.defer(work.may_break)
        try:
            yield work
        except KeyboardInterrupt:
            work.save_broken_off()
            raise
        except InvariantError as error:
            raise InvariantError(f"{error}; {last_good(run)}") from error
    run.finish("done")


def last_good(run: Run) -> str:
    """Return words that name the newest intact checkpoint of `run`."""
    try:
        checkpoint = run.latest_checkpoint()
    except StoreError as error:
        return f"there is no good checkpoint: {error}"
    return (
        "there is no checkpoint yet"
        if checkpoint is None
        else f"the last good checkpoint is {checkpoint.folder}"
    )


def check_weights(run: Run, model: PreTrainedModel) -> None:
    """Raise where `model` is not what the journal says it was at the newest checkpoint of `run`.

    Raises:
        InvariantError: the fingerprints differ.
    """
    step, found = run.next_step - 1, fingerprint(model)
    known = run.weights().get(step, found)
    if known != found:
        raise InvariantError(
            f"weights of the checkpoint of step {step}: got fingerprint {found[:12]}, and the journal has "
            f"{known[:12]}; journal and checkpoints are of different runs, restore both from one copy"
        )


def prepare(job: Job, run: Run, display: Display, *, has_warm_up: bool) -> None:
    """Make the policy that the run starts from and save it in the run."""
    make_environment = find(job.environment)
    model, tokenizer = new_policy(job.model, make_environment, seed=job.seed)
    if job.eval_environment:
        checked_examination(job, tokenizer)
    if has_warm_up and job.demonstrations:
        trajectories = demonstrations(job, make_environment, tokenizer, run, display)
        imitating = Optimization(learning_rate=job.imitation_rate, temperature=job.temperature)
        warm_up(model, trajectories, imitating, epochs=job.imitation_epochs, seed=job.seed, display=display)
    save(model, tokenizer, run.folder / START)


def demonstrations(
    job: Job, make_environment: Factory, tokenizer: PreTrainedTokenizerBase, run: Run, display: Display
) -> list[Trajectory]:
    """Return the episodes of the teacher, recorded in the journal by a new run."""
    display.phase("demonstrations", job.demonstrations)
    agent = harness(tokenizer, make_environment, temperature=job.temperature, agent=job.agent)
    trajectories = demonstrate(
        agent,
        make_environment,
        count=job.demonstrations,
        seed=job.seed,
        mistakes=job.mistakes,
        on_episode=lambda _: display.advance(),
    )
    if run.next_step == 0:
        run.append(trajectories, step=0, phase="demonstrations")
    return trajectories


def optimization(job: Job) -> Optimization:
    """Return how `job` updates weights."""
    return Optimization(learning_rate=job.learning_rate, temperature=job.temperature)
