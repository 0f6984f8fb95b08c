"""Trainers: packed batches in, optimizer steps and weights out. `learner.Learner` knows no method."""
