"""The credit laboratory: every idea of credit with every loss on one recorded batch, before rollouts are paid for.

A batch of episodes and the weights that sampled them are taken from a run, or collected by a recipe's start. The batch
is dealt into parts by group. In each part every idea that fits the episodes gives a gradient, and its cosine with the
gradient of success in all *other* parts says how much of it points where success grows. `shuffled`, the group's credit
dealt to other episodes of the group, is the floor. Losses are alike where the policy is the one that sampled; they are
told apart in the second update of a part, after one step along its own gradient.

An idea that does not fit is named with the reason, never run on numbers that mean something else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special
from torch import Tensor

from quintain.credit.decomposition import Contributions
from quintain.credit.group import group_relative
from quintain.credit_lab.gradient import (
    PLAIN,
    GradientLab,
    LinearCritic,
    cosine,
    leave_out,
    noise_of,
    success_credit,
)
from quintain.credit_lab.permute import permute_credit
from quintain.errors import DataError, UsageError, suggestion
from quintain.learning.update import Update
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.rl.parts.choices import IDEAS, LOSSES, Idea, Options
from quintain.types import Credit, Group, flatten_scored, is_constant

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FLOOR = "shuffled"
"""Name of the control: credit of the group on other episodes of it."""
MAX_GAP = 0.05
"""Mean |log π - log π at sampling| in nats above which the weights are not those that sampled."""
MAX_OUTSIDE, MAX_HALVINGS = 0.1, 12
"""Share of tokens whose ratio may be outside 0.8 … 1.2 where losses are compared; how often a step is halved."""
Say = Callable[[str, int, int], object]
"""(what is being done, of how many things, how many are done)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What a laboratory looks at: a batch of episodes, and the weights that sampled them."""

    model: PreTrainedModel
    groups: Sequence[Group]
    """with the rewards that the recipe trains on"""
    source: str
    """where it comes from, in words"""
    environment: str
    recipe: str
    temperature: float = 1.0
    learning_rate: float = 3e-4
    tokens_per_microbatch: int = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class IdeaRow:
    """An idea of credit on this batch."""

    name: str
    cosine: float
    """mean cosine with the gradient of success of the other parts"""
    low: float
    """95 % interval of the mean over parts, by Student's t"""
    high: float
    gain: float
    """mean difference of the cosine from that of `group`, part by part; 0 for itself"""
    gain_error: float
    """standard error of the gain over parts"""
    noise: float | None
    """variance of the gradient over the squared norm of its mean, in parts; None where the mean is not told from 0"""
    effective: float
    """effective sample size: the share of a part's episodes that the gradient is made of"""
    norm: float
    """norm of the gradient over that of `group`, mean over parts"""
    seconds: float
    """seconds of a part that the credit costs, values of a critic included"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the laboratory found; ``asdict(report)`` is ``lab.json``."""

    source: str
    environment: str
    recipe: str
    parameters: int
    groups: int
    episodes: int
    turns: int
    tokens: int
    success: float
    mixed: float
    """share of the groups whose outcomes differ"""
    parts: int
    gap: float
    """mean |log π - log π at sampling| in nats"""
    ideas: tuple[IdeaRow, ...]
    """the best first"""
    losses: Mapping[str, Mapping[str, float]]
    """idea → loss → mean cosine of the second update with the gradient of success"""
    rate: float
    """learning rate of the AdamW step that is the first update"""
    outside: float
    """share of the tokens whose ratio is outside 0.8 … 1.2 after it, by the credit of the group"""
    left_out: Mapping[str, str]
    """idea → why it does not fit"""
    same: Mapping[str, str]
    """idea → the one before it whose credit is the same on these episodes"""
    seconds: float

    def row(self, name: str) -> IdeaRow:
        """Return the idea `name`."""
        return next(row for row in self.ideas if row.name == name)


