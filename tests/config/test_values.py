"""Configurations from mappings and from flags: strict types, nearest names, one-line errors."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from annotated_types import Gt

from quintain.config import build, check_ranges, merge, read_flags, rename
from quintain.config.ranges import NonNegativeInt, PositiveFloat, PositiveInt, Share
from quintain.errors import ConfigError


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Config:
    steps: int = 10
    """Steps of
    training."""
    rate: float = 1e-3
    is_fast: bool = False
    mode: Literal["grpo", "ppo"] = "grpo"
    """Which loss."""
    levels: tuple[str, ...] = ("a",)
    sizes: tuple[int, ...] = (1, 2)
    limit: int | None = None
    where: Path = Path("x")
    clip: Annotated[float, Gt(0)] = 0.2
    budget: int | Literal["auto"] = "auto"
    weights: dict[str, float] = field(default_factory=dict[str, float])
    colour: Colour = Colour.RED

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps: got {self.steps}; give 0 or more")


@dataclass(frozen=True)
class Needy:
    data: str
    """File of messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    renamed: ClassVar[Mapping[str, str]] = {"count": "steps"}
    steps: PositiveInt = 1
    limit: PositiveInt | None = None
    warm_up: NonNegativeInt = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(Base):
    steps: int = 20
    is_odd: bool = False

    def check(self) -> None:
        check_ranges(self)
        if self.steps % 2 and not self.is_odd:
            raise ConfigError(f"steps: got {self.steps} with is_odd false; give an even number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    renamed: ClassVar[Mapping[str, str]] = {"lr": "learning_rate"}
    learning_rate: PositiveFloat = 1e-3
    device: str = "cpu"
    betas: tuple[Share, Share] = (0.9, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Base):
    renamed: ClassVar[Mapping[str, str]] = {"decay": "gae_lambda", "device": "policy.device"}
    gae_lambda: Share = 0.95
    policy: Policy = Policy(learning_rate=0.5)
    judge: Policy | None = None
    policies: dict[str, Policy] = field(default_factory=lambda: {"critic": Policy(device="cuda")})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("steps", 3, 3),
        ("rate", 1, 1.0),
        ("is_fast", True, True),
        ("mode", "ppo", "ppo"),
        ("levels", ["x", "y"], ("x", "y")),
        ("sizes", (3,), (3,)),
        ("limit", None, None),
        ("limit", 4, 4),
        ("where", "a/b", Path("a/b")),
        ("clip", 0.5, 0.5),
        ("budget", 7, 7),
        ("weights", {"a": 1}, {"a": 1.0}),
        ("colour", "red", Colour.RED),
        ("colour", Colour.RED, Colour.RED),
    ],
)
def test_values_that_fit(key: str, value: object, expected: object) -> None:
    got = vars(build(Config, {key: value}, "f"))[key]
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("steps", "8", 'steps in f: got "8" (text); give an integer such as 10'),
        ("steps", 8.0, "steps in f: got 8.0 (a number); give an integer such as 10"),
        ("steps", True, "steps in f: got true (true or false); give an integer such as 10"),
        ("rate", "1", 'rate in f: got "1" (text); give a number such as 0.001'),
        ("rate", False, "rate in f: got false (true or false); give a number such as 0.001"),
        ("rate", float("nan"), "rate in f: got NaN (a number); give a finite number such as 0.001"),
        ("is_fast", 1, "is_fast in f: got 1 (an integer); give true or false"),
        ("mode", "ppoo", "mode in f: got \"ppoo\" (text); did you mean 'ppo'?"),
        ("levels", "a", 'levels in f: got "a" (text); '
         "give a list, each text such as a"),
        ("sizes", [1, "2"], 'sizes in f: got [1, "2"] (a list); '
         "give a list, each an integer such as 1,2"),
        ("limit", "3", 'limit in f: got "3" (text); give an integer or none'),
        ("clip", 0, "clip in f: got 0 (an integer); give a number above 0 such as 0.2"),
        ("weights", {"a": "x"}, 'weights.a in f: got "x" (text); give a number'),
        ("weights", 3, "weights in f: got 3 (an integer); give a table"),
        ("weights", {"a b": 1}, "a name in weights in f: got 'a b'; use letters, digits and _"),
        ("stesp", 3, "configuration key in f: got 'stesp'; did you mean 'steps'?"),
        ("steps", -1, "configuration in f: steps: got -1; give 0 or more"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(key: str, value: object, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Config, {key: value}, "f")
    assert str(caught.value) == line


def test_a_value_that_json_does_not_know_is_an_error_too() -> None:
    with pytest.raises(ConfigError, match=r"^steps in train\(\): got .*object.*; give an integer"):
        build(Config, {"steps": object()}, "train()")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^configuration in x.json needs data: got nothing; give text$"):
        build(Needy, {}, "x.json")
    assert build(Needy, {"data": "a"}, "x.json") == Needy("a")


def test_a_configuration_checks_itself() -> None:
    with pytest.raises(ConfigError, match=r"^steps: got 3 with is_odd false; give an even number$"):
        build(Checked, {"steps": 3}, "f")
    assert build(Checked, {"steps": 3, "is_odd": True}, "f").steps == 3


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("steps", "8", 8),
        ("rate", "1e-4", 1e-4),
        ("is_fast", "true", True),
        ("is_fast", "no", False),
        ("mode", "ppo", "ppo"),
        ("levels", "a, b", ("a", "b")),
        ("levels", "", ()),
        ("sizes", "1,2", (1, 2)),
        ("sizes", "[1, 2]", (1, 2)),
        ("limit", "none", None),
        ("limit", "3", 3),
        ("where", "a/b", Path("a/b")),
        ("budget", "3", 3),
        ("budget", "auto", "auto"),
        ("colour", "red", Colour.RED),
    ],
)
def test_texts_that_fit(key: str, text: str, expected: object) -> None:
    assert read_flags(Config, {key: text}) == {key: expected}


