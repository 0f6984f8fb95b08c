"""Crafter (arXiv 2109.06780; package crafter) told in words: unlock one of its 22 achievements, or as many as can be.

Start at `environment`.
"""
