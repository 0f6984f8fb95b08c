"""An agent whose decoding keeps an order: a model that knows nothing keeps it, with tools and with words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quintain.engines.grammar import is_available
from quintain.errors import ConfigError, UsageError
from quintain.safety.temporal import build_automaton, trace_of
from quintain.testing.pupil import new_pupil, tasks_from
from quintain.types import Trajectory, flatten_scored

pytestmark = pytest.mark.skipif(not is_available(), reason="the extra constrained is not installed")
WORDS = (
    "not (cancel or refund) unless show and not show unless find and eventually (last and (say or transfer))"
)
TOOLS = "not (cancel or refund) unless show_order and not show_order unless find_customer"


def play(world: str, harness: str, order: object, folder: Path, turns: int = 4) -> list[Trajectory]:
    file = folder / "order.json"
    file.write_text(json.dumps(order))
    pupil = new_pupil([world], seed=1, agent=f"ordered?policy={file}&turns={turns}+{harness}")
    return list(flatten_scored(pupil.play(world, tasks_from(world, 4), seed=2)))


@pytest.mark.slow
def test_words_of_a_model_that_knows_nothing_are_in_order_to_the_last_turn(tmp_path: Path) -> None:
    order = build_automaton(WORDS, ends=["say", "transfer"])
    given = {"$order": {"formula": WORDS, "ends": ["say", "transfer"]}}
    for episode in play("desk?interface=text&max_turns=4", "text", given, tmp_path):
        assert order.accepts(turn.action.text.split()[0] for turn in episode.turns)


@pytest.mark.slow
def test_calls_are_of_tools_that_are_allowed_now_and_of_others_freely(tmp_path: Path) -> None:
    order = build_automaton(TOOLS)
    episodes = play("desk?max_turns=4", "tools?max_tokens=400", {"$order": {"formula": TOOLS}}, tmp_path)
    called = [trace_of(each) for each in episodes]
    assert all(map(order.accepts, called)) and {name for own in called for name in own} - {*order.names}


def test_what_is_no_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no \$order"):
        play("desk?interface=text&max_turns=4", "text", {"a": [{}]}, tmp_path)
    with pytest.raises(ConfigError, match="got the tool 'fnd_customer'"):
        play("desk?max_turns=4", "tools", {"$order": {"formula": "fnd_customer"}}, tmp_path)
    with pytest.raises(ConfigError, match="got 1 turns"):
        play("desk?max_turns=4", "tools", {"$order": {"formula": "next cancel"}}, tmp_path, turns=1)
