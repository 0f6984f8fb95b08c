"""Starting, resuming and using runs: what the command line and `quintain.train` call.

``quintain.train("grpo", environment=Guess, model="tiny")`` is `train`. A run is never replaced or continued unless that
was asked for.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from quintain.agents.catalog import AUTO, is_outside
from quintain.config import build
from quintain.config.trust import GUARDED, RECIPE, admit, files_named
from quintain.curriculum.streams import TaskStream, draw_held_out
from quintain.dashboard.curve import learning_curve_png, terminal_curve
from quintain.dashboard.report import write_report
from quintain.engines.build import build_engine
from quintain.engines.chat_client import is_endpoint
from quintain.engines.probe import probe_endpoints
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import is_importing
from quintain.environments.extras import extra_module
from quintain.environments.guarding import default_environment, split_guard, with_guard
from quintain.environments.nothing import NO_ENVIRONMENT
from quintain.environments.protocol import Environment
from quintain.environments.session import MAIN, is_of_session, program_file, session_source
from quintain.environments.smoke_test import find_ready
from quintain.environments.task_files import read_tasks, refuse_overlap, split_spec, with_tasks
from quintain.errors import DataError, ModelError, UsageError
from quintain.eval.compare import Comparison
from quintain.eval.compare import compare as compared
from quintain.eval.evaluate import Evaluation
from quintain.eval.evaluate import evaluate as evaluated
from quintain.eval.report import TASK, check_clusters, last_attempts
from quintain.learning.saved import MODEL, START, admit_run, check_files, find_saved, load_policy
from quintain.learning.sharding.torchrun import count_ranks, driving
from quintain.learning.train_config import TrainConfig
from quintain.methods.find import find_method
from quintain.methods.fitting import fit_to_model
from quintain.methods.loops.requirements import refuse_environment
from quintain.methods.method import Method, traits_of
from quintain.methods.reading import refuse_unread
from quintain.methods.rl.parts.choices import IDEAS, LOSSES
from quintain.models.load import LoadedModel, check_folder, find_folder, load_tokenizer
from quintain.rollout.collect import Limits
from quintain.rollout.measures import call_metrics
from quintain.rollout.progress import Display
from quintain.runs.context import check_run
from quintain.runs.evaluation import EVALUATION, Acting, check_kept, find_acting, is_script, keep_evaluation
from quintain.runs.memory import Plan as MemoryPlan
from quintain.runs.memory import describe_where, plan_memory
from quintain.runs.resources import check_servers
from quintain.runs.summary import EXTENDED, count_planned, evaluations, summary
from quintain.safety.policy import Policy, read_order_of, read_policy
from quintain.search.agent import is_search
from quintain.store.calls import CALLS, CallLog
from quintain.store.creation import JOURNAL, check_free
from quintain.store.files import can_write, disk_error
from quintain.store.managed_run import looked_after
from quintain.store.names import run_folder, split_step
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.settings import set_template
from quintain.text.template_check import check_template
from quintain.trained import TrainedRun
from quintain.types import NOTHING, Split, Task, Trajectory, derive_seed
from quintain.types.terminal import spell_out, write_command, write_line
from quintain.warm_start.demonstrations import COLLECT, TOKENIZERS, harness_of, place_data, write_run
from quintain.warm_start.start import (
    USUAL_DEMONSTRATIONS,
    new_model,
    new_tokenizer,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from quintain.credit_lab.credit import Report
    from quintain.pipelines.attacking import AttackReport
    from quintain.serve.recording import Recording
    from quintain.time_travel.bisect import Bisection
    from quintain.time_travel.replay import StepReplay
    from quintain.time_travel.verify import Verification

LOG = logging.getLogger(__name__)
ROOT = Path("runs")
ENDING = 60.0
"""Seconds that what is being answered may take when a model is served no longer."""
MOST_EPISODES = 1_000_000
"""Episodes of an evaluation; more are a slip of the pen, which would fill the memory before one is played."""
USUAL_TOKENS = 1024
"""Tokens of an answer where neither the client nor whoever serves says how many."""
WORLDS = ("environment", "eval_environment")
"""The fields of a run that name where it was evaluated."""
TRUSTED = "trusted"
"""The event of a run that was made elsewhere, and that this user goes on with."""
SOURCE = "environment.py"
"""File of a run that keeps the source of a class that was typed in a session."""


def train(
    method: str | ModuleType | Callable[[Any], Method],
    *,
    environment: str | type[Environment] | None = None,
    run: str | None = None,
    root: str | Path = ROOT,
    replace: bool = False,
    config: Mapping[str, Any] | None = None,
    trust_run: bool = False,
    **fields: Any,
) -> TrainedRun:
    """Train by `method` and return the run: a path, which reads what lies there (``run.metrics``, ``run.model()``).

    A module may call this at its end and still be named as ``file.py:Class``: while a command imports it for
    its environments, nothing is trained.

    Args:
        method: name of a method, such as ``grpo`` (see ``quintain methods``), a file of your own, ``mine.py``, or the
            function ``method(config)`` itself.
        environment: name in the catalogue, or an `Environment` class, of a module or of a cell of a notebook.
        run: name of the run; method and time when None.
        root: folder that holds the runs.
        replace: delete an earlier run of this name.
        config: values of the method's `Config`.
        trust_run: whether a run of somebody else's whose episodes are imitated may name the environment.
        fields: more of them; ``train("grpo", model="tiny", steps=50)``.

    Raises:
        UsageError: unknown method, environment or configuration key, or a run that exists.
    """
    if is_importing():
        LOG.info("train is not carried out: the module is imported for what it defines")
        return TrainedRun(run_folder(Path(root), run or "imported"))
    found = find_method(method)
    name = run or f"{found.label}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = run_folder(Path(root), name)
    values = {**(config or {}), **fields}
    if environment is not None:
        values["environment"] = environment if isinstance(environment, str) else class_name(environment)
    values = with_guard(with_tasks(values), default_environment(found.config_class), is_outside=is_outside)
    given = build(found.config_class, values, f"train({found.label!r})")
    settings = place_data(given, Path(root), is_trusted=trust_run)
    settings = dataclasses.replace(settings, learner_ranks=count_ranks(settings.learner_ranks))
    chosen = found.make(settings)
    if settings.environment == NO_ENVIRONMENT and must_act(chosen):
        beside = " of the policy beside recorded ones" if chosen.needs.expert else ""
        raise UsageError(
            f"environment: got none for {found.label}, which learns from episodes{beside}; name one, or use sft or dpo"
        )
    refuse_unread(found, chosen, settings, values)
    check_parts(settings)
    check_tasks(settings)
    fitted = fit_to_model(found, settings, values)
    settings, chosen = fitted.config, found.make(fitted.config)
    check_run(settings, chosen.needs.policies)
    refuse_environment(settings, chosen.needs)
    plan = check_memory(chosen, settings)
    with driving({"method": found.spec, **asdict(settings)}, settings.device) as is_driver:
        if not is_driver:
            return TrainedRun(folder)
        for note in (*fitted.notes, *describe_run(plan, settings, is_brief=True)):
            tell(note)
        check_free(folder, replace=replace)
        probe_endpoints(asdict(settings))
        if settings.teacher:
            settings = ask_teacher(settings, folder.with_name(f"{folder.name}-teacher"), replace=replace)
            chosen = found.make(settings)
        new = Run.create(folder, recipe=found.spec, config=asdict(settings), replace=replace)
        with looked_after(new, start=START, is_new=True) as opened:
            opened.record_files(*files_named({RECIPE: found.spec, **asdict(settings)}))
            if not isinstance(environment, str | None) and is_of_session(settings.environment):
                keep_source(environment, folder)
            with found.blame_file():
                chosen.train(opened, settings)
            conclude(opened)
    return TrainedRun(folder)


def check_memory(method: Method, config: TrainConfig) -> MemoryPlan | None:
    """Return what a run of `config` by `method` needs of memory, where that is known.

    Raises:
        MemoryShortage: it cannot fit. UsageError: servers that sample cannot.
    """
    plan = plan_memory(config, method.needs.policies)
    if plan is not None:
        plan.check()
    check_servers(config, method.needs.policies, plan)
    return plan


def describe_run(plan: MemoryPlan | None, config: TrainConfig, *, is_brief: bool) -> Iterator[str]:
    """Yield what computes where, what it needs of memory in each phase, and what may not fit; a line each.

    Where it `is_brief`, a processor with room to spare is a line.
    """
    if plan is None:
        return
    if is_brief and plan.has_room:
        yield plan.summary()
    else:
        yield from describe_where(plan, config.engine, config.max_staleness)
        yield from plan.lines()
        yield from plan.notes()


def keep_source(environment: type[Environment], folder: Path) -> None:
    """Write the source of a class that was typed in a session into the run `folder`, or say that it is not known."""
    source = session_source(environment)
    if source is None:
        tell(
            f"environment {environment.__name__}: its source is not known, so that this process alone can go on with "
            "the run; write it to a file, and give file.py:Class, to resume elsewhere"
        )
        return
    try:
        (folder / SOURCE).write_text(source, encoding="utf-8")
    except OSError as error:
        raise disk_error("keeping the source of the environment", folder, error) from error


def must_act(method: Method) -> bool:
    """Return whether the policy acts in an environment before it can learn by `method`."""
    needs = method.needs.environment
    return traits_of(method).acts if needs is None else needs


def ask_teacher(config: TrainConfig, folder: Path, *, replace: bool) -> TrainConfig:
    """Let the teacher of `config` play, and return the configuration with its episodes, the run `folder`, to imitate
    instead.

    Raises:
        UsageError: the teacher is no such endpoint, or there is a run of that name.
    """
    check_free(folder, replace=replace)
    count = config.demonstrations if isinstance(config.demonstrations, int) else USUAL_DEMONSTRATIONS
    episodes, tokenizer = collect(config.environment, config.teacher, episodes=count, seed=config.seed)
    settings = {
        "environment": config.environment,
        "agent": config.teacher,
        "seed": config.seed,
        "split": "train",
    }
    make_environment = find_ready(config.environment)
    write_run(episodes, tokenizer, folder, settings, make_environment=make_environment, replace=replace)
    tell(f"teacher: {evaluated(episodes)}, in {folder}")
    return dataclasses.replace(config, teacher="", demonstrations=str(folder.absolute()))


def check_parts(config: TrainConfig) -> None:
    """Raise the error of an environment that does not work, or of a model that is not there."""
    if config.cluster and is_of_session(config.environment):
        raise UsageError(
            f"cluster: got {config.cluster!r} with {config.environment}, a class of this session, which no other "
            "process can build; write it to a file, and give file.py:Class"
        )
    find_ready(config.environment, for_training=True, for_model=True)
    if config.eval_environment:
        find_ready(config.eval_environment, for_model=True)
    if new_model(config.model) is None and find_saved(config.model) is None:
        check_folder(find_folder(config.model, say=tell), config.model)


def check_tasks(config: TrainConfig) -> None:
    """Say which tasks of a file are trained on, if there is one.

    Raises:
        UsageError: nobody says what an answer to them is worth. DataError: another file holds one of them out.
    """
    refuse_unguarded(config.environment, config.agent)
    inner, path = split_spec(config.environment)
    if path:
        is_graded = bool(getattr(config, "judge", "") or getattr(config, "rewards", ""))
        require_grader(config.environment, config.agent, is_graded=is_graded)
        tell(f"{read_tasks(path)}{f', in {inner}' if inner else ''}")
        refuse_overlap(config.environment, config.eval_environment)


def refuse_unguarded(environment: str, agent: str) -> None:
    """Raise a `UsageError` where `environment` has a guard that the calls of `agent`, an outside one, never meet."""
    if is_outside(agent) and split_guard(split_spec(environment)[0])[1]:
        raise UsageError(
            f"guard: got one in {environment} with the agent {agent}, whose calls are carried out where it runs; give "
            "it as --guard POLICY.json, or as the agent's option guard=POLICY.json, which takes calls out of answers"
        )


def require_grader(environment: str, agent: str, *, is_graded: bool = False) -> None:
    """Raise a `UsageError` where `environment` is a file of tasks alone, and neither an agent nor a reward grades."""
    inner, path = split_spec(environment)
    if path and not inner and not is_graded and not is_outside(agent):
        raise UsageError(
            f"tasks {Path(path).name}: got nobody who says what an answer is worth; give --agent "
            "file.py:run_agent?grade=grade, or an --environment whose reset(self, task) reads task.prompt and task.data"
        )


def tell(line: str) -> None:
    """Write `line` to standard error: what happens before a run is there to say it."""
    write_line(f"quintain: {spell_out(line)}", is_error=True)


def resume(
    folder: str | Path,
    *,
    steps: int | None = None,
    learner_ranks: int | None = None,
    cluster: str | None = None,
    placement: str | None = None,
    trust_run: bool = False,
    accept_changes: bool = False,
) -> TrainedRun:
    """Continue the run in `folder` after its newest checkpoint and return it.

    It goes on with the configuration that it has, for as many `steps` in all as it has or as are given, which the run
    then keeps; schedules that end with the run end with the new number. Else only where it computes may be another: on
    which cluster ("" for this process) in which placement, and on how many ranks it learns: a checkpoint of ranks is
    read by any number of them, and by a learner without any (0). Tokens of a batch are shared where the ranks are a
    multiple of `context_ranks`.

    Of a run that this user did not make here nothing is used that its configuration names, unless they `trust_run`; it
    is theirs from then on. Files that are not what the run wrote or began with are refused, unless they
    `accept_changes`, which the report shows.

    Raises:
        ConfigError: the run is somebody else's, and names a program, a file or an address.
        StoreError: a file of it was changed.
    """
    with Run.open(Path(folder), writable=False) as run:
        admit(run, is_trusted=trust_run, to="resuming")
        device = str(run.config.get("device", "auto"))
        planned, done = count_planned(run), run.last_step or 0
    if steps is not None and steps < done:
        raise UsageError(
            f"--steps: got {steps} for {folder}, which has done {done}; give more, or leave it out"
        )
    if steps is None and done >= planned:
        tell(
            f"{folder} has done its {planned} steps; to go on: "
            f"{write_command('quintain', 'resume', folder, '--steps', 2 * planned)}"
        )
    elsewhere = {
        "learner_ranks": count_ranks(learner_ranks or 0) or learner_ranks,
        "cluster": cluster,
        "placement": placement,
    }
    with driving({"method": f"resume {run.folder.resolve()}", **elsewhere}, device) as is_driver:
        if not is_driver:
            return TrainedRun(folder)
        with looked_after(
            Run.open(Path(folder), accepts_changes=accept_changes), start=START, is_new=False
        ) as run:
            stored = admit(run, is_trusted=trust_run, to="resuming")
            if trust_run and not run.origin.is_own:
                run.adopt()
                run.event(TRUSTED, "what its configuration names was trusted when it was resumed")
            found = find_method(run.recipe)
            settings = build(found.config_class, stored, f"{folder}/config.json", is_stored=True)
            settings = replace(
                settings,
                steps=steps or planned,
                **{key: value for key, value in elsewhere.items() if value is not None},
            )
            if steps not in (None, planned):
                run.event(EXTENDED, f"to {steps} steps in all", steps=steps)
            if settings.learner_ranks % settings.context_ranks or not settings.learner_ranks:
                settings = replace(settings, context_ranks=1)
            chosen = found.make(settings)
            with found.blame_file():
                chosen.train(run, settings)
            conclude(run)
    return TrainedRun(folder)


def conclude(run: Run, *, must_write: bool = True) -> bool:
    """Draw the curve, write the report and print the summary of a finished run; return whether they could be written.

    Raises:
        StoreError: they cannot, and must be.
    """
    rows = run.metrics()
    folder = run.folder / (MODEL if (run.folder / MODEL).exists() else START)
    has_policy = (folder / "config.json").exists()
    is_written = must_write or can_write(run.folder)
    if is_written:
        learning_curve_png(rows, run.folder / "curve.png")
        write_report(run, Chat(load_tokenizer(folder)).text if has_policy else None)
    if evaluations(run):
        write_line(terminal_curve(rows))
    write_line(summary(run))
    return is_written


def evaluate(
    target: str | Path,
    environment: str | type[Environment] | None = None,
    *,
    episodes: int = 256,
    trials: int = 1,
    attempts: int = 1,
    reflect: bool = False,
    show_attempt: bool = False,
    show_errors: bool = False,
    max_repeats: int | None = None,
    cluster: str = "",
    seed: int = 0,
    temperature: float = 1.0,
    agent: str = "",
    out: str | Path | None = None,
    trust_run: bool = False,
    accept_changes: bool = False,
) -> tuple[Evaluation, list[Trajectory]]:
    """Return what `episodes` held-out tasks, each played in `trials` episodes, say of a model, and the episodes.

    `target` is a model folder, a hub id or a run, or who acts without one: expert, random, a search, an endpoint. With
    `attempts` a task that was not solved is attempted again, told of what it `reflect` on where it does, shown its last
    attempt with `show_attempt` and its wrong calls with `show_errors`; one whose action has the same reply more than
    `max_repeats` times in a row ends as failed. The evaluation is then of the last attempts, and the episodes are those
    of all rounds, one round after the other.

    A model acts through the harness `agent`; empty: the one that a run was trained with, or that fits. What is kept in
    the folder `out` is not played again where the same is asked for. Tasks that do not say what `cluster` they are of
    are refused before anything is played (see `eval.report.cluster_of`). Environment and agent that a run names which
    this user did not make here are used only if they `trust_run`. Files of a run that are not what it wrote are
    refused, unless they `accept_changes`.

    Raises:
        ConfigError: the run is somebody else's, and names a program, a file or an address.
        StoreError: a file of it was changed.
        UsageError: a script has no environment, `out` holds something else, or a task does not say its cluster.
        DataError: there is but one cluster.
    """
    acting, tasks, settings = _plan_evaluation(
        str(target), environment, episodes=episodes, trials=trials, attempts=attempts, reflect=reflect,
        show_attempt=show_attempt, show_errors=show_errors, max_repeats=max_repeats, cluster=cluster, seed=seed,
        temperature=temperature, agent=agent, out=out, trust_run=trust_run, accept_changes=accept_changes,
    )  # fmt: skip
    chosen = derive_seed("evaluation", seed)
    with (
        progressing("evaluation", len(tasks) * trials) as display,
        closing(acting.rollout),
        keep_evaluation(None if out is None else Path(out), settings, acting.tokenizer) as (keep, known),
    ):

        def take(number: int, trajectory: Trajectory) -> None:
            keep(number, trajectory)
            if number == 0:
                display.advance()

        if attempts > 1:
            rounds = acting.play_rounds(
                tasks, rounds=attempts, seed=chosen, reflects=reflect, shows_attempt=show_attempt,
                shows_errors=show_errors, max_repeats=max_repeats, on_episode=take, known=known,
            )  # fmt: skip
            played = [trajectory for trial in rounds for trajectory in trial.trajectories]
        else:
            played = acting.play(tasks, size=trials, seed=chosen, on_episode=partial(take, 0), known=known(0))
    return evaluated(last_attempts(played) if attempts > 1 else played), played


def check_evaluation(
    target: str | Path, environment: str | type[Environment] | None = None, **asked: Any
) -> Sequence[Task]:
    """Return the tasks that `evaluate` would play by the same arguments, or raise what it raises before that."""
    acting, tasks, settings = _plan_evaluation(str(target), environment, **asked)
    with closing(acting.rollout):
        if asked.get("out") is not None:
            check_kept(Path(asked["out"]), settings)
    return tasks


def _plan_evaluation(
    target: str,
    environment: str | type[Environment] | None,
    *,
    episodes: int,
    trials: int,
    attempts: int,
    reflect: bool,
    show_attempt: bool,
    show_errors: bool,
    max_repeats: int | None,
    cluster: str,
    seed: int,
    temperature: float,
    agent: str,
    out: str | Path | None,
    trust_run: bool,
    accept_changes: bool,
) -> tuple[Acting, Sequence[Task], dict[str, Any]]:
    """Return who acts, the tasks, and what a folder keeps of what was asked for; see `evaluate`."""
    if attempts > 1 and trials > 1:
        raise UsageError(f"evaluation: got {trials} trials and {attempts} attempts; give one of the two as 1")
    if episodes * trials > MOST_EPISODES:
        raise UsageError(
            f"evaluation: got {episodes} tasks in {trials} trials; ask for {MOST_EPISODES:,} episodes at most"
        )
    check_attempts(
        target,
        attempts,
        reflect=reflect,
        show_attempt=show_attempt,
        show_errors=show_errors,
        max_repeats=max_repeats,
    )
    if is_script(target):
        if environment is None:
            raise UsageError(f"evaluating {target}: got no environment; name one with --environment")
        agent = agent or AUTO
    else:
        wanted = [*(() if environment is not None else WORLDS), *(() if agent else ("agent",))]
        admit_run(target, is_trusted=trust_run, to="evaluating", fields=wanted)
        check_files(target, accepts_changes=accept_changes, to="evaluating", is_all=environment is None)
    spec = environment if environment is not None else environment_of(target, trust_run=trust_run)
    agent = agent or harness_of(target, is_trusted=trust_run)
    if spec == NO_ENVIRONMENT:
        raise UsageError(
            f"evaluating {target}: got a run without an environment, in which nothing is played"
            f"{describe_held_out_loss(target)}; name one with --environment"
        )
    if isinstance(spec, str):
        refuse_unguarded(spec, agent)
        require_grader(spec, agent)
    make_environment = find_ready(spec, for_model=not is_script(target))
    limits = Limits(max_failure_share=0.5 if is_script(target) else 0.05, has_same_tools=True)
    acting = find_acting(
        target, make_environment, agent=agent, temperature=temperature, seed=seed, limits=limits
    )
    tasks = draw_held_out(tasks_of(make_environment), episodes)
    check_clusters(tasks, cluster or (TASK if trials > 1 else ""))
    settings = {
        "model": target, "weights": "" if out is None else acting.find_weights(),
        "environment": make_environment.spec, "agent": agent,
        "tasks": len(tasks), "trials": trials, "attempts": attempts, "reflect": reflect, "seed": seed,
        "temperature": temperature,
        **({"show_attempt": True} if show_attempt else {}),
        **({"show_errors": True} if show_errors else {}),
        **({"max_repeats": max_repeats} if max_repeats is not None else {}),
    }  # fmt: skip
    return acting, tasks, settings


def evaluation_of(run: Run, mark: str = "") -> list[Trajectory]:
    """Return the held-out episodes of an evaluation of `run`: of the step `mark`, of the best one, or of the newest.

    Of an evaluation in several attempts these are the last at each task, for its rounds hold what is left of the tasks.

    Raises:
        DataError: there is none, or none of that step.
    """
    steps = [int(row["step"]) for row in run.metrics() if row.get("eval/success") is not None]
    if not steps:
        raise DataError(
            f"comparing {run.folder}: got a run without an evaluation; train it past its first one"
        )
    step = run.best_step if mark == "best" else int(mark) if mark.isascii() and mark.isdigit() else None
    if mark and step not in steps:
        raise DataError(
            f"comparing {run.folder}: got the step {mark!r}, which was not evaluated; those that were are "
            f"{', '.join(map(str, steps))}, as in {run.name}@{steps[-1]} or {run.name}@best"
        )
    if not mark and run.recipe == EVALUATION and run.config.get("attempts", 1) > 1:
        return last_attempts(list(run.trajectories(phase="eval")))
    return list(run.trajectories(step=max(steps) if step is None else step, phase="eval"))


def compare(*runs: str | Path, baseline: str | Path | None = None) -> Comparison:
    """Compare the last evaluations of `runs` task by task with that of `baseline`, the first of them unless named.

    Another evaluation than the last is named behind the folder: ``runs/a@best``, ``runs/a@75``. Rows are named as the
    runs were given; `Comparison.notes` says what the runs differ in besides their training.

    Raises:
        UsageError: fewer than two runs, or one that is none. DataError: a run without an evaluation.
    """
    episodes: dict[str, list[Trajectory]] = {}
    configs: dict[str, Mapping[str, Any]] = {}
    for name in map(str, runs):
        folder, mark = split_step(name)
        with Run.open(Path(folder), writable=False) as run:
            episodes[name], configs[name] = evaluation_of(run, mark), run.config
    return compared(episodes, baseline=None if baseline is None else str(baseline), settings=configs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """Where a model answers: ``OpenAI(base_url=served.base_url(), api_key=served.api_key)``."""

    url: str
    api_key: str
    chat_format: str = ""
    """how the model's chats are written, and where that differs from its template"""

    def base_url(self, episode: str = "main") -> str:
        """Return the address that a client is given; what is asked under one name is one episode."""
        return f"{self.url}/e/{episode}/v1"


