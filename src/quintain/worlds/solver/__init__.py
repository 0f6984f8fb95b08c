"""Problems for a solver that errs, and for whoever decides what it does next (RL of Thoughts, ARIES).

Start at `game`.
"""
