"""Benchmarks: methods against their baselines and worlds against their experts, over seeds."""
