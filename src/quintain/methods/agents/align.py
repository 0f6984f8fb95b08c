"""ALIGN (arXiv 2505.21055): an interface says what the environment leaves unsaid; it is written from failures.

In every step training tasks are played behind the interface that is kept so far. Actions that had no effect, in the
episodes of all steps, are contrasted with those that had (`mine_rules`): where a kind of action works only after
another one was done, "A needs B first" is a rule, and the rules are written as an interface
(`quintain.agents.interface`). The model writes `written` more from the failures. Each is checked, played over recorded
steps in the sandbox, refused where it cheats, and raced against the kept one on other training tasks; the best is kept,
a tie keeps the old one. It stands around the agent in evaluations and in the run's file ``interface.txt``, for
``interface?file=…``. Weights and environment stay. What was tried, what it earned and why it was refused is an event of
the journal, so that a resumed run has it again.

Differences to the paper: a miner beside the model that writes; one model for all parts; what is kept is chosen on tasks
of its own, where the paper takes the version of the last turn; an interface adds text alone, and is checked for that.
Measured in a house with planted conditions, with scripted agents; the paper has ALFWorld, ScienceWorld, WebShop and
M3ToolEval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from quintain.agents.deliberation import describe_action
from quintain.agents.interface import Interface, Step, load_interface, put_interface
from quintain.config.ranges import NonNegativeInt, PositiveInt
from quintain.errors import UsageError
from quintain.learning.train_config import StepRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector
from quintain.text.code import parse_code
from quintain.types import Group, Score, Stop, Trajectory, as_text

if TYPE_CHECKING:
    from quintain.agents.protocol import Agent
    from quintain.store.run import Run

EVENT, FILE = "align", "interface.txt"
LEAST, TWICE, LUCK, GAIN = 3, 2, 0.05, 0.2
"""What a rule stands on: failures without the other action, effects after it, the share of effects without it at most,
and by how much likelier they are after it."""
MAX_ANSWER, NUM_CHECKED, NUM_SHOWN = 480, 24, 6
"""Tokens of a written interface; recorded steps that one is played over; failures that a question shows."""
ASK = (
    "Below are actions of an agent that had no effect, and what it saw. Write Python with two functions and nothing "
    "else. rules() returns a text that says what the environment needs. wrap_step(env, action) begins with "
    "observation, reward, done = env.step(action), may add to observation why the action had no effect, and returns "
    "all three. Each has a docstring; imports and while are refused."
)
Log = Sequence[Step]
"""what was done in an episode, and what it came to"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(StepRoundsConfig):
    """Configuration of ALIGN."""

    steps: PositiveInt = 8
    tasks: PositiveInt = 16
    """Tasks of a step on which failures are found, and as many others on which interfaces are raced."""
    written: NonNegativeInt = 2
    """Interfaces that the model writes in a step, beside the one that is mined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """An interface that was tried: ``Tried(source="…", score=.4, is_kept=True)``."""

    source: str
    """empty: none"""
    score: float = 0.0
    fault: str = ""
    """why it was refused"""
    is_kept: bool = False


def name_verb(action: str) -> str:
    """Return what kind of action it is: its first word, or the name of its tool."""
    return (action.strip().partition("[")[0].split() or [""])[0].lower()


def mine_rules(logs: Sequence[Log]) -> dict[str, str]:
    """Return which kind of action needs which other one before it in its episode, by `logs`, one for each episode.

    For a kind and another: w of W tries without the other before them had an effect, and d of D after it. Of the others
    with W - w of `LEAST` or more, d of `TWICE` or more, w/W of `LUCK` at most (it hardly ever works without) and
    d/D - w/W of `GAIN` or more, the one is needed with the highest difference, then with most tries, then the first by
    name.
    """
    counts: dict[tuple[str, str], list[list[int]]] = {}
    verbs = sorted({name_verb(step.action) for log in logs for step in log})
    for log in logs:
        done = set[str]()
        for step in log:
            verb = name_verb(step.action)
            for other in verbs:
                if other != verb:
                    cell = counts.setdefault((verb, other), [[0, 0], [0, 0]])
                    cell[other in done][step.has_worked] += 1
            if step.has_worked:
                done.add(verb)
    found: dict[str, tuple[float, int, str]] = {}
    for (verb, other), ((lost, luck), (failed, worked)) in sorted(counts.items()):
        if lost < LEAST or worked < TWICE:
            continue
        without, tries = luck / (luck + lost), worked + failed + luck + lost
        rise = worked / (worked + failed) - without
        if without <= LUCK and rise >= GAIN and (rise, tries) > found.get(verb, (-2.0, 0, ""))[:2]:
            found[verb] = (rise, tries, other)
    return {verb: other for verb, (_, _, other) in found.items()}


def find_phrase(logs: Sequence[Log]) -> str:
    """Return the sentence that observations mostly begin with after an action without effect; or nothing."""
    seen = Counter(step.observation.partition(".")[0] for log in logs for step in log if not step.has_worked)
    return next((phrase for phrase, _ in seen.most_common(1)), "")


def write_interface(needs: Mapping[str, str], phrase: str) -> str:
    """Return the source of the interface that says what `needs` what, and again where `phrase` begins what is seen."""
    return f'''"""Actions that need another one first."""
NEEDS = {dict(needs)!r}


def say(verb):
    """Say what an action needs."""
    return verb + " needs " + NEEDS[verb] + " first."


def rules():
    """Say what needs what."""
    return " ".join([say(verb) for verb in NEEDS])


def wrap_step(env, action):
    """Say what an action without effect may have lacked."""
    observation, reward, done = env.step(action)
    verb = action.split(" ")[0].split("[")[0].lower()
    if verb in NEEDS and observation.startswith({phrase!r}):
        observation = observation + " " + say(verb)
    return observation, reward, done
'''


def read_log(trajectory: Trajectory) -> list[Step]:
    """Return what was done in an episode, and what it came to."""
    acts = [turn for turn in trajectory.turns if not turn.is_internal]
    seen = [*(as_text(turn.observation) for turn in acts[1:]), as_text(trajectory.final_observation)]
    ends = trajectory.stop is Stop.TERMINATED
    return [
        Step(describe_action(turn.action), text, turn.reward, ends and turn is acts[-1], turn.is_valid)
        for turn, text in zip(acts, seen, strict=True)
    ]


def try_sources(
    sources: Sequence[str],
    kept: str,
    steps: Sequence[Step],
    race: Callable[[Sequence[Interface | None]], Sequence[float]],
) -> list[Tried]:
    """Return what each of `sources` earned, and first what the one `kept` so far did; one of them is kept now.

    Each is played over recorded `steps`. `race` returns the mean score of each on the same tasks; what is refused is
    in no race.
    """
    fit: list[Interface | None] = [load_interface(kept) if kept else None]
    refused: list[Tried] = []
    try:
        for source in dict.fromkeys(sources):
            try:
                fit += [load_interface(source, steps)] if source != kept else []
            except UsageError as error:
                refused.append(Tried(source=source, fault=str(error)))
        scores = list(race(fit))
        best = max(range(len(fit)), key=scores.__getitem__)  # the first of equal ones
        tried = [
            Tried(source="" if each is None else each.source, score=score, is_kept=number == best)
            for number, (each, score) in enumerate(zip(fit, scores, strict=True))
        ]
        return [*tried, *refused]
    finally:
        for each in fit:
            if each is not None:
                each.close()


def get_kept(history: Sequence[Tried]) -> str:
    """Return the interface that was kept last; empty before any."""
    return next((each.source for each in reversed(history) if each.is_kept), "")


def read_history(run: Run, *, before: int | None = None) -> list[Tried]:
    """Return what was tried in `run` in order, up to the step `before`; a step that was done again counts once."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for event in run.events():
        if event["kind"] == EVENT and (before is None or int(event["data"]["step"]) < before):
            by_step[int(event["data"]["step"])] = event["data"]["tried"]
    return [Tried(**row) for _, rows in sorted(by_step.items()) for row in rows]


