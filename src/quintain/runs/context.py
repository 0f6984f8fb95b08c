"""What every method does around a step: set up, sample, serve weights, evaluate, judge, record, save, show.

`TrainingContext` holds the parts that a loop names, and a method for each action of a step, which the loop calls in
plain view; `open_context` sets it up and looks after its end. What is learned in a step stands in the loop, not here.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, replace
from datetime import date
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from quintain.agents.catalog import build, check, engine_needs, is_outside
from quintain.agents.external_agent import member, taking
from quintain.agents.protocol import Agent, equip
from quintain.curriculum.contamination import HeldOutTasks
from quintain.curriculum.streams import TaskStream
from quintain.data.pipeline import PipelineResult
from quintain.distributed.connection import ray_package
from quintain.engines.build import hand_over
from quintain.engines.protocol import Engine
from quintain.engines.settings import check_settings
from quintain.engines.shared_engine import EngineClient
from quintain.environments.boundary import ask, check_range, tasks_of, trainable_tools
from quintain.environments.catalog import find
from quintain.environments.noisy import NoisyExpert
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.protocol import Environment, Factory
from quintain.errors import ConfigError, InvariantError, StoreError
from quintain.learning.canary import Canary
from quintain.learning.chat_format import describe_template, settle_chat_format
from quintain.learning.learner import StepReport
from quintain.learning.pass_size import fit_pass
from quintain.learning.past_selves import PastSelves, check_past
from quintain.learning.policies import Policy, build_policies, flatten_scored, plan_policies
from quintain.learning.saved import MODEL, START
from quintain.learning.sections import DataSection
from quintain.learning.thresholds import thresholds
from quintain.learning.train_config import MAIN, ColdStart, PolicySpec, TrainConfig
from quintain.models.adapters import save_adapter
from quintain.models.device import find_device
from quintain.models.families import longest_stream
from quintain.models.fingerprint import fingerprint
from quintain.models.save import save
from quintain.rollout.collect import Rollout
from quintain.rollout.progress import Display
from quintain.rollout.request import EpisodeRequest, Limits, Options
from quintain.rollout.staleness import newest_versions
from quintain.rollout.views import seats_of
from quintain.runs.collector import Collector
from quintain.runs.evaluator import check_evaluation, make_evaluator
from quintain.runs.interrupt import Interruption
from quintain.runs.monitors.held_out import audit_rewards, canaries
from quintain.runs.monitors.watch import Monitors
from quintain.runs.prefetch import RolloutPrefetcher
from quintain.runs.report import evaluation_metrics, report_metrics, rollout_metrics
from quintain.runs.resources import Resources, check_placement, engine_settings
from quintain.runs.resources import make_engine as make_engine
from quintain.runs.trackers import Tracked, Trackers, tracker_names, tracking
from quintain.runs.usage import Usage
from quintain.serve.agent_source import client_texts
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.types import NOTHING, Group, Pair, Trajectory, Use
from quintain.warm_start.auto_warm_start import is_taught, teach
from quintain.warm_start.demonstrations import (
    DataForm,
    Demonstrations,
    check_digest,
    find_named_data,
    keep_told,
    load_data,
    texts_of,
)
from quintain.warm_start.expert_episodes import ActingExpert, ExpertSource, RecordedExpert, with_recordings
from quintain.warm_start.run_notes import after_first_evaluation, before_teaching
from quintain.warm_start.start import (
    harness,
    load_demonstrations,
    make_start,
    new_model,
    read_held_out,
    start_dtype,
    warm_start,
)
from quintain.warm_start.untrained import evaluate_untrained

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ADAPTER, ENGINES, RANKS = "adapter", "engines", "ranks"
"""Folders of a run beside `MODEL` and `START`: the LoRA layers alone of the policy it ends with, and weights on their
way to engines in other processes and to ranks."""
COLD_START = "cold start"
"""The event of a run that says what was imitated of what a method's teachers showed."""
MAX_COMPARED = 2048
"""Tokens that an engine is compared with the learner on where no update compares them."""
PASSES = "passes"
"""The event of a run that says how many tokens a policy takes at once, where that was measured."""
QUIET_STEPS = 25
"""Steps for which an alarm that comes and goes is not said on the terminal again; the journal has it each time."""
MAX_NAMED = 50_000_000
"""Parameters up to which the journal names the weights of every step; of larger models those of checkpoints."""


