"""A run, and what is around a step: episodes, evaluation, monitors, trackers, progress, the report at its end."""
