"""AutoFlow on a real model: what SmolLM2 writes is refused or followed, block by block, and the best is kept.

A run of two steps, resumed between them. A model of this size writes hardly a text that is a workflow; so it follows
some of people's too, on new tasks, with ways that it decides on itself, and these are raced by what it earns.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from quintain.agents.workflow import DECISION, Workflow, block_text, follow_workflow, read_workflow
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.errors import UsageError
from quintain.learning.saved import load_policy
from quintain.methods.agents.auto_flow import FILE, INVALID, PLAIN, Tried, read_history, try_texts
from quintain.models.fingerprint import fingerprint
from quintain.models.load import LoadedModel
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Options
from quintain.store.run import Run
from quintain.testing.pupil import tasks_from
from quintain.text.chat import Chat
from quintain.types import Score, Trajectory, as_text, flatten_scored
from quintain.warm_start.start import build_agent
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import perform_in_two

MODEL = "smollm2"
WORLD, AGENT = "bandit?arms=4&pulls=6", "twosome"
STEPS, TASKS, WRITTEN, EVALUATED, SECONDS = 2, 4, 6, 3, 900.0
GOOD = (
    """Try ::: process ::: Pull an arm that was not pulled. ::: next: Ask
Ask ::: decision ::: Did it pay? ::: yes: Stay; no: Try
Stay ::: terminal ::: Pull the same arm again.""",
    """Look ::: decision ::: Is an arm named gold there? ::: no: First; yes: Gold
Gold ::: process ::: Pull gold. ::: next: Rest
First ::: process ::: Pull the first arm. ::: next: Rest
Rest ::: terminal ::: Pull the arm that paid most.""",
    """One ::: process ::: Pull the last arm. ::: next: Two
Two ::: process ::: Pull the first arm. ::: next: Three
Three ::: terminal ::: Pull the arm that paid least often.""",
)
"""Workflows that people wrote."""
BROKEN = {
    "tri": "Try ::: process ::: Pull an arm. ::: next: Tri",
    "twice": "One ::: process ::: Pull an arm. ::: next: One\nOne ::: terminal ::: Pull another.",
    "never reached": "One ::: terminal ::: Pull an arm.\nTwo ::: terminal ::: Pull another.",
}
"""What has to stand in the reason → a text that is refused for it."""


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Write workflows, stop, go on, read what became of each; then let the model follow those of people."""
    folder = runs / "auto_flow"
    failed = perform_in_two(
        folder,
        ["auto_flow", "--model", MODEL, "--environment", WORLD, "--agent", AGENT, "--demonstrations", "0",
         "--tasks", str(TASKS), "--candidates", str(WRITTEN), "--eval-every", "1", "--eval-episodes",
         str(EVALUATED), "--eval-start", "false"],
        steps=STEPS, seconds=SECONDS,
    )  # fmt: skip
    if failed:
        return [Check(name="runs", has_passed=False, detail=failed)], {}
    policy = load_policy(MODEL)
    chat = Chat(policy.tokenizer)
    with Run.open(folder, writable=False) as run:
        weights = set(run.weights().values())
        steps = [read_history(run, before=k + 1)[len(read_history(run, before=k)) :] for k in (1, 2)]
        trained = [list(run.trajectories(step=k, phase="train")) for k in (1, 2)]
        looked = [list(run.trajectories(step=k, phase="eval")) for k in (1, 2)]
    raced, race = race_texts(policy, chat)
    lost = [each for k, step in enumerate(steps) for each in find_lost(step, trained[k], chat)]
    lost += find_lost(raced, race, chat)
    wrong = [k for k, step in enumerate(steps) if not is_best_kept(step, trained[k], find_kept(steps, k))]
    kept = [next(each.text for each in step if each.is_kept) for step in steps]
    astray = [t for k, found in enumerate(looked) for t in found if not is_followed(kept[k], t, chat)]
    begun = [as_text(t.turns[0].observation).splitlines()[0] for found in looked for t in found]
    held_out = {t.task.id for found in looked for t in found}
    tried = [each for step in steps for each in step]
    refused = sum(bool(each.fault) for each in tried)
    decided = [t for t in race if any(turn.is_internal for turn in t.turns)]
    scores = [each.score for each in raced if not each.fault]
    checks = [
        Check(
            name="weights",
            has_passed=weights == {fingerprint(policy.model)},
            detail=f"{len(weights)} fingerprint after {STEPS} steps, that of the model as it came",
        ),
        Check(
            name="refused or followed",
            has_passed=not lost
            and len(tried) == STEPS * (1 + WRITTEN)
            and len(decided) == 2 * TASKS
            and all(any(word in each.fault for each in raced) for word in BROKEN),
            detail=f"{STEPS * WRITTEN} texts were written, {refused} refused with the reason, as "
            f"{next((each.fault for each in tried if each.fault), '')!r:.60}; {sum(map(len, trained)) + len(race)} "
            f"episodes go by their workflow in every turn, {len(decided)} of them decide; "
            f"{len(lost)} texts or episodes do not {', '.join(lost[:3])}".rstrip(),
        ),
        Check(
            name="kept",
            has_passed=not wrong
            and is_best_kept(raced, race, PLAIN)
            and len(set(scores)) > 1
            and read_workflow((folder / FILE).read_text(encoding="utf-8")).text == kept[-1],
            detail=f"in each of {STEPS} steps the one with the highest score, counted again from the episodes; of "
            f"people's, which earned {', '.join(f'{score:.3f}' for score in scores)}, too",
        ),
        Check(
            name="held out",
            has_passed=not astray
            and len(begun) == STEPS * EVALUATED
            and not any(t.task.is_held_out or t.task.id in held_out for found in trained for t in found)
            and not any(text in each.text for text in begun for each in tried),
            detail=f"{len(begun)} evaluations follow what is kept; none of their tasks is scored or stands in a text",
        ),
    ]
    return checks, {
        "written": float(STEPS * WRITTEN),
        "refused": float(refused),
        "kept earned": max(each.score for each in steps[-1] if each.is_kept),
        "best of people's": max(scores),
        "worst of people's": min(scores),
    }


