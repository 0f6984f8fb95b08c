"""An airline's help desk whose customers have a phone: two databases, a policy, and a talk between two who act.

Start at `game`.
"""
