"""ALIGN on a real model: what SmolLM2 writes is refused or played, and no interface changes what an action comes to.

A run of two steps, resumed between them. A model of this size writes hardly a text that is an interface; so people's
are raced too, with it as the agent, on new tasks, beside some that cheat. Every episode, behind whatever interface, is
carried out again by its actions alone: what was seen and paid is the same. What was said stands in the prompts.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean

from quintain.agents.interface import Interface, load_interface, put_interface
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.learning.saved import load_policy
from quintain.methods.agents.align import (
    FILE,
    Tried,
    get_kept,
    read_history,
    read_log,
    try_sources,
    write_interface,
)
from quintain.models.fingerprint import fingerprint
from quintain.models.load import LoadedModel
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Options
from quintain.store.run import Run
from quintain.testing.pupil import tasks_from
from quintain.text.chat import Chat
from quintain.types import Score, Trajectory, as_text, flatten_scored
from quintain.warm_start.start import build_agent
from quintain_evidence.experiments.agents.align import CHEATS
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import perform_in_two

MODEL = "smollm2"
WORLD, AGENT = "bandit?arms=4&pulls=6", "text?max_tokens=8"
STEPS, TASKS, WRITTEN, EVALUATED, SECONDS = 2, 3, 3, 3, 900.0
GOOD = (
    '''"""What the arms are called."""
PHRASE = "Answer with one word: the name of an arm."


def rules():
    """Say what an action is."""
    return PHRASE


def wrap_step(env, action):
    """Say it again where the action was none."""
    seen, reward, done = env.step(action)
    if len(action.split()) > 1:
        seen += " " + PHRASE
    return seen, reward, done
''',
    write_interface({"pull": "look"}, "Error"),
)
"""Interfaces that people wrote."""


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Write interfaces, stop, go on, read what became of each; then let the model act behind people's."""
    folder = runs / "align"
    failed = perform_in_two(
        folder,
        ["align", "--model", MODEL, "--environment", WORLD, "--agent", AGENT, "--demonstrations", "0", "--tasks",
         str(TASKS), "--written", str(WRITTEN), "--eval-every", "1", "--eval-episodes", str(EVALUATED),
         "--eval-start", "false"],
        steps=STEPS, seconds=SECONDS,
    )  # fmt: skip
    if failed:
        return [Check(name="runs", has_passed=False, detail=failed)], {}
    policy = load_policy(MODEL)
    with Run.open(folder, writable=False) as run:
        weights = set(run.weights().values())
        steps = [read_history(run, before=k + 1)[len(read_history(run, before=k)) :] for k in (1, 2)]
        trained = [t for k in (1, 2) for t in run.trajectories(step=k, phase="train")]
        looked = [t for k in (1, 2) for t in run.trajectories(step=k, phase="eval")]
    tried = [each for step in steps for each in step]
    raced, race = race_sources(policy)
    played = [t for found in race for t in found]
    moved = sum(count_moved(t) for t in (*trained, *looked, *played))
    chat = Chat(policy.tokenizer)
    lost = [
        n for each, found in zip(raced, race, strict=False) for t in found for n in find_unsaid(each, t, chat)
    ]
    refused = [each for each in tried if each.fault]
    cheats = [each for each in raced if each.fault]
    scores = [each.score for each in raced if not each.fault]
    checks = [
        Check(
            name="weights",
            has_passed=weights == {fingerprint(policy.model)},
            detail=f"{len(weights)} fingerprint after {STEPS} steps, that of the model as it came",
        ),
        Check(
            name="refused or raced",
            has_passed=all(is_refused(each) for each in (*refused, *cheats))
            and all(each.source in ("", get_kept(steps[0])) for each in (steps[0][0], steps[1][0]))
            and {each.source for each in cheats} == set(CHEATS),
            detail=f"of {STEPS * WRITTEN} texts that were asked for, {len(refused)} different ones are refused with "
            f"the reason, as {next((each.fault for each in refused), '')!r:.90}; of people's {len(GOOD)} are raced "
            f"and {len(cheats)} of {len(CHEATS)} that cheat refused",
        ),
        Check(
            name="unchanged",
            has_passed=moved == 0,
            detail=f"{sum(len(t.turns) for t in (*trained, *looked, *played))} actions of "
            f"{len(trained) + len(looked) + len(played)} episodes, carried out again without any interface: "
            f"{moved} come to something else",
        ),
        Check(
            name="said",
            has_passed=not lost,
            detail=f"in {sum(len(t.turns) for found in race[1:] for t in found)} turns behind people's interfaces the "
            f"prompt says what the interface says, and nothing else; {len(lost)} do not",
        ),
        Check(
            name="kept",
            has_passed=[each.is_kept for each in raced[: len(scores)]].index(True) == scores.index(max(scores))
            and all(abs(each.score - score_of(found)) < 1e-9 for each, found in zip(raced, race, strict=False))
            and (folder / FILE).read_text(encoding="utf-8") == get_kept(steps[-1]),
            detail=f"people's earned {', '.join(f'{score:.3f}' for score in scores)}, the first with none, counted "
            "again from the episodes; the best is kept",
        ),
        Check(
            name="held out",
            has_passed=len(looked) == STEPS * EVALUATED
            and not {t.task.id for t in looked} & {t.task.id for t in trained}
            and not any(t.task.is_held_out for t in trained),
            detail=f"{len(looked)} evaluations, none of whose tasks was trained on",
        ),
    ]  # fmt: skip
    return checks, {"refused": float(len(refused)), "best of people's": max(scores[1:]), "without": scores[0]}


