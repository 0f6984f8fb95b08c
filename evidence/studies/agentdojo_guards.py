"""AgentDojo under guards: a mind plays what the user wants and, once it reads it, what the attacker wants.

``python evidence/studies/agentdojo_guards.py banking slack travel`` prints, for each suite, how many of the user's
tasks are done without an attack and under it, and how often the attacker's goal is reached: without a guard, and under
each of those of `quintain_evidence.labs.dojo`.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quintain_evidence.labs.dojo import ARMS, ATTACK, NAMED, measure_arm


def main(suites: Sequence[str]) -> None:
    """Measure every arm of `suites`, print a row each, and keep them."""
    rows: list[dict[str, Any]] = []
    for suite in suites:
        for arm in ARMS:
            calm, attacked = measure_arm(suite, arm, ""), measure_arm(suite, arm, ATTACK)
            row = {
                "suite": suite, "guard": arm, "utility": calm["utility"], "under attack": attacked["utility"],
                "attacks reached": attacked["injection"], "cases": attacked["cases"], "broken": attacked["broken"],
            }  # fmt: skip
            rows.append(row)
            print(
                *(f"{value:.3f}" if isinstance(value, float) else value for value in row.values()),
                sep="\t",
                flush=True,
            )
    file = Path(__file__).parent / "results" / "agentdojo_guards.json"
    file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("suites", nargs="*", default=list(NAMED))
    main(parser.parse_args().suites)
