"""What an engine is: requests of token ids in, completions of token ids out, batched over live sessions.

A session is one token stream (one segment of one episode). A request carries only the tokens appended since
the session's last completion, so an engine can keep the key/value cache of the stream; an engine without one
keeps the ids. Sampling reads one uniform number per token from (seed, index of the token in the completion).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from quintain.types import Completion, Failure

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Guide(Protocol):
    """One completion under a constraint, from its first token on."""

    def allowed(self) -> NDArray[np.bool_]:
        """Return which tokens [V or fewer] may come next; at least one, a stop token where it may end."""
        ...

    def take(self, token: int) -> None:
        """Go on after `token` was sampled, which was allowed."""
        ...


class Constraint(Protocol):
    """What a completion may say; shared by all requests that name it."""

    def begin(self) -> Guide:
        """Return the guide of a new completion."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Completions to choose among: ``Candidates(token_ids=((5,), (5, 9)), lengths=(1.0, 2.0))``.

    One is drawn with probability softmax(score), score = sum of its tokens' log-probs / its length.
    """

    token_ids: tuple[tuple[int, ...], ...]
    lengths: tuple[float, ...]
    """1 for the sum of log-probs (GLAM), the number of tokens or of words for their mean (TWOSOME)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample one completion: ``Sampling(temperature=1.0, max_tokens=32, stop_ids=frozenset({2}))``."""

    temperature: float = 1.0
    """0 is greedy. Log-probs are those of the distribution sampled from (of temperature 1 when greedy)."""
    max_tokens: int = 64
    stop_ids: frozenset[int] = frozenset()
    """A completion ends with the first of these that is sampled."""
    candidates: Candidates | None = None
    """Choose one of these instead of sampling token by token; log-probs are still those of its tokens."""
    constraint: Constraint | None = None
    """Sample allowed tokens only, by their odds among each other; log-probs are still those of all tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Ask for one completion: ``Request(session="s0", prompt_ids=(5, 9), seed=7, sampling=Sampling())``.

    The first request of a session opens it. `prompt_ids` continue the stream after the last completion.
    """

    session: str
    prompt_ids: tuple[int, ...]
    seed: int
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What became of a request: ``Reply(session="s0", result=Completion(...))``."""

    session: str
    result: Completion | Failure


class Engine(Protocol):
    """Samples completions for many sessions at once."""

    @property
    def policy_version(self) -> int:
        """Version of the weights that is served."""
        ...

    @property
    def max_length(self) -> int:
        """Longest token stream the engine can hold."""
        ...

    def submit(self, request: Request) -> None:
        """Queue `request`."""
        ...

    def advance(self) -> list[Reply]:
        """Do one round of work and return the requests it finished, in order of submission; [] when idle."""
        ...

    def release(self, session: str) -> None:
        """Forget `session` and free what it holds; unknown sessions are ignored."""
        ...
