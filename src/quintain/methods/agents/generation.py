"""Generation of Youtu-Agent (arXiv 2512.24615): writes configurations of an agent from a description, tries, keeps one.

Whoever writes, the model of the run or one behind an endpoint, is told what the agent is for, which tools and harnesses
there are, and what became of the last configurations. What it writes is read as data and checked: one that names a
tool or a harness that does not exist, or something outside, is refused, and the writer is told why. The others are
tried on as many training tasks, beside the one that stands, at first the run's own harness, told nothing. One takes its
place only by more success on the same tasks. No weights change. What stands is in the run's file ``agent.toml``, for
``--agent agent.toml``, and its name is an event of the journal, so that a resumed run has it again.

Differences to the paper: tools are chosen among those of the environment, none is written; there is one workflow
(description → configuration), no second agent that asks back; and a configuration must earn its place on tasks.
Measured on described tools of which some are needed, written by a script; the paper has its own eighty descriptions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from quintain.agents.catalog import HARNESSES, OUTSIDE, WRAPPERS, build, check
from quintain.agents.configured import Configuration, check_tools, configure, read_configuration
from quintain.agents.protocol import Agent, equipping
from quintain.config.ranges import PositiveInt
from quintain.engines.chat_client import ChatSpec
from quintain.environments.boundary import ask
from quintain.environments.protocol import Environment
from quintain.errors import ConfigError, DataError, QuintainError, UsageError
from quintain.learning.train_config import StepRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector
from quintain.processes.http_json import HttpTrouble
from quintain.rollout.configurations import read_objects
from quintain.runs.evaluator import innermost
from quintain.types import Group

if TYPE_CHECKING:
    from quintain.store.run import Run

EVENT, FILE = "generation", "agent.toml"
MAX_TOKENS = 400
ASK = (
    "You configure an agent. The user message is JSON: what the agent is for, the tools and the harnesses that there "
    "are, and what became of earlier configurations. Answer with JSON objects, each of the form "
    '{"agent": HARNESS, "tools": [NAMES], "instructions": TEXT}: a harness of the list, the tools that it needs and no '
    "others, and what it is to be told in at most 100 words."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(StepRoundsConfig):
    """Configuration of generation."""

    description: str = ""
    """What the agent is for, in words; needed."""
    writer: str = ""
    """Chat endpoint that writes configurations, ``http://127.0.0.1:8000/v1?model=NAME``; empty: the model itself."""
    candidates: PositiveInt = 3
    """Most configurations of a step that are tried."""
    tasks: PositiveInt = 16
    """Training tasks on which each is tried."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        StepRoundsConfig.check(self)
        if not self.description.strip():
            raise ConfigError("description: got none; say what the agent is for, in words")
        if check(self.agent)[-1].name == OUTSIDE:
            raise ConfigError(f"agent: got {self.agent}, which lives outside; name a harness")
        if self.writer:
            ChatSpec.read(self.writer, asked="writer")


def method(config: Config) -> Rounds:
    """Return generation as `config` describes it."""
    counts: dict[str, float] = {}
    runs: list[Collector] = []

    def adapt(agent: Agent) -> Agent:
        found = read_kept(runs[0].run) if runs else None
        return agent if found is None else build_configured(agent, found, runs[0])

    def collect(collector: Collector, step: int) -> list[Group]:
        kept = read_kept(collector.run, before=step)
        question = describe_question(config.description, collector, read_history(collector.run, before=step))
        seed = collector.seed("generation", step)
        answer = write(config.writer, question, seed) if config.writer else collector.ask(
            ASK, [question], seed=seed, max_tokens=MAX_TOKENS
        )[0]  # fmt: skip
        sound, refused = ask(
            collector.rollout.make_environment,
            lambda world: sift(read_objects(answer), world, collector.rollout.agent, config.candidates),
        )
        tasks, groups = collector.tasks(step, config.tasks), list[list[Group]]()
        for number, found in enumerate([kept, *sound]):

            def wrap(agent: Agent, found: Configuration | None = found) -> Agent:
                return agent if found is None else build_configured(agent, found, collector)

            groups.append(collector.sample(step, tasks, size=1, agent=wrap, again=number))
        rates = [rate(each) for each in groups]
        place = pick(rates)
        best = [kept, *sound][place]
        tried = [{**asdict(found), "success": own} for found, own in zip(sound, rates[1:], strict=True)]
        collector.run.event(
            EVENT, f"{len(sound)} configurations of step {step}, {len(refused)} refused", step=step,
            kept=None if best is None else asdict(best), tried=tried, refused=refused,
        )  # fmt: skip
        if best is not None:
            best.save(collector.run.folder / FILE)
        counts.clear()
        counts.update(
            {
                "generation/tried": float(len(sound)),
                "generation/refused": float(len(refused)),
                "generation/before": rates[0],
                "generation/kept": rates[place],
                "generation/replaced": float(place > 0),
            }
        )
        return [group for own in groups for group in own]

    def begin(collector: Collector) -> list[Any]:
        runs[:] = [collector]
        return []

    return Rounds(
        collect=collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        base=begin,
        trains=False,
        evaluated=adapt,
        measure=lambda _groups, _decode: counts,
    )


def sift(
    written: Iterable[object], environment: Environment, agent: Agent, count: int
) -> tuple[list[Configuration], list[str]]:
    """Return the first `count` of what was `written` that fit `environment`, each once, and why others do not.

    A harness that puts something of its own around the environment is refused, unless `agent`, the run's, does alike.
    """
    sound: list[Configuration] = []
    refused: list[str] = []
    for each in written:
        try:
            found = read_configuration(each)
            check_tools(found, environment)
            made = build_harness(found, innermost(agent), environment)
            if type(equipping(made)) is not type(equipping(agent)):
                raise UsageError(
                    f"harness of an agent: got {found.agent}, which changes the environment; name another"
                )
        except QuintainError as error:
            refused.append(str(error))
        else:
            if found not in sound and len(sound) < count:
                sound.append(found)
    return sound, refused


def build_harness(found: Configuration, inner: Any, environment: Environment) -> Agent:
    """Return the harness that `found` names, with the chat, temperature and lengths of the harness `inner`."""
    sizes = {"temperature": inner.temperature, "max_tokens": inner.max_tokens}
    return configure(build(found.agent, inner.chat, environment, **sizes), found)


def build_configured(agent: Agent, found: Configuration, collector: Collector) -> Agent:
    """Return the agent that `found` configures, sampled as `agent` is."""
    make = collector.rollout.make_environment
    return ask(make, lambda environment: build_harness(found, innermost(agent), environment))


def pick(rates: Sequence[float]) -> int:
    """Return the place of the one that is kept: of the highest success, of equal ones the first, which stood before."""
    return max(range(len(rates)), key=lambda place: (rates[place], -place))


def rate(groups: Sequence[Group]) -> float:
    """Return the mean success of the episodes of `groups`; 0 where all failed to be played."""
    solved = [float(t.is_success) for group in groups for t in group.scored]
    return sum(solved) / len(solved) if solved else 0.0


def describe_question(description: str, collector: Collector, history: Sequence[Mapping[str, Any]]) -> str:
    """Return what the writer is told, as JSON."""
    tools = ask(collector.rollout.make_environment, lambda world: world.tools())
    return write_question(description, {tool.name: tool.description for tool in tools}, history)


def write_question(description: str, tools: Mapping[str, str], history: Sequence[Mapping[str, Any]]) -> str:
    """Return the question about an agent with `tools`, name → what it does; `history` are events of earlier steps."""
    told = {
        "for": description,
        "tools": dict(tools),
        "harnesses": sorted({*HARNESSES, *(f"{name}+…" for name in WRAPPERS)} - {OUTSIDE}),
        "tried": [row for each in history[-2:] for row in each["tried"]],
        "refused": [reason for each in history[-2:] for reason in each["refused"]][:6],
    }
    return json.dumps(told, ensure_ascii=False)


def write(writer: str, question: str, seed: int) -> str:
    """Return what the endpoint `writer` answers.

    Raises:
        DataError: it does not.
    """
    spec = ChatSpec.read(writer, asked="writer")
    messages = [{"role": "system", "content": ASK}, {"role": "user", "content": question}]
    client = spec.client()
    try:
        return client.ask(messages, temperature=spec.temperature, max_tokens=MAX_TOKENS, number=seed)
    except HttpTrouble as trouble:
        raise DataError(f"writer at {client.url}: got {trouble.got}; check the endpoint") from trouble


def read_history(run: Run, *, before: int | None = None) -> list[Mapping[str, Any]]:
    """Return what was found in each step of `run` up to `before`, in order; a step that is done again counts once."""
    by_step: dict[int, Mapping[str, Any]] = {}
    for event in run.events():
        if event["kind"] == EVENT and (before is None or int(event["data"]["step"]) < before):
            by_step[int(event["data"]["step"])] = event["data"]
    return [found for _, found in sorted(by_step.items())]


def read_kept(run: Run, *, before: int | None = None) -> Configuration | None:
    """Return the configuration that stands in `run` before the step `before`; None: its own harness, told nothing."""
    history = read_history(run, before=before)
    kept = history[-1]["kept"] if history else None
    return (
        None if kept is None else read_configuration({name: value for name, value in kept.items() if value})
    )
