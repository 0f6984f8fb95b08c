"""Any idea of credit × any policy loss: ∇J = E[Σ_t A_t ∇log π(y_t)], A by ``--credit``, its surrogate by ``--loss``.

Credit says how much each token mattered, the loss what that does to the weights; nothing in one knows of the
other. A normaliser whitens the credit over the batch: by token, turn or episode, or for each kind of task or seat
apart, so that none drowns the others in a mixed run.

A recipe for what no paper has put together. Published combinations have recipes of their own, with what else they
change. An adaptive KL coefficient (``kl_target``, arXiv 1909.08593) is computed from the metrics of earlier steps,
so a resumed run has the coefficient that it had.
"""

from dataclasses import dataclass, replace
from functools import partial

from quintain.credit.decomposition import Contributions
from quintain.losses.compose import combine
from quintain.losses.entropy import entropy_bonus
from quintain.losses.value import value
from quintain.methods.loops.method import Memories, Method, unchanged
from quintain.methods.loops.on_policy import train as train_by
from quintain.methods.rl.parts.anchoring import Anchor
from quintain.methods.rl.parts.collecting import grouped
from quintain.methods.rl.parts.ideas import IDEAS, SELECTING, Knobs
from quintain.methods.rl.parts.normalisers import normalised
from quintain.methods.rl.parts.paid import ONLY_ENVIRONMENT, needs_states, needs_tools, terms
from quintain.methods.rl.parts.parts import Parts
from quintain.methods.rl.parts.surrogates import LOSSES
from quintain.methods.rl.parts.updating import Plan, policy_update
from quintain.rewards.exploration import Visits
from quintain.rewards.terms import apply_all
from quintain.store.run import Run
from quintain.training.learner import StepReport
from quintain.training.work import Work
from quintain.types import Credit


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Parts):
    """Configuration of policy gradients from parts."""


def method(config: Config) -> Method:
    """Return the method that `config` puts together."""
    idea, contributions, visits = IDEAS[config.credit], Contributions(), Visits()
    given = {name: getattr(config, name) for name in sorted(idea.reads) if getattr(config, name) is not None}
    assign = normalised(idea.make(Knobs(**given), contributions), config.normaliser)
    anchor = Anchor(config.kl, config.kl_place, config.kl_target)
    is_plain, paid = config.rewards == ONLY_ENVIRONMENT, terms(config.rewards, visits)
    has_states = idea.needs.state_keys or needs_states(config.rewards)
    needs = replace(
        idea.needs, reference=config.kl > 0, state_keys=has_states, tools=needs_tools(config.rewards)
    )
    plan = Plan(
        aggregation=config.aggregation,
        constant=config.constant,
        updates=config.updates,
        keeps_zeros=needs.critic or config.entropy > 0 or anchor.is_in_loss,
        is_on_policy=config.credit not in SELECTING,
    )

    def update(work: Work, step: int, credit: Credit) -> StepReport | None:
        parts = [(LOSSES[config.loss](), 1.0), *anchor.losses(work)]
        parts += [(value(), 0.5)] if needs.critic else []
        parts += [(entropy_bonus(), config.entropy)] if config.entropy else []
        return policy_update(combine(*parts), plan, has_reference=anchor.is_in_loss)(work, step, credit)

    return Method(
        collect=grouped(config.tasks, config.group_size),
        reward=unchanged if is_plain else partial(apply_all, terms=paid),
        credit=anchor.priced(assign),
        update=update,
        needs=needs,
        memory=Memories(contributions if idea.is_fitted else None, None if is_plain else visits),
    )


def train(config: Config, run: Run) -> None:
    """Train until `config.steps`, continuing where `run` was left."""
    train_by(config, run, method(config))
