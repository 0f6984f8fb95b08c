"""What a claim about a method stands on: four layers, each a command, and the statistics that judge them.

``objective`` asks whether the arms optimise what is measured, ``formula`` whether it computes what the paper says,
``signature`` whether the mechanism does what it is said to do, ``league`` how it does beside its baseline at equal
budget, and ``promise`` whether it trains a real model.
Results are appended to ``results/<row>.jsonl``, and the columns of a row are computed from them (`standing`).
"""
