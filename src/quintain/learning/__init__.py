"""Learning: policies by name, and from credit to new weights: learner, update, checkpoint, shards."""
