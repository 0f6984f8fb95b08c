"""What methods of rounds imitate of their episodes, each beside a plain second version over lists of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import torch

from quintain.data import stages
from quintain.data.pipeline import PipelineResult, as_example, example_samples
from quintain.learning.update import Update
from quintain.losses.imitation import imitation
from quintain.methods.selftraining.rest import improve_steps
from quintain.testing.episodes import Lived, record_cases
from quintain.types import Action, Failure, Group, Score, flatten_scored
from quintain_evidence.formulas.formula import Formula, Rng
from quintain_evidence.labs.exact import exact_gradient
from quintain_evidence.labs.tables import a16
from quintain_evidence.labs.tabular import cosine, packed


def draw_lived(rng: Rng) -> list[Lived]:
    """Return 1 to 30 episodes of up to four tasks; values are on a grid, so that thresholds are met exactly."""
    found: list[Lived] = []
    for _ in range(int(rng.integers(1, 31))):
        found.append(
            Lived(
                task=int(rng.integers(0, 4)),
                value=int(rng.integers(-2, 5)) / 4,
                is_success=bool(rng.random() < 0.6),
                num_turns=int(rng.integers(1, 12)),
            )
        )
    return found


THRESHOLDS, DECAY = (-0.25, 0.25, 0.75), 0.5


def improved(module: ModuleType, case: Sequence[Lived]) -> list[float]:
    """Return for each improve step its rate, and for each episode whether it is imitated; the last one broke."""
    examples = [as_example(t) for group in record_cases(case) for t in group.trajectories]
    broken = Failure(owner="judge", kind="none", message="no grade")
    examples.append(as_example(replace(examples[0].trajectory, outcome=broken, seed=len(case))))
    found: list[float] = []
    for step, threshold in zip(improve_steps(THRESHOLDS, DECAY), THRESHOLDS, strict=True):
        kept = {example.trajectory.seed for example in module.threshold(threshold).apply(examples)}
        assert isinstance(made := step.build(record_cases(case)), PipelineResult), "it imitates"
        assert len(made.examples) == len(kept) or module is not stages, "the method's own stage"
        found += [step.rate, *(float(place in kept) for place in range(len(case) + 1))]
    return found


def worth_more(case: Sequence[Lived]) -> list[float]:
    """Return the same by hand."""
    found: list[float] = []
    for rate, threshold in zip((1.0, 0.5, 0.25), THRESHOLDS, strict=True):
        found += [rate, *(1.0 if lived.value > threshold else 0.0 for lived in case), 0.0]
    return found


def shortened(module: ModuleType, case: Sequence[Lived]) -> list[float]:
    """Return for each episode whether it is accepted, and whether it is among the shortest fifth of its task."""
    examples = [as_example(t) for group in record_cases(case) for t in group.trajectories]
    accepted = module.threshold(0.0).apply(examples)
    kept = module.shortest(0.2).apply(accepted)
    found: list[float] = []
    for part in (accepted, kept):
        places = {example.trajectory.seed for example in part}
        found += [float(place in places) for place in range(len(case))]
    return found


def fifth(case: Sequence[Lived]) -> list[float]:
    """Return the same by hand: the quantile lies a fifth of the way along the sorted lengths."""
    paid = [lived.value > 0 for lived in case]
    kept: list[bool] = []
    for lived, is_paid in zip(case, paid, strict=True):
        own = sorted(o.num_turns for o, p in zip(case, paid, strict=True) if p and o.task == lived.task)
        place = (len(own) - 1) / 5
        low = int(place)
        cut = own[low] + (place - low) * (own[min(low + 1, len(own) - 1)] - own[low]) if own else 0.0
        kept.append(is_paid and lived.num_turns <= cut + 1e-9)
    return [float(flag) for flag in (*paid, *kept)]


def decayed(module: ModuleType, case: Sequence[Lived]) -> list[float]:
    """Return what the last turn of each episode is paid where at most 12 turns are allowed, and the sum of it."""
    paid = [t for group in module.pay_last_turn(12)(record_cases(case)) for t in group.trajectories]
    by_place = {t.seed: t for t in paid}
    return [
        number
        for place in range(len(case))
        for number in (by_place[place].turns[-1].reward, by_place[place].outcome.value)
    ]


def falling(case: Sequence[Lived]) -> list[float]:
    """Return the same by hand: twelfths that are left over, and -1 for a failure."""
    return [
        value for lived in case for value in [(12 - lived.num_turns) / 12 if lived.is_success else -1.0] * 2
    ]


def evolved(module: ModuleType, case: Sequence[Lived]) -> list[float]:
    """Return for each episode the weight of its tokens, 0 where it is not imitated, in both forms of the method."""
    found: list[float] = []
    for name in ("filtered", "reward"):
        line = module.evolving(module.read_thresholds("0.75,e=-0.25"), name)
        weights = {
            example.trajectory.seed: 1.0 if example.weights is None else float(example.weights[-1][0])
            for example in line(record_cases(case)).examples
        }
        found += [weights.get(place, 0.0) for place in range(len(case))]
    return found


def first_above(case: Sequence[Lived]) -> list[float]:
    """Return the same by hand."""
    plain: list[float] = []
    weighted: list[float] = []
    met = set[int]()
    for lived in case:
        is_kept = lived.value > -0.25 and lived.task not in met
        if is_kept:
            met.add(lived.task)
        plain.append(float(is_kept))
        weighted.append(lived.value if is_kept and lived.value > 0 else 0.0)
    return [*plain, *weighted]


def draw_loops(rng: Rng) -> tuple[list[Lived], int, int]:
    """Return episodes, the number of a loop and the optimizer steps of the first."""
    return draw_lived(rng), int(rng.integers(1, 12)), int(rng.integers(1, 90))


def looped(module: ModuleType, case: tuple[list[Lived], int, int]) -> list[float]:
    """Return the optimizer steps of a loop, and for each episode whether it is right."""
    episodes, number, first = case
    examples = [as_example(t) for group in record_cases(episodes) for t in group.trajectories]
    kept = {example.trajectory.seed for example in module.right().apply(examples)}
    return [
        float(module.updates(number, first, 1.2)),
        *(float(place in kept) for place in range(len(episodes))),
    ]


def grown(case: tuple[list[Lived], int, int]) -> list[float]:
    """Return the same by hand: a fifth more steps in each loop."""
    episodes, number, first = case
    steps = float(first)
    for _ in range(number - 1):
        steps *= 1.2
    return [float(int(steps + 1e-9)), *(float(lived.is_success) for lived in episodes)]


def as_policy_gradient(module: ModuleType) -> float:
    """Return the cosine of STaR's gradient, that of what is right, with the exact one of being right, on 16 arms."""
    policy = a16(0, good=0.2)
    samples = [as_example(t) for t in flatten_scored(policy.sample(size=4_000, seed=0))]
    kept = module.right().apply(samples)
    batch = packed(example_samples(kept), Update(loss=imitation()))
    (found,) = torch.autograd.grad(-imitation()(policy(batch), batch).loss, policy.theta)
    return cosine(found, exact_gradient(policy.world, policy.theta, outcome="success")[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposal in plain numbers."""

    p: float
    calls: int
    share: float
    is_valid: bool
    answers: tuple[str, ...]


def draw_proposal(rng: Rng) -> Proposal:
    """Return a proposal; p is on a grid that holds both ends of what is kept."""
    return Proposal(
        p=int(rng.integers(0, 11)) / 10,
        calls=int(rng.integers(0, 8)),
        share=float(rng.uniform(0, 0.4)),
        is_valid=bool(rng.random() < 0.9),
        answers=tuple("abc"[int(n)] for n in rng.integers(0, 3, int(rng.integers(1, 9)))),
    )


def proposed(module: ModuleType, case: Proposal) -> list[float]:
    """Return R, the factor on advantages, the upper bound, and which answer most say with its share."""
    value = module.proposal_value(case.p, case.calls, case.share, is_valid=case.is_valid)
    best, agreeing = module.majority(case.answers)
    return [
        value,
        module.trust(case.p, 0.6),
        module.upper_clip(case.p, 0.2),
        float("abc".index(best)),
        agreeing,
    ]


def edge(case: Proposal) -> list[float]:
    """Return the same by hand."""
    value = (2 * case.p if case.p < 0.5 else 2 - 2 * case.p) + 0.05 * (case.calls if case.calls < 4 else 4)
    value -= case.share
    inside = 0.3 if case.p < 0.3 else 0.8 if case.p > 0.8 else case.p
    counts = [case.answers.count(answer) for answer in case.answers]
    place = counts.index(max(counts))
    return [
        value if case.is_valid and value > 0 else 0.0,
        0.6 + 0.8 * (inside - 0.3),
        0.2 + 0.2 * (0.8 - inside),
        float("abc".index(case.answers[place])),
        counts[place] / len(counts),
    ]


def draw_outcomes(rng: Rng) -> tuple[list[tuple[int, list[float]]], list[tuple[int, float]]]:
    """Return groups of outcomes by level, and values of proposals by level."""
    seen = [
        (int(rng.integers(0, 3)), [float(n) for n in rng.integers(0, 3, int(rng.integers(1, 5)))])
        for _ in range(int(rng.integers(1, 9)))
    ]
    paid = [(int(rng.integers(0, 3)), round(float(rng.normal()), 2)) for _ in range(int(rng.integers(1, 7)))]
    return seen, paid


def level_group(level: int, outcomes: Sequence[float]) -> Group:
    """Return a group of `level` with these outcomes."""
    lived = [Lived(task=level, value=value, is_success=value > 0, num_turns=1) for value in outcomes]
    (group,) = record_cases(lived)
    task = replace(group.task, environment=f"level{level}")
    return Group(task=task, trajectories=tuple(replace(t, task=task) for t in group.trajectories))


def leveled(
    module: ModuleType, case: tuple[list[tuple[int, list[float]]], list[tuple[int, float]]]
) -> list[float]:
    """Return the level that an optimist takes next, what is told of each, and the logits of a proposer."""
    seen, paid = case
    optimist = module.Optimist()
    optimist.update([level_group(level, outcomes) for level, outcomes in seen])
    names = ["level0", "level1", "level2"]
    chosen = [float(name[-1]) for name in optimist.choose(names, 3, 0)]
    proposer = module.Proposer(lambda groups: [value for _, value in paid[: len(groups)]], rate=0.7)
    for _ in range(2):
        proposer.update([level_group(level, [1.0]) for level, _ in paid])
    return [*chosen, *(proposer.logits.get(name, 0.0) for name in names)]


def draw_chances(
    module: ModuleType, case: tuple[list[tuple[int, list[float]]], list[tuple[int, float]]]
) -> list[float]:
    """Return the chances of levels by how success on them changes, over windows of one and two tasks."""
    found: list[float] = []
    for window in (1, 2):
        chooser = module.Progress(window=window, floor=0.25)
        for level, outcomes in case[0]:
            chooser.update([level_group(level, outcomes)])
            found += chooser.chances(["level0", "level1", "level2"])
    return found


def weigh_changes(case: tuple[list[tuple[int, list[float]]], list[tuple[int, float]]]) -> list[float]:
    """Return the same from all that was seen of a level, by its last tasks and those before."""
    found: list[float] = []
    for window in (1, 2):
        for place in range(1, len(case[0]) + 1):
            weights: list[float] = []
            for level in range(3):
                solved = [
                    sum(value > 0 for value in outcomes) / len(outcomes)
                    for own, outcomes in case[0][:place]
                    if own == level
                ]
                late, early = solved[-window:], solved[-2 * window : -window]
                is_known = len(solved) >= 2 * window
                weights.append(abs(sum(late) - sum(early)) / window if is_known else 1.0)
            total = sum(weights)
            found += [0.75 * (w / total if total else 1 / 3) + 0.25 / 3 for w in weights]
    return found


def optimistic(case: tuple[list[tuple[int, list[float]]], list[tuple[int, float]]]) -> list[float]:
    """Return the same by hand."""
    seen, paid = case
    told: list[list[float]] = [[], [], []]
    for level, outcomes in seen:
        mean = sum(outcomes) / len(outcomes)
        square = sum(value * value for value in outcomes) / len(outcomes) - mean * mean
        told[level].append(math.sqrt(max(square, 0.0)) / mean if mean else 0.0)
    taken = [len(own) for own in told]
    chosen: list[float] = []
    for _ in range(3):
        bounds = [
            (sum(own) / len(own) if own else 0.0) + math.sqrt(2 * math.log(sum(taken)) / num) if num else 1e9
            for own, num in zip(told, taken, strict=True)
        ]
        best = bounds.index(max(bounds))
        taken[best] += 1
        chosen.append(float(best))
    logits = [0.0, 0.0, 0.0]
    known = [level in {own for own, _ in paid} for level in range(3)]
    values = [value for _, value in paid]
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    for _ in range(2 if spread > 0 else 0):
        odds = [math.exp(logit) if flag else 0.0 for logit, flag in zip(logits, known, strict=True)]
        gains = [0.0, 0.0, 0.0]
        for level, value in paid:
            for other in range(3):
                slope = (other == level) - odds[other] / sum(odds)
                gains[other] += (value - mean) / spread * slope / len(paid)
        logits = [
            logit + 0.7 * gain if flag else 0.0
            for logit, gain, flag in zip(logits, gains, known, strict=True)
        ]
    return [*chosen, *logits]


def paired(module: ModuleType, case: Sequence[Lived]) -> list[float]:
    """Return for each task the place of the preferred episode, -1 for none, and which ones are paired with it."""
    found: list[float] = []
    for group in module.pay_solved(record_cases(case)):
        pairs = module.best_against_worse(group, 100)
        rejected = {pair.rejected.seed for pair in pairs}
        found.append(float(pairs[0].chosen.seed) if pairs else -1.0)
        found += [float(t.seed in rejected) for t in group.trajectories]
        found += [sum(pair.margin for pair in pairs), sum(group.returns)]
    return found


def preferred(case: Sequence[Lived]) -> list[float]:
    """Return the same by hand: solved before not solved, then fewer turns, then first."""
    found: list[float] = []
    for task in sorted({lived.task for lived in case}):
        own = [(place, lived) for place, lived in enumerate(case) if lived.task == task]
        order = sorted(own, key=lambda one: (not one[1].is_success, one[1].num_turns, one[0]))
        place, best = order[0]
        worse = [
            best.is_success and (not lived.is_success or lived.num_turns > best.num_turns) for _, lived in own
        ]
        found.append(float(place) if any(worse) else -1.0)
        found += [float(flag) for flag in worse]
        failed = sum(not lived.is_success for _, lived in own) if best.is_success else 0
        found += [float(failed), float(sum(lived.is_success for _, lived in own))]
    return found


SAID: dict[str, float | None] = {
    "right": 1.0, "wrong": 0.0, "Score: 4": 0.8, "1/5, no: 2.5/5": 0.5, "Score: 7": None, "hm": None,
}  # fmt: skip
"""judgements, and their scores"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An answer in plain numbers."""

    task: int
    judgements: tuple[str, ...]
    is_right: bool


def draw_judged(rng: Rng) -> list[Judged]:
    """Return 1 to 16 answers to up to three tasks, with one to three judgements each."""
    texts = list(SAID)
    return [
        Judged(
            task=int(rng.integers(0, 3)),
            judgements=tuple(texts[int(n)] for n in rng.integers(0, len(texts), int(rng.integers(1, 4)))),
            is_right=bool(rng.random() < 0.5),
        )
        for _ in range(int(rng.integers(1, 17)))
    ]


def self_judged(module: ModuleType, case: Sequence[Judged]) -> list[float]:
    """Return for each task which answers are preferred and rejected, by how much, and the judge's agreement."""
    (group,) = record_cases([Lived(task=0, value=0.0, is_success=False, num_turns=2)])
    model = group.trajectories[0]
    answers: list[Group] = []
    for place, one in enumerate(case):
        task = replace(model.task, id=f"t{one.task}")
        episodes = [
            replace(
                model,
                task=task,
                seed=place,
                turns=(model.turns[0], replace(model.turns[1], action=Action(text=text))),
            )
            for text in one.judgements
        ]
        answers.append(Group(task=task, trajectories=tuple(episodes)))
    pairs = {pair.chosen.task.id: pair for pair in module.prefer_best(answers)}
    found: list[float] = []
    for task in range(3):
        pair = pairs.get(f"t{task}")
        found += [-1.0] * 3 if pair is None else [pair.chosen.seed, pair.rejected.seed, pair.margin]
        found.append(float(pair is not None and pair.chosen.turns[0].action.text in SAID))
    scores = [(module.score_of(answer), one.is_right) for answer, one in zip(answers, case, strict=True)]
    agrees = module.agreement([(score, truth) for score, truth in scores if score is not None])
    return [*found, -1.0 if agrees is None else agrees]


def self_judged_plainly(case: Sequence[Judged]) -> list[float]:
    """Return the same by hand."""
    means: list[float | None] = []
    for one in case:
        read = [score for score in (SAID[text] for text in one.judgements) if score is not None]
        means.append(sum(read) / len(read) if read else None)
    found: list[float] = []
    for task in range(3):
        own = [(m, place) for place, m in enumerate(means) if m is not None and case[place].task == task]
        values = [mean for mean, _ in own]
        if not own or max(values) == min(values):
            found += [-1.0, -1.0, -1.0, 0.0]
            continue
        best = next(place for mean, place in own if mean == max(values))
        worst = next(place for mean, place in own if mean == min(values))
        found += [float(best), float(worst), max(values) - min(values), 0.0]
    wins = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a, one in zip(means, case, strict=True)
        for b, other in zip(means, case, strict=True)
        if a is not None and b is not None and one.is_right and not other.is_right
    ]
    return [*found, sum(wins) / len(wins) if wins else -1.0]


Walked = tuple[tuple[int, ...], bool]
"""Ways from the root of a tree, and whether they end in a solution."""


def draw_tree(rng: Rng) -> list[Walked]:
    """Return one to ten ways of up to five steps over two kinds of step; a way that is solved is nobody's beginning."""
    found: list[Walked] = []
    for _ in range(int(rng.integers(1, 11))):
        ways = tuple(int(n) for n in rng.integers(0, 2, int(rng.integers(1, 6))))
        is_solved = sum(ways) == 3
        short = next((k for k in range(1, len(ways)) if sum(ways[:k]) == 3), None)
        found.append((ways, is_solved) if short is None else (ways[:short], True))
    return found


def valued(module: ModuleType, case: Sequence[Walked]) -> list[float]:
    """Return the value of every state of up to five steps, -1 for none; then a bound and what a small tree holds."""
    paths = [
        [
            module.Seen(
                key=way,
                text=repr(ways[: n + 1]),
                is_over=is_solved and n == len(ways) - 1,
                is_solved=is_solved and n == len(ways) - 1,
            )
            for n, way in enumerate(ways)
        ]
        for ways, is_solved in case
    ]
    values = {seen.text: value for seen, value in module.process_values(paths)}
    known = sorted({ways[:n] for ways, _ in case for n in range(1, len(ways) + 1)})
    tree = module.ValueTree(module.Seen(key="", text=""), worth, mixing=0.25)
    tree.grow(tree.root, paths)
    node = tree.select()
    return [
        *(values.get(repr(ways), -1.0) for ways in known),
        tree.root.value,
        float(tree.is_done),
        -1.0 if node is None else float(node.seen.key),
        module.upper_bound(0.5, 4 + len(case), len(case)),
    ]


def worth(text: str) -> float:
    """Return the value of a state of a drawn tree: how often its way goes one of the two ways."""
    return text.count("1") / 6


def valued_plainly(case: Sequence[Walked]) -> list[float]:
    """Return the same by hand, each state by itself."""
    known = sorted({ways[:n] for ways, _ in case for n in range(1, len(ways) + 1)})

    def steps(ways: tuple[int, ...]) -> int | None:
        ends = [len(w) - len(ways) for w, is_solved in case if is_solved and w[: len(ways)] == ways]
        return min(ends) if ends else None

    def value(ways: tuple[int, ...]) -> float:
        if not ways:
            return 0.0
        before, left, near = value(ways[:-1]), steps(ways), steps(ways[:-1])
        if before < 0 or near is None:
            return -1.0
        change = (1 - before) / ((near if left is None else left) + 1)
        return before + change if left is not None else max(0.0, before - change)

    of: dict[int, list[float]] = {}
    for ways, is_solved in case:
        states = [worth(repr(ways[:n])) for n in range(1, len(ways) + 1)]
        if is_solved:
            states[-1] = 1.0
        of.setdefault(ways[0], []).append(
            states[0] if len(states) == 1 else 0.75 * states[0] + 0.25 * max(states[1:])
        )
    every = [value for own in of.values() for value in own]
    is_over = {ways[0] for ways, is_solved in case if is_solved and len(ways) == 1}
    is_done = max(every) >= 0.9
    bounds = {
        key: sum(own) / len(own) + 0.7 * math.sqrt(2 * math.log(len(case)) / len(own))
        for key, own in of.items()
        if key not in is_over
    }
    best = -1.0 if is_done or not bounds else float(max(bounds, key=lambda key: bounds[key]))
    return [
        *map(value, known),
        sum(every) / len(every),
        float(is_done),
        best,
        0.5 + 0.7 * math.sqrt(2 * math.log(4 + len(case)) / len(case)),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """An episode of a round of EXIF in plain numbers."""

    skill: int
    is_try: bool
    is_success: bool


def draw_tries(rng: Rng) -> list[Tried]:
    """Return up to 20 episodes at up to four skills, explorations and tries."""
    return [
        Tried(
            skill=int(rng.integers(0, 4)),
            is_try=bool(rng.random() < 0.6),
            is_success=bool(rng.random() < 0.5),
        )
        for _ in range(int(rng.integers(1, 21)))
    ]


def told_failures(module: ModuleType, case: Sequence[Tried]) -> list[float]:
    """Return the share of tries of each skill that failed, -1 for one that nobody tried."""
    (model,) = record_cases([Lived(task=0, value=0.0, is_success=False, num_turns=1)])
    groups: list[Group] = []
    for one in case:
        task = replace(model.task, id=f"e/train/1?goal=skill {one.skill}")
        episode = replace(
            model.trajectories[0],
            task=task,
            group=f"0:{task.id}{'+1' if one.is_try else ''}",
            outcome=Score(value=float(one.is_success), is_success=one.is_success),
        )
        groups.append(Group(task=task, trajectories=(episode,)))
    found = module.failures_of(groups)
    return [found.get(f"skill {skill}", -1.0) for skill in range(4)]


def failed_plainly(case: Sequence[Tried]) -> list[float]:
    """Return the same by hand."""
    found: list[float] = []
    for skill in range(4):
        own = [one.is_success for one in case if one.skill == skill and one.is_try]
        found.append(own.count(False) / len(own) if own else -1.0)
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("rounds.improve_steps", "data.stages", ("threshold",), draw_lived, improved, worth_more),
    Formula("rounds.shortest", "data.stages", ("threshold", "shortest"), draw_lived, shortened, fifth),
    Formula("rounds.decayed", "methods.imitation.world_of_bits", ("pay_last_turn",), draw_lived, decayed, falling),
    Formula("rounds.evolving", "methods.selftraining.agent_evol", ("evolving", "read_thresholds"), draw_lived,
        evolved, first_above),
    Formula("rounds.star", "methods.selftraining.star", ("updates", "right"), draw_loops, looped, grown,
        exact=as_policy_gradient),
    Formula("rounds.proposals", "methods.selftraining.agent0",
        ("proposal_value", "trust", "upper_clip", "majority"), draw_proposal, proposed, edge),
    Formula("rounds.pairs", "methods.imitation.paprika", ("pay_solved", "best_against_worse"), draw_lived,
        paired, preferred),
    Formula("rounds.self_rewarding", "methods.selftraining.self_rewarding",
        ("read_score", "score_of", "prefer_best", "agreement"), draw_judged, self_judged, self_judged_plainly),
    Formula("rounds.process_values", "search.tree", ("process_values", "upper_bound", "back_up", "ValueTree"),
        draw_tree, valued, valued_plainly),
    Formula("rounds.failures", "methods.selftraining.exif", ("failures_of", "skill_of", "is_try"), draw_tries,
        told_failures, failed_plainly),
    Formula("rounds.levels", "curriculum.levels", ("Optimist", "Proposer", "learnability"), draw_outcomes,
        leveled, optimistic),
    Formula("rounds.progress", "curriculum.levels", ("Progress",), draw_outcomes, draw_chances, weigh_changes),
)  # fmt: skip
