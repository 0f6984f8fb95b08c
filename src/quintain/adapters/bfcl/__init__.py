"""The Berkeley function calling leaderboard, version 4: one-turn categories, graded by the package's AST checker.

Start at `environment`.
"""
