"""Options that a method would ignore are refused, for every method and every way of giving them."""

from typing import Any

import pytest

from quintain.config import rename
from quintain.errors import ConfigError
from quintain.learning.job import Job
from quintain.methods.find import FoundMethod, find_method
from quintain.methods.reading import READERS, is_own, refuse_unread

GIVEN: dict[str, Any] = {
    "whole_groups": True, "leaves": "last", "num_epochs": 7, "num_minibatches": 7, "records_signals": False,
    "imitation_rate": 1e-5, "imitation_epochs": 5, "lr_warmup": 3, "lora_alpha": 8.0,
}  # fmt: skip


def refuse(method: str, **given: Any) -> None:
    found = find_method(method)
    job = found.config_class(**rename(found.config_class, given, "test", is_stored=True))
    refuse_unread(found, found.make(job), job, given)


def is_refused(found: FoundMethod, option: str) -> bool:
    given = {option: GIVEN[option]}
    job = found.config_class(**given)
    try:
        refuse_unread(found, found.make(job), job, given)
    except ConfigError as error:
        assert str(error).startswith(
            f"{option}: got {GIVEN[option]!r} with {found.label}, which does not read it; "
        )
        assert "it is read by " in str(error) or "it is read with " in str(error)
        return True
    return False


ROUNDS = ("eto", "rft", "m_dpo", "star", "e2cl", "steca", "agent_evol", "pae")
REPLAYS = ("archer", "digi_rl", "digi_q", "web_rl")
OTHERS = ("grpo", "ppo", "loop", "sft", "dpo", "dare")


def refused_by(option: str) -> set[str]:
    """Return who of `ROUNDS`, `REPLAYS` and `OTHERS` has the option and does not read it."""
    found = map(find_method, (*ROUNDS, *REPLAYS, *OTHERS))
    return {
        each.label
        for each in found
        if option in each.config_class.__dataclass_fields__ and is_refused(each, option)
    }


def test_what_the_loops_do_not_read_is_refused() -> None:
    assert refused_by("whole_groups") == {*ROUNDS, *REPLAYS}
    assert refused_by("leaves") == {*ROUNDS}
    assert refused_by("num_epochs") == refused_by("num_minibatches") == {"e2cl", "star", "steca"}
    assert refused_by("records_signals") == {*REPLAYS, "dare"}
    assert refused_by("imitation_rate") == refused_by("imitation_epochs") == {"agent_evol", "sft", "dare"}


def test_a_line_says_who_reads_it() -> None:
    with pytest.raises(ConfigError) as told:
        refuse("eto", whole_groups=True)
    assert str(told.value) == (
        "whole_groups: got True with eto, which does not read it; leave it out: it is read by methods that learn from "
        "groups as they come, such as grpo and rloo"
    )
    with pytest.raises(ConfigError, match="num_epochs: got 9 with star, which does not read it"):
        refuse("star", updates=9)


def test_settings_that_need_another_are_refused_without_it() -> None:
    with pytest.raises(
        ConfigError, match=r"lr_warmup: got 3 with grpo, .* it is read with lr_schedule constant, linear"
    ):
        refuse("grpo", lr_warmup=3)
    refuse("grpo", lr_warmup=3, lr_schedule="linear")
    with pytest.raises(
        ConfigError, match=r"lora_alpha: got 8.0 with grpo, .* it is read with a lora_rank of 1 or more"
    ):
        refuse("grpo", lora_alpha=8.0)
    refuse("grpo", lora_alpha=8.0, lora_rank=4)


def test_the_whole_configuration_of_a_run_can_be_given_again() -> None:
    found = find_method("eto")
    whole = {name: getattr(found.config_class(), name) for name in found.config_class.__dataclass_fields__}
    refuse_unread(found, found.make(found.config_class()), found.config_class(), whole)


def test_every_rule_is_of_an_option_that_several_methods_share() -> None:
    shared = {
        name for method in ("grpo", "eto") for name in find_method(method).config_class.__dataclass_fields__
    }
    assert set(READERS) == set(GIVEN) and set(READERS) <= shared
    assert not is_own(Job, "lora_alpha") and is_own(find_method("digi_rl").config_class, "num_epochs")
