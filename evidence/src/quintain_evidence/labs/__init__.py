"""The labs that experiments share: permutations, exact values, a tabular lab, a gradient lab, probes, starts, seats."""
