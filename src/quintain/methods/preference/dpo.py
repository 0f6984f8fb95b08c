"""DPO (arXiv 2305.18290): makes the preferred of two episodes likelier, against a frozen reference.

L = -log σ(β [(log π/π_ref)(won) - (log π/π_ref)(lost)]).

Pairs are read from a file (``preferences=pairs.jsonl``), or made from rollouts: of the episodes that the starting
policy makes of one task, the best against the worst, where they differ. Log-ratios are summed over all tokens the
policy sampled in an episode, as in the paper; prompts and observations are masked on both sides.

Differences to the paper: the preference is the environment's outcome, not a person's; episodes have many turns
(the trajectory-level pairs of ETO, 2403.02502); AdamW instead of RMSprop. The better side is imitated as well (RPO,
2404.19733): failed episodes are the long ones, and the loss alone is content to make both sides unlikely.

The other losses on pairs are here to be compared with: cDPO, hinge (SLiC-HF), IPO, SimPO and ORPO. KTO takes answers
one by one: those of a file that a label calls good or bad, or both sides of pairs.
"""

from dataclasses import dataclass
from typing import Literal

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.data.pairs import Pairs, best_and_worst, check_pairs
from quintain.errors import ConfigError, DataError
from quintain.learning.train_config import SignalsConfig
from quintain.learning.update import Update
from quintain.losses.preference import dpo, hinge, ipo, kto, nll_of_chosen, orpo, simpo, with_likelihood
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector, Needs
from quintain.types import Example, Loss, Trajectory

WITHOUT_REFERENCE = ("simpo", "orpo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SignalsConfig):
    """Configuration of direct preference optimization."""

    environment: str = ""
    """Where it acts: a name, as for all methods; none, or empty with preferences of a file, for the loss alone."""
    preferences: str = ""
    """File, folder or data set of preferences (chosen and rejected), or with loss kto of answers with a label, good or
    bad; empty: they are made from rollouts."""
    held_out: Share = 0.1
    """Share of a file's preferences that is not learned from; their loss is measured at every evaluation."""
    steps: int = 60
    learning_rate: float = 1e-4
    eval_every: int = 20
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the starting policy."""
    imitation_weight: NonNegativeFloat = 1.0
    """Weight of imitating the better side as well (RPO, 2404.19733); 0 is DPO as published, and kto has none."""
    loss: Literal["dpo", "hinge", "ipo", "simpo", "orpo", "kto"] = "dpo"
    """Loss of a pair: dpo, hinge (2305.10425), ipo (2310.12036), simpo (2405.14734; β about 2) or orpo (2403.07691; β
    is the weight of its odds), which two have no reference; or of each side by itself: kto (2402.01306)."""
    label_smoothing: NonNegativeFloat = 0.0
    """Share of pairs that is taken for turned round, below .5 (cDPO); for the loss dpo."""
    by_length: bool = False
    """Compare means over the tokens of a side and not sums; for dpo, hinge and ipo."""
    compares_ends: bool = True
    """Compare the tokens that end turns, too; for dpo, hinge and ipo."""
    tasks: PositiveInt = 256
    """Tasks that pairs are made from."""
    group_size: PositiveInt = 8
    """Episodes of a task."""
    batch_size: PositiveInt = 32
    """Pairs of a step."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        SignalsConfig.check(self)
        if self.label_smoothing and self.loss != "dpo":
            raise ConfigError(
                f"label_smoothing: got {self.label_smoothing} with the loss {self.loss}; leave it at 0, or take dpo"
            )
        if self.loss in WITHOUT_REFERENCE and (self.by_length or not self.compares_ends):
            raise ConfigError(
                f"by_length, compares_ends: got {self.by_length} and {self.compares_ends} with {self.loss}, which "
                "always compares means over all tokens; leave them as they are"
            )
        if self.loss == "kto" and (
            self.by_length or not self.compares_ends or self.imitation_weight not in (0, 1)
        ):
            raise ConfigError(
                f"imitation_weight, by_length, compares_ends: got {self.imitation_weight}, {self.by_length} and "
                f"{self.compares_ends} with kto, which has none of them; leave them as they are"
            )
        if self.loss == "orpo" and self.imitation_weight != 1:
            raise ConfigError(
                f"imitation_weight: got {self.imitation_weight} with orpo, which imitates with weight 1; set beta, "
                "the weight of its odds"
            )


def method(config: Config) -> Offline:
    """Return direct preference optimization as `config` describes it."""
    has_reference = config.loss not in WITHOUT_REFERENCE
    is_kto = config.loss == "kto"

    def preferences(collector: Collector) -> Pairs | list[Trajectory]:
        if config.preferences and is_kto:
            return of_both_kinds(collector.label_answers(), config.preferences)
        if config.preferences:
            given = check_pairs(collector.preferences(), margin=None)
            if not given:
                raise DataError(f"preferences of {config.preferences}: got {given}; give others")
            return given
        groups = collector.starting_groups(tasks=config.tasks, size=config.group_size)
        pairs = best_and_worst(groups)
        if not pairs:
            raise DataError(
                f"pairs from {config.tasks} tasks: got none whose episodes differ in outcome; raise tasks or "
                "group_size, or change demonstrations so that the starting policy solves some and not all"
            )
        return pairs

    return Offline(
        data=preferences,
        update=Update(
            loss=loss_of(config),
            has_reference=has_reference,
            is_on_policy=False,
            aggregation="sequence_mean" if is_kto else "token_mean",
            has_kl=is_kto,
        ),
        batch_size=config.batch_size,
        draws_anew=True,
        needs=Needs(reference=has_reference),
        held_out=config.held_out if config.preferences else 0.0,
        metrics=lambda made: {
            "dpo/answers" if made and isinstance(made[0], Example) else "dpo/pairs": float(len(made))
        },
    )


def of_both_kinds(answers: list[Trajectory], source: str) -> list[Trajectory]:
    """Return labelled `answers` of `source`, of which some are good and some are bad.

    Raises:
        DataError: all are of one kind.
    """
    good = sum(each.is_success for each in answers)
    if not 0 < good < len(answers):
        raise DataError(
            f"labels of {source}: got {len(answers):,} answers that are all {'good' if good else 'bad'}; give some of "
            "the other kind"
        )
    return answers


def loss_of(config: Config) -> Loss:
    """Return the loss of pairs that `config` names, with the likelihood of the better side where that has a weight."""
    beta, by_length, ends = config.beta, config.by_length, config.compares_ends
    if config.loss == "orpo":
        return orpo(beta)
    if config.loss == "kto":
        return kto(beta)
    if config.loss == "simpo":
        pairs = simpo(beta)
    elif config.loss == "dpo":
        pairs = dpo(beta, label_smoothing=config.label_smoothing, by_length=by_length, compares_ends=ends)
    else:
        pairs = {"hinge": hinge, "ipo": ipo}[config.loss](beta, by_length=by_length, compares_ends=ends)
    weight = config.imitation_weight
    return with_likelihood(pairs, 1.0, nll_of_chosen(), weight) if weight else pairs
