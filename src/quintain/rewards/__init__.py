"""Rewards: from what happened to numbers, term by term.

A `Term` measures a trajectory; `apply` composes named, weighted, capped and gated terms into turn and a `Score`, and
logs each of them. Import from the file that holds the idea: ``from quintain.rewards.terms import Term, apply``.

A term that cannot say a finite number is a `Failure` of the judge, never a 0.
"""
