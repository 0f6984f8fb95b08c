"""M3HF (arXiv 2503.02077): remarks of mixed quality, made in pauses, become rewards whose weights are tested.

w_new = 1/M, w_old ← α w_old, together at most 1; then w_new + β where the environment's return rose, else w_new cut.

PPO is paused at most five times. In a pause the policy plays tasks that are the same in all pauses and never learned
from; somebody sees two of these episodes and makes a remark, which becomes a template with parameters for the seats
that it means (`quintain.rewards.feedback`). The next pause compares the environment's own return on the same tasks,
not the shaped one, with that before the remark: one that did harm loses its weight. A change within its standard
error is none. Remarks come from people
(``--remarks ask`` waits for ``quintain label RUN --terminal``, where words behind an answer are the remark), from a
file of labels, or from a script that is right or wrong. They are written as templates, ``event?seats=A&action=say&
value=0.2``, or in plain words that a chat endpoint reads (`--reader`). What was read stands in ``remarks.jsonl``.

Differences to the paper: a fall takes the whole weight, where the code has β = .1 both ways and takes any change
for one; weights are kept from
pause to pause, where the code begins with equal ones each time, which forgets what was tested, and judges a remark by
the phase before it; weights of 0 stay 0; what the environment pays is added whole; templates are four and are data,
where a model writes code. Measured on tables of two agents, where the paper has Overcooked.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, stdev

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.data.labels import Query, read_labels
from quintain.engines.chat_client import ChatSpec
from quintain.environments.boundary import ask
from quintain.errors import ConfigError, DataError, UsageError
from quintain.learning.labelling import FILE, Session
from quintain.learning.train_config import OnPolicyConfig
from quintain.methods.loops.on_policy import Companion, OnPolicy
from quintain.methods.loops.waiting import wait_for_answers
from quintain.methods.method import Collector
from quintain.methods.multiagent.remarking import read_remark, script_remark, translate_remark, write_episode
from quintain.methods.rl.parts.actor_critic import ActorCriticConfig, actor_critic
from quintain.rewards.feedback import RemarkPool
from quintain.rollout.views import seats_of
from quintain.runs.context import TrainingContext
from quintain.store.files import append_line
from quintain.types import Group, Task, Trajectory, flatten_scored
from quintain.types.json_text import load_json

SCRIPT, ASK = "script", "ask"
KEPT = "remarks.jsonl"
"""File of a run: what was remarked in each pause, and what it was read as."""
MOST_PAUSES = 5
APART = 1 << 20
"""The step, which no run reaches, whose tasks the test plays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ActorCriticConfig):
    """Configuration of M3HF."""

    environment: str = "twocards"
    remarks: str = SCRIPT
    """Whose remarks: script, ask (people, by quintain label RUN --terminal), or a file of labels with remarks."""
    reader: str = ""
    """Chat endpoint that reads remarks in plain words (http://…/v1?model=NAME); empty: they are templates."""
    pauses: PositiveInt = 3
    """Pauses for a remark, at most 5."""
    phase_steps: PositiveInt = 10
    """Steps before the first pause, and from one to the next."""
    test_tasks: PositiveInt = 128
    """Tasks that every pause plays, the same ones, to judge the remark before."""
    decay: Share = 0.9
    """α: what weights of older remarks are multiplied by in a pause."""
    bonus: NonNegativeFloat = 0.1
    """β: what the newest weight gains where the return rose."""
    cut: Share = 1.0
    """Part of the newest weight that goes where the return fell."""
    script_errors: Share = 0.33
    """Share of the script's remarks that ask for the opposite of what it saw to work."""
    remark_hours: PositiveFloat = 24.0
    """Hours that a pause waits for people; then the run ends, and can be resumed."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ActorCriticConfig.check(self)
        if self.pauses > MOST_PAUSES:
            raise ConfigError(f"pauses: got {self.pauses}; give 1 to {MOST_PAUSES}")
        if self.reader:
            ChatSpec.read(self.reader, asked="reader")


def method(config: Config) -> OnPolicy:
    """Return M3HF as `config` describes it."""
    tested: dict[str, Task] = {}

    def collect(collector: Collector, step: int) -> list[Group]:
        tested.update({task.id: task for task in collector.tasks(APART, config.test_tasks)})
        drawn = [task for task in collector.tasks(step, config.episodes) if task.id not in tested]
        if not drawn:
            raise UsageError(
                f"test_tasks: got {config.test_tasks}, which are all tasks of step {step}; give fewer, so that some "
                "are left to learn from"
            )
        return collector.sample(step, [*drawn, *(tested.values() if pause_at(step, config) else ())], size=1)

    def drop_tests(groups: Sequence[Group]) -> list[Group]:
        return [group for group in groups if group.task.id not in tested]

    return replace(
        actor_critic(config), collect=collect, keep=drop_tests, companion=FeedbackPlan(config, tested)
    )


def pause_at(step: int, config: Config) -> int:
    """Return the number of the pause before `step` is learned from; one more than `pauses` tests alone; 0: none is."""
    number, rest = divmod(step - 1, config.phase_steps)
    return number if not rest and number <= config.pauses + 1 else 0


@dataclass(frozen=True, slots=True)
class FeedbackPlan:
    """Remarks beside PPO: ``FeedbackPlan(config, tested)``; `tested` are the tasks of the tests, by id."""

    config: Config
    tested: Mapping[str, Task]

    @property
    def own_rates(self) -> tuple[str, ...]:
        """It trains nothing."""
        return ()

    @property
    def has_teacher(self) -> bool:
        """Remarks say what is liked, and not what to do."""
        return False

    def start(self, context: TrainingContext, config: OnPolicyConfig) -> "Feedback":
        """Return what a run remembers of its remarks."""
        return Feedback(self.config, self.tested, context)


class Feedback(Companion):
    """The remarks of a run, their weights and their tests, a `State`."""

    def __init__(self, config: Config, tested: Mapping[str, Task], context: TrainingContext) -> None:
        self.config, self.tested, self.context = config, tested, context
        self.pool = RemarkPool(decay=config.decay, bonus=config.bonus, cut=config.cut)
        self.seats = ask(context.make_environment, seats_of)
        self.file = context.run.folder / KEPT
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        self.known: dict[int, str] = {row["pause"]: row["reward"] for row in map(load_json, lines)}
        self.session = Session(context.run.folder / FILE, SCRIPT)
        self._step, self._is_open = 0, False
        self._before: Mapping[str, float] = {}
        self._tests: Sequence[Trajectory] = ()

    def update(self, groups: Sequence[Group]) -> None:
        """Judge the last remark by the test among the recorded `groups` of the next step; take in one that is known."""
        self._step += 1
        if not (pause := pause_at(self._step, self.config)):
            return
        apart = {task.id for task in self.context.collector.tasks(APART, self.config.test_tasks)}
        self._tests = [t for t in flatten_scored(groups) if t.task.id in apart]
        after = {t.task.id: sum(turn.reward for turn in t.turns) for t in self._tests}
        if self._is_open and (change := mean_change(self._before, after)) is not None:
            self.pool.judge(change)
        self._before, self._is_open = after, False
        if pause in self.known:
            self._take(self.known[pause])

    def pay(self, step: int, groups: Sequence[Group]) -> tuple[list[Group], dict[str, float]]:
        """Ask for a remark where `step` is a pause; return `groups` paid by all that weigh, and the weights."""
        pause = pause_at(step, self.config)
        if 0 < pause <= self.config.pauses and pause not in self.known:
            said = self._ask(step, pause)
            spec = translate_remark(said, self.config.reader, self.seats) if said else ""
            self._take(spec)
            append_line(self.file, json.dumps({"pause": pause, "remark": said, "reward": spec}))
            self.known[pause] = spec
        told = {f"remarks/weight_{k}": w for k, w in enumerate(self.pool.weights, 1)}
        if pause and self._before:
            told["remarks/test_return"] = fmean(self._before.values())
        return self.pool.pay(groups), told

    def _take(self, spec: str) -> None:
        """Take in the remark that was read as `spec`; empty: there was none."""
        if spec:
            self.pool.add(read_remark(spec, self.seats))
        self._is_open = bool(spec)

    def _ask(self, step: int, pause: int) -> str:
        """Return what is remarked in `pause`; empty: nothing."""
        if self.config.remarks == SCRIPT:
            rng = Random(self.context.seed("remark", pause))
            return script_remark(self._tests, rng, errors=self.config.script_errors)
        if self.config.remarks != ASK:
            file = Path(self.config.remarks)
            if not file.is_file():
                raise UsageError(f"--remarks: got {file}, which is no file; give script, ask, or labels")
            said = [label.remark for label in read_labels(file).given if label.remark]
            return said[pause - 1] if pause <= len(said) else ""
        sides = {json.dumps(write_episode(t)): t for t in sorted(self._tests, key=lambda t: t.is_success)}
        if len(sides) < 2:
            raise DataError(f"episodes of pause {pause}: got none that differ; give more test_tasks")
        names = list(sides)
        query = Query.of(load_json(names[0]), load_json(names[-1]), note=f"pause {pause}")
        self.session.ask([query])
        wait_for_answers(self.context, self.session, [query.id], step=step, hours=self.config.remark_hours)
        return next((x.remark for x in self.session.labels.given if x.query == query.id and x.remark), "")


def mean_change(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the mean change of the returns that stand in both; 0 within its standard error, None where there is none.

    Example: three tasks that changed by -1, 0 and 0 → 0, for -1/3 is no more than its error of 1/3.
    """
    changes = [after[name] - before[name] for name in before if name in after]
    if not changes:
        return None
    error = stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else 0.0
    return mean if abs(mean := fmean(changes)) > error + 1e-12 else 0.0
