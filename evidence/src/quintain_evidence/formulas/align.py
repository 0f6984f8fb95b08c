"""What ALIGN's miner finds in episodes, beside a plain second version."""

from types import ModuleType

from quintain.agents.interface import Step
from quintain_evidence.formulas.formula import Formula, Rng

VERBS = ("a", "b", "c", "d")
Episodes = list[list[tuple[int, bool]]]
"""of each action of each episode its verb, and whether it had an effect"""


def draw_episodes(rng: Rng) -> Episodes:
    """Return up to sixteen episodes in which the first verb hardly works but after the second."""
    found: Episodes = []
    for _ in range(int(rng.integers(1, 17))):
        episode: list[tuple[int, bool]] = []
        for verb in rng.integers(0, len(VERBS), int(rng.integers(0, 12))).tolist():
            chance = 0.6 if verb else 0.8 if (1, True) in episode else 0.02
            episode.append((verb, bool(rng.random() < chance)))
        found.append(episode)
    return found


def mine_by_code(module: ModuleType, case: Episodes) -> list[float]:
    """Return which verb needs which, as numbers; -1: none."""
    logs = [[Step(f"{VERBS[verb]} x", "", has_worked=worked) for verb, worked in episode] for episode in case]
    needs = module.mine_rules(logs)
    return [float(VERBS.index(needs[verb])) if verb in needs else -1.0 for verb in VERBS]


def mine_by_pairs(case: Episodes) -> list[float]:
    """Return the same, pair by pair from lists of what happened."""
    found: list[float] = []
    for verb in range(len(VERBS)):
        best, need = (-1.0, 0), -1
        for other in range(len(VERBS)):
            without: list[bool] = []
            after: list[bool] = []
            for episode in case:
                for place, (each, worked) in enumerate(episode):
                    if each == verb:
                        (after if (other, True) in episode[:place] else without).append(worked)
            if other == verb or without.count(False) < 3 or after.count(True) < 2:
                continue
            if 20 * sum(without) > len(without):
                continue
            rise = sum(after) / len(after) - sum(without) / len(without)
            tries = len(after) + len(without)
            if rise >= 0.2 and (rise, tries) > best:
                best, need = (rise, tries), other
        found.append(float(need))
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula(
        "align.mine", "methods.agents.align", ("mine_rules",), draw_episodes, mine_by_code, mine_by_pairs
    ),
)
