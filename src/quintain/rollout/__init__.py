"""Rollouts: agents times environments make trajectories, with deadlines and a failure boundary.

`rollout.collect.Rollout` samples groups of episodes from an engine, or demonstrations from an expert.
"""