class TrainingContext:
    """The parts of a run of `config`, set up and ready; made by `open_context`."""

    def __init__(
        self,
        config: TrainConfig,
        run: Run,
        display: Display,
        interruption: Interruption,
        *,
        has_critic: bool,
        policies: Mapping[str, PolicySpec],
        limits: Limits,
        resources: Resources,
        recorded: RecordedExpert | None = None,
        imitated: Sequence[Trajectory] = (),
        plays: bool = True,
    ) -> None:
        self._imitated = imitated
        self.config, self.run, self.display, self.interruption = config, run, display, interruption
        self.make_environment = find(config.environment)
        self.policies = build_policies(
            config,
            run.folder / START,
            policies,
            has_critic=has_critic,
            make_engine=resources.engine,
            ranks_of=lambda name: resources.ranks(name, run.folder / RANKS),
        )
        self._fit_passes()
        self.tokenizer = self.policies.main.tokenizer
        self._recorded, self._expert = recorded, cast("ExpertSource | None", None)
        seats = find_seats(config, config.seats, self.make_environment)
        self._limits = replace(limits, max_broken_share=config.max_broken, concurrency=config.concurrency)
        self.past = PastSelves(config, self.policies, seats)
        seats, drawn = self.past.usual, self.past.draw_seats if self.past else None
        acting = self.policies.acting

        def make_rollout(engines: Mapping[str, Engine]) -> Rollout:
            agents = {
                name: harness(config, policy.tokenizer, self.make_environment)
                for name, policy in acting.items()
            }
            return Rollout(
                agents,
                self.make_environment,
                engines,
                seats=seats,
                limits=self._limits,
                source=resources.source(
                    agents, config.environment, self._limits, seats=seats, usual=config.rollout
                ),
                max_staleness=config.max_staleness,
                recall=recall_of(run),
                draw_seats=drawn,
            )

        engines: Mapping[str, Engine] = self.policies.engines
        self.prefetcher: RolloutPrefetcher | None = None
        if config.max_staleness:
            desks = {name: EngineClient(engine) for name, engine in engines.items()}
            engines = cast("dict[str, Engine]", desks)
            for name, desk in engines.items():
                acting[name].engine = desk
            beside = make_rollout({name: cast(Engine, desk.new_client()) for name, desk in desks.items()})
            self.prefetcher = RolloutPrefetcher(
                beside,
                max_staleness=config.max_staleness,
                last_step=config.steps,
                max_stragglers=config.max_stragglers,
            )
        self.rollout = make_rollout(engines)
        self.agent = self.rollout.agent
        if self.prefetcher is not None:
            self.prefetcher.rollout.retries = self.rollout.retries
        self._resources = resources
        self.evaluator = make_evaluator(config, self.rollout, self.tokenizer, resources, recall_of(run))
        self.evaluates_with: Callable[[Agent], Agent] | None = None
        """what stands around the harness in evaluations, where a method says so"""
        self.held_out = read_held_out(config, config.eval_episodes)
        me = weakref.proxy(self)  # no circle, which would keep the models in memory until the collector comes
        self.collector = Collector(
            run, self.rollout, TaskStream(tasks_of(self.make_environment), first=config.task_offset),
            HeldOutTasks(self.held_out), self.tokenizer, display,
            environment=config.environment, seed=config.seed, teach=lambda *by, agent="": me._teach(*by, agent=agent),
            prefer=lambda: me._preferences(), label=lambda: me._label_answers(),
            corpus=lambda apart: me._corpus(apart), expert=lambda: me.expert,
            score=lambda name, episodes: me.policies[name].token_logprobs(episodes),
            value=lambda name, episodes: me.policies[name].turn_values(episodes).before,
            prefetcher=self.prefetcher, is_lockstep=not config.plays_apart,
        )  # fmt: skip
        self.canaries = {
            name: Canary(learner, patience=engine_settings(self.policies[name].settings).reply_timeout)
            for name, learner in self.policies.learners.items()
            if name in self.policies.engines
        }
        rows = run.metrics()
        last = rows[-1] if rows else {}
        self._tools = [tool.name for tool in ask(self.make_environment, trainable_tools)]
        self.monitors = Monitors(
            thresholds(config.monitors), rows, self._tools,
            options=[each.name for each in fields(config)], run=str(run.folder), is_outside=is_outside(config.agent),
        )  # fmt: skip
        self.collector.spent.env_steps = int(last.get("total/turns", 0))
        self.collector.spent.tokens = int(last.get("total/tokens", 0))
        self.num_parameters = sum(p.numel() for p in self.model.parameters())
        self.trackers: Trackers | None = None
        self._said: dict[tuple[str, str], int] = {}
        """the step at which each alarm was last said on the terminal"""
        self._besides: list[Callable[[], Mapping[str, float]]] = []
        self._plays = plays and config.environment != NO_ENVIRONMENT
        self.started = self._step_started = time.monotonic()
        self._used, self._gap = Usage(), dict[str, float]()
        self._seconds_before = float(last.get("time/seconds", 0.0))
        self._num_tokens = 0
        self._finished, self._mark = run.next_step - 1, self._state

    def _fit_passes(self) -> None:
        """Find out how many tokens each policy that learns takes at once; a run that goes on keeps what was found."""
        known = {
            key: value
            for event in self.run.events()
            if event["kind"] == PASSES
            for key, value in event["data"].items()
        }
        for name, policy in self.policies.trained.items():
            assert policy.learner is not None, "it is trained"
            given = policy.settings.tokens_per_microbatch or known.get(name)
            policy.activate()
            if said := fit_pass(policy.learner, given):
                self.run.event(PASSES, said, **{name: policy.max_tokens})
                self.display.say(said)

    @property
    def model(self) -> PreTrainedModel:
        """The model of the main policy."""
        return self.policies.main.model

    def seed(self, *parts: int | str) -> int:
        """Return the seed of this run that `parts` name."""
        return self.collector.seed(*parts)

    def steps(self) -> Iterator[int]:
        """Yield the steps still to do, from 1 on; before the first, evaluate as step 0; after the last, save the model.

        Raises:
            KeyboardInterrupt: the user asked to stop; what was done is saved.
        """
        if self.run.next_step == 0:
            self._begin()
        for step in range(self.run.next_step, self.config.steps + 1):
            if self.is_spent:
                break
            self.stop_if_asked(step - 1)
            self._step_started = time.monotonic()
            self._num_tokens, self._used = self._num_computed(), self._usage()
            self.rollout.retries.clear()
            self.collector.begin_step()
            yield step
        for name, policy in self.policies.trained.items():
            if name in self.policies.acting:
                policy.activate()
                place = MODEL if name == MAIN else f"{MODEL}-{name}"
                save(policy.model, policy.tokenizer, self.run.folder / place, policy.value_head)
                self.run.record_files(place)
                if name == MAIN and self.config.lora_rank and self.config.keeps_adapter:
                    save_adapter(policy.model, MAIN, str(self.run.folder / START), self.run.folder / ADAPTER)
                    self.run.record_files(ADAPTER)

    def _begin(self) -> None:
        """Evaluate (with `eval_start`), record and save the starting policy as step 0, with what a cold start chose."""
        self._serve_past(self.past.keep(0))
        row = self.serve_weights() | self.clock() | cold_start_metrics(self.run)
        row |= self.evaluate(0) if self.config.eval_start else {}
        row |= self.judge(0, row)
        self.record(0, row)
        self.save(0)
        self.show(0, row)

    def measure(
        self, groups: Sequence[Group], report: StepReport | None, metrics: Mapping[str, float] = NOTHING
    ) -> dict[str, float]:
        """Return the metrics of the step's episodes and of its update, with those of the method's own."""
        row = {
            **self._gap,
            **rollout_metrics(groups),
            **(report_metrics(report) if report else {}),
            **metrics,
        }
        row |= self.collector.branch_metrics()
        return row | self.monitors.measure(groups, self.rollout.retries)

    def serve_weights(self) -> dict[str, float]:
        """Let every engine serve the weights of its learner, prove it, and return how far they are apart in nats."""
        found: dict[str, float] = {}
        started, engines = time.monotonic(), self.policies.engines
        for name, canary in self.canaries.items():
            policy = self.policies[name]
            policy.activate()
            hand_over(engines[name], policy.model, policy.version, self.run.folder / ENGINES / name)
            gap = canary.check(engines[name])
            found["gap/canary" if name == MAIN else f"gap/canary/{name}"] = gap
        return {**found, "time/hand_over": time.monotonic() - started}

    def _serve_past(self, changed: Sequence[Policy]) -> None:
        """Let the engines of past selves that were `changed` serve them."""
        for policy in changed:
            policy.activate()
            engine = self.policies.engines[policy.name]
            hand_over(engine, policy.model, policy.version, self.run.folder / ENGINES / policy.name)

    def clock(self) -> dict[str, float]:
        """Return seconds, speed, what was spent until now, and how well the machine was used."""
        seconds = time.monotonic() - self._step_started
        main = self.policies.main
        rests = main.adapter is not None
        used = self._usage().since(
            self._used, seconds, self.model.device, parameters=self.num_parameters, rests=rests
        )
        spent = self.collector.spent
        return {
            "time/step": seconds,
            "tokens_per_second": (self._num_computed() - self._num_tokens) / max(seconds, 1e-9),
            "total/turns": float(spent.env_steps),
            "total/tokens": float(spent.tokens),
            **dict(used),
        }

    def _usage(self) -> Usage:
        """Return what engine and learner of the main policy, and the environments, have done so far."""
        main = self.policies.main
        return Usage(
            engine=0.0 if main.engine is None else main.engine.stats().busy_seconds,
            environments=self.rollout.pool.stepper.busy_seconds,
            learner=0.0 if main.learner is None else main.learner.busy_seconds,
            tokens=0 if main.learner is None else main.learner.num_learned,
        )

    def compare_engine(self, groups: Sequence[Group]) -> None:
        """Compare what an engine with weights of its own sampled just now with what the learner says of it.

        `measure` returns the difference as ``gap/mean`` and ``gap/max`` where no update does. Little is compared: the
        learner reads it once more.
        """
        main = self.policies.main
        self._gap = {}
        if main.engine is None or main.engine.shares(main.model):
            return
        chosen = check_version(groups, main.version)
        told = main.token_logprobs(chosen)
        parts = [
            np.abs(own - np.array(turn.completion.logprobs, dtype=np.float32))
            for trajectory, rows in zip(chosen, told, strict=True)
            for turn, own in zip(trajectory.turns, rows, strict=True)
        ]
        if parts:
            apart = np.concatenate(parts)
            self._gap = {"gap/mean": float(apart.mean()), "gap/max": float(apart.max())}

    def is_due(self, step: int) -> bool:
        """Whether `step` is evaluated and saved."""
        return step % self.config.eval_every == 0 or step == self.config.steps or self.is_spent

    def finish_step(self, step: int, row: dict[str, float], uses: Sequence[Use] | None = None) -> None:
        """Serve the new weights, evaluate and save where `step` is due, judge, record and show it; `row` takes that in.

        `uses` names the episodes that it learned from; None: those that were collected for it.
        """
        is_due = self.is_due(step)
        self.past.observe(self.collector.recorded)
        self._serve_past(self.past.keep(step))
        row |= self.past.measure()
        row |= self.serve_weights()
        row |= self.clock()
        row |= self.evaluate(step) if is_due else {}
        row |= self.judge(step, row)
        self.record(step, row, uses)
        if is_due:
            self.save(step)
        self.show(step, row)

    def measure_besides(self, measure: Callable[[], Mapping[str, float]]) -> None:
        """Let evaluations say what `measure` returns as well, such as the loss of data that is held out."""
        self._besides.append(measure)

    def evaluate(self, step: int) -> dict[str, float]:
        """Return what held-out tasks say of the policy, of a mixture also by environment; see `evaluation_metrics`.

        They are the same tasks and seeds at every step.
        """
        beside = {name: value for measure in self._besides for name, value in measure().items()}
        if not self._plays:
            return beside
        self.display.phase("evaluation", len(self.held_out))
        wrap = self.evaluates_with
        groups = self.evaluator.groups(
            self.held_out,
            size=1,
            seed=self.seed("evaluation"),
            on_episode=lambda _: self.display.advance(),
            options=Options(agent=None if wrap is None else wrap(self.evaluator.agent)),
        )
        trajectories = [t for group in groups for t in group.trajectories]
        self.run.append(trajectories, step=step, phase="eval")
        if step == 0:
            bounds = ask(self.evaluator.make_environment, check_range)
            longest = self.config.max_context or longest_stream(self.model)
            for note in after_first_evaluation(self.config, trajectories, bounds, longest):
                self.display.say(f"note: {note}")
        found = evaluation_metrics(trajectories, self._tools)
        return (
            beside
            | found
            | canaries(self.evaluator.make_environment, self.held_out)
            | audit_rewards(self.evaluator.make_environment, trajectories)
        )

    def elsewhere(self, environment: str) -> Rollout:
        """Return what plays episodes of the policy in `environment`, as evaluations in another one do.

        Raises:
            ConfigError: a policy that learns in the run's environment cannot act there.
        """
        if environment == self.config.environment:
            return self.rollout
        config = replace(self.config, eval_environment=environment)
        return make_evaluator(config, self.rollout, self.tokenizer, self._resources)

    def judge(self, step: int, row: Mapping[str, float]) -> dict[str, float]:
        """Return the alarms that hold after `step`, whose metrics are `row`."""
        return self.monitors.judge({"step": step, **row})

    def record(self, step: int, row: dict[str, float], uses: Sequence[Use] | None = None) -> None:
        """Close `step` in the journal, with its metrics, the weights it led to, and the alarms that began with it.

        `uses` names the episodes that it learned from; None: those that were collected for it.
        """
        is_named = self.is_due(step) or self.num_parameters <= MAX_NAMED
        weights = fingerprint(self.model) if is_named else None
        row["time/seconds"] = self._seconds_before + time.monotonic() - self.started
        self.run.commit(step, row, weights=weights, policy_version=self.policies.main.version, uses=uses)
        if self.trackers is not None:
            self.trackers.log(step, row)
        self._note_finished(step)
        for alarm in self.monitors.new:
            line = self.monitors.describe(alarm)
            self.run.event(alarm.kind, line, step=step, **self.monitors.evidence(alarm))
            if step - self._said.get((alarm.name, alarm.subject), -QUIET_STEPS) >= QUIET_STEPS:
                self._said[alarm.name, alarm.subject] = step
                self.display.say(f"{alarm.kind} at step {step} ({alarm.name}): {line}")

    def save(self, step: int) -> None:
        """Save a checkpoint of the state after `step`."""

        def write(folder: Path) -> None:
            self.policies.save(folder)
            self.past.save(folder)

        self.run.checkpoint(step, write)

    def show(self, step: int, row: Mapping[str, float]) -> None:
        """Show `step` on the terminal; an alarm with which a run must not go on ends it.

        Raises:
            FailureRateError: see `Monitors.stop_if_fatal`.
        """
        self.display.step(step, row)
        self.monitors.stop_if_fatal(step)

    def take_up(self) -> None:
        """Load the newest checkpoint, if there is one, and let the engines serve its weights.

        Raises:
            InvariantError: they are not what the journal says.
        """
        checkpoint = self.run.latest_checkpoint()
        if checkpoint is not None:
            self.policies.load(Path(checkpoint.folder))
            self.past.load(Path(checkpoint.folder))
            self._serve_past(self.past.kept)
            check_weights(self.run, self.model)
        self._take_back()
        self.serve_weights()
        self._note_finished(self.run.next_step - 1)

    def _take_back(self) -> None:
        """Use the episodes that a broken off asynchronous run had played with weights that are still there."""
        now = {name: policy.version for name, policy in self.policies.acting.items()}

        def is_known(trajectory: Trajectory) -> bool:
            newest = newest_versions(trajectory)
            return self.config.plays_apart and all(
                version <= now.get(name, -1) for name, version in newest.items()
            )

        count = self.run.take_back(is_known)
        if count:
            self.run.event(
                "taken back", f"{count} episodes that were played before the interruption", count=count
            )

    def may_break(self) -> bool:
        """Return whether the weights are those of the last finished step, so that ending now tears nothing."""
        is_updating = any(learner.is_updating for learner in self.policies.learners.values())
        return not is_updating and self._mark == self._state

    def save_broken_off(self) -> None:
        """Save the last finished step, if the one after it was broken off before anything was learned in it."""
        if self.interruption.is_broken_off and self.run.next_step <= self._finished:
            self.save(self._finished)

    @property
    def is_spent(self) -> bool:
        """Whether the training episodes so far have used up what the configuration allows."""
        config, spent = self.config, self.collector.spent
        return (config.max_env_steps is not None and spent.env_steps >= config.max_env_steps) or (
            config.max_sampled_tokens is not None and spent.tokens >= config.max_sampled_tokens
        )

    @property
    def _state(self) -> tuple[tuple[int, int], ...]:
        """What is counted when weights are changed, or should have been."""
        return tuple((learner.version, learner.num_skipped) for learner in self.policies.learners.values())

    @property
    def expert(self) -> ExpertSource:
        """Who shows how tasks are done: somebody whose episodes were recorded, or the environment's expert."""
        if self._expert is None and self._recorded is not None:
            self._expert = self._recorded
            found = self._expert_for(self.agent)
            if check_digest(self.run, "demonstrations", found):
                self.display.say(f"demonstrations: {found.summary}")
        if self._expert is None:
            curriculum, seed = self.collector.curriculum, self.seed("shown")
            has_keys = self._limits.has_state_keys
            self._expert = ActingExpert(self.agent, self.make_environment, curriculum, seed, has_keys)
        return self._expert

    def _expert_for(self, agent: Agent) -> Demonstrations:
        """Return what was recorded of an expert, as it is carried out through `agent`."""
        assert self._recorded is not None, "asked where there are recordings"
        return show_recorded(self._recorded, agent, self.tokenizer, self.run, self.display, self.model)

    def _teach(self, *teachers: NoisyExpert, agent: str = "") -> list[Trajectory]:
        """Return the demonstrations of the configuration, or as many of each of `teachers`; as `agent` shows them, if
        given.

        What the warm start imitated is not played again: a page with a clock would not be the same.
        """
        if self._imitated and not teachers and not agent:
            return list(self._imitated)
        return load_demonstrations(
            replace(self.config, agent=agent) if agent else self.config,
            self.make_environment,
            self.tokenizer,
            self.run,
            self.display,
            max_length=longest_stream(self.model),
            teachers=teachers,
            is_recorded=not agent,
            expert=None if self._recorded is None or agent else lambda: self._expert_for(self.agent),
            has_state_keys=self._limits.has_state_keys,
        )

    def _preferences(self) -> list[Pair]:
        """Return the preferences that the configuration names."""
        pairs = [each for each in self._load("preferences", form="preferences") if isinstance(each, Pair)]
        if self.run.next_step == 0:
            sides = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
            self.run.append(sides, step=0, phase="demonstrations")
        return pairs

    def _label_answers(self) -> list[Trajectory]:
        """Return the answers of the configuration's preferences one by one."""
        found = self._load("preferences", form="labelled answers")
        answers = [each for each in found if isinstance(each, Trajectory)]
        if self.run.next_step == 0:
            self.run.append(answers, step=0, phase="demonstrations")
        return answers

    def _corpus(self, is_apart: bool) -> list[Trajectory]:
        """Return the conversations named as the corpus, of the environment unless it `is_apart`."""
        found = self._load("corpus", is_apart=is_apart)
        return [each for each in found if isinstance(each, Trajectory)]

    def _load(
        self, option: str, *, form: DataForm = "conversations", is_apart: bool = False
    ) -> Sequence[Trajectory] | Sequence[Pair]:
        """Return the data that `option` of the configuration names; a run that goes on refuses what has changed."""
        found = load_data(
            Path(str(getattr(self.config, option, ""))),
            self.tokenizer,
            self.config,
            agent=None if is_apart or self.config.environment == NO_ENVIRONMENT else self.agent,
            max_length=longest_stream(self.model),
            form=form,
        )
        if check_digest(self.run, option, found):
            self.display.say(f"{option}: {found.summary}")
            for note in found.notes:
                self.display.say(f"note: {note}")
        return found.data

    def _note_finished(self, step: int) -> None:
        """Note that the weights are those after `step`."""
        self._finished, self._mark = step, self._state

    def _num_computed(self) -> int:
        """Return the tokens that the engines have read and sampled so far."""
        stats = [engine.stats() for engine in self.policies.engines.values()]
        return sum(each.num_prefilled + each.num_sampled for each in stats)

    def stop_if_asked(self, step: int) -> None:
        """Save what was done up to `step` and stop, if the user asked to, or it was the last that is wanted."""
        if not self.interruption.is_asked and step != self.run.last_wanted:
            return
        if self.run.next_step <= step:
            self.save(step)
        raise KeyboardInterrupt


