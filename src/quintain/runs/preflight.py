"""Looks at what a method would train on, before it trains: a few episodes with its own model and environment.

A tiny model goes through a short warm-up first. Each probe is a function of the recorded episodes. Nothing is updated
and nothing stays behind but the findings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import numpy as np

from quintain.agents.spec import describe, lint_spec
from quintain.credit.group import group_relative
from quintain.data.pack import micro_batches
from quintain.data.pipeline import PipelineResult, example_samples
from quintain.data.samples import in_streams, samples_from
from quintain.data.seats import comparable_groups
from quintain.environments.boundary import ask, check_tools, has_expert
from quintain.errors import InvariantError
from quintain.learning import gap
from quintain.learning.saved import START
from quintain.learning.train_config import TrainConfig
from quintain.rollout.collect import Limits
from quintain.rollout.measures import tool_metrics
from quintain.runs.collector import Collector
from quintain.runs.context import TrainingContext, open_context
from quintain.runs.monitors.held_out import canaries
from quintain.store.run import Run
from quintain.text.chat import Chat
from quintain.text.template_check import check_template
from quintain.types import Batch, Failure, Group, Sample, ToolSpec, Trajectory
from quintain.types.findings import Finding
from quintain.warm_start.forecast import Forecast, forecast
from quintain.warm_start.start import new_model

NUM_TASKS, GROUP_SIZE, NUM_SHOWN = 8, 4, 3
MAX_DEMONSTRATIONS, MAX_EPOCHS = 32, 4
"""Of the warm-up of a tiny model: enough to act, too little to be good."""
MAX_FAILURES, MAX_TOOL_FAILURES = 0.05, 0.1
NOT_THE_POLICY = ("tool_error", "timeout", "infrastructure")
Kind = Literal["prompt", "masked", "trained"]


class Piece(NamedTuple):
    """A run of tokens of one kind: prompt, masked (sampled, not trained) or trained."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """All findings, and the first token streams in pieces."""

    findings: tuple[Finding, ...]
    streams: tuple[tuple[Piece, ...], ...]
    forecast: Forecast
    funnel: str = ""
    """what the stages of the method's data did, a line each"""
    examples: tuple[tuple[str, tuple[Piece, ...]], ...] = ()
    """of the first examples that the method makes of demonstrations: the episodes that it came from, and its pieces"""


def preflight(config: TrainConfig, made: Callable[[Collector], PipelineResult] | None = None) -> Preflight:
    """Return what is found of `config`; takes a minute on a processor with a tiny model.

    `made` returns what the method learns from demonstrations, where it does.
    """
    small = replace(
        config,
        demonstrations=(
            config.demonstrations
            if isinstance(config.demonstrations, str)
            else MAX_DEMONSTRATIONS
            if config.demonstrations is None
            else min(config.demonstrations, MAX_DEMONSTRATIONS)
        ),
        imitation_epochs=min(config.imitation_epochs, MAX_EPOCHS),
        steps=1,
        max_broken=1.0,
    )
    limits = Limits(max_failure_share=1.0)
    with TemporaryDirectory(prefix="quintain-check-") as place:
        with (
            Run.create(Path(place) / "check", recipe="check", config=asdict(small)) as run,
            open_context(
                small, run, has_warm_start=new_model(config.model) is not None, limits=limits
            ) as context,
        ):
            tasks = context.collector.tasks(1, NUM_TASKS)
            started = time.monotonic()
            groups = context.rollout.groups(tasks, size=GROUP_SIZE, seed=context.seed("check"))
            found = examine_groups(context, groups, config=config, seconds=time.monotonic() - started)
        if made is None:
            return found
        with Run.create(Path(place) / "data", recipe="check", config=asdict(small)) as other:
            # the same policy, in a run that has recorded no demonstrations yet: those of `made` are others
            copytree(run.folder / START, other.folder / START)
            with open_context(small, other, limits=limits) as context:
                chosen, chat = made(context.collector), Chat(context.tokenizer)
    return replace(
        found,
        funnel=str(chosen.funnel),
        examples=tuple(
            (", ".join(example.sources), tuple(pieces(sample, chat)))
            for example in chosen.examples[:NUM_SHOWN]
            for sample in example_samples([example])
        ),
    )


