"""Self-training: learning from one's own successes."""
