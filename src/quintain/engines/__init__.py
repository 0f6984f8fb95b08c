"""Engines: prompt token ids in, sampled token ids with log-probs out.

`protocol.Engine` says what one is, `build.build_engine` makes one from settings, and
`testing.engines.check_engine` tries one.
`Local` samples from a model in this process, `ProcessEngine` in a process of its own, `Scripted` replies from a script.
"""