def examine_groups(
    context: TrainingContext, groups: Sequence[Group], *, config: TrainConfig, seconds: float
) -> Preflight:
    """Return what is found of `groups`, which `context` sampled in `seconds` for what is to be `config`."""
    findings = [failures(groups), tools(groups), variance(groups), canary_tasks(context)]
    specs = ask(context.make_environment, check_tools)
    findings.append(lint_spec(describe(config.agent, config.environment), has_tools=bool(specs)))
    chat = Chat(context.tokenizer)
    findings.append(template(groups, chat))
    if new_model(config.model) is None:
        findings.append(chat_format(chat))
    findings += tool_results(specs, chat)
    try:
        samples = samples_from(group_relative(groups))
    except InvariantError as error:
        samples = []
        findings.append(Finding("mask", "fail", str(error)))
    else:
        findings.append(mask(groups, samples))
    started = time.monotonic()
    findings += (
        distances(context, micro_batches(samples, max_tokens=context.policies.main.max_tokens))
        if samples
        else []
    )
    expected = forecast(
        config,
        groups,
        rollout_seconds=seconds,
        forward_seconds=time.monotonic() - started,
        has_expert=has_expert(context.make_environment),
        imitated=context.config.demonstrations if isinstance(context.config.demonstrations, int) else 0,
    )
    shown = tuple(tuple(pieces(sample, chat)) for sample in samples[:NUM_SHOWN])
    return Preflight(findings=tuple(findings), streams=shown, forecast=expected)


def failures(groups: Sequence[Group]) -> Finding:
    """Episodes that failed, by owner."""
    episodes = [t for group in groups for t in group.trajectories]
    broken = [t.outcome for t in episodes if isinstance(t.outcome, Failure)]
    if not broken:
        return Finding("episodes", "pass", f"{len(episodes)} episodes, none failed")
    state = "fail" if len(broken) > MAX_FAILURES * len(episodes) else "pass"
    first = broken[0]
    return Finding(
        "episodes",
        state,
        f"{len(broken)} of {len(episodes)} failed, the first by the {first.owner}: {first.message}",
    )


def tools(groups: Sequence[Group]) -> Finding:
    """Calls that fail, by tool and cause."""
    counts = tool_metrics([t for group in groups for t in group.trajectories])
    calls = {name.split("/")[1]: num for name, num in counts.items() if name.endswith("/calls")}
    if not calls:
        return Finding("tools", "skip", "none was called")
    broken = {
        tool: sum(counts.get(f"tools/{tool}/{cause}", 0.0) for cause in NOT_THE_POLICY) / num
        for tool, num in calls.items()
    }
    parts = [
        f"{tool}: {num:.0f} calls, {counts.get(f'tools/{tool}/invalid_call', 0):.0f} invalid, {broken[tool]:.0%} broken"
        for tool, num in calls.items()
    ]
    return Finding("tools", "fail" if max(broken.values()) > MAX_TOOL_FAILURES else "pass", "; ".join(parts))


def variance(groups: Sequence[Group]) -> Finding:
    """Tasks that are always solved, never solved, and those to learn from."""
    values = {name: part.returns for group in groups for name, part in _name_parts(group)}
    always = {
        mark: [task for task, scores in values.items() if scores and set(scores) == {mark}]
        for mark in (0.0, 1.0)
    }
    num = sum(len(set(scores)) > 1 for scores in values.values())
    deviations = [float(np.var(scores)) for scores in values.values() if scores]
    detail = f"{num} of {len(values)} tasks differ, mean variance {np.mean(deviations or [0.0]):.3f}"
    for mark, tasks in always.items():
        detail += f"; always {mark:.0f}: {', '.join(tasks)}" if tasks else ""
    return Finding("reward variance", "pass" if num else "fail", detail)


def _name_parts(group: Group) -> list[tuple[str, Group]]:
    """Return the groups whose episodes are compared, by task, and by seat where seats are paid apart."""
    parts = comparable_groups([group])
    if len(parts) < 2:
        return [(group.task.id, part) for part in parts]
    return [(f"{group.task.id}/{part.trajectories[0].group.rpartition('/')[2]}", part) for part in parts]


