"""Arithmetic with tools: look prices up, calculate step by step, check a result before it is given.

Start at `game`.
"""
