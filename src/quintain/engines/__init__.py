"""Engines: prompt token ids in, sampled token ids with log-probs out.

`Local` samples from a model in this process, `Scripted` replies from a script. Both are `protocol.Engine`.
"""
