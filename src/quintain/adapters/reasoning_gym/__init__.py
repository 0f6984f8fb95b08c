"""The datasets of reasoning-gym (arXiv 2505.24760; package reasoning-gym) as episodes of one turn.

Start at `environment`.
"""