@contextmanager
def serving(
    model: str | Path,
    *,
    record: str | Path | None = None,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    api_key: str = "",
    allow_host: str = "",
    chat_template: str | Path = "",
    template_options: str = "",
    template_differs: Literal["refuse", "allow"] = "allow",
    guard: str | Path = "",
    accept_changes: bool = False,
) -> Generator[ServedModel]:
    """Serve a model folder, a hub id, a run or a step of one to agents, within the ``with``.

    It answers in the protocols of OpenAI and Anthropic, as ``quintain serve`` does.

    Args:
        model: what is served.
        record: folder of a new run that keeps every episode; sampling is then at `temperature` whatever clients ask.
        temperature: of sampling, where a client asks for none.
        max_tokens: most tokens of an answer; none: what the client asks for, else 1024.
        host: address to listen at; one that others can reach needs an `api_key`.
        port: to listen at; 0: one that is free.
        api_key: what every request must carry; empty: one is made.
        allow_host: further names by which clients reach this machine, with commas.
        chat_template: file with a chat template in place of the model's own.
        template_options: of the chat template, ``enable_thinking=false,reasoning_effort=low``.
        template_differs: whether to serve where chats differ from what the model's template writes, which is said.
        guard: file of a policy whose refused calls are taken out of answers (docs/guards.md).
        accept_changes: whether to serve a run of which a file is not what it wrote, which is said.

    Raises:
        MissingExtra: the packages of the extra ``serve`` are not installed.
        UsageError: the port cannot be listened at, others could reach it without a key, or `record` exists.
        ModelError: chats differ from what the template writes, and that is to be refused.
        StoreError: a file of the run was changed.
    """
    with listening(
        model, record=record, temperature=temperature, max_tokens=max_tokens, host=host, port=port, api_key=api_key,
        allow_host=allow_host, chat_template=chat_template, template_options=template_options,
        template_differs=template_differs, accept_changes=accept_changes, guard=guard,
        feature="quintain.serving",
    ) as (recording, served), ThreadPoolExecutor(1, "serving") as pool:  # fmt: skip
        answering = pool.submit(recording.run)
        answering.add_done_callback(lambda _: recording.pump.give_up("the server ends"))
        try:
            yield served
        finally:
            recording.is_closed.set()
            recording.pump.bell.set()
        answering.result(ENDING)


