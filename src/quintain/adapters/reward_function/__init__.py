"""Answers to the tasks of a file, scored by a reward function as other trainers have it.

Start at `environment`.
"""