@pytest.mark.parametrize(
    ("key", "text", "line"),
    [
        ("steps", "eight", "--steps: got 'eight'; give an integer such as 10"),
        ("steps", "8.5", "--steps: got '8.5'; give an integer such as 10"),
        ("rate", "inf", "--rate: got 'inf'; give a finite number such as 0.001"),
        ("is_fast", "maybe", "--is-fast: got 'maybe'; give true or false"),
        ("mode", "ppoo", "--mode: got 'ppoo'; did you mean 'ppo'?"),
        ("sizes", "1,x", "--sizes: got '1,x'; "
         "give a list, each an integer such as 1,2"),
        ("clip", "-1", "--clip: got '-1'; give a number above 0 such as 0.2"),
        ("weights.a", "x", "--weights.a: got 'x'; give a number"),
        ("weights", "1", "configuration key in the command line: got 'weights'; did you mean 'weights.NAME'?"),
        ("stesp", "3", "configuration key in the command line: got 'stesp'; did you mean 'steps'?"),
    ],
)  # fmt: skip
def test_texts_that_do_not_fit(key: str, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_flags(Config, {key: text})
    assert str(caught.value) == line


def test_text_stays_text_whatever_it_looks_like() -> None:
    assert read_flags(Needy, {"data": "[3"}) == {"data": "[3"}
    assert read_flags(Needy, {"data": "none"}) == {"data": "none"}


def test_tables_are_configurations_of_their_own_and_leave_out_what_the_default_says() -> None:
    got = build(
        Method, {"policy": {"device": "cuda:1"}, "judge": {}, "policies": {"user": {"betas": [0, 1]}}}, "f"
    )
    assert got.policy == Policy(learning_rate=0.5, device="cuda:1")
    assert got.judge == Policy()
    assert got.policies == {"critic": Policy(device="cuda"), "user": Policy(betas=(0.0, 1.0))}
    assert build(Method, {"policies": {"critic": {"learning_rate": 1}}}, "f").policies == {
        "critic": Policy(learning_rate=1.0, device="cuda")
    }


def test_tables_may_be_instances() -> None:
    mine = Policy(learning_rate=2.0)
    got = build(Method, {"policy": mine, "policies": {"critic": mine}, "judge": None}, "train()")
    assert (got.policy, got.judge, got.policies) == (mine, None, {"critic": mine})


def test_a_name_may_have_a_part_after_a_slash_but_not_one_of_a_table() -> None:
    assert build(Config, {"weights": {"agent/plan": 0.5}}, "f").weights["agent/plan"] == 0.5
    for name in ("agent/", "/plan", "a/../b"):
        with pytest.raises(ConfigError, match="use letters, digits and _"):
            build(Config, {"weights": {name: 0.5}}, "f")
    with pytest.raises(ConfigError, match="a name in policies in f: got 'a/b'; use letters"):
        build(Method, {"policies": {"a/b": {}}}, "f")


def test_what_a_run_has_kept_is_whole_and_comes_back_as_it_was() -> None:
    kept = Method(policies={"user": Policy(betas=(0.0, 0.5))}, judge=Policy(device="x"), gae_lambda=1.0)
    assert build(Method, json.loads(json.dumps(asdict(kept))), "config.json", is_stored=True) == kept


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"policy": {"devise": "x"}}, "configuration key in f: got 'policy.devise'; did you mean 'device'?"),
        ({"policy": {"dvc": 1}}, "configuration key in f: got 'policy.dvc'; did you mean 'device'?"),
        ({"policy": {"x": 1}}, "configuration key in f: got 'policy.x'; choose from betas, device, learning_rate"),
        ({"policy": {"learning_rate": -1}}, "policy.learning_rate in f: got -1 (an integer); "
         "give a number above 0 such as 0.5"),
        ({"policies": {"user": {"learning_rate": "1"}}}, 'policies.user.learning_rate in f: got "1" (text); '
         "give a number above 0 such as 0.001"),
        ({"policy": 3}, "policy in f: got 3 (an integer); give a table"),
        ({"policy": None}, "policy in f: got null (none); give a table"),
        ({"judge": "x"}, 'judge in f: got "x" (text); give a table or none'),
        ({"policies": {"user": "x"}}, 'policies.user in f: got "x" (text); give a table'),
        ({"policies": {"reward-model": {}}}, "a name in policies in f: got 'reward-model'; use letters, digits and _"),
        ({"policy": {"betas": [0.5]}}, "policy.betas in f: got [0.5] (a list); "
         "give a list, each a share from 0 to 1 such as 0.9,0.99"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_table_is_called_by_its_whole_name(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Method, values, "f")
    assert str(caught.value) == line


def test_a_missing_key_of_a_table_is_named() -> None:
    @dataclass(frozen=True)
    class Outer:
        inner: dict[str, Needy] = field(default_factory=dict[str, Needy])

    with pytest.raises(
        ConfigError, match=r"^configuration in f needs inner\.a\.data: got nothing; give text$"
    ):
        build(Outer, {"inner": {"a": {}}}, "f")


def test_flags_set_values_in_tables() -> None:
    assert read_flags(Config, {"weights.a": "1"}) == {"weights": {"a": 1.0}}
    texts = {"policy.device": "cuda", "policies.reward_model.learning_rate": "1e-4", "judge.betas": "0,1"}
    assert read_flags(Method, texts) == {
        "policy": {"device": "cuda"},
        "policies": {"reward_model": {"learning_rate": 1e-4}},
        "judge": {"betas": (0.0, 1.0)},
    }
    with pytest.raises(
        ConfigError, match=r"^--policies.critic.learning-rate: got '0'; give a number above 0"
    ):
        read_flags(Method, {"policies.critic.learning_rate": "0"})


def test_flags_go_over_a_file_key_by_key() -> None:
    file = {"steps": 1, "policy": {"device": "a", "learning_rate": 1.0}, "policies": Policy()}
    flags = {"policy": {"device": "b"}, "policies": {"device": "c"}, "limit": 2}
    assert merge(file, flags) == {
        "steps": 1,
        "limit": 2,
        "policy": {"device": "b", "learning_rate": 1.0},
        "policies": {"learning_rate": 1e-3, "device": "c", "betas": (0.9, 0.99)},
    }
    assert file["policy"] == {"device": "a", "learning_rate": 1.0}


OLD = {"count": 3, "decay": 0.5, "device": "x", "policy": {"lr": 0.1}}
NEW = Method(steps=3, gae_lambda=0.5, policy=Policy(device="x", learning_rate=0.1))


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"count": 3}, "count in c.toml: got an earlier name; it is called steps now"),
        ({"device": "x"}, "device in c.toml: got an earlier name; it is called policy.device now"),
        ({"policy": {"lr": 0.1}}, "lr in c.toml: got an earlier name; it is called learning_rate now"),
    ],
)
def test_old_names_are_refused_with_the_new_one(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Method, values, "c.toml")
    assert str(caught.value) == line


