"""What a claim about a method stands on: four layers, each a command, and the statistics that judge them.

``objective`` asks whether the arms optimise what is measured, ``formula`` whether it computes what the paper says,
``signature`` whether the mechanism does what it is said to do, ``league`` whether it is better here at equal budget.
Results are appended to ``results/<row>.jsonl``, and what a row is called is computed from them (`standing`).
"""
