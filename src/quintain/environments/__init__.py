"""Worlds an agent acts in: the protocol, the embedded worlds, the adapters, the catalogue and the checker.

One file per world or adapter. The one rule: a wrong action is the policy's mistake and comes back as
text; what the world itself breaks is an `EnvironmentFault`, never a reward.
"""
