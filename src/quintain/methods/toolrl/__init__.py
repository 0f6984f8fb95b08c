"""Learning to use tools: search, code and tools out of large collections."""
