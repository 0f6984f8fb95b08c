"""Losses: what a `Batch` and the model's `Outputs` become in gradient. One file per family.

Every factory returns a `Loss`: a plain sum over tokens of `loss_weight` · term (weights are normalised over the whole
step beforehand) with metrics that add up over micro-batches. Import from the file that holds the idea: ``from
quintain.losses.policy import clipped``.

Lower is better, and only tokens with `loss_weight` > 0 are counted.
"""
