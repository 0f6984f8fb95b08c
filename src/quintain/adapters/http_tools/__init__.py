"""Tools and a grader behind plain HTTP endpoints, joined by a rollout id, as an environment.

Start at `environment`.
"""
