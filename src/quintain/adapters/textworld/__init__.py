"""Text adventures that TextWorld (arXiv 1806.11532; package textworld) generates: quests, and two of its challenges.

Start at `environment`.
"""