def recall_of(run: Run) -> Callable[[EpisodeRequest], Trajectory | None] | None:
    """Return what gives the episodes that are not played in `run`; None where all are."""
    find = run.find_recorded
    return None if find is None else lambda request: find(request.group, request.index, request.seed)


def check_version(groups: Sequence[Group], version: int) -> list[Trajectory]:
    """Return a few of the scored trajectories of `groups` of which the main policy sampled all with `version`."""
    found: list[Trajectory] = []
    room = MAX_COMPARED
    for trajectory in flatten_scored(groups):
        said = [turn.completion for turn in trajectory.turns]
        size = sum(len(turn.prompt_ids) + len(turn.completion.token_ids) for turn in trajectory.turns)
        is_ours = bool(said) and all(
            each.policy == MAIN
            and each.policy_version == version
            and not each.version_spans
            and len(each.logprobs) == len(each.token_ids)
            for each in said
        )
        if is_ours and size <= room:
            found.append(trajectory)
            room -= size
    return found


def find_seats(config: DataSection, seats: Mapping[str, str], make_environment: Factory) -> dict[str, str]:
    """Return which policy plays each seat, where `seats` says it of some; {} where one plays all.

    Raises:
        ConfigError: the configuration names a seat that the environment has not.
    """
    if not seats:
        return {}

    def seats_with_agent(environment: Environment) -> tuple[str, ...]:
        if is_outside(config.agent):
            return seats_of(environment)
        # A harness may bring seats of its own; nothing is written here, so that it needs no chat.
        return seats_of(equip(build(config.agent, cast(Chat, None), environment), environment))

    known = ask(make_environment, seats_with_agent)
    unknown = [seat for seat in seats if seat.partition("/")[0] not in known]
    if unknown:
        raise ConfigError(
            f"seats: got {unknown[0]!r} in environment {config.environment}; its seats are {', '.join(known)}"
        )
    return {**dict.fromkeys(known, MAIN), **seats}


