"""Training: the learner, the engine's weights, and what every method does around a step."""