@contextmanager
def listening(
    model: str | Path,
    *,
    record: str | Path | None,
    temperature: float,
    max_tokens: int | None,
    host: str,
    port: int,
    api_key: str,
    allow_host: str,
    chat_template: str | Path,
    template_options: str,
    template_differs: str,
    accept_changes: bool,
    guard: str | Path = "",
    feature: str,
) -> Generator[tuple[Recording, ServedModel]]:
    """Listen for what agents ask of `model`; whoever lets the recording run answers. See `serving`."""
    for package in ("starlette", "uvicorn", "websockets"):
        extra_module(package, package=package, extra="serve", feature=feature)
    from quintain.serve.endpoint import EpisodeLimits
    from quintain.serve.listener import is_local
    from quintain.serve.recording import Recording

    if template_differs not in ("refuse", "allow"):
        raise UsageError(f"template_differs: got {template_differs!r}; choose refuse or allow")
    if not api_key and not is_local(host):
        raise UsageError(
            f"host: got {host!r}, which others can reach; give a key with --token-file (in Python: api_key), or "
            "127.0.0.1"
        )
    rules, order = (read_policy(guard), read_order_of(guard)) if guard else (None, None)
    out = None if record is None else Path(record)
    if out is not None:
        check_free(out, replace=False)
    check_files(model, accepts_changes=accept_changes, to="serving")
    loaded = policy_of(model)
    set_template(loaded.tokenizer, template=str(chat_template), options=template_options)
    chat = Chat(loaded.tokenizer)
    report = check_template(chat)
    if not report.is_followed and template_differs == "refuse":
        raise ModelError(
            f"chat template of {model}: got {report.line}; give another with chat_template or other template_options, "
            "or serve it all the same with template_differs allow"
        )
    key = api_key or secrets.token_hex(24)
    settings: dict[str, Any] = {
        "model": str(model),
        "temperature": temperature,
        "max_tokens": max_tokens or USUAL_TOKENS,
    }
    if guard:
        settings["guard"] = str(Path(guard).resolve())
    with ExitStack() as stack:
        engine = build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
        stack.callback(engine.close)
        keep = None if out is None else stack.enter_context(record_run(loaded.tokenizer, out, settings))
        terms = EpisodeLimits(
            temperature=temperature,
            max_turn_tokens=max_tokens or (engine.max_length if out is None else USUAL_TOKENS),
            usual_turn_tokens=USUAL_TOKENS if max_tokens is None else None,
            heeds_clients=out is None,
            guard=None if rules is None else partial(Policy, rules, order),
        )
        calls = None if out is None else CallLog(out / CALLS)
        recording = Recording(
            engine, chat, key, keep=keep, calls=calls, terms=terms, host=host, port=port, also=allow_host
        )
        stack.callback(recording.close)
        yield recording, ServedModel(url=recording.listener.url, api_key=key, chat_format=report.line)


