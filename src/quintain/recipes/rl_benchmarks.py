"""What each method of the family is to show, against what, and on which world.

Worlds are those where the idea has room to matter: credit needs turns, exploration needs rewards that are rare,
efficiency needs calls that could be saved. The one rule: both arms have the same budget of environment steps and of
sampled tokens, the same tasks and the same starting policy.
"""

from typing import Any

from quintain.recipes.benchmark import Benchmark

BUDGET: dict[str, Any] = {
    "model": "tiny",
    "demonstrations": 24,
    "steps": 200,
    "most_turns": 12_000,
    "most_tokens": 120_000,
    "eval_every": 10,
    "eval_episodes": 128,
    "learning_rate": 3e-4,
}
GROUPS: dict[str, Any] = {"tasks": 8, "group_size": 8}
EPISODES: dict[str, Any] = {"episodes": 64}
DOORS = "keydoor"
BABY = "babyai/GoToRedBallNoDists?max_turns=20"

BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark(
        name="grpo",
        recipe="grpo",
        baseline="rft",
        environment=BABY,
        claim="Learning from what is worse than the group, too, beats imitating what succeeded.",
        shared={**BUDGET, **GROUPS},
    ),
    Benchmark(
        name="ppo",
        recipe="ppo",
        baseline="reinforce",
        environment=BABY,
        claim="A critic and a clip make more of the same episodes than plain policy gradients.",
        shared={**BUDGET, **EPISODES},
    ),
    Benchmark(
        name="reinforce",
        recipe="reinforce",
        baseline="reinforce",
        environment="guess",
        claim="A baseline lowers the variance of the gradient and changes nothing else.",
        shared={**BUDGET, **EPISODES},
        baseline_settings={"baseline": "none"},
    ),
    Benchmark(
        name="reinforce_plus_plus",
        recipe="reinforce_plus_plus",
        baseline="reinforce",
        environment="guess",
        claim="Whitening over the batch and a clip make REINFORCE stable without groups or critic.",
        shared=BUDGET,
        settings={"tasks": 64},
        baseline_settings=EPISODES,
    ),
    Benchmark(
        name="rloo",
        recipe="rloo",
        baseline="reinforce",
        environment=BABY,
        claim="The other episodes of a task are a better baseline than those of other tasks.",
        shared=BUDGET,
        settings={**GROUPS, "kl": 0.0},
        baseline_settings=EPISODES,
    ),
    Benchmark(
        name="dr_grpo",
        recipe="dr_grpo",
        baseline="grpo",
        environment=DOORS,
        claim="Without division by length and deviation, tokens are not wasted on long failures.",
        shared={**BUDGET, **GROUPS},
    ),
    Benchmark(
        name="dapo",
        recipe="dapo",
        baseline="grpo",
        environment=BABY,
        claim="Sampling until groups differ and a wider upper clip make more of the same tokens.",
        shared={**BUDGET, **GROUPS},
    ),
    Benchmark(
        name="gspo",
        recipe="gspo",
        baseline="grpo",
        environment="guess",
        claim="One ratio per sequence is stable over several updates on the same episodes.",
        shared={**BUDGET, **GROUPS},
    ),
    Benchmark(
        name="cispo",
        recipe="cispo",
        baseline="grpo",
        environment="guess",
        claim="Clipping weights instead of tokens keeps the gradient of the tokens that matter.",
        shared={**BUDGET, **GROUPS},
    ),
    Benchmark(
        name="loop",
        recipe="loop",
        baseline="rloo",
        environment=DOORS,
        claim="Clipped token ratios over two epochs make more of the same episodes than REINFORCE leave-one-out.",
        shared={**BUDGET, **GROUPS},
        baseline_settings={"kl": 0.0},
    ),
    Benchmark(
        name="lite_ppo",
        recipe="lite_ppo",
        baseline="grpo",
        environment=BABY,
        claim="The group's mean with the batch's deviation and a mean over tokens beat GRPO.",
        shared={**BUDGET, **GROUPS},
    ),
    Benchmark(
        name="starpo",
        recipe="starpo",
        baseline="starpo",
        environment=DOORS,
        claim="Training on the uncertain half of the groups needs fewer updates for the same success.",
        shared={**BUDGET, **GROUPS},
        baseline_settings={"keep": 1.0},
    ),
    Benchmark(
        name="gigpo",
        recipe="gigpo",
        baseline="grpo",
        environment=DOORS,
        claim="Comparing actions in equal states credits steps, without a critic.",
        shared={**BUDGET, **GROUPS},
    ),
    Benchmark(
        name="gigpo_babyai",
        recipe="gigpo",
        baseline="grpo",
        environment=BABY,
        claim="The same on a real environment.",
        shared={**BUDGET, **GROUPS},
    ),
    Benchmark(
        name="mt_grpo",
        recipe="mt_grpo",
        baseline="grpo",
        environment=DOORS,
        claim="Credit for turns makes actions valid sooner.",
        shared={**BUDGET, **GROUPS},
    ),
)
