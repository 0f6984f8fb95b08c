"""Gymnasium's environments with discrete actions, as text; see `gym_text` for how they are told.

Start at `environment`.
"""
