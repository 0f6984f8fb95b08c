"""Experiments of the rows of family `preference`; each module has a function `measure`."""
