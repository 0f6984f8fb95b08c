"""How undecided a policy is where it acts, and where it only talks: a measure of a step, for every method.

A completion is filler up to where the words of its action begin, as they were read: its thought, and what stands
around. The entropy is estimated by -log p of what was sampled, whose mean it is. The one rule: a completion that could
not be read is neither.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from quintain.methods.rl.parts.reading import Reader
from quintain.types import Group, Turn


class Parts(Reader):
    """What a step says: ``Method(prepare=parts.prepare, measure=parts, …)``."""

    def __call__(self, groups: Sequence[Group]) -> Mapping[str, float]:
        """Return ``entropy/action`` and ``entropy/filler``, in nats per token; without what no turn has."""
        turns = [
            turn for group in groups for t in group.scored for turn in t.turns if turn.action.error is None
        ]
        filler: list[float] = []
        action: list[float] = []
        for turn in turns:
            start = acts_from(turn, self.decode)
            filler += turn.completion.logprobs[:start]
            action += turn.completion.logprobs[start:]
        found = {"entropy/filler": filler, "entropy/action": action}
        return {name: -fmean(logprobs) for name, logprobs in found.items() if logprobs}


def acts_from(turn: Turn, decode: Callable[[Sequence[int]], str]) -> int:
    """Return at which token of `turn` its action begins; the last place from which all its words are still there.

    Example: in ``Thought: hm. Action: go left`` it is the token ``go``; 0 where the words are not found.
    """
    ids, words = turn.completion.token_ids, turn.action.text
    start, end = 0, len(ids)
    while end - start > 1:  # the words are there from `start` on (or nowhere), and not from `end` on
        middle = (start + end) // 2
        start, end = (middle, end) if words and words in decode(ids[middle:]) else (start, middle)
    return start
