"""L = -log σ(β [log π/π_logged (better) - log π/π_logged (worse)]), children of one node of a tree: Agent Q
(arXiv 2408.07199).

For each task of a round a tree is grown by guided MCTS (`quintain.rollout.tree.GuidedTree`). At a new state the policy
says `branches` ways on, a critic ranks them, and the best by Q + c·√(ln N(h) / (1 + N(h'))) is played to the end;
whether that solved the task is told to all states on the way. Q = α·Q̃ + (1-α)·Q̂ mixes the mean outcome through a child
with the critic's rank. Two visited children of a node whose Q differ by more than `margin` are a pair of turns. The
reference is the log-probs at sampling, so no other policy is kept.

Differences to the paper: its critic is the base language model, which picks the best way, then the best of the rest,
and so on; ours scores each way by itself, and equal scores share their rank. With `judge` that is a model behind a chat
endpoint; without it the value model of ReST-MCTS*, which learned from the trees of earlier rounds and cannot tell ways
apart in the first. A state that is over may be selected again, and its outcome counts again. There is no search at
test time. All that a turn says is trained, where the paper trains its action and the thought before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean

from quintain.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from quintain.data.pairs import siblings
from quintain.engines.judge import Judge, needed
from quintain.errors import ConfigError, UsageError
from quintain.losses.preference import dpo, logged
from quintain.methods.method import Collector, Folds, Rounds, Update
from quintain.methods.rl.parts.measures import Decode
from quintain.methods.selftraining.rest_mcts import TextValue, path_of, trees_of
from quintain.rollout.tree import GuidedTree, Node, Seen
from quintain.rollout.views import Prefix
from quintain.training.job import OnPolicyJob
from quintain.types import Group, Trajectory, as_text

RUBRIC = (
    "The last turn is one of several that were considered. How much nearer does it bring the task to being solved, "
    "for one who acts well from there on?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(OnPolicyJob):
    """Configuration of Agent Q."""

    steps: int = 3
    """Rounds."""
    learning_rate: float = 1e-4
    eval_every: int = 1
    num_epochs: PositiveInt = 3
    num_minibatches: PositiveInt = 4
    tasks: PositiveInt = 32
    """Tasks of a round, a tree each."""
    branches: PositiveInt = 4
    """Ways on that the policy says at a new state."""
    episodes: PositiveInt = 16
    """Episodes of a tree."""
    exploration: NonNegativeFloat = 1.0
    """c of Q + c·√(ln N(h) / (1 + N(h')))."""
    mixing: Share = 0.5
    """α: share of the mean outcome in Q; the rest is the critic's rank."""
    margin: NonNegativeFloat = 0.2
    """θ: difference of Q above which two children are a pair."""
    beta: PositiveFloat = 0.1
    """Strength of the pull towards the policy that sampled."""
    judge: str = ""
    """The critic, a model behind a chat endpoint: http://127.0.0.1:8000/v1?model=NAME, and rubric=FILE where it is to
    have another rubric; empty: the value model that learns from the trees."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        OnPolicyJob.check(self)
        if self.branches < 2:
            raise ConfigError(
                f"branches: got {self.branches}, of which no two could be compared; give 2 or more"
            )
        asked(self.judge)


def method(config: Config) -> Rounds:
    """Return Agent Q as `config` describes it."""
    model = TextValue()
    search = Search(config, model, asked(config.judge))
    return Rounds(
        collect=search.collect,
        build=lambda _: siblings(search.families, margin=config.margin),
        update=Update(loss=logged(dpo(config.beta)), is_on_policy=False, lr_warmup=0),
        state=Folds(None if config.judge else model),
        measure=search.measure,
    )


def asked(spec: str) -> Judge | None:
    """Return the judge that `spec` names; None where it names none.

    Raises:
        ConfigError: there is no such judge.
    """
    try:
        return Judge(spec, usual=RUBRIC) if spec else None
    except UsageError as error:
        raise ConfigError(str(error)) from error


@dataclass(slots=True)
class Search:
    """Grows the trees of a round, and says what their children were found worth."""

    config: Config
    model: TextValue
    judge: Judge | None = None
    families: list[list[tuple[Trajectory, float]]] = field(
        default_factory=list["list[tuple[Trajectory, float]]"]
    )
    """children of one node, each as the first episode that went through it, up to its own turn, with its Q"""
    agreement: float | None = None
    """share of two children with different mean outcomes that the critic ranks as these do, equal ranks a half"""

    def collect(self, collector: Collector, step: int) -> list[Group]:
        """Return all episodes of the trees of a round, a group for each tree."""
        config, played = self.config, list[Group]()
        tasks = collector.tasks(step, config.tasks)
        trees = [
            GuidedTree(
                Seen(key=task.id, text="", place=task), exploration=config.exploration, mixing=config.mixing
            )
            for task in tasks
        ]
        through: dict[Node, Trajectory] = {}
        again = 0
        for _ in range(config.episodes):
            leaves = [(tree, node) for tree in trees if not (node := tree.select()).seen.is_over]
            for depth in sorted({node.depth for _, node in leaves}):
                same = [(tree, node) for tree, node in leaves if node.depth == depth]
                found = self._ways(collector, step, [node for _, node in same], depth + 1, again)
                again += 1
                for (tree, node), group in zip(same, found, strict=True):
                    ways = group.scored
                    tree.expand(node, [path_of(way, depth)[0] for way in ways], self._scores(ways))
                played += found
            ends = [(tree, node) for tree in trees if (node := tree.select()).parent]
            left = [node for _, node in ends if not node.seen.is_over]
            rest = iter(self._played(collector, step, left, again) if left else ())
            again += 1
            for tree, node in ends:
                if node.seen.is_over:
                    episodes = [node.seen.place]
                else:
                    played.append(next(rest))
                    episodes = played[-1].scored
                for episode in episodes:
                    tree.tell(node, float(episode.is_success))
                    for above in lineage(node):
                        through.setdefault(above, episode)
        self._conclude(trees, through)
        return trees_of(played)

    def measure(self, groups: Sequence[Group], _: Decode) -> Mapping[str, float]:
        """Return how many trees hold a solution, and how far the critic agrees with the outcomes."""
        trees = trees_of(groups)
        solved = sum(any(t.is_success for t in tree.scored) for tree in trees) / max(len(trees), 1)
        agreed = {} if self.agreement is None else {"mcts/agreement": self.agreement}
        return {"mcts/solved": solved, **agreed}

    def _ways(
        self, collector: Collector, step: int, nodes: Sequence[Node], turns: int, again: int
    ) -> list[Group]:
        """Return the policy's ways on from each of `nodes`, all as deep, as episodes of so many turns."""
        size = self.config.branches
        if turns == 1:
            return collector.sample(
                step, [node.seen.place for node in nodes], size=size, max_turns=1, again=again
            )
        return collector.continue_from(
            step,
            prefixes_of(collector, nodes),
            size=size,
            seed=collector.seed("ways", step, again),
            max_turns=turns,
            phase="train",
            again=again,
        )

    def _played(self, collector: Collector, step: int, nodes: Sequence[Node], again: int) -> list[Group]:
        """Return an episode from each of `nodes` to the end."""
        return collector.continue_from(
            step,
            prefixes_of(collector, nodes),
            size=1,
            seed=collector.seed("tree", step, again),
            phase="train",
            again=again,
        )

    def _scores(self, ways: Sequence[Trajectory]) -> list[float]:
        """Return what the critic says of episodes by their last turns."""
        if self.judge is None:
            return [self.model(as_text(way.final_observation)) for way in ways]
        self.judge.prepare(ways)
        return [needed(self.judge.measure(way)) for way in ways]

    def _conclude(self, trees: Sequence[GuidedTree], through: Mapping[Node, Trajectory]) -> None:
        """Write down the families of `trees`, and how far the critic agrees with the outcomes."""
        families = [(tree, family) for tree in trees for family in tree.families()]
        self.families = [
            [
                (replace(through[child], turns=through[child].turns[: child.depth]), tree.worth(child))
                for child in family
            ]
            for tree, family in families
        ]
        agreed = [
            0.5 + 0.5 * ((better.rank > worse.rank) - (better.rank < worse.rank))
            for _, family in families
            for one, other in combinations(family, 2)
            for better, worse in [(one, other) if one.value > other.value else (other, one)]
            if one.value != other.value
        ]
        self.agreement = fmean(agreed) if agreed else None


def lineage(node: Node) -> list[Node]:
    """Return `node` and all above it but the root."""
    found = list[Node]()
    while node.parent is not None:
        found.append(node)
        node = node.parent
    return found


def prefixes_of(collector: Collector, nodes: Sequence[Node]) -> list[Prefix]:
    """Return the beginnings of episodes that lead to each of `nodes`."""
    walks = collector.walks([node.seen.place for node in nodes])
    return [walk.prefix(node.depth) for walk, node in zip(walks, nodes, strict=True)]
