"""GuidNav on a real model: SmolLM2 drafts two actions in each state, and that is done which a run's episodes like best.

The process reward model learned from a teacher who errs; the model has seen the expert through the same harness. What
each draft is worth is computed anew from what was recorded.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from quintain import api
from quintain.agents.deliberation import describe_action
from quintain.data.searched import follow_found, split_head
from quintain.search.step_scores import RECENT, Step, StepScores, describe_goal, load_scores
from quintain.store.run import Run
from quintain.types import Score, Trajectory, as_text
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import make_start

MODEL = "smollm2"
WORLD = "web?goal=order&depth=1&fields=1&kinds=2&irreversible=false&popups=0"
SIZE = 2
TAUGHT, DEMONSTRATIONS, EPISODES = 60, 16, 4


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Let a teacher play who errs, learn scores of it, let the model see the expert, then act by them."""
    taught = runs / "taught"
    made, _ = api.collect(WORLD, "expert", episodes=TAUGHT, seed=2, expert_noise=0.7)
    if not taught.exists():
        with Run.create(taught, recipe="collect", config={"environment": WORLD}) as run:
            run.append(made, step=0, phase="train")
    agent = f"guided?size={SIZE}&reward_model={taught}+text"
    start = make_start(["train", "sft", "--environment", WORLD, "--agent", agent], runs, DEMONSTRATIONS)
    found, _ = api.collect(WORLD, str(start.parent), episodes=EPISODES, seed=1, trust_run=True)
    rate = load_scores(taught, 1.0)
    choices = [choice for t in found for choice in check_choices(t, rate)]
    checks = [
        Check(
            name="learns",
            has_passed=0 < sum(t.is_success for t in made) < len(made),
            detail=f"scores from {len(made)} episodes, {sum(t.is_success for t in made)} of them solved",
        ),
        Check(
            name="plays",
            has_passed=len(found) == EPISODES and all(isinstance(t.outcome, Score) for t in found),
            detail=f"{len(found)} episodes, {sum(t.is_success for t in found)} of them solved",
        ),
        Check(
            name="chooses",
            has_passed=len(choices) > EPISODES and all(choices),
            detail=f"{sum(choices)} of {len(choices)} times the draft of the highest score was done, computed anew",
        ),
    ]
    return checks, {"success": fmean(float(t.is_success) for t in found)}


def check_choices(trajectory: Trajectory, rate: StepScores) -> list[bool]:
    """Return of each action that was done whether no other draft of its state has a higher score."""
    done = follow_found(trajectory).turns
    way = split_head(trajectory.final_observation)[1]
    goal = describe_goal(trajectory.task, as_text(done[0].observation)) if done else ""
    found: list[bool] = []
    for number, chosen in enumerate(done):
        before = tuple(describe_action(turn.action) for turn in done[:number])
        here = [t for t in trajectory.turns if split_head(t.observation)[1] == way[:number]]
        scores = {
            describe_action(t.action): rate(
                Step(goal, before[-RECENT:], as_text(chosen.observation), describe_action(t.action))
            )
            for t in here
            if t.action.error is None
        }
        found.append(scores.get(describe_action(chosen.action), 0.0) >= max(scores.values(), default=0.0))
    return found
