"""Processes that we start and talk to: frames over pipes, the tree below a process, its end as a whole.

Sandboxes and workers of environments stand on it. What is started is ended, with everything it started, and nothing it
says is believed before it is read.
"""
