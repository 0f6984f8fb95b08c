"""MiniWoB++ (arXiv 1802.08802; package miniwob) in headless Chromium: small web tasks, told as a list of elements.

Start at `environment`.
"""
