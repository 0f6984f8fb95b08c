"""The loops that most methods are values in: a file has the value that a method fills in, and the loop itself."""