@contextmanager
def record_run(
    tokenizer: PreTrainedTokenizerBase, folder: Path, settings: Mapping[str, Any]
) -> Generator[Callable[[Trajectory], None]]:
    """Make the run `folder` of episodes without an environment, and yield what records one of them as it ends."""
    new = Run.create(folder, recipe=COLLECT, config={"environment": NO_ENVIRONMENT, **settings})
    kept: list[Trajectory] = []
    with looked_after(new, start=TOKENIZERS[0], is_new=True, is_continued=False) as run:
        tokenizer.save_pretrained(str(folder / TOKENIZERS[0]))
        run.record_files(TOKENIZERS[0], *files_named(settings))

        def keep(trajectory: Trajectory) -> None:
            run.append([trajectory], step=0, phase=COLLECT)
            kept.append(trajectory)

        try:
            yield keep
        finally:
            run.commit(0, call_metrics(kept), phase=COLLECT)
        run.finish()


def collect(
    environment: str | type[Environment],
    agent: str = "expert",
    *,
    episodes: int = 100,
    seed: int = 0,
    split: str = "train",
    harness: str = "",
    task_offset: int = 0,
    expert_noise: float = 0.0,
    attempts: int = 1,
    reflect: bool = False,
    show_attempt: bool = False,
    show_errors: bool = False,
    max_repeats: int | None = None,
    trust_run: bool = False,
) -> tuple[list[Trajectory], PreTrainedTokenizerBase]:
    """Return episodes of the expert, of random actions, a search, a model or a chat endpoint, and their tokenizer.

    With several `attempts`, as `evaluate` has them, the episodes are those of all rounds; an attempt that was told a
    new lesson begins with the turn in which that was written (role ``reflection``), to be imitated where it helped.

    A model acts through `harness`, ``searched?size=3+text`` for one; without it through the one that its run names, of
    a run of somebody else's that names an agent of its own only if this user does `trust_run`. The tasks are those from
    number `task_offset` on.

    The expert does something else in the share `expert_noise` of its turns. ``search?nodes=1000&by=best`` is the
    teacher of `quintain.search.agent`.
    An endpoint is named by its URL and options: ``http://127.0.0.1:8000/v1?model=NAME``; see `engines.chat_client`.
    """
    if split not in ("train", "eval"):
        raise UsageError(f"split: got {split!r}; choose train or eval")
    if expert_noise and agent != "expert":
        raise UsageError(
            f"expert_noise: got {expert_noise} with the agent {agent}, which errs by itself; give 0"
        )
    check_attempts(
        agent,
        attempts,
        reflect=reflect,
        show_attempt=show_attempt,
        show_errors=show_errors,
        max_repeats=max_repeats,
    )
    make_environment = find_ready(environment, for_training=split == "train", for_model=not is_script(agent))
    acting = find_acting(
        agent,
        make_environment,
        agent=harness
        or (AUTO if is_endpoint(agent) or is_search(agent) else harness_of(agent, is_trusted=trust_run)),
        temperature=1.0,
        seed=seed,
        limits=Limits(max_failure_share=0.5, has_state_keys=True),
        expert_noise=expert_noise,
    )
    source: Split = "eval" if split == "eval" else "train"
    tasks = TaskStream(tasks_of(make_environment), source, first=task_offset).draw(0, episodes)
    chosen = derive_seed("collect", seed)
    with progressing("collecting", episodes) as display, closing(acting.rollout):
        if attempts < 2:
            found = acting.play(tasks, seed=chosen, on_episode=lambda _: display.advance())
            return found, acting.tokenizer

        def take(number: int, _trajectory: Trajectory) -> None:
            if number == 0:
                display.advance()

        rounds = acting.play_rounds(
            tasks, rounds=attempts, seed=chosen, reflects=reflect, shows_attempt=show_attempt, shows_errors=show_errors,
            max_repeats=max_repeats, on_episode=take,
        )  # fmt: skip
    before = [NOTHING, *(trial.reflections for trial in rounds)]
    found = [
        replace(each, group=f"{each.group}/attempt {number}")
        for number, trial in enumerate(rounds, start=1)
        for each in trial.with_lessons(before[number - 1])
    ]
    return found, acting.tokenizer