def method(config: Config) -> Rounds:
    """Return ALIGN as `config` describes it."""
    counts: dict[str, float] = {}
    collectors: list[Collector] = []

    def collect(collector: Collector, step: int) -> list[Group]:
        collectors[:] = [collector]
        run = collector.run
        kept = get_kept(read_history(run, before=step))
        tasks = collector.tasks(step, 2 * config.tasks)
        played, raced = tasks[: config.tasks], tasks[config.tasks :]
        groups = collector.sample(step, played, size=1, agent=lambda agent: wrap(agent, kept))
        earlier = [t for k in range(1, step) for t in run.trajectories(step=k, phase="train")]
        logs = [read_log(t) for t in (*earlier, *(t for group in groups for t in group.scored))]
        needs = mine_rules(logs)
        sources = [write_interface(needs, find_phrase(logs))] if needs else []
        if config.written:
            seed, question = collector.seed("align", step), "\n".join(list_failures(logs))
            texts = collector.ask(ASK, [question] * config.written, seed=seed, max_tokens=MAX_ANSWER)
            sources += [parse_code(text).text for text in texts]

        def race(interfaces: Sequence[Interface | None]) -> list[float]:
            scores: list[float] = []
            for number, each in enumerate(interfaces, 1):
                found = collector.sample(
                    step,
                    raced,
                    size=1,
                    agent=lambda agent, each=each: put_interface(agent, each),
                    again=number,
                )
                groups.extend(found)
                values = [t.outcome.value for g in found for t in g.scored if isinstance(t.outcome, Score)]
                scores.append(fmean(values or [0.0]))
            return scores

        checked = [each for log in logs for each in log[-3:]][-NUM_CHECKED:]
        tried = try_sources(sources, kept, checked, race)
        run.event(
            EVENT, f"{len(sources)} interfaces of step {step}", step=step, tried=[asdict(t) for t in tried]
        )
        (run.folder / FILE).write_text(get_kept(tried), encoding="utf-8")
        counts.clear()
        counts.update(measure_tried(tried, needs))
        return groups

    def wrap_evaluated(agent: Agent) -> Agent:
        return wrap(agent, get_kept(read_history(collectors[0].run))) if collectors else agent

    return Rounds(
        collect=collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        trains=False,
        evaluated=wrap_evaluated,
        measure=lambda _, __: counts,
    )


def wrap(agent: Agent, source: str) -> Agent:
    """Return `agent` behind the interface `source`; as it is where there is none."""
    return put_interface(agent, load_interface(source)) if source else agent


def list_failures(logs: Sequence[Log]) -> list[str]:
    """Return the actions without effect that there were most of, with what was seen, a line each."""
    failed = Counter(
        f"{step.action[:60]} -> {step.observation[:120]}"
        for log in logs
        for step in log
        if not step.has_worked
    )
    return [line for line, _ in failed.most_common(NUM_SHOWN)]


def measure_tried(tried: Sequence[Tried], needs: Mapping[str, str]) -> Mapping[str, float]:
    """Return what is to be seen of a step's interfaces."""
    return {
        "align/rules": float(len(needs)),
        "align/refused": float(sum(bool(each.fault) for each in tried)),
        "align/kept_score": max(each.score for each in tried if each.is_kept),
        "align/kept_before": tried[0].score,
    }
