"""WebRollback on a real model: SmolLM2 looks for a thing on a site, says whether each page is good, and goes back.

The model has seen the expert through the same harness, who looks into one section after the other.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from quintain import api
from quintain.agents.rollback import LEFT, is_bad
from quintain.data.searched import split_head
from quintain.types import Score, Trajectory, as_text
from quintain_evidence.layers.verdict import Check
from quintain_evidence.real_model import make_start

MODEL = "smollm2"
WORLD = "web?labels=vague&depth=2&kinds=2&dead_ends=0&goal=open&popups=0"
AGENT = "rollback?max_tokens=16+text"
DEMONSTRATIONS, EPISODES = 32, 4


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Let it see the expert, then look for things; count what it said of states, and where it went."""
    start = make_start(["train", "sft", "--environment", WORLD, "--agent", AGENT], runs, DEMONSTRATIONS)
    found, _ = api.collect(WORLD, str(start.parent), episodes=EPISODES, seed=1, trust_run=True)
    critiques = [turn.action.text for t in found for turn in t.turns if turn.seat.endswith("/critique")]
    offers = [has for t in found for has in check_critiques(t)]
    goes = [has for t in found for has in check_returns(t)]
    checks = [
        Check(
            name="plays",
            has_passed=len(found) == EPISODES and all(isinstance(t.outcome, Score) for t in found),
            detail=f"{len(found)} episodes, {sum(t.is_success for t in found)} of them solved",
        ),
        Check(
            name="criticises",
            has_passed=bool(offers) and all(offers),
            detail=f"{sum(offers)} of {len(offers)} states from which others can be gone back to, "
            f"{sum(map(is_bad, critiques))} of them bad",
        ),
        Check(
            name="goes back",
            has_passed=bool(goes) and all(goes),
            detail=f"{sum(goes)} of {len(goes)} times to a state that was on offer, where a note says what was left",
        ),
    ]
    return checks, {"success": fmean(float(t.is_success) for t in found)}


def check_critiques(trajectory: Trajectory) -> list[bool]:
    """Return of each turn that shows states on offer first whether it is a critique."""
    found, before = list[bool](), ""
    for turn in trajectory.turns:
        what, numbers, shown = split_head(turn.observation)
        if what == "back" and len(numbers) > 1 and before != "critique":
            found.append(turn.seat.endswith("/critique"))
        before = turn.seat.partition("/")[2]
        assert as_text(shown), "every page shows something"
    return found


def check_returns(trajectory: Trajectory) -> list[bool]:
    """Return of each action that goes back whether that state was on offer, and is left with a note."""
    found, offered = list[bool](), tuple[int, ...]()
    after = [*(turn.observation for turn in trajectory.turns[1:]), trajectory.final_observation]
    for turn, then in zip(trajectory.turns, after, strict=True):
        what, numbers, _ = split_head(turn.observation)
        offered = numbers[:-1] if what == "back" else offered
        if turn.action.text.startswith("goto ") and not turn.is_internal:
            number = int(turn.action.text.split()[1].rstrip(":"))
            _, numbers, shown = split_head(then)
            found.append(number in offered and numbers[-1] == number and LEFT in as_text(shown))
    return found
