"""NetHack as text, from the NetHack Learning Environment (arXiv 2006.13760): the screen is the observation.

Start at `environment`.
"""
