"""Chores in ALFWorld's engine (arXiv 2010.03768; packages alfworld and textworld) with problems written here.

Start at `environment`.
"""