def canary_tasks(context: TrainingContext) -> Finding:
    """Worthless answers to held-out tasks, which must earn nothing."""
    found = canaries(context.evaluator.make_environment, context.held_out)
    if not found:
        return Finding("canary tasks", "skip", "none could be played")
    parts = ", ".join(f"{name.removeprefix('canary/')} {share:.0%}" for name, share in found.items())
    state = "fail" if max(found.values()) >= context.monitors.bounds.canaries else "pass"
    return Finding("canary tasks", state, f"held-out tasks that a worthless answer solves: {parts}")


def template(groups: Sequence[Group], chat: Chat) -> Finding:
    """Prompts that do not continue the tokens before them although nobody rewrote the history."""
    turns = [turn for group in groups for t in group.trajectories for turn in t.turns[1:]]
    restarts = sum(turn.starts_segment for turn in turns)
    appends = "appends" if chat.is_append_only else "rewrites history"
    detail = f"the template {appends}; {restarts} of {len(turns)} later turns start a new stream"
    return Finding(
        "template", "fail" if chat.is_append_only and restarts == len(turns) > 0 else "pass", detail
    )


def chat_format(chat: Chat) -> Finding:
    """Whether our stream is what the model's own template writes."""
    followed = check_template(chat)
    return Finding("chat format", "pass" if followed.is_followed else "fail", followed.line)


def tool_results(specs: Sequence[ToolSpec], chat: Chat) -> Iterator[Finding]:
    """Yield where results of the tools `specs` stand if the template has no role for them."""
    if specs and not chat.template.takes_tool_role:
        detail = "the template has no tool role: they are written into the text of the user"
        yield Finding("tool results", "pass", detail)


def mask(groups: Sequence[Group], samples: Sequence[Sample]) -> Finding:
    """Trained tokens that are not, one by one, those that were sampled."""
    scored = [t for group in groups for t in group.scored]
    trained: list[list[int]] = [[] for _ in scored]
    for sample in samples:
        trained[sample.trajectory] += sample.token_ids[sample.loss_weight > 0].tolist()
    wrong = sum(tokens != describe_end(t) for tokens, t in zip(trained, scored, strict=True))
    total = sum(map(len, trained))
    if wrong:
        return Finding(
            "mask", "fail", f"{wrong} of {len(scored)} episodes train on other tokens than were sampled"
        )
    return Finding("mask", "pass", f"all {total} trained tokens are the sampled ones, prompts are masked")


def describe_end(trajectory: Trajectory) -> list[int]:
    """Return what was sampled in `trajectory`, stream by stream."""
    return [
        token for number in in_streams(trajectory) for token in trajectory.turns[number].completion.token_ids
    ]


def distances(context: TrainingContext, batches: Sequence[Batch]) -> Iterator[Finding]:
    """Yield how far engine and learner are apart, and whether a shift by one token would be nearer."""
    total, largest, shifted = 0.0, 0.0, 0.0
    num = sum(int((batch.turn_id >= 0).sum()) for batch in batches)
    for batch in batches:
        part = gap.gap(context.policies.main.infer(batch), batch)
        total, largest, shifted = total + part.total, max(largest, part.largest), shifted + part.shifted
    detail = f"mean {total / num:.2g} nats per token, largest {largest:.2g}"
    yield Finding("engine and learner", "fail" if total / num > gap.STOP else "pass", detail)
    is_apart = total <= shifted
    detail = f"in place {total / num:.2g}, one token off {shifted / num:.2g}"
    yield Finding("alignment", "pass" if is_apart else "fail", detail)


def pieces(sample: Sample, chat: Chat) -> Iterator[Piece]:
    """Yield the stream as runs of one kind."""
    kinds: list[Kind] = [
        "prompt" if turn < 0 else "trained" if weight > 0 else "masked"
        for turn, weight in zip(sample.turn_id.tolist(), sample.loss_weight.tolist(), strict=True)
    ]
    start = 0
    for end in range(1, len(kinds) + 1):
        if end == len(kinds) or kinds[end] != kinds[start]:
            yield Piece(kinds[start], chat.text(sample.token_ids[start:end].tolist()))
            start = end
