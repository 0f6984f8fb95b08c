"""ToolChain* on a real model: SmolLM2 searches a house, says what is left, and goes on from where that costs least.

The model has seen the expert through the same harness. Which state it went on from is computed anew from what was
recorded, beside all others that were open.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from quintain import api
from quintain.agents.experience import as_experience
from quintain.data.searched import split_head
from quintain.memory.bank import Bank, Entry
from quintain.search.astar import PlanMemory, read_plan
from quintain.search.harness import read_plans
from quintain.types import Score, Trajectory
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import make_start

MODEL = "smollm2"
WORLD = "house"
SIZE, STEPS = 2, 12
DEMONSTRATIONS, EPISODES, PLANS = 32, 4, 20


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Write down solved plans, let the model see the expert, then search; compute anew what it went on from."""
    runs.mkdir(parents=True, exist_ok=True)
    bank = runs / "toolchain-plans.jsonl"
    write_plans(bank)
    agent = f"searched?by=best&score=plans&size={SIZE}&steps={STEPS}&solved={bank}&max_tokens=32+text"
    start = make_start(["train", "sft", "--environment", WORLD, "--agent", agent], runs, DEMONSTRATIONS)
    found, _ = api.collect(WORLD, str(start.parent), episodes=EPISODES, seed=1, trust_run=True)
    memory = PlanMemory.learn(read_plans(bank))
    said = [
        read_plan(turn.action.text)
        for t in found
        for turn in t.turns
        if split_head(turn.observation)[0] == "judge"
    ]
    picks = [pick for t in found for pick in check_picks(t, memory)]
    checks = [
        Check(
            name="plays",
            has_passed=len(found) == EPISODES and all(isinstance(t.outcome, Score) for t in found),
            detail=f"{len(found)} episodes, {sum(t.is_success for t in found)} of them solved",
        ),
        Check(
            name="imagines",
            has_passed=bool(said) and sum(map(bool, said)) >= len(said) / 2,
            detail=f"{sum(map(bool, said))} of {len(said)} times actions were named that are left",
        ),
        Check(
            name="goes on",
            has_passed=len(picks) > EPISODES and all(picks),
            detail=f"{sum(picks)} of {len(picks)} times from the open state of the lowest cost, computed anew",
        ),
    ]
    return checks, {
        "success": fmean(float(t.is_success) for t in found),
        "imagined steps": fmean(map(len, said)) if said else 0.0,
    }


def write_plans(file: Path) -> None:
    """Write the expert's plans of training tasks into a bank."""
    made, _ = api.collect(WORLD, "expert", episodes=PLANS, seed=2)
    plans = [as_experience(t) for t in made if t.is_success]
    entries = [
        Entry(id=str(k), key=plan.begins, text="; ".join(plan.actions), value=1.0, source=plan.task)
        for k, plan in enumerate(plans)
    ]
    Bank(entries).save(file)


def check_picks(trajectory: Trajectory, memory: PlanMemory) -> list[bool]:
    """Return of each state that was gone on from, but for the first, whether no open one had a lower cost."""
    costs: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, 0.0)}
    actions: dict[tuple[int, ...], list[str]] = {(): []}
    rests: dict[tuple[int, ...], list[str]] = {}
    waiting, at = set[tuple[int, ...]](), tuple[int, ...]()
    asked: list[str] = []
    found: list[bool] = []
    for number, turn in enumerate(trajectory.turns):
        what, way, _ = split_head(turn.observation)
        if what == "judge":
            rests[way] = read_plan(turn.action.text)
            continue
        if way != at:
            for new in [way for way in rests if way not in costs]:
                share = asked.count(actions[new][-1]) / len(asked)
                spent = costs[at][0] + memory.cost_of_step(actions[new], share)
                costs[new] = spent, spent + memory.cost_of_rest(actions[new], rests[new])
                waiting.add(new)
            found.append(costs[way][1] <= min(costs[other][1] for other in waiting) + 1e-9)
            waiting.discard(way)
            at, asked = way, []
        asked.append(turn.action.text)
        actions[(*way, number)] = [*actions[way], turn.action.text]
    return found
