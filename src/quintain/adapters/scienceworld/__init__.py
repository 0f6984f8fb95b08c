"""ScienceWorld (arXiv 2203.07540; package scienceworld): 30 tasks of elementary science in a simulated house.

Start at `environment`.
"""
