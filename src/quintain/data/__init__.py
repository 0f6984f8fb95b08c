"""Data: trajectories to batches: packing, filters, preference pairs, rules of which streams are trained, messages.

Import from the file that holds the idea: ``from quintain.data.pack import pack, samples_from``.

Nothing is lost in silence. A stream that is too long or a side without tokens is an error, or is dropped by a named
option that returns how many went.
"""
