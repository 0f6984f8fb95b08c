"""AutoFlow (arXiv 2407.12821): workflows that a model writes are kept by what they earn when they are followed.

In every step the model is shown the workflow that is kept so far and good others, each with its mean score, and writes
a few new ones (`quintain.agents.workflow` has the language). Those that can be read are followed by the model on the
step's tasks, the kept one on the same ones; the best of the step is kept, a tie keeps the old one. A text that is no
workflow is followed by nobody and scores -2. The kept one stands around the agent in evaluations and in the run's file
``flow.txt``, for ``workflow?file=…``. No weights change. What was written, what it earned and what was kept is an event
of the journal, so that a resumed run has it again.

Differences to the paper: the optimiser in context alone, one model for both parts, and nothing by policy gradient;
a text that cannot be read is not repaired by another model, whose workflow then earns for a text that nobody followed:
its writer is told what was wrong; a new workflow is kept where it beats the old one on the same new tasks, not where it
beats the best score of earlier ones; held-out tasks are looked at when they are due, not whenever the score rises.
Measured with scripts as writer and follower at a help desk; the paper has OpenAGI with GPT-4 and Mixtral.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from quintain.agents.workflow import SPLIT, Workflow, follow_workflow, read_workflow
from quintain.config.ranges import PositiveFloat, PositiveInt
from quintain.errors import UsageError
from quintain.learning.train_config import StepRoundsConfig
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.loops.rounds import Rounds
from quintain.methods.method import Collector
from quintain.types import Group, Score, as_text

if TYPE_CHECKING:
    from quintain.agents.protocol import Agent
    from quintain.store.run import Run

EVENT, FILE = "auto_flow", "flow.txt"
INVALID = -2.0
"""What a text scores that is no workflow."""
MAX_ANSWER = 320
"""Tokens of a written workflow."""
PLAIN = (
    f"Begin {SPLIT} process {SPLIT} Act. {SPLIT} next: Rest\nRest {SPLIT} terminal {SPLIT} Do what is left."
)
"""What is kept before anything was written: it says nothing."""
ASK = (
    "Write a workflow that tells an agent step by step what to do. Each line is a block: "
    f"Name {SPLIT} process {SPLIT} what to do {SPLIT} next: Name, or "
    f"Name {SPLIT} decision {SPLIT} what to ask {SPLIT} yes: Name; no: Name, or "
    f"Name {SPLIT} terminal {SPLIT} what to do at last. The first line begins, and every line is reached. "
    "Earlier workflows are below, each with its score. Write one that scores more, and nothing else."
)
Write = Callable[[Sequence[str]], Sequence[str]]
"""questions → what is answered to each"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(StepRoundsConfig):
    """Configuration of AutoFlow."""

    tasks: PositiveInt = 16
    """Tasks of a step, on which its workflows are followed."""
    candidates: PositiveInt = 4
    """Workflows that are written in a step."""
    shown: PositiveInt = 4
    """Earlier workflows that a question shows beside the one that is kept, those with the highest scores."""
    temperature: PositiveFloat = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A text that was written: ``Tried(text="…", score=.4, is_kept=True)``."""

    text: str
    score: float
    fault: str = ""
    """what is wrong with it, where it is no workflow"""
    is_kept: bool = False


def method(config: Config) -> Rounds:
    """Return AutoFlow as `config` describes it."""
    counts: dict[str, float] = {}
    collectors: list[Collector] = []

    def collect(collector: Collector, step: int) -> list[Group]:
        collectors[:] = [collector]
        history = read_history(collector.run, before=step)
        tasks = collector.tasks(step, config.tasks)
        seed = collector.seed("auto_flow", step)
        (begun,) = collector.initial_states(tasks[:1])
        question = question_text(history, config.shown, as_text(begun.turns[0].observation))
        texts = list(collector.ask(ASK, [question] * config.candidates, seed=seed, max_tokens=MAX_ANSWER))
        groups: list[Group] = []

        def follow(flows: Sequence[Workflow]) -> list[float]:
            scores: list[float] = []
            for number, flow in enumerate(flows):
                found = collector.sample(
                    step,
                    tasks,
                    size=1,
                    agent=lambda agent, flow=flow: wrap(agent, collector, flow),
                    again=number,
                )
                groups.extend(found)
                scores.append(mean_score(found))
            return scores

        tried = try_texts(texts, kept_workflow(history), follow)
        collector.run.event(
            EVENT, f"{len(texts)} workflows of step {step}", step=step, tried=[asdict(each) for each in tried]
        )
        kept = kept_workflow(tried)
        (collector.run.folder / FILE).write_text(kept.text + "\n", encoding="utf-8")
        counts.clear()
        counts.update(measure_tried(tried, kept))
        return groups

    def wrap_evaluated(agent: Agent) -> Agent:
        return (
            wrap(agent, collectors[0], kept_workflow(read_history(collectors[0].run)))
            if collectors
            else agent
        )

    return Rounds(
        collect=collect,
        update=Update(loss=imitation(), is_on_policy=False, lr_warmup=0),
        trains=False,
        evaluated=wrap_evaluated,
        measure=lambda _, __: counts,
    )


def wrap(agent: Agent, collector: Collector, flow: Workflow) -> Agent:
    """Return `agent` as it follows `flow`."""
    return follow_workflow(agent, collector.chat, flow)


def try_texts(
    texts: Sequence[str], kept: Workflow, follow: Callable[[Sequence[Workflow]], Sequence[float]]
) -> list[Tried]:
    """Return what each of `texts` earned, and first what the workflow `kept` so far did; one of them is kept now.

    `follow` returns the mean score of each workflow on the same tasks. What is read goes by what was followed: the
    score belongs to no other text.
    """
    read: list[Workflow | str] = []
    for text in texts:
        try:
            read.append(read_workflow(text))
        except UsageError as error:
            read.append(str(error))
    flows = [kept, *(each for each in read if isinstance(each, Workflow))]
    scores = list(follow(flows))
    best = max(range(len(flows)), key=scores.__getitem__)  # the first of equal ones
    done = [
        Tried(text=flow.text, score=score, is_kept=number == best)
        for number, (flow, score) in enumerate(zip(flows, scores, strict=True))
    ]
    faulty = [
        Tried(text=text, score=INVALID, fault=each)
        for text, each in zip(texts, read, strict=True)
        if isinstance(each, str)
    ]
    return [*done, *faulty]


def kept_workflow(history: Sequence[Tried]) -> Workflow:
    """Return the workflow that was kept last; before any, one that says nothing."""
    return read_workflow(next((each.text for each in reversed(history) if each.is_kept), PLAIN))


def question_text(history: Sequence[Tried], shown: int, begins: str) -> str:
    """Return the question for a new workflow: how a task `begins`, `shown` good ones and the kept one of `history`.

    The kept one stands last, with its mean over all steps in which it was followed: of others a high score may be luck.
    """
    by_text: dict[str, list[float]] = {}
    for each in history:
        if not each.fault:
            by_text.setdefault(each.text, []).append(each.score)
    kept = kept_workflow(history).text
    others = sorted((text for text in by_text if text != kept), key=lambda text: fmean(by_text[text]))
    parts = [f"A task begins:\n{begins}"]
    parts += [f"Workflow with score {fmean(by_text[text]):.2f}:\n{text}" for text in others[-shown:]]
    parts += [f"Best workflow, with score {fmean(by_text[kept]):.2f}:\n{kept}"] if kept in by_text else []
    parts += [f"One could not be read: {each.fault}" for each in history[-1:] if each.fault]
    return "\n\n".join(parts)


def read_history(run: Run, *, before: int | None = None) -> list[Tried]:
    """Return what was tried in `run` in order, up to the step `before`; a step that was done again counts once."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for event in run.events():
        if event["kind"] == EVENT and (before is None or int(event["data"]["step"]) < before):
            by_step[int(event["data"]["step"])] = event["data"]["tried"]
    return [Tried(**row) for _, rows in sorted(by_step.items()) for row in rows]


def mean_score(groups: Sequence[Group]) -> float:
    """Return the mean score of the episodes of `groups`; failures of the machinery do not count."""
    values = [t.outcome.value for group in groups for t in group.scored if isinstance(t.outcome, Score)]
    return fmean(values or [0.0])


def measure_tried(tried: Sequence[Tried], kept: Workflow) -> Mapping[str, float]:
    """Return what is to be seen of a step's workflows."""
    return {
        "flow/kept_score": max(each.score for each in tried if each.is_kept),
        "flow/kept_before": tried[0].score,
        "flow/unread": sum(bool(each.fault) for each in tried) / max(len(tried) - 1, 1),
        "flow/blocks": float(len(kept.blocks)),
    }
