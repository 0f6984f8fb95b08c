"""Experiments of the rows of family `critic`; each module has a function `measure`."""
