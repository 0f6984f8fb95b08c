"""What methods of reinforcement learning share: collecting, rewards, values, updates, checks and measures."""
