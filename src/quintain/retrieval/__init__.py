"""Looking texts up: corpora, BM25 and dense indexes, servers over HTTP, and what was asked kept for later.

Start at `retriever`.
"""