def test_what_a_run_has_kept_of_an_option_that_is_gone_is_left_out_and_what_is_written_otherwise_is_read() -> (
    None
):
    @dataclass(frozen=True)
    class Later(Base):
        rewritten: ClassVar[Mapping[str, Any]] = {"both": lambda text: {"steps": int(text), "warm_up": 1}}
        forgotten: ClassVar[Mapping[str, str]] = {"extra": "", "limit": ""}

    kept = {"both": "4", "extra": True, "limit": 3}
    assert build(Later, kept, "config.json", is_stored=True) == Later(steps=4, warm_up=1, limit=3)
    for key in kept:
        if key != "limit":
            with pytest.raises(ConfigError, match=f"configuration key in f: got '{key}'"):
                build(Later, {key: kept[key]}, "f")


def test_old_names_in_what_a_run_has_kept_are_read() -> None:
    assert build(Method, OLD, "config.json", is_stored=True) == NEW
    assert rename(Method, {"decay": 1}, "config.json", is_stored=True) == {"gae_lambda": 1}


def test_old_names_of_flags_are_refused_with_the_new_one() -> None:
    for text, line in (
        ({"decay": "0.5"}, "--decay: got an earlier name; it is called --gae-lambda now"),
        ({"device": "x"}, "--device: got an earlier name; it is called --policy.device now"),
        (
            {"policies.critic.lr": "0.1"},
            "--policies.critic.lr: got an earlier name; it is called --policies.NAME.",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            read_flags(Method, text)
        assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"decay": 0.5, "gae_lambda": 0.5}, "decay and gae_lambda"),
        ({"device": "x", "policy": {"device": "y"}}, "device and policy.device"),
        ({"device": "x", "policy": 3}, "device and policy.device"),
        ({"policy": Policy(), "device": "x"}, "device and policy.device"),
    ],
)
def test_an_old_and_a_new_name_for_one_option_contradict_each_other(
    values: dict[str, Any], names: str
) -> None:
    new = names.rpartition(" ")[2]
    with pytest.raises(ConfigError) as caught:
        build(Method, values, "config.json", is_stored=True)
    assert str(caught.value) == f"configuration in config.json: got {names}, its new name; give {new} only"


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (Base(steps=0), "steps: got 0; give an integer of 1 or more such as 1"),
        (Checked(steps=-2), "steps: got -2; give an integer of 1 or more such as 20"),
        (Base(limit=0), "limit: got 0; give an integer of 1 or more or none"),
        (Base(warm_up=-1), "warm_up: got -1; give an integer of 0 or more such as 0"),
        (Method(gae_lambda=1.01), "gae_lambda: got 1.01; give a share from 0 to 1 such as 0.95"),
        (Method(gae_lambda=float("nan")), "gae_lambda: got nan; give a share from 0 to 1 such as 0.95"),
        (Method(policy=Policy(learning_rate=0)), "policy.learning_rate: got 0; "
         "give a number above 0 such as 0.5"),
        (Method(policies={"a": Policy(betas=(0.5, 2.0))}), "policies.a.betas: got (0.5, 2.0); "
         "give a list, each a share from 0 to 1 such as 0.9,0.99"),
    ],
)  # fmt: skip
def test_values_that_python_gave_are_within_their_ranges(config: object, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_ranges(config)
    assert str(caught.value) == line


def test_values_within_their_ranges_are_fine() -> None:
    check_ranges(Method(steps=1, limit=1, gae_lambda=0.0))
    check_ranges(Method(gae_lambda=1.0, policies={}))
