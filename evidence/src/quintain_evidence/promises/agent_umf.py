"""LLM-Agent-UMF on a real model: SmolLM2 as the agent that a description says, built, and built back, under a guard."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from quintain.agents.spec import AgentSpec, describe, lint_spec
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.environments.guarding import guard_spec
from quintain.learning.saved import load_policy
from quintain.rollout.collect import Rollout
from quintain.rollout.request import Limits
from quintain.safety.guard import REFUSED
from quintain.testing.pupil import tasks_from
from quintain.types import Trajectory, flatten_scored
from quintain.warm_start.start import build_agent
from quintain_evidence.layers.verdict import Check

MODEL = "smollm2"
WORLD, AGENT = "babyai/GoToRedBallNoDists", "plan?max_tokens=24+window?turns=1+scored"
TURNS = 4


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Describe an agent, build it, build it back, and put it under a guard."""
    policy, bare = runs / "policy.json", describe(AGENT, WORLD)
    loaded = load_policy(MODEL)
    with closing(build_engine(EngineSettings(), loaded.model, loaded.tokenizer)) as engine:

        def play(spec: AgentSpec) -> Trajectory:
            make = find(spec.place)
            agent = build_agent(loaded.tokenizer, make, temperature=1.0, agent=spec.name)
            rollout = Rollout(agent, make, engine, limits=Limits(max_turns=TURNS))
            with closing(rollout):
                task = tasks_from(WORLD, 1, split="eval")
                (episode,) = flatten_scored(rollout.groups(task, size=1, seed=3))
            return episode

        one, back = play(bare), play(describe(bare.name, bare.place))
        tried = next(turn.action.text for turn in one.turns if turn.is_valid and not turn.is_internal)
        rules = [{"effect": "forbid", "when": {"text": {"const": tried}}}, {}]
        policy.write_text(json.dumps({"say": rules}))
        guarded = describe(bare.name, guard_spec(bare.place, policy))
        under = play(guarded)
    before, after = (
        [turn for turn in t.turns if turn.action.text == tried and not turn.is_internal] for t in (one, under)
    )
    checks = [
        Check(
            name="described",
            has_passed=sorted(bare.list_modules()) == ["action", "planning"]
            and sorted(guarded.list_modules() - bare.list_modules()) == ["security"],
            detail=str(lint_spec(bare)),
        ),
        Check(
            name="built back",
            has_passed=[t.completion for t in one.turns] == [t.completion for t in back.turns],
            detail=f"{len(one.turns)} answers of {MODEL}, the same token by token",
        ),
        Check(
            name="plans",
            has_passed=any(turn.seat == "agent/plan" for turn in one.turns),
            detail="a plan was sampled before the first action",
        ),
        Check(
            name="guarded",
            has_passed=bool(before) and all(REFUSED in turn.reward_terms for turn in after),
            detail=f"{tried!r}, done {len(before)} times where nothing forbade it, is not carried out under a policy "
            f"that does: tried {len(after)} times",
        ),
    ]
    return checks, {"answers": float(len(one.turns) + len(under.turns)), "forbidden": float(len(before))}
