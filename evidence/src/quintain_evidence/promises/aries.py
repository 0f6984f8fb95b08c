"""ARIES on a real model: SmolLM2 decides by votes what is done to a graph of thoughts, and is its solver.

The model has seen the expert in both seats. Then it plays both with votes, and as solver of a schedule that reads
scores. What was voted and done is counted anew from what was recorded.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean

from quintain.agents.voted import ROLE, count_votes
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.learning.saved import load_policy
from quintain.models.load import LoadedModel
from quintain.rollout.collect import Rollout
from quintain.search.thoughts import Schedule, find_graph
from quintain.testing.pupil import tasks_from
from quintain.types import Score, Trajectory, Turn, as_text, flatten_scored
from quintain.warm_start.start import build_agent
from quintain.worlds.solver.game import DECIDES, SOLVES
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import make_start

MODEL = "smollm2"
WORLD = "solver?kind=sort&by=model&size=8&calls=4&slope=steep&free=true"
STEPS = "split,solve,again,again,merge"
SAMPLES, DEMONSTRATIONS, EPISODES = 3, 16, 3
FREE = ("split", "merge", "keep", "stop")
"""What asks no solver."""


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Let it see the expert, then decide by votes, then solve for a schedule; count both anew."""
    start = make_start(["train", "sft", "--environment", WORLD, "--agent", "text"], runs, DEMONSTRATIONS)
    policy = load_policy(str(start))
    voted = play(policy, f"voted?samples={SAMPLES}+text")
    scheduled = play(policy, f"scheduled?steps={STEPS}+text")
    votes = [vote for t in voted for vote in check_votes(t)]
    asked = [count_calls(t) for t in [*voted, *scheduled]]
    followed = [check_schedule(t) for t in scheduled]
    checks = [
        Check(
            name="plays",
            has_passed=all(isinstance(t.outcome, Score) for t in [*voted, *scheduled]),
            detail=f"{len(voted)} episodes by votes and {len(scheduled)} by a schedule, "
            f"{sum(t.is_success for t in voted)} and {sum(t.is_success for t in scheduled)} lists sorted",
        ),
        Check(
            name="votes",
            has_passed=len(votes) > EPISODES and all(votes),
            detail=f"{sum(votes)} of {len(votes)} times that was done which most of {SAMPLES} said, counted anew",
        ),
        Check(
            name="calls",
            has_passed=all(answers == calls for answers, calls in asked),
            detail=f"{sum(answers for answers, _ in asked)} answers of the solver, as many as moves that ask it, "
            f"apart from {sum(turn.speaker == DECIDES for t in voted for turn in t.turns)} turns of the policy",
        ),
        Check(
            name="schedule",
            has_passed=len(followed) == EPISODES and all(followed),
            detail=f"{sum(followed)} of {len(followed)} episodes go by it in every move, the weakest found anew",
        ),
    ]
    return checks, {
        "sorted by votes": fmean(float(t.is_success) for t in voted),
        "sorted by the schedule": fmean(float(t.is_success) for t in scheduled),
    }


def play(policy: LoadedModel, spec: str) -> list[Trajectory]:
    """Return episodes of new tasks in which `policy` has both seats, behind the harness `spec`."""
    make, tasks = find(WORLD), tasks_from(WORLD, EPISODES, split="eval")
    agent = build_agent(policy.tokenizer, make, temperature=1.0, max_tokens=32, agent=spec)
    with (
        closing(build_engine(EngineSettings(), policy.model, policy.tokenizer)) as engine,
        closing(Rollout(agent, make, engine)) as rollout,
    ):
        return list(flatten_scored(rollout.groups(tasks, size=1, seed=1)))


def list_moves(trajectory: Trajectory) -> list[Turn]:
    """Return the turns in which the policy did something that could be done."""
    return [
        turn
        for turn in trajectory.turns
        if turn.speaker == DECIDES and not turn.is_internal and turn.action.text in read_legal(turn)
    ]


def read_legal(turn: Turn) -> list[str]:
    """Return what could be done in `turn`, as it was shown."""
    return as_text(turn.observation).partition("May be done: ")[2].rstrip(".").split(", ")


def check_votes(trajectory: Trajectory) -> list[bool]:
    """Return of each move whether it is what most of the votes before it say."""
    found, said = list[bool](), list[str]()
    for turn in trajectory.turns:
        if turn.seat.endswith(f"/{ROLE}"):
            said.append(turn.action.text)
        elif turn.speaker == DECIDES:
            legal = read_legal(turn)
            found.append(len(said) == SAMPLES and turn.action.text == said[count_votes(said, legal)])
            said = []
    return found


def count_calls(trajectory: Trajectory) -> tuple[int, int]:
    """Return how many answers the solver gave, and how many moves ask it."""
    moves = [turn.action.text for turn in list_moves(trajectory)]
    answers = sum(turn.speaker == SOLVES for turn in trajectory.turns)
    return answers, sum(not move.startswith(FREE) for move in moves)


def check_schedule(trajectory: Trajectory) -> bool:
    """Return whether all that was done is what the schedule says to what was shown."""
    schedule, moves = Schedule(tuple(STEPS.split(","))), list_moves(trajectory)
    wished = [
        schedule.choose(graph, read_legal(turn))
        for turn in moves
        if (graph := find_graph(as_text(turn.observation))) is not None
    ]
    return len(wished) > len(STEPS.split(",")) and wished == [turn.action.text for turn in moves]
