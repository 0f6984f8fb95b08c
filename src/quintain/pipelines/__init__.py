"""What `quintain data` does: episodes of runs and files, likelihood under a model, thoughts written to actions."""
