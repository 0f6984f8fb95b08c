"""Kernels in C for the processor, an optional plug-in: without a compiler everything runs on torch."""
