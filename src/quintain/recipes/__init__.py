"""Recipes: one short file per published method, in a folder per family, with its loop in plain view.

Each has a frozen `Config` and ``train(config, run)``. `job` holds what all of them ask for, `work` what all of
them do around a step. Import a recipe by its module: ``from quintain.recipes.rl import grpo``.
"""
