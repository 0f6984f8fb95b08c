"""What each method of the family is to show, against what, and on which world (`worlds`).

Both arms have the same budget of environment steps and of sampled tokens, the same tasks and the same starting policy;
what is not said to differ is equal.
"""

from quintain.benchmarks.comparisons.actions import ACTIONS
from quintain.benchmarks.comparisons.credit import CREDITS
from quintain.benchmarks.comparisons.policies import POLICIES
from quintain.benchmarks.comparisons.screens import SCREENS
from quintain.benchmarks.comparisons.tools import TOOLS
from quintain.benchmarks.comparisons.turns import TURNS
from quintain.benchmarks.trials import Benchmark

BENCHMARKS: tuple[Benchmark, ...] = (*POLICIES, *TURNS, *ACTIONS, *SCREENS, *TOOLS, *CREDITS)
