"""Experiments on guards, lints, attacks and benchmarks of what agents may do."""
