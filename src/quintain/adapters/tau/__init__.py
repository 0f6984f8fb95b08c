"""Tasks, policies and tools of τ-bench (arXiv 2406.12045) and τ²-bench (2506.07982), from a checkout or a package.

Start at `environment`.
"""