def check_attempts(
    target: str,
    attempts: int,
    *,
    reflect: bool,
    show_attempt: bool,
    show_errors: bool,
    max_repeats: int | None,
) -> None:
    """Refuse several attempts of who could not be told of the last one, and what needs several.

    Raises:
        UsageError: see above.
    """
    if attempts > 1 and is_script(target):
        raise UsageError(
            f"attempts: got {target!r}, which is no model here and could be told nothing of the last one; give 1"
        )
    asked = {
        "reflect": reflect, "show_attempt": show_attempt, "show_errors": show_errors,
        "max_repeats": max_repeats is not None,
    }  # fmt: skip
    if attempts < 2 and any(asked.values()):
        name = next(name for name, is_asked in asked.items() if is_asked)
        raise UsageError(f"{name}: got one attempt, after which nothing is told; give 2 attempts or more")
    if max_repeats is not None and max_repeats < 1:
        raise UsageError(f"max_repeats: got {max_repeats}; give 1 or more, or leave it out")


def attack(
    target: str | Path,
    environment: str | type[Environment] | None = None,
    *,
    guard: str | Path = "",
    agent: str = "",
    attacks: Sequence[str] | None = None,
    tools: Sequence[str] = (),
    sources: Sequence[str] = (),
    episodes: int = 24,
    seed: int = 0,
    temperature: float = 1.0,
    trust_run: bool = False,
) -> AttackReport:
    """Return what comes of attacking a model, a run, or a mind that needs none: ``expert``, ``random``, ``gullible``.

    Each arm plays the same held-out tasks with the same seeds: without an attack and under each of `attacks` (all of
    them where none are named), without a guard and under the policy in the file `guard`; a run has the guard that it
    was trained under.

    Raises:
        UsageError: no environment, no such tool, or another guard than the run's.
        ConfigError: the policy is none, or the run is somebody else's and names a program, a file or an address.
    """
    from quintain.pipelines.attacking import (
        ATTACKS,
        MINDS,
        Assault,
        choose_sources,
        choose_tools,
        make_player,
        split_target,
    )

    is_mind = str(target) in MINDS
    if not is_mind:
        wanted = [*(() if environment is not None else WORLDS), *(() if agent else ("agent",))]
        admit_run(target, is_trusted=trust_run, to="attacking", fields=wanted)
    if environment is None and is_mind:
        raise UsageError(f"environment: got none for the mind {target}; name one with --environment")
    if isinstance(environment, type):
        environment = class_name(environment)
    named = environment or environment_of(target, trust_run=trust_run)
    harness = AUTO if is_mind else agent or harness_of(target, is_trusted=trust_run)
    if is_outside(harness):
        raise UsageError(
            f"attacking {target}: got the agent {harness}, which acts outside; give --agent tools"
        )
    spec, policy = split_target(named, str(guard))
    find_ready(f"{GUARDED}{spec}@{policy}" if policy else spec, for_model=True)
    chosen, places = choose_tools(spec, policy, tools), choose_sources(spec, policy, sources)
    loaded = None if is_mind else policy_of(target)
    engine = None if loaded is None else build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
    make_environment = find_ready(spec)
    play = make_player(
        str(target),
        spec,
        episodes=episodes,
        seed=seed,
        tokenizer=new_tokenizer(make_environment, seed=seed) if loaded is None else loaded.tokenizer,
        engine=engine,
        harness=harness,
        temperature=temperature,
    )
    try:
        assault = Assault(
            spec=spec, policy=policy, play=play, attacks=attacks or ATTACKS, tools=chosen, sources=places
        )
        return assault.run()
    finally:
        if engine is not None:
            engine.close()


