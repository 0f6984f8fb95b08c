"""Sokoban: push every box onto a target; a box in a corner stays there. Start at `game`."""
