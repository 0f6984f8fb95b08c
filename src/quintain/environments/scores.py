"""Recorded scores of the built-in environments: success of doing nothing, of random play and of the expert.

``scores.json`` beside this file holds what was measured, so that listing them takes no time; ``quintain environments
--measure --record`` writes it anew. A score is measured by the baselines of the conformance suite, or it is null.
"""

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from quintain.environments.catalog import find
from quintain.environments.probes import ContractError, Subject, baselines, speed

FILE = Path(__file__).with_name("scores.json")
MEASURES: Mapping[str, str] = {
    "noop": "noop/success",
    "random": "random/success",
    "expert": "expert/success",
    "steps_per_second": "steps_per_second",
}
"""Name of a score → name of the measurement."""
Scores = dict[str, float | None]


def load_scores() -> dict[str, Scores]:
    """Return the scores that were recorded, by name of the environment."""
    if not FILE.is_file():
        return {}
    found: dict[str, Scores] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def measure_scores(spec: str, episodes: int) -> Scores:
    """Play `episodes` of each baseline in the environment `spec` and return its scores."""
    subject = Subject(make=find(spec), num_episodes=episodes)
    with closing(subject):
        with suppress(ContractError):  # an expert that is no good is shown by its score
            baselines(subject)
        speed(subject)
    scores: Scores = {name: subject.measured.get(source) for name, source in MEASURES.items()}
    return {**scores, "episodes": episodes}


def save_scores(scores: Mapping[str, Scores]) -> None:
    """Write `scores` to ``scores.json``, over those of the same names."""
    whole = {**load_scores(), **scores}
    lines = [f"{json.dumps(name)}: {json.dumps(_round(whole[name]))}" for name in sorted(whole)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _round(scores: Scores) -> Scores:
    """Return `scores` with the digits that mean something."""
    return {
        name: value if value is None or isinstance(value, int) else float(f"{value:.3g}")
        for name, value in scores.items()
    }
