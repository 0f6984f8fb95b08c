"""Everyday work on attached files, graded by a rubric. Start at `game`."""
