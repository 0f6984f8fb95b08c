"""L = Σ w_t · ½(V_t - G_t)²: the critic's regression on the returns that the credit gave.

With `clip`, PPO's pessimistic form: the larger of that and the same with V_t kept within ±clip of the value when the
batch was collected (arXiv 1707.06347, the implementation's). V_t is the value before token t. Targets are fixed;
nothing here bootstraps.

With `expectile` τ, the weight of implicit Q-learning for what a state is worth (IQL, arXiv 2110.06169, eq. 5): V before
a turn regresses on targets above it with τ and on those below it with 1 - τ. Values after a turn are plain.
"""

from quintain.errors import DataError, UsageError
from quintain.losses.measure import is_trained, token_means, weighted_sum
from quintain.losses.preference import log_sigmoid
from quintain.types import Batch, Loss, LossReport, Outputs


def value(*, clip: float | None = None, expectile: float | None = None) -> Loss:
    """Return half the weighted squared error; logs `value/squared_error`, `value/mean`, `value/clip_fraction`.

    With `expectile` errors of V count twice their side's share, so that ½ is the plain loss.

    Raises `UsageError` when the model has no value head, or with `clip` when the batch carries no values.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        if outputs.values is None:
            raise UsageError(
                "values of a critic: got none; give the model a value head or use a method without"
            )
        error = (outputs.values - batch.returns).square()
        worst = error
        if expectile is not None:
            side = (batch.returns > outputs.values).float() * (2 * expectile - 1) + 1 - expectile
            worst = error * (2 * side).where(~batch.extra.turn_end, 1.0)
        if clip is not None:
            if batch.extra.values is None:
                raise UsageError(
                    "values at collection for value clipping: got none; keep them or leave clip out"
                )
            near = batch.extra.values + (outputs.values - batch.extra.values).clamp(-clip, clip)
            worst = error.maximum((near - batch.returns).square())
        terms = {
            "value/squared_error": error,
            "value/mean": outputs.values,
            "value/clip_fraction": (worst > error).float(),
        }
        return LossReport(loss=weighted_sum(batch, worst) / 2, metrics=token_means(batch, terms))

    return loss


def huber(delta: float) -> Loss:
    """Return the weighted Huber loss: ½(V_t - G_t)² up to an error of `delta`, then linear (MARFT, arXiv 2504.16129).

    Logs `value/squared_error` and `value/mean`. Example: `delta` 10, error 4 → 8; error 12 → 10 · (12 - 5) = 70.

    Raises `UsageError` when the model has no value head.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        if outputs.values is None:
            raise UsageError(
                "values of a critic: got none; give the model a value head or use a method without"
            )
        error = (outputs.values - batch.returns).abs()
        terms = {"value/squared_error": error.square(), "value/mean": outputs.values}
        bent = (error.square() / 2).where(error <= delta, delta * (error - delta / 2))
        return LossReport(loss=weighted_sum(batch, bent), metrics=token_means(batch, terms))

    return loss


def cross_entropy() -> Loss:
    """Return -Σ w_t · (G_t log σ(V_t) + (1 - G_t) log(1 - σ(V_t))): the value is the logit of a chance, the return in 0
    to 1 a case of it, as success is (DigiRL, arXiv 2406.11896, eq. 3; WebRL, 2411.02337).

    Logs ``value/cross_entropy`` (nats), ``value/brier``, the mean of (σ(V) - G)², and the mean of σ(V). Example: V 0
    and G 1 → .6931.

    Raises `UsageError` when the model has no value head, `DataError` for a return that is no chance.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        if outputs.values is None:
            raise UsageError(
                "chances of success: got a policy without a value head; give it one, head='value'"
            )
        known = batch.returns.where(is_trained(batch), 0.0)
        if bool(((known < 0) | (known > 1)).any()):
            raise DataError(
                f"outcomes that a classifier learns: got {float(known.min()):g} to {float(known.max()):g}; give 0 to 1"
            )
        logits = outputs.values
        nats = -(batch.returns * log_sigmoid(logits) + (1 - batch.returns) * log_sigmoid(-logits))
        chance = logits.sigmoid()
        terms = {
            "value/cross_entropy": nats,
            "value/brier": (chance - batch.returns).square(),
            "value/mean": chance,
        }
        return LossReport(loss=weighted_sum(batch, nats), metrics=token_means(batch, terms))

    return loss
