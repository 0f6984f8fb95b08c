"""The built-in environments, a folder each: the game, what it is made of, and its expert.

Each is found by its name in `quintain.environments.catalog`, which imports only what is asked for.
"""
