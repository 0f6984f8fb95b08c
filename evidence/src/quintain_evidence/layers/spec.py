"""The registered claim of a row: ``claims/<row>.toml`` of the package, read and checked.

A file says what is measured, against which control, where the effect must vanish and how large it must be, before
anything is run. Seeds derive from what it says, so a changed claim draws new ones (`Signature.digest`). A row may have
several files, ``grpo.toml`` and ``grpo-ppo.toml``: then all of them must hold.
"""

import datetime
import hashlib
import importlib.util
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from quintain.config import build
from quintain.config.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from quintain.errors import ConfigError, UsageError, suggestion
from quintain_evidence.layers.inference import looks
from quintain_evidence.trials import ENOUGH

FOLDER = Path(__file__).resolve().parents[1] / "claims"
EXPERIMENTS = "quintain_evidence.experiments"
Kind = Literal["property", "counterfactual", "gradient", "tabular", "training"]
UNREGISTERED = (
    "title", "minutes", "registered", "departs", "outdated", "outdated_layers", "formulas", "formula_departs", "league",
    "rival", "other_options",
)  # fmt: skip
"""What a file says beside the claim; a change of it keeps seeds and results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A further number that must lie in a range: ``Gate(key="extra.success", says="…", least=0.4, most=0.7)``."""

    key: str
    """of the measurements: ``extra.…``, or ``method``, ``control``"""
    says: str
    """what it makes sure of, in a sentence"""
    least: float | None = None
    most: float | None = None
    by: Literal["mean", "bound"] = "mean"
    """what must lie there: the mean, or its one-sided 95 % bound on that side"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """Doses whose effect must rise (Page's test, p < .01): ``Dose(keys=("extra.dose1", "extra.dose4"), says="…")``."""

    keys: tuple[str, ...]
    """of the measurements, in the order in which the effect is to rise"""
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The nearest rival that lacks the idea alone, by what was measured: ``Rival(says="GRPO", minus=("extra.grpo",))``.

    The method's lead over it, in each replication, is the sum of the measurements in `plus` less those in `minus`. It
    must be what is registered as the claim's least effect. Without either, none was measured, and `says` which one.
    """

    says: str
    """who it is, in a sentence"""
    plus: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class League:
    """The comparison of a row at equal budget: what `quintain bench methods --layer league` runs."""

    baseline: str
    """recipe that the paper compares with"""
    world: str
    axis: Literal["steps", "tokens", "updates", "calls"] = "steps"
    """what the budget counts: environment steps, sampled tokens, updates, tool calls (turns of a tool world)"""
    budget: PositiveInt
    claim: str = ""
    """what the paper says, in a sentence"""
    recipe: str = ""
    """recipe of the method; empty: the row's name"""
    measure: str = "eval/success"
    at: Literal["end", "run"] = "end"
    """compare the last evaluation, or the mean over the run"""
    direction: Literal["higher", "lower"] = "higher"
    reward: str = ""
    """what the method's reward adds to the baseline's, where that is the idea; without, both must be paid alike"""
    margin: PositiveFloat = 0.05
    """how much less is still "not worse\""""
    rates: tuple[PositiveFloat, ...] = (1e-3, 5e-4, 2.5e-4)
    """learning rates of which both arms have the one that is best for the baseline on tuning tasks"""
    seeds: PositiveInt = 10
    """most seeds: 6, 10 or 16; a sequence may stop earlier"""
    enough: PositiveFloat = ENOUGH
    """success on training tasks at which imitation before both arms ends; 1: it goes through all passes"""
    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """settings of both arms"""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """settings of the method alone"""
    baseline_settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    idea: tuple[str, ...] = ()
    """what differs between the arms because it is the idea: ``updates``, or names of settings"""
    former: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """defaults of the method that were others when this was registered, as they were; no part of the digest"""
    baseline_former: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A registered claim; `read` makes it from its file."""

    row: str
    """the file's name; what stands before a hyphen is the row of the table"""
    title: str
    family: str
    source: str
    """arXiv id"""
    kind: Kind
    experiment: str
    """module below `quintain_evidence.experiments` whose function `measure` is run: rl.gigpo"""
    number: str
    """what is measured, in a sentence"""
    direction: Literal["higher", "lower"] = "higher"
    least: float
    """least difference from the control that counts; of a property: least rate at which the control breaks it"""
    unit: str
    world: str
    control: str
    """what is ablated and what is kept"""
    null: str
    """where the effect must vanish"""
    null_tolerance: PositiveFloat | None = None
    """the 90 % interval of the effect in the null world must be inside ± this; none: a third of `least`"""
    baseline: str = ""
    """what the paper compares with, where `extra.baseline` is measured"""
    seeds: PositiveInt = 1
    """paired replications that a block returns"""
    blocks: PositiveInt = 1
    """checkpoints, tables or starts; of training: most seeds (6, 10 or 16)"""
    test: Literal["t", "wilcoxon", "mcnemar"] = "t"
    """first test of paired differences; the sign-flip test is the second"""
    alpha: PositiveFloat = 0.01
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """what `measure` is given"""
    gates: tuple[Gate, ...] = ()
    dose: Dose | None = None
    registered: str
    """date, year-month-day"""
    departs: str = ""
    """where and why it departs from the signature that was proposed"""
    outdated: str = ""
    """what of the method was changed after its results were measured, and when; empty once they are measured anew"""
    outdated_layers: tuple[Literal["signature", "league"], ...] = ("signature", "league")
    """what `outdated` is about: the claim, the comparison, or both"""
    rival: Rival | None = None
    """None: nobody said which rival lacks the idea alone"""
    other_options: tuple[str, ...] = ()
    """options that are called like a setting of the method and are another thing"""
    formula_departs: str = ""
    """where the method computes something else than its paper, in a sentence; empty where it does not"""
    minutes: PositiveFloat
    """what a run takes on two cores, about"""
    formulas: tuple[str, ...] = ()
    """formulas of `quintain_evidence.formulas` that the row stands on: credit.state_anchored"""
    null_blocks: NonNegativeInt = 0
    """blocks that measure the null world, the first ones; 0: all"""
    league: League | None = None

    @property
    def method(self) -> str:
        """Return the row of the table that the claim is of."""
        return self.row.partition("-")[0]

    @property
    def tolerance(self) -> float:
        """Return how far from 0 the null world's interval may reach."""
        return self.least / 3 if self.null_tolerance is None else self.null_tolerance

    @property
    def sign(self) -> float:
        """Return the factor that makes what is claimed a rise."""
        return 1.0 if self.direction == "higher" else -1.0

    def digest(self) -> str:
        """Return the SHA-256 of what is claimed, however its file is laid out."""
        told = {key: value for key, value in asdict(self).items() if key not in UNREGISTERED}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def seed_of(self, block: int) -> int:
        """Return the seed of a block, which nobody has chosen."""
        drawn = hashlib.sha256(f"{self.digest()}/{block}".encode()).digest()
        return int.from_bytes(drawn[:6], "big")

    def check(self) -> None:
        """Raise a `ConfigError` for a claim that no result could carry."""
        for name in (
            "title",
            "family",
            "source",
            "experiment",
            "number",
            "unit",
            "world",
            "control",
            "null",
        ):
            if not getattr(self, name).strip():
                raise ConfigError(
                    f"{name} of signature {self.row}: got nothing; say it, for a claim without it is none"
                )
        if self.least <= 0:
            raise ConfigError(
                f"least of signature {self.row}: got {self.least:g}; give the least difference in the "
                "registered direction, above 0"
            )
        if self.kind == "training":
            looks(self.blocks)
        elif self.kind != "property" and self.seeds < 6:
            raise ConfigError(
                f"seeds of signature {self.row}: got {self.seeds}; give 6 paired replications or more"
            )
        try:
            datetime.date.fromisoformat(self.registered)
        except ValueError as error:
            raise ConfigError(
                f"registered of signature {self.row}: got {self.registered!r}; write 2026-01-31"
            ) from error
        for gate in self.gates:
            if gate.least is None and gate.most is None:
                raise ConfigError(
                    f"gate {gate.key} of signature {self.row}: got no range; give least or most"
                )
        if self.rival is not None and not self.rival.says.strip():
            raise ConfigError(f"rival of signature {self.row}: got no says; say who it is, in a sentence")
        if self.dose is not None and len(self.dose.keys) < 3:
            raise ConfigError(
                f"dose of signature {self.row}: got {len(self.dose.keys)} keys; give 3 doses or more"
            )


def read(file: Path) -> Signature:
    """Return the claim in `file`.

    Raises:
        ConfigError: it is no TOML, a key is unknown or missing, or a value does not fit.
    """
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"signature {file.name}: got no TOML ({error}); correct it") from error
    if isinstance(values.get("registered"), datetime.date):
        values["registered"] = values["registered"].isoformat()
    found = build(Signature, values, file.name)
    if found.row != file.stem:
        raise ConfigError(f"row of signature {file.name}: got {found.row!r}; write {file.stem!r}")
    if not has_module(found):
        raise ConfigError(
            f"experiment of signature {found.row}: got {found.experiment!r}; there is no {module_of(found)}"
        )
    return found