def check_run(config: TrainConfig, policies: Mapping[str, PolicySpec]) -> None:
    """Refuse policies, seats, engines and agents that cannot be, before anything is written.

    Raises: ConfigError: a policy that nothing needs, a seat without a policy or that is not there, a device that is
    not here. UsageError: an engine cannot do what the agent asks of it. MissingExtra: there is a cluster and no Ray.
    """
    tracker_names(config.track)
    check_placement(config.placement, plan_policies(config, policies))
    if config.cluster:
        ray_package()
    needed = engine_needs(config.agent)
    if is_outside(config.agent) and config.seats:
        raise ConfigError(
            f"seats: got {', '.join(config.seats)} with the agent {config.agent}, which plays by itself; leave "
            "seats out"
        )
    if is_outside(config.agent) and (run := check(config.agent)[-1].options.get("run")):
        taking(member(str(run), "agent"), str(run), ("base_url", "api_key", "task"))
    for name, (_, settings) in plan_policies(config, policies).items():
        check_settings(engine_settings(settings), needed, by=f"agent {config.agent} of the policy {name}")
        find_device(settings.device)
    check_past(config, find_seats(config, config.seats, find(config.environment)))


@contextmanager
def open_context(
    config: TrainConfig,
    run: Run,
    *,
    has_warm_start: bool = True,
    cold_start: ColdStart | None = None,
    has_critic: bool = False,
    policies: Mapping[str, PolicySpec] = NOTHING,
    limits: Limits | None = None,
    asks_expert: bool = False,
    plays: bool = True,
) -> Generator[TrainingContext]:
    """Yield the parts of a run of `config`; a run that was begun continues after its newest checkpoint.

    Where it `asks_expert`, recorded episodes that `config` names take the place of one. Evaluations play held-out
    tasks, unless told that the policy does not act (`plays`).
    """
    config.check()
    plan_policies(config, policies)
    started = time.monotonic()
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        display = stack.enter_context(
            Display(short_name(run.recipe), config.steps, max(run.next_step - 1, 0))
        )
        resources = stack.enter_context(closing(Resources(config, policies)))
        recorded = with_recordings(config, find(config.environment)) if asks_expert else None
        keep_told(run, find(config.environment))
        imitated: list[Trajectory] = []
        limits = limits or Limits()
        if not (run.folder / START / "config.json").exists():
            imitated = prepare_start(
                config, run, display, has_warm_start=has_warm_start, cold_start=cold_start,
                recorded=recorded, has_state_keys=limits.has_state_keys,
            )  # fmt: skip
        context = TrainingContext(
            config, run, display, interruption,
            has_critic=has_critic, policies=policies, limits=limits, resources=resources, recorded=recorded,
            imitated=imitated, plays=plays,
        )  # fmt: skip
        context.started = started
        tracked = Tracked(folder=run.folder, config=run.config, next_step=run.next_step)
        context.trackers = stack.enter_context(tracking(config.track, tracked))
        for engine in context.policies.engines.values():
            stack.callback(engine.close)
        for rollout in {context.rollout, context.evaluator}:
            stack.callback(rollout.close)
        if context.prefetcher is not None:
            stack.callback(context.prefetcher.close)
        context.take_up()
        interruption.defer(context.may_break)
        try:
            yield context
        except KeyboardInterrupt:
            context.save_broken_off()
            raise
        except InvariantError as error:
            raise InvariantError(f"{error}; {last_good(run)}") from error
    run.finish("done")


