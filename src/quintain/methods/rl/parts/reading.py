"""What measures of a step need that look at words: the tokenizer of the run, which is there once the run is prepared.

The one rule: until then, everything decodes to nothing.
"""

from collections.abc import Callable, Sequence

from quintain.training.work import Work


class Reader:
    """A measure that reads what was sampled: ``Method(prepare=reader.prepare, measure=reader, …)``."""

    def __init__(self, decode: Callable[[Sequence[int]], str] = lambda _: "") -> None:
        self.decode = decode
        """token ids → text, of the policy's tokenizer"""

    def prepare(self, work: Work) -> None:
        """Read with the tokenizer of `work`."""
        self.decode = lambda ids: str(work.tokenizer.decode(list(ids)))
