"""Formulas beside plain second versions of them, written from the papers: `credit`, `losses`, `rewards`, `choices`.

Each is compared on random ragged batches, and mutants of the code that ships must be told from the second version.
"""
