"""Guess a hidden number from "higher" and "lower": the smallest world in which turns matter.

Start at `game`.
"""