def race_texts(policy: LoadedModel, chat: Chat) -> tuple[list[Tried], list[Trajectory]]:
    """Return what `GOOD` and `BROKEN` earned as the model followed them on new tasks, and its episodes."""
    make, tasks = find(WORLD), tasks_from(WORLD, TASKS, split="eval")
    agent = build_agent(policy.tokenizer, make, temperature=1.0, max_tokens=16, agent=AGENT)
    played: list[Trajectory] = []
    with (
        closing(build_engine(EngineSettings(), policy.model, policy.tokenizer)) as engine,
        closing(Rollout(agent, make, engine)) as rollout,
    ):

        def follow(flows: Sequence[Workflow]) -> list[float]:
            scores: list[float] = []
            for number, flow in enumerate(flows):
                options = Options(agent=follow_workflow(agent, chat, flow))
                found = flatten_scored(rollout.groups(tasks, size=1, seed=1, options=options))
                played.extend(replace(t, group=f"{t.group}+{number}") for t in found)
                scores.append(count_score(found))
            return scores

        return try_texts([*GOOD, *BROKEN.values()], read_workflow(PLAIN), follow), played


def find_kept(steps: Sequence[Sequence[Tried]], number: int) -> str:
    """Return the workflow that was kept before the step `number`, counted from 0."""
    return next(each.text for each in steps[number - 1] if each.is_kept) if number else PLAIN


def split_by_flow(played: Sequence[Trajectory]) -> dict[int, list[Trajectory]]:
    """Return the episodes of each workflow of a step, by its place among those that were read."""
    found: dict[int, list[Trajectory]] = {}
    for t in played:
        _, _, number = t.group.partition("+")
        found.setdefault(int(number or 0), []).append(t)
    return found


def count_score(played: Sequence[Trajectory]) -> float:
    """Return the mean score of episodes."""
    return fmean(t.outcome.value for t in played if isinstance(t.outcome, Score))


def find_lost(tried: Sequence[Tried], played: Sequence[Trajectory], chat: Chat) -> list[str]:
    """Return what is neither refused with its reason nor followed on every task by every turn."""
    read, groups = [each for each in tried if not each.fault], split_by_flow(played)
    lost = [each.text[:40] for each in tried if each.fault and not is_refused(each)]
    lost += [f"workflow {number} of nobody" for number in groups if number >= len(read)]
    for number, each in enumerate(read):
        episodes = groups.get(number, [])
        if len({t.task.id for t in episodes}) != TASKS or len(episodes) != TASKS:
            lost.append(f"{len(episodes)} episodes of workflow {number}")
        lost += [t.task.id for t in episodes if not is_followed(each.text, t, chat)]
    return lost


def is_refused(each: Tried) -> bool:
    """Return whether the text is none that can be read, for the reason that was kept, and scored as such."""
    try:
        read_workflow(each.text)
    except UsageError as error:
        return str(error) == each.fault and each.score == INVALID
    return False


def is_followed(text: str, trajectory: Trajectory, chat: Chat) -> bool:
    """Return whether each turn of an episode was told its block, and went where its block or its answer goes."""
    flow = read_workflow(text)
    block = flow.first
    for turn in trajectory.turns:
        lines = re.split(r"\n|<\|\w+\|>", chat.text(turn.prompt_ids))
        told = [line.strip() for line in lines if line.startswith(("Step: ", "Decide: "))]
        if told[-1:] != [block_text(block)] or turn.is_internal != (block.kind == DECISION):
            return False
        said = set(re.findall(r"\w+", chat.text(turn.completion.token_ids).casefold()))
        ways = list(block.ways.items())
        to = next((name for key, name in ways if key in said), ways[-1][1] if ways else block.name)
        block = flow.blocks[to]
    return bool(trajectory.turns)


def is_best_kept(tried: Sequence[Tried], played: Sequence[Trajectory], before: str) -> bool:
    """Return whether the scores are those of the episodes, and the first of the highest is kept; `before` is first."""
    read, groups = [each for each in tried if not each.fault], split_by_flow(played)
    scores = [count_score(groups[number]) for number in sorted(groups)]
    best = scores.index(max(scores))
    return (
        read[0].text == read_workflow(before).text
        and all(abs(each.score - score) < 1e-9 for each, score in zip(read, scores, strict=True))
        and [number for number, each in enumerate(tried) if each.is_kept] == [best]
    )
