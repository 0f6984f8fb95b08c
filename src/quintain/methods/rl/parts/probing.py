"""Does an agent explore, repeat what it sees often, and do what it knows? Probes of a step, for every method.

The measures of "LLMs are Greedy Agents" (arXiv 2504.16078; `quintain.eval.greediness`) on sampled episodes: the options
are the actions that occur in the step, and what an agent knows is the option that its rationale names last. An
environment that knows its options and their true means says in `reward_terms` what each turn added to coverage and
regret. The one rule: without a rationale nothing is said of knowing, without true means nothing of regret.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from quintain.eval.greediness import coverage, frequency_bias, greedy_share, knowing_doing
from quintain.methods.rl.parts.reading import Reader
from quintain.rewards.terms import mean_terms
from quintain.types import Group, Trajectory, Turn

TOLD = ("coverage", "regret")
"""What environments may say of each turn."""


class Probes(Reader):
    """What a step says: ``Method(prepare=probes.prepare, measure=probes, …)``."""

    def __call__(self, groups: Sequence[Group]) -> Mapping[str, float]:
        """Return coverage, greedy share and bias; regret where it is told, the gap where rationales name options.

        The bias is how much likelier an action is chosen again that stood two or more times in the history than one
        that stood there once; the gap is the share of right rationales that were not acted on.
        """
        episodes = [t for group in groups for t in group.scored if t.turns]
        if not episodes:
            return {}
        options = sorted({choice(turn) for t in episodes for turn in t.turns})
        played = [([choice(u) for u in t.turns], [u.reward for u in t.turns]) for t in episodes]
        told = mean_terms(episodes)
        found = {
            "greedy/coverage": fmean(coverage(chosen, len(options))[-1] for chosen, _ in played),
            **{f"greedy/{name}": told[name] for name in TOLD if name in told},
            "greedy/share": fmean(greedy_share(chosen, paid) for chosen, paid in played),
            "greedy/bias": bias([chosen for chosen, _ in played]),
        }
        named = [self.named(t, options) for t in episodes]
        if not any(name is not None for names in named for name in names):
            return found
        done = [knowing_doing(n, c, r, options) for n, (c, r) in zip(named, played, strict=True)]
        knew = [each for each in done if each.did_not_know < 1]
        return found | {
            "greedy/known": 1 - fmean(each.did_not_know for each in done),
            "greedy/gap": fmean(each.gap for each in knew) if knew else 0.0,
        }

    def named(self, trajectory: Trajectory, options: Sequence[str]) -> list[str | None]:
        """Return for each turn the option that stands last in what was sampled before the action, None without one."""
        found: list[str | None] = []
        for turn in trajectory.turns:
            thought = self.decode(turn.completion.token_ids).rpartition(choice(turn))[0]
            places = {option: thought.rfind(option) for option in options if option in thought}
            found.append(max(places, key=lambda option: (places[option], len(option))) if places else None)
        return found


def choice(turn: Turn) -> str:
    """Return what was done in `turn`, as a text."""
    return turn.action.text or repr(turn.action.tool_calls)


def bias(histories: Sequence[Sequence[str]]) -> float:
    """Return how much more often options were chosen again that stood there often, than such that stood there once.

    0 where no option occurs twice before a choice. Example: a, a, a, b → mean of 1 (twice) and 0 (three times), less
    1 (once): -.5.
    """
    gaps: list[float] = []
    for chosen in histories:
        again = frequency_bias(chosen)
        often = [share for count, share in again.items() if count > 1]
        if often and 1 in again:
            gaps.append(fmean(often) - again[1])
    return fmean(gaps) if gaps else 0.0