def lab(
    target: str | Path,
    *,
    environment: str | type[Environment] | None = None,
    groups: int = 48,
    size: int = 8,
    step: int | None = None,
    ideas: Sequence[str] | None = None,
    losses: Sequence[str] | None = None,
    parts: int = 8,
    out: Path | None = None,
    run: str | None = None,
    root: str | Path = ROOT,
    config: Mapping[str, Any] | None = None,
    trust_run: bool = False,
    **fields: Any,
) -> Report:
    """Return what every idea of credit and every loss makes of one batch; ``lab.json`` and ``lab.png`` say the same.

    Args:
        target: folder of a run, whose newest batch with kept weights is looked at; or a method, or a file with one,
            whose start (model, demonstrations, environment) collects a batch in a new run. Nothing is trained.
        environment: name in the catalogue, or an `Environment` class; a run knows its own.
        groups: groups that a method's start collects, each of another task.
        size: episodes of a group.
        step: step of the run whose batch is looked at; None: the newest.
        ideas: ideas of credit; None: all that fit.
        losses: losses; None: all, empty: none.
        parts: parts that the batch is dealt into; the gradient of each is compared with success in the others.
        out: folder of the files; None: that of the run.
        run: name of the new run; method and time when None.
        root: folder that holds the runs.
        config: values of the method's `Config`.
        trust_run: whether what a run of somebody else's names may be used.
        fields: more of them.

    Raises:
        UsageError: an unknown method, idea, loss or configuration key, or a run that exists.
        DataError: a batch without episodes, with one group, or whose success does not vary.
    """
    # Here, for a run needs none of it.
    from quintain.credit_lab.credit import check_names, run_lab
    from quintain.credit_lab.material import collect_batch, read_batch
    from quintain.credit_lab.report import write_lab

    check_names(ideas, IDEAS, "ideas")
    check_names(losses, LOSSES, "losses")
    folder = Path(target)
    if not (folder / JOURNAL).exists():
        found = find_method(str(target))
        folder = run_folder(Path(root), run or f"lab-{found.label}-{time.strftime('%Y%m%d-%H%M%S')}")
        values = {**(config or {}), **fields}
        if environment is not None:
            values["environment"] = environment if isinstance(environment, str) else class_name(environment)
        given = build(found.config_class, values, f"lab({found.label!r})")
        settings = place_data(given, Path(root), is_trusted=trust_run)
        refuse_unread(found, found.make(settings), settings, values)
        check_parts(settings)
        fitted = fit_to_model(found, settings, values)
        settings = fitted.config
        for note in fitted.notes:
            tell(note)
        with Display(folder.name, 1) as display:
            collect_batch(found.spec, settings, folder, groups=groups, size=size, display=display)
    elif environment is not None or config or fields:
        raise UsageError(
            f"lab of the run {folder}: got settings as well, and a run has its own; leave them out"
        )
    material = read_batch(folder, step=step, is_trusted=trust_run)
    with Display(folder.name, 1) as display:
        report = run_lab(material, ideas=ideas, losses=losses, parts=parts, say=display.phase)
    write_lab(report, folder if out is None else out)
    return report


