"""Memory: what agents keep from episode to episode.

Rule: a bank never holds anything of a held-out task, evaluation reads a frozen one, and what is kept is a fold over
recorded episodes, so that a resumed run has it again. A room of values: it knows no agent and no run.
"""
