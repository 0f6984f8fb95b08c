"""Blocks to stack and packages to deliver: classical planning, a step at a time or as whole plans.

Start at `game`.
"""
