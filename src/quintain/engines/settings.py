"""Which engine serves a policy, as plain settings; what each kind can do is known before it is built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from quintain.engines.protocol import CAPABILITIES, Capability, require
from quintain.errors import UsageError, suggestion
from quintain.models.precision import Precision

EngineKind = Literal["local", "process"]
KINDS: dict[str, frozenset[Capability]] = {
    "local": CAPABILITIES,
    "process": CAPABILITIES - {"shared_weights"},
}
"""What the engines of a kind can do; grammars of text where a tokenizer is given and llguidance is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How a policy is served: ``EngineSettings(kind="process", max_batch=64)``."""

    kind: EngineKind = "local"
    """local: in this process, on the weights that are trained; process: in a process of its own."""
    max_length: int | None = None
    """Longest token stream; the model's own limit when None."""
    max_batch: int = 256
    """Streams that are sampled together."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto: where the model is, or a GPU if there is one for a model that is loaded."""
    dtype: str = "float32"
    """Precision of a model that the engine loads: float32, bfloat16 or float16."""
    precision: Precision = "fp32"
    """fp32, or bf16 for the products of linear layers; see `quintain.models.precision`."""
    start_timeout: float = 600.0
    """Seconds that a process may take to load the model or new weights."""
    reply_timeout: float = 600.0
    """Seconds that a process may give no sign of life."""


def check_settings(settings: EngineSettings, needed: Iterable[Capability] = (), *, by: str = "") -> None:
    """Refuse settings that cannot be, or whose engine cannot do what is `needed` (by the method or agent `by`).

    Raises:
        UsageError: there is no such kind, a number is not positive, or a capability is missing.
    """
    if settings.kind not in KINDS:
        raise UsageError(f"kind of an engine: got {settings.kind!r}; {suggestion(settings.kind, KINDS)}")
    for name in ("max_length", "max_batch", "start_timeout", "reply_timeout"):
        value = getattr(settings, name)
        if value is not None and value <= 0:
            raise UsageError(f"{name} of an engine: got {value}; give a number above 0")
    wanted = frozenset(needed)
    able = [kind for kind in get_args(EngineKind) if wanted <= KINDS[kind]]
    instead = f"take the engine {' or '.join(able)}" if able else "no engine here can"
    require(f"the engine {settings.kind}", KINDS[settings.kind], wanted, by=by, instead=instead)
