"""A screen of labelled boxes: click at coordinates, open the menu, type into fields. Start at `game`."""
