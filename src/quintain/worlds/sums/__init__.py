"""Add numbers, then judge your own answer, then mend it: self-verification in turns (PAG, SCoRe).

Start at `game`.
"""
