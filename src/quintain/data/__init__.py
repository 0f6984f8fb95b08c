"""Data: trajectories to batches and back: packing, filters, preference pairs, mixtures, outside formats.

Import from the file that holds the idea: ``from quintain.data.pack import pack, samples_from``.

Nothing is lost in silence. A stream that is too long, a side without tokens or a malformed line is an error, or is
dropped by a named option that returns how many went.
"""