def verify(
    folder: str | Path,
    *,
    step: int | None = None,
    since: int | None = None,
    resample: bool = False,
    trust_run: bool = False,
) -> Verification:
    """Return whether the steps of the run in `folder` follow from each other and from the episodes that it recorded.

    They are made again in a copy: all, one `step`, or those from `since` on, from the newest checkpoint before them.
    With `resample` episodes are sampled again, too, and their tokens compared. What was computed by another machine,
    another torch or another number of threads is compared up to rounding, which the notes say.

    Raises:
        UsageError: there is no such step, or it is to `resample` what was sampled by another machine.
        ConfigError: the run is somebody else's, and names a program, a file or an address.
    """
    from quintain.time_travel.verify import verify_run

    with Display("verifying", 1) as display:
        return verify_run(
            Path(folder), step=step, since=since, resamples=resample, is_trusted=trust_run, display=display
        )


def replay(
    folder: str | Path, *, step: int, out: str | Path | None = None, trust_run: bool = False
) -> StepReplay:
    """Return what `step` of the run in `folder` was made of, group by group: it is made again from its episodes.

    In the new folder `out` a run is left that goes on after the step (`resume`), with the checkpoint before it as well
    (``evaluate(f"{out}@{step - 1}")``).

    Raises:
        UsageError: there is no such step, or `out` is there already.
        ConfigError: the run is somebody else's, and names a program, a file or an address.
    """
    from quintain.time_travel.replay import replay_step

    return replay_step(Path(folder), step, out=None if out is None else Path(out), is_trusted=trust_run)


