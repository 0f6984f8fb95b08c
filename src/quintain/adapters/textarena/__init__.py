"""TextArena's games (arXiv 2504.11442; package textarena) as episodes of one, two or more seats.

Start at `environment`.
"""