def run_lab(
    material: Material,
    *,
    ideas: Sequence[str] | None = None,
    losses: Sequence[str] | None = None,
    parts: int = 8,
    seed: int = 0,
    say: Say = lambda *_: None,
) -> Report:
    """Return what every idea and loss makes of `material`.

    Args:
        material: episodes and weights.
        ideas: names of ideas of credit; None: all that fit. `group` and the floor are always there.
        losses: names of losses, compared in a second update; None: all; empty: leave it out.
        parts: parts that the batch is dealt into, at most one for each group.
        seed: of the floor's permutation.
        say: hears how far it is.

    Raises:
        UsageError: an unknown idea or loss, or parts fewer than two.
        DataError: no episodes, one group, no difference in success, or weights that did not sample the episodes.
    """
    started = time.monotonic()
    wanted, chosen = check_names(ideas, IDEAS, "ideas"), check_names(losses, LOSSES, "losses")
    if parts < 2:
        raise UsageError(f"parts: got {parts}; give 2 or more, for each is compared with the others")
    groups = [group for group in material.groups if group.scored]
    refuse_batch(groups, material.source)
    lab = GradientLab(
        material.model, temperature=material.temperature, tokens_per_microbatch=material.tokens_per_microbatch
    )
    gap = lab.gap(groups)
    if gap > MAX_GAP:
        raise DataError(
            f"weights for {material.source}: got log-probs {gap:.2f} nats from those at sampling; these weights did "
            "not sample the episodes, so collect a batch anew: quintain lab RECIPE"
        )
    folds = deal(groups, parts)
    fitting, left_out = fit_ideas(groups, wanted)
    names = ["group", FLOOR, *[name for name in fitting if name != "group"]]
    num_steps = len(names) * (2 if chosen else 1) + 1
    say("gradient of success", num_steps, 0)
    success = [lab.gradient(success_credit(fold)) for fold in folds]
    targets = leave_out(success)
    critics = fit_critics(lab, folds) if any(IDEAS[n].needs.critic for n in fitting) else []
    credits: dict[str, list[Credit]] = {}
    found: dict[str, list[Tensor]] = {}
    rows: dict[str, dict[str, Any]] = {}
    same: dict[str, str] = {}
    for number, name in enumerate(names):
        say(name, num_steps, number + 1)
        began = time.monotonic()
        credits[name] = [
            assign(name, folds, place, critics[place] if critics else None, seed)
            for place in range(len(folds))
        ]
        seconds = (time.monotonic() - began) / len(folds)
        twin = next((other for other in found if is_same(credits[other], credits[name])), None)
        if twin is not None:
            same[name] = twin
            rows[name], found[name] = {**rows[twin], "seconds": seconds}, found[twin]
            continue
        results = [lab.gradients(credit, {"": PLAIN})[""] for credit in credits[name]]
        found[name] = [result.direction for result in results]
        shares = [r.effective / len(flatten_scored(fold)) for r, fold in zip(results, folds, strict=True)]
        rows[name] = {"seconds": seconds, "effective": float(np.mean(shares))}
    ideas_rows = [idea_row(name, found, targets, rows[name]) for name in names]
    table: dict[str, dict[str, float]] = {}
    rate, outside = material.learning_rate, 0.0
    if chosen:
        rate, outside = find_rate(lab, folds, found["group"], rate)
        updates = {name: Update(loss=LOSSES[name].make()) for name in chosen}
        for number, name in enumerate(names):
            say(f"{name}, losses", num_steps, len(names) + number + 1)
            if name in same:
                table[name] = table[same[name]]
                continue
            sums: dict[str, list[float]] = {loss: [] for loss in chosen}
            for credit, way, target in zip(credits[name], found[name], targets, strict=True):
                with lab.move(way, rate):
                    for loss, result in lab.gradients(credit, updates).items():
                        sums[loss].append(cosine(result.direction, target))
            table[name] = {loss: float(np.mean(values)) for loss, values in sums.items()}
    trajectories = flatten_scored(groups)
    return Report(
        source=material.source,
        environment=material.environment,
        recipe=material.recipe,
        parameters=lab.size,
        groups=len(groups),
        episodes=len(trajectories),
        turns=sum(len(t.turns) for t in trajectories),
        tokens=sum(t.num_sampled for t in trajectories),
        success=float(np.mean([t.is_success for t in trajectories])),
        mixed=float(np.mean([not is_constant(group.returns) for group in groups])),
        parts=len(folds),
        gap=gap,
        ideas=tuple(sorted(ideas_rows, key=lambda row: -row.cosine)),
        losses=table,
        rate=rate,
        outside=outside,
        left_out=left_out,
        same=same,
        seconds=time.monotonic() - started,
    )


def check_names(names: Sequence[str] | None, known: Mapping[str, object], what: str) -> list[str]:
    """Return `names`, or all of `known` for None; raise a `UsageError` for one that is unknown."""
    for name in names or ():
        if name not in known:
            raise UsageError(f"{what}: got {name!r}; {suggestion(name, known)}")
    return list(known) if names is None else list(dict.fromkeys(names))


def refuse_batch(groups: Sequence[Group], source: str) -> None:
    """Raise a `DataError` for a batch in which no idea has a gradient that could be compared."""
    trajectories = flatten_scored(groups)
    if not trajectories:
        raise DataError(f"episodes of {source}: got none that may be trained on; collect some")
    if len(groups) < 2:
        raise DataError(
            f"groups of {source}: got 1; one part is compared with the others, so give 2 or more groups, 16 for "
            "intervals that say something"
        )
    solved = sum(t.is_success for t in trajectories)
    if solved in (0, len(trajectories)):
        what = "none of them solved" if not solved else "all of them solved"
        raise DataError(
            f"episodes of {source}: got {len(trajectories)}, {what}; where success does not vary it has no gradient, "
            f"so take {'easier tasks or more demonstrations' if not solved else 'harder tasks or fewer demonstrations'}"
        )


def deal(groups: Sequence[Group], parts: int) -> list[list[Group]]:
    """Return `groups` dealt into `parts` parts in turn; fewer where there are fewer groups."""
    return [list(groups[place::parts]) for place in range(min(parts, len(groups)))]


