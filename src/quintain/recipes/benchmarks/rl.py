"""What each method of the family is to show, against what, and on which world (`worlds`).

The one rule: both arms have the same budget of environment steps and of sampled tokens, the same tasks and the same
starting policy; what is not said to differ is equal.
"""

from quintain.recipes.benchmark import Benchmark
from quintain.recipes.benchmarks.actions import ACTIONS
from quintain.recipes.benchmarks.credit import CREDITS
from quintain.recipes.benchmarks.policies import POLICIES
from quintain.recipes.benchmarks.screens import SCREENS
from quintain.recipes.benchmarks.tools import TOOLS
from quintain.recipes.benchmarks.turns import TURNS

BENCHMARKS: tuple[Benchmark, ...] = (*POLICIES, *TURNS, *ACTIONS, *SCREENS, *TOOLS, *CREDITS)
