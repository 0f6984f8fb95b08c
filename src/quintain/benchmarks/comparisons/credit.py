"""Every idea of credit on a real environment, BabyAI, against the outcome relative to the group; all else is equal."""

from typing import Any

from quintain.benchmarks.comparisons.worlds import BABY, GROUPS, TWO_RATES, on
from quintain.benchmarks.trials import Benchmark


def credit(name: str, claim: str, **settings: Any) -> Benchmark:
    """Return the comparison of the idea of credit `name` with that of GRPO, all else equal, on a real environment."""
    return Benchmark(
        name=f"credit_{name}",
        recipe="policy_gradient",
        baseline="policy_gradient",
        claim=claim,
        rates=TWO_RATES,
        **on(BABY, **GROUPS),
        settings={"credit": name, **settings},
        baseline_settings={"credit": "group"},
    )


CARRIED_OUT = "environment, executed=0.02"
WHITE: dict[str, Any] = {"normaliser": "token"}
CREDITS: tuple[Benchmark, ...] = (
    credit("outcome", "Outcomes whitened over the batch do without groups.", **WHITE),
    credit(
        "return", "Discounted returns, whitened, tell a turn by what came after it.", **WHITE, discount=0.95
    ),
    credit("others", "The mean of all other episodes is a baseline as good as the group's.", discount=0.95),
    credit("leave_one_out", "The mean of the others in the group does without a deviation."),
    credit("gigpo", "Actions compared in equal states credit turns."),
    credit("gae", "A critic credits tokens.", **WHITE),
    credit("gae_turns", "A critic credits turns.", **WHITE),
    credit("gae_bilevel", "A critic credits turns, and the tokens in them.", **WHITE, discount=0.95),
    credit(
        "gae_decoupled", "A critic with λ by length credits long and short episodes.", **WHITE, adaptive=1.0
    ),
    credit("vine", "Values from continued episodes credit turns, for all that they cost.", **WHITE),
    credit("spa_rl", "An outcome divided over turns by a predictor credits turns without a critic.", **WHITE),
    credit("process", "Turns that earn by being carried out are credited one by one.", rewards=CARRIED_OUT),
    credit("mt_grpo", "So are they when the outcome is compared apart.", rewards=CARRIED_OUT),
    credit("best_of", "Imitating the best episode of each group is enough."),
    credit("awr", "Imitating what was better, and pushing nothing away, is enough."),
)