def fit_ideas(groups: Sequence[Group], names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the ideas of `names` that fit the episodes, and of the others why not."""
    reasons = {name: reason for name in names if (reason := misfit(IDEAS[name], groups))}
    return [name for name in names if name not in reasons], reasons


def misfit(idea: Idea, groups: Sequence[Group]) -> str:
    """Return why `idea` does not fit the episodes of `groups`; nothing where it does."""
    trajectories = flatten_scored(groups)
    if idea.is_grouped and all(len(group.scored) < 2 for group in groups):
        return "compares episodes of one task, and every group has one"
    if idea.needs.snapshots:
        return "continues episodes from every state, which a recorded batch does not hold"
    if idea.needs.state_keys and not any(turn.state_key for t in trajectories for turn in t.turns):
        return "compares equal states, and the turns were recorded without state keys"
    if idea.needs.turn_rewards and not any(turn.reward for t in trajectories for turn in t.turns[:-1]):
        return "is made of rewards before the last turn, and there are none"
    return ""


def fit_critics(lab: GradientLab, folds: Sequence[Sequence[Group]]) -> list[LinearCritic]:
    """Return for each part a critic that was fitted to all other parts."""
    return [
        lab.fit_critic([g for other, fold in enumerate(folds) if other != place for g in fold])
        for place in range(len(folds))
    ]


def assign(
    name: str, folds: Sequence[Sequence[Group]], place: int, critic: LinearCritic | None, seed: int
) -> Credit:
    """Return the credit of the idea `name` in part `place`; what it learns from episodes, it learns from the others."""
    groups = folds[place]
    if name == FLOOR:
        return permute_credit(group_relative(groups), seed=seed + place, unit="episode", alone="keep")[0]
    idea, contributions = IDEAS[name], Contributions()
    if idea.is_fitted:
        contributions.update([g for other, fold in enumerate(folds) if other != place for g in fold])
    values = critic(groups) if idea.needs.critic and critic is not None else None
    return idea.make(Options(), contributions)(groups, Estimates(values=values))


def is_same(one: Sequence[Credit], other: Sequence[Credit]) -> bool:
    """Return whether two ideas give every turn of every part the same credit, to 1e-6."""
    return all(
        [id(t) for t in a.trajectories] == [id(t) for t in b.trajectories]
        and all(
            np.allclose(x, y, rtol=1e-5, atol=1e-6)
            for own, their in zip(a.advantages, b.advantages, strict=True)
            for x, y in zip(own, their, strict=True)
        )
        for a, b in zip(one, other, strict=True)
    )


def idea_row(
    name: str, found: Mapping[str, Sequence[Tensor]], targets: Sequence[Tensor], measured: Mapping[str, float]
) -> IdeaRow:
    """Return the row of an idea from the gradients of all parts."""
    own, base = found[name], found["group"]
    cosines = np.array([cosine(g, target) for g, target in zip(own, targets, strict=True)])
    gains = cosines - np.array([cosine(g, target) for g, target in zip(base, targets, strict=True)])
    num = len(cosines)
    error = float(cosines.std(ddof=1)) / sqrt(num)
    half = float(special.stdtrit(num - 1, 0.975)) * error
    noise = noise_of(own)
    norms = [float(a.norm() / b.norm()) for a, b in zip(own, base, strict=True) if b.norm() > 0]
    return IdeaRow(
        name=name,
        cosine=float(cosines.mean()),
        low=float(cosines.mean()) - half,
        high=float(cosines.mean()) + half,
        gain=float(gains.mean()),
        gain_error=float(gains.std(ddof=1)) / sqrt(num),
        noise=noise if isfinite(noise) else None,
        effective=measured["effective"],
        norm=float(np.mean(norms)) if norms else 0.0,
        seconds=measured["seconds"],
    )


def find_rate(
    lab: GradientLab, folds: Sequence[Sequence[Group]], ways: Sequence[Tensor], rate: float
) -> tuple[float, float]:
    """Return the first of `rate`, `rate`/2, … whose AdamW step leaves most ratios of a part alone, and the share.

    That is the share of the sampled tokens of a part whose ratio to the sampler is outside 0.8 … 1.2 after a step along
    the part's own gradient, its mean over `ways`; at most `MAX_OUTSIDE`.
    """
    shares: list[float] = []
    for _ in range(MAX_HALVINGS):
        shares = []
        for fold, way in zip(folds, ways, strict=True):
            with lab.move(way, rate):
                shares.append(float(np.mean(np.abs(np.exp(lab.log_ratios(fold)) - 1) > 0.2)))
        if float(np.mean(shares)) <= MAX_OUTSIDE:
            return rate, float(np.mean(shares))
        rate /= 2
    raise DataError(
        f"losses after a step: got {np.mean(shares):.0%} of the tokens outside 0.8 … 1.2 at a learning rate of "
        f"{2 * rate:.1g}; leave losses out: --losses none"
    )


def as_row(report: Report) -> dict[str, Any]:
    """Return `report` as JSON data."""
    return asdict(report)
