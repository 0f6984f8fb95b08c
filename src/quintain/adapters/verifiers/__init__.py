"""Environments of verifiers (its API of version 0.1), played by their own loop and graded by their own rubrics.

Start at `environment`.
"""
