"""How a policy learns from credit, as a value; `quintain.learning.updating` carries it out."""

from dataclasses import dataclass
from typing import Literal

from quintain.types import Loss, Sample

Aggregation = Literal["token_mean", "sequence_mean", "turn_mean", "constant"]
Denominator = Literal["kept", "sampled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """How a policy learns from credit: ``Update(loss=clipped(), num_epochs=2, num_minibatches=4)``.

    A minibatch is a share of the step's episodes, drawn anew in every epoch, and takes one optimizer step; its tokens
    are averaged as `aggregation` says, over the minibatch.
    """

    loss: Loss
    aggregation: Aggregation = "token_mean"
    constant: float | None = None
    """tokens that the sum over an episode is divided by, with aggregation ``constant``"""
    denominator: Denominator = "kept"
    """what `aggregation` averages over: the streams with an advantage, or all that were sampled, so that groups whose
    episodes agree make the step shorter in place of leaving it"""
    num_epochs: int | None = None
    """times that the episodes of a step are gone through; None: as the configuration says, else once"""
    num_minibatches: int | None = None
    """optimizer steps of an epoch; None: as the configuration says, else one"""
    has_candidates: bool = False
    """let the candidates of a turn that was drawn from some be streams as well, for `losses.actions.by_action`"""
    keeps_zeros: bool = False
    """also train on streams without an advantage: a critic, a KL or entropy term learns from them"""
    has_reference: bool = False
    """let the batches carry log-probs of the policy ``reference``, for a KL in the loss"""
    is_own_reference: bool = False
    """the reference is the policy itself as the step's epochs begin, and no other is kept (Self-Rewarding LM)"""
    has_values: bool = False
    """let the batches carry the critic's values before the first update, which clipping them needs"""
    has_kl: bool = False
    """let the batches carry an estimate of the policy's KL from the policy ``reference``, which KTO subtracts"""
    is_on_policy: bool = True
    """the tokens were sampled by the policy as it is; False for data that was edited or chosen from elsewhere"""
    target_kl: float | None = None
    """stop updating a step once the mean KL estimate of the policy from the sampler is above this"""
    target_kl_unit: Literal["token", "episode"] = "token"
    """what `target_kl` is the KL of (nats); that of an episode is the mean of its tokens times their number"""
    head_layers: int | None = None
    """only the last so many layers, the norm behind them and a value head learn; 0: a value head alone; None: all"""
    lr_warmup: int = 10
    """steps over which the learning rate rises, of those in which the policy learns: the first ones of a fresh Adam are
    the least informed"""
    critic_steps: int = 0
    """first steps in which only the value head learns, by `critic_loss`, `critic_epochs` times (VC-PPO, 2503.01491)"""
    critic_epochs: int = 8
    critic_loss: Loss | None = None

    def trains(self, sample: Sample) -> bool:
        """Whether anything is learned from `sample`."""
        return self.keeps_zeros or bool(sample.advantages.any())

    def counts(self, sample: Sample) -> bool:
        """Whether `sample` counts in the mean of a step, be it trained on or not."""
        return self.denominator == "sampled" or self.trains(sample)
