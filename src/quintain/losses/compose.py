"""L = Σ_i c_i · L_i: losses are added, each with its coefficient, and report under their own names.

Example: ``combine((clipped(0.2, 0.28), 1.0), (kl_penalty("k3"), 0.01), (entropy_bonus(), 0.001))``. A name is
reported once; two losses that report the same name are refused rather than merged.
"""

from quintain.errors import UsageError
from quintain.types import Batch, Loss, LossReport, Outputs


def combine(*terms: tuple[Loss, float]) -> Loss:
    """Return the weighted sum of `terms`; the metrics are theirs, without the coefficients.

    Raises `UsageError` without terms, and when two of them report the same metric.
    """
    if not terms:
        raise UsageError("losses to combine: got none; give at least one (loss, coefficient)")

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        metrics: dict[str, float] = {}
        total = outputs.logprobs.new_zeros(())
        for part, coefficient in terms:
            report = part(outputs, batch)
            clash = sorted(metrics.keys() & report.metrics.keys())
            if clash:
                raise UsageError(
                    f"metrics of combined losses: got {clash[0]} twice; leave one of the losses out"
                )
            metrics |= report.metrics
            total = total + coefficient * report.loss
        return LossReport(loss=total, metrics=metrics)

    return loss