def short_name(spec: str) -> str:
    """Return the name of a method without where its file or module is."""
    return Path(spec).stem if spec.endswith(".py") else spec.rpartition(":")[2].rpartition(".")[2]


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


def cold_start_metrics(run: Run) -> dict[str, float]:
    """Return how many examples each stage of the cold start of `run` left, as ``data/…``; {} where it had none."""
    found = [event["data"] for event in run.events() if event["kind"] == COLD_START]
    return {name: float(value) for name, value in found[-1].items()} if found else {}


def show_recorded(
    recorded: RecordedExpert,
    agent: Agent,
    tokenizer: PreTrainedTokenizerBase,
    run: Run,
    display: Display,
    model: PreTrainedModel,
) -> Demonstrations:
    """Return what was `recorded` of an expert, as it is carried out through `agent`."""
    display.phase("recorded episodes", len(recorded.by_task))
    recorded.load(
        agent, tokenizer, run, max_length=longest_stream(model), on_episode=lambda _: display.advance()
    )
    return recorded.demonstrations


def prepare_start(
    config: TrainConfig,
    run: Run,
    display: Display,
    *,
    has_warm_start: bool,
    cold_start: ColdStart | None = None,
    recorded: RecordedExpert | None = None,
    has_state_keys: bool = False,
) -> list[Trajectory]:
    """Make the policy that the run starts from, save it in the run, and return the demonstrations that it imitated.

    With a `cold_start` it imitates what that chooses of what its teachers show, unless the configuration shows nothing;
    where an expert was `recorded`, it imitates that.

    Raises:
        ConfigError: there is a teacher, whose episodes were not collected.
    """
    if config.teacher:
        raise ConfigError(
            f"teacher: got {config.teacher!r}, which is asked by quintain train alone; let it play first (quintain "
            "collect E --agent URL --out FOLDER), and give that as demonstrations"
        )
    make_environment: Factory = find(config.environment)
    texts = chain(
        chain.from_iterable(texts_of(Path(name)) for name in find_named_data(config).values()),
        client_texts(config.agent, make_environment, config.seed),
        () if cold_start is None else cold_start.texts,
    )
    model, tokenizer = make_start(
        config.model, make_environment, seed=config.seed, texts=texts, dtype=start_dtype(config)
    )
    report = settle_chat_format(config, tokenizer, date.today(), is_new=new_model(config.model) is not None)
    if report is not None:
        display.say(describe_template(report, tokenizer))
    if config.environment != NO_ENVIRONMENT:
        harness(
            config, tokenizer, make_environment
        )  # what cannot act there is refused before anything is said of it
    for note in before_teaching(config, make_environment):
        display.say(f"note: {note}")
    if config.eval_environment:
        check_evaluation(config, tokenizer, is_new=new_model(config.model) is not None)
    if config.eval_untrained:
        evaluate_untrained(model, tokenizer, config, run, display)
    imitated: list[Trajectory] = []
    if has_warm_start and cold_start is None and is_taught(config):
        teach(model, tokenizer, config, run, display, rate=config.imitation_lr)
    elif has_warm_start and config.demonstrations != 0:
        shown = load_demonstrations(
            config, make_environment, tokenizer, run, display,
            max_length=longest_stream(model), teachers=() if cold_start is None else cold_start.teachers,
            expert=None if recorded is None else lambda: show_recorded(
                recorded, harness(config, tokenizer, make_environment), tokenizer, run, display, model
            ),
            has_state_keys=has_state_keys,
        )  # fmt: skip
        imitated = shown if cold_start is None else []
        made = shown if cold_start is None else cold_start.choose(shown, Chat(tokenizer).text)
        if isinstance(made, PipelineResult):
            said = f"{len(made.examples)} of {len(shown)} episodes are imitated"
            run.event(COLD_START, said, **made.funnel.metrics)
            display.say(f"{COLD_START}: {said}\n{made.funnel}")
        warm_start(model, made, config, display=display)
    save(model, tokenizer, run.folder / START)
    run.record_files(START)
    return imitated
