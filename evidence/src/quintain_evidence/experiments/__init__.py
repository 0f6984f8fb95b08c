"""Experiments behind the registered claims: a module per row, `measure(options, seed)`, for one block each."""