def race_sources(policy: LoadedModel) -> tuple[list[Tried], list[list[Trajectory]]]:
    """Return what `GOOD` and `CHEATS` earned with the model as the agent, and the episodes of each that was raced."""
    make, tasks = find(WORLD), tasks_from(WORLD, TASKS, split="eval")
    agent = build_agent(policy.tokenizer, make, temperature=1.0, max_tokens=8, agent=AGENT)
    played: list[list[Trajectory]] = []
    with (
        closing(build_engine(EngineSettings(), policy.model, policy.tokenizer)) as engine,
        closing(Rollout(agent, make, engine)) as rollout,
    ):

        def race(interfaces: Sequence[Interface | None]) -> list[float]:
            for each in interfaces:
                options = Options(agent=put_interface(agent, each))
                played.append([*flatten_scored(rollout.groups(tasks, size=1, seed=1, options=options))])
            return [score_of(found) for found in played]

        return try_sources([*GOOD, *CHEATS], "", [], race), played


def score_of(played: Sequence[Trajectory]) -> float:
    """Return the mean score of episodes."""
    return fmean(t.outcome.value for t in played if isinstance(t.outcome, Score))


def count_moved(trajectory: Trajectory) -> int:
    """Return how many actions of an episode come to something else when they are carried out by themselves."""
    moved = 0
    with closing(find(WORLD)()) as environment:
        begin(environment, trajectory.task)
        for turn, step in zip(trajectory.turns, read_log(trajectory), strict=True):
            result = advance(environment, turn.action)
            seen = as_text(result.observation) if not result.is_over or step.observation else ""
            moved += (seen, result.reward, result.is_valid) != (
                step.observation,
                step.reward,
                step.has_worked,
            )
    return moved


def find_unsaid(each: Tried, trajectory: Trajectory, chat: Chat) -> list[int]:
    """Return the turns of an episode whose prompt does not say what the interface says, or says more."""
    if not each.source:
        return []
    made = load_interface(each.source)
    log = read_log(trajectory)
    rules = made.read_rules().text
    said = [rules, *(made.explain(step.action, step.observation) for step in log[:-1])]
    made.close()
    prompts = [chat.text(turn.prompt_ids) for turn in trajectory.turns]
    return [
        number
        for number, (turn, text, prompt) in enumerate(zip(trajectory.turns, said, prompts, strict=True))
        if f"{as_text(turn.observation)}\n\n{text}".strip() not in prompt or (not text and rules in prompt)
    ]


def is_refused(each: Tried) -> bool:
    """Return whether the text is refused again, for the reason that was kept."""
    try:
        load_interface(each.source).close()
    except UsageError as error:
        return str(error) == each.fault
    return False
