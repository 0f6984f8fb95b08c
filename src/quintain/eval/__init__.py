"""How good an agent is, and whether one is better than another: rates, intervals, paired comparisons.

Import the files: `statistics` (plain numbers), `evaluate` (episodes → `Evaluation`), `compare` (runs → rows). A
failure of the machinery is counted on its own and is never a failure of the agent.
"""
