"""Which engine serves a policy, as plain settings or one text; what each kind can do is known before it is built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from quintain.config.ranges import PositiveShare
from quintain.config.spec import options_from, read_options, split_query
from quintain.engines.protocol import CAPABILITIES, Capability, require
from quintain.errors import UsageError, suggestion
from quintain.models.precision import Precision

EngineKind = Literal["local", "process", "vllm", "sglang"]
Transfer = Literal["files", "shared", "gloo", "nccl"]
TRANSFERS: tuple[str, ...] = get_args(Transfer)
KINDS: dict[str, frozenset[Capability]] = {
    "local": CAPABILITIES - {"adapters"},
    "process": CAPABILITIES - {"adapters", "shared_weights"},
    "vllm": CAPABILITIES - {"fingerprint", "masked", "nucleus", "shared_weights"},
    "sglang": CAPABILITIES - {"fingerprint", "masked", "nucleus", "shared_weights"},
}
"""What the engines of a kind can do; grammars of text where a tokenizer is given and llguidance is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How a policy is served: ``EngineSettings(kind="process", max_batch=64)``."""

    kind: EngineKind = "local"
    """local: in this process, on the weights that are trained; process: in a process of its own; vllm, sglang: a server
    of that program."""
    max_length: int | None = None
    """Longest token stream; the model's own limit when None."""
    max_batch: int = 256
    """Streams that are sampled together."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto: where the model is, or a GPU if there is one for a model that is loaded."""
    dtype: str = "float32"
    """Precision of a model that the engine loads: float32, bfloat16 or float16; of servers that of their policy."""
    precision: Precision = "fp32"
    """fp32, or bf16 for the products of linear layers; see `quintain.models.precision`."""
    start_timeout: float = 600.0
    """Seconds that a process may take to load the model or new weights."""
    reply_timeout: float = 600.0
    """Seconds that a process may give no sign of life."""
    urls: tuple[str, ...] = ()
    """Servers that run already and serve the same model; none: they are started here."""
    replicas: int = 1
    """Servers that are started."""
    port: int = 0
    """Port of the first server that is started, the others follow; 0: any that is free."""
    program: str = ""
    """Program that serves: vllm, or the Python that has SGLang; empty: the one that is found."""
    arguments: str = ""
    """More arguments for it, as on a command line."""
    adapters: bool = False
    """Whether LoRA layers are sent alone, and served by name; else they are merged into the weights that are sent."""
    lora_rank: int = 0
    """Rank of LoRA layers that are served as adapters; 0: any that is usual."""
    devices: tuple[str, ...] = ()
    """Cards of each server that is started, in turns: ("0", "1") or ("0,1", "2,3"); none: as the program finds them."""
    memory: float | None = None
    """Share of a card's memory that a server takes; none: as the program has it."""
    weights: Transfer = "files"
    """How vLLM's servers get new weights: files, in a folder that they see; shared, from memory of this machine, or of
    its GPU by CUDA IPC; gloo or nccl, over the network, where nccl takes GPUs on both sides, not one for both."""
    key_file: str = ""
    """File with the key that servers ask for."""


SERVERS: frozenset[str] = frozenset({"vllm", "sglang"})
"""Kinds that are servers."""
OPTIONS = options_from(
    {
        "url": tuple[str, ...],
        "replicas": int,
        "port": int,
        "program": str,
        "arguments": str,
        "adapters": bool,
        "devices": str,
        "memory": PositiveShare,
        "weights": Transfer,
        "key_file": str,
        "max_batch": int,
        "dtype": str,
        "start_timeout": float,
        "reply_timeout": float,
    }
)
"""What may stand after the question mark of an engine that is a server."""


def read_engine(text: str) -> dict[str, Any]:
    """Return the settings that an engine in one text stands for.

    Examples: ``local``, ``process``, ``vllm?replicas=2&program=.venv-vllm/bin/vllm``,
    ``vllm?url=http://10.0.0.1:8000&url=http://10.0.0.2:8000``.

    Raises:
        UsageError: there is no such kind, an option that it does not have, or a value that it cannot have.
    """
    kind, mark, query = text.partition("?")
    if kind not in KINDS:
        raise UsageError(f"engine: got {text!r}; {suggestion(kind, KINDS)}")
    if mark and kind not in SERVERS:
        raise UsageError(f"engine: got {text!r}; {kind} has no options, leave out {mark + query!r}")
    whose = f"the engine {text!r}"
    found: dict[str, Any] = {"kind": kind, **read_options(split_query(query, whose), OPTIONS, whose)}
    urls = found.pop("url", ())
    ours = [
        name for name in ("replicas", "port", "program", "arguments", "devices", "memory") if name in found
    ]
    if urls and ours:
        raise UsageError(
            f"engine: got {ours[0]} and a url in {text!r}; servers that run already are not started"
        )
    if "devices" in found:
        found["devices"] = cards_of(found["devices"], found.get("replicas", 1), text)
    return found | ({"urls": urls} if urls else {})


def cards_of(devices: str, replicas: int, text: str) -> tuple[str, ...]:
    """Return the cards ``1,2`` of an engine in `text`, dealt out to its `replicas`: as many to each.

    Raises:
        UsageError: they are no numbers, or cannot be dealt out evenly.
    """
    cards = [card.strip() for card in devices.split(",")]
    if not all(card.isdecimal() for card in cards) or len(cards) % replicas:
        raise UsageError(
            f"engine: got devices={devices} for {replicas} {'server' if replicas == 1 else 'servers'} in {text!r}; "
            "give numbers of cards with commas between, as many for each server"
        )
    each = len(cards) // replicas
    return tuple(",".join(cards[first : first + each]) for first in range(0, len(cards), each))


def card_variables(settings: EngineSettings, number: int) -> dict[str, str]:
    """Return the variables that let server `number` see its own cards only."""
    if not settings.devices:
        return {}
    return {"CUDA_VISIBLE_DEVICES": settings.devices[number % len(settings.devices)]}


def check_settings(settings: EngineSettings, needed: Iterable[Capability] = (), *, by: str = "") -> None:
    """Refuse settings that cannot be, or whose engine cannot do what is `needed` (by the method or agent `by`).

    Raises:
        UsageError: there is no such kind, a number is not positive, or a capability is missing.
    """
    if settings.kind not in KINDS:
        raise UsageError(f"kind of an engine: got {settings.kind!r}; {suggestion(settings.kind, KINDS)}")
    for name in ("max_length", "max_batch", "start_timeout", "reply_timeout", "replicas"):
        value = getattr(settings, name)
        if value is not None and value <= 0:
            raise UsageError(f"{name} of an engine: got {value}; give a number above 0")
    if settings.weights not in TRANSFERS:
        raise UsageError(
            f"weights of an engine: got {settings.weights!r}; {suggestion(settings.weights, TRANSFERS)}"
        )
    if settings.weights != "files" and (settings.kind != "vllm" or settings.adapters):
        came = (
            "adapters, which are read from files"
            if settings.kind == "vllm"
            else f"the engine {settings.kind}"
        )
        raise UsageError(f"weights of an engine: got {settings.weights} for {came}; leave weights out")
    wanted = frozenset(needed)
    able = [kind for kind in get_args(EngineKind) if wanted <= KINDS[kind]]
    instead = f"take the engine {' or '.join(able)}" if able else "no engine here can"
    require(f"the engine {settings.kind}", KINDS[settings.kind], wanted, by=by, instead=instead)
