"""L = Σ w · [½(Q_a - G)² - α τ log π(a)] over turns, with Q_a = V + τ (log π(a) + H(π)): a policy that is its own Q.

What a policy of temperature τ gives an action, and a value of the state, are together a Q of that action: π is the
softmax of Q/τ, and V its mean over π. So a model with a value head has a Q of all that it can say, and sampling from it
is Boltzmann exploration. G is r + γV(next state) of a target network, and r at the end (`credit.gae.gae_turns`, λ = 0):
the expected Q of what would be done next. In path consistency (arXiv 1702.08892) V holds the entropy, too, which pays
for every further turn: a user is then talked to for ever.

-τ log π(a) = τ log Σ_b exp(Q_b/τ) - Q_a of the actions in the data is what conservative Q-learning adds (2006.04779,
eq. 4, CQL(H)): actions that nobody took lose. Log-probs and entropies of the tokens of a turn add up, and each of
them has the turn's target with the value before it: exact for an action of one token.
"""

from quintain.errors import UsageError
from quintain.losses.measure import token_means, unit_sum, weighted_sum
from quintain.types import Batch, Loss, LossReport, Outputs


def own_q(temperature: float, conservatism: float = 0.0) -> Loss:
    """Return the loss for τ = `temperature` and α = `conservatism`; `batch.returns` are the targets G.

    Logs ``q/error`` (square), ``q/mean`` and ``q/value``. Raises `UsageError` where the model has no value head.
    """

    def loss(outputs: Outputs, batch: Batch) -> LossReport:
        if outputs.values is None:
            raise UsageError("values of a policy that is its own Q: got none; give the model a value head")
        chosen = temperature * unit_sum(outputs.logprobs, batch, "turn")
        q = outputs.values + chosen + temperature * unit_sum(outputs.entropy, batch, "turn")
        error = (q - batch.returns).square()
        means = token_means(batch, {"q/error": error, "q/mean": q, "q/value": outputs.values})
        return LossReport(loss=weighted_sum(batch, error / 2 - conservatism * chosen), metrics=means)

    return loss
