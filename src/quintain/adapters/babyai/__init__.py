"""BabyAI's levels (arXiv 1810.08272; package minigrid) as text: a word per action, a short line per view.

Start at `environment`.
"""