def module_of(signature: Signature) -> str:
    """Return the module that measures."""
    return f"{EXPERIMENTS}.{signature.experiment}"


def has_module(signature: Signature) -> bool:
    """Return whether there is a module that measures; it is not imported."""
    module = EXPERIMENTS
    for part in signature.experiment.split("."):
        module = f"{module}.{part}"
        if importlib.util.find_spec(module) is None:
            return False
    return True


def signatures(folder: Path = FOLDER) -> dict[str, Signature]:
    """Return the registered claims in `folder`, by row, in order of their names."""
    return {found.row: found for found in map(read, sorted(folder.glob("*.toml")))}


def chosen(family: str | None, only: str | None = None, folder: Path = FOLDER) -> list[Signature]:
    """Return the claims of `family` (None: of any) that `only` names (a row with all its parts; all of them without).

    Raises:
        UsageError: there is no such family or row.
    """
    known = signatures(folder)
    families = {found.family for found in known.values()}
    if family is not None and family not in families:
        raise UsageError(f"--family: got {family!r}; {suggestion(family, families)}")
    of_family = {name: found for name, found in known.items() if family in (None, found.family)}
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    for name in names:
        if not any(name in (found.row, found.method) for found in of_family.values()):
            raise UsageError(f"--only: got {name!r}; {suggestion(name, of_family)}")
    return [found for found in of_family.values() if not names or found.row in names or found.method in names]
