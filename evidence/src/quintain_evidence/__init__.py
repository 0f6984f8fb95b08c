"""What is shown of the methods, and how: claims, experiments, second versions of formulas, labs, leagues, results.

A distribution of its own beside `quintain`, whose command `quintain bench` it brings. Nothing of `quintain` imports it.
"""