def bisect(
    folder: str | Path,
    *,
    metric: str = "success",
    steps: tuple[int, int] | None = None,
    most: int = 24,
    controls: int = 4,
    episodes: int = 128,
    seed: int = 0,
    trust_run: bool = False,
) -> Bisection:
    """Return by which groups of episodes `metric` (success or return) of the run in `folder` fell for good.

    The updates before the fall, or those of `steps`, are made again from recorded episodes without each of at most
    `most` groups, and without as many episodes at random for each of the `controls`; what comes of it plays `episodes`
    held-out tasks.

    Raises:
        DataError: the metric does not fall for good, or these steps collected nothing.
        UsageError: no such metric or steps, or a run of several policies.
        ConfigError: the run is somebody else's, and names a program, a file or an address.
    """
    from quintain.time_travel.bisect import bisect_run

    environment = environment_of(folder, trust_run=trust_run)
    agent = harness_of(str(folder), is_trusted=trust_run)
    with Display("bisecting", 1) as display:
        return bisect_run(
            Path(folder), environment=environment, agent=agent, metric=metric, steps=steps, most=most,
            controls=controls, episodes=episodes, seed=seed, is_trusted=trust_run, display=display,
        )  # fmt: skip


def policy_of(target: str | Path) -> LoadedModel:
    """Return the newest model of a run (last, of a checkpoint, first), that of a step, of a folder or a hub id."""
    return load_policy(str(target))


def environment_of(target: str | Path, *, trust_run: bool = False) -> str:
    """Return the environment that the run `target` was evaluated in; that of training, unless it says otherwise.

    Raises:
        UsageError: it is no run. ConfigError: the environment is somebody else's, and not to be trusted.
    """
    config = admit_run(target, is_trusted=trust_run, to="evaluating", fields=WORLDS)
    if not config:
        raise UsageError(f"evaluating {target}: got no environment; name one with --environment")
    return str(config.get("eval_environment") or config["environment"])


def describe_held_out_loss(target: str | Path) -> str:
    """Return what the run `target` measured of data that it held out, in words; empty where it measured nothing."""
    with Run.open(Path(target), writable=False) as run:
        found = [(row["step"], row["eval/loss"]) for row in run.metrics() if row.get("eval/loss") is not None]
    return f" (its held-out loss was {found[-1][1]:.3f} at step {found[-1][0]})" if found else ""


def class_name(environment: type[Environment]) -> str:
    """Return a name that finds the class `environment` again: package.module:Class, or file.py:Class.

    One that was typed in a session, as in a cell of a notebook, is found in this process alone: ``__main__:Class``.

    Raises:
        UsageError: it cannot be found again, because it is in a function or a class, or another has its name by now.
    """
    home, name = environment.__module__, environment.__qualname__
    if "." in name:
        raise UsageError(f"environment: got the class {name}; define it at the top of a module")
    if home == MAIN and (file := program_file()) is not None:
        return f"{file}:{name}"
    if home == MAIN and vars(sys.modules[MAIN]).get(name) is not environment:
        raise UsageError(
            f"environment: got a class {name} that this session does not call by that name; define {name} again"
        )
    return f"{home}:{name}"


@contextmanager
def progressing(title: str, total: int) -> Generator[Display]:
    """Show a bar of `total` episodes."""
    with Display(title, total) as display:
        display.phase(title, total)
        yield display
