"""Agent-FLAN: calls as chat and back, shares of capabilities, refusals, and the score of made-up actions."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quintain.data.pipeline import as_example
from quintain.environments.baselines import expert, play
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import ConfigError, DataError
from quintain.methods.imitation import agent_flan
from quintain.text.chat import Chat
from quintain.types import Action, Trajectory, as_content
from quintain.worlds.calc.game import REFUSAL, Calc

Make = Callable[..., Trajectory]
WORLD = "calc?steps=1&names=0&checks=0&withheld=0.5"


def test_refusals_have_neither_a_call_nor_the_form_of_one(trajectory: Make) -> None:
    refusal = trajectory([((1,), (2,))], [REFUSAL])
    assert agent_flan.is_negative(refusal)
    for text in ('<tool_call>{"name": "add"}', '{"name" : "add"}', "I call add."):
        assert not agent_flan.is_negative(trajectory([((1,), (2,))], [text]))
    called = replace(refusal.turns[0], action=tool_action("add", a=1, b=2))
    assert not agent_flan.is_negative(replace(refusal, turns=(called,)))


def test_where_nothing_calls_there_is_nothing_to_refuse(trajectory: Make) -> None:
    examples = [as_example(trajectory([((1,), (2,))], ["go left"])) for _ in range(3)]
    for share in (0.0, 0.2):
        with pytest.raises(DataError, match="refusals: got 3 examples, none of which makes a call"):
            agent_flan.mixture(examples, share, {})


def test_capabilities_and_refusals_have_their_shares(trajectory: Make) -> None:
    acting = [trajectory([((1,), (2,))], ["<tool_call>"], environment=e) for e in ("calc", "desk?steps=2")]
    examples = [as_example(t) for t in (*acting * 5, *[trajectory([((1,), (2,))], [REFUSAL])] * 20)]
    chances = np.array(agent_flan.mixture(examples, 0.2, {"calc": 3.0, "desk": 1.0}))
    drawn = Counter(
        agent_flan.part_of(examples[k]) for k in np.random.default_rng(0).choice(30, 10_000, p=chances)
    )
    assert {part: count / 10_000 for part, count in drawn.items()} == pytest.approx(
        {"negative": 0.2, "calc": 0.6, "desk": 0.2}, abs=0.01
    )
    config = agent_flan.Config(capabilities={"calc": "3", "desk": "1"})
    assert agent_flan.shares(examples, config) == pytest.approx(
        {"agent_flan/negative": 0.2, "agent_flan/calc": 0.6, "agent_flan/desk": 0.2}
    )
    as_they_are = agent_flan.shares(examples, agent_flan.Config(negatives=0.5))
    assert as_they_are["agent_flan/calc"] == pytest.approx(0.25)
    without = agent_flan.pipeline(0.0).run(examples)
    assert [p.num_out for p in without.funnel.passages] == [30, 10]
    with pytest.raises(ConfigError, match="give numbers"):
        agent_flan.Config(capabilities={"calc": "most"}).check()


def test_the_score_is_the_mean_of_both_kinds_of_restraint() -> None:
    assert agent_flan.hallucination_score([True, False, False, False], [True, True, False, False]) == 0.625
    assert agent_flan.hallucination_score([False], [False]) == 1.0
    with pytest.raises(DataError, match="replies to score"):
        agent_flan.hallucination_score([], [])


def test_role_markers_are_single_tokens() -> None:
    from quintain.environments.catalog import find
    from quintain.warm_start.start import new_tokenizer

    tokenizer = new_tokenizer(find("guess"), seed=0)
    for role in ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"):
        assert len(tokenizer(role, add_special_tokens=False)["input_ids"]) == 1
    assert Chat(tokenizer)


def test_withheld_tools_are_refused_and_the_list_is_as_long() -> None:
    world = Calc(steps=1, names=0, checks=0, withheld=0.5)
    tasks = [world.task("train", k) for k in range(60)]
    told = [(begin(world, task), world.is_withheld()) for task in tasks]
    assert 15 < sum(withheld for _, withheld in told) < 45
    lines = [str(text).partition(". ")[0].removeprefix("Tools: ").split(", ") for text, _ in told]
    for line, (_, withheld) in zip(lines, told, strict=True):
        assert len(line) == 3 and (set(line) == {"add", "subtract", "multiply"}) is not withheld
    for task, (_, withheld) in zip(tasks, told, strict=True):
        assert play(world, task, expert).is_success
        begin(world, task)
        refused = advance(world, Action(text=REFUSAL))
        assert refused.is_terminated and refused.is_success is withheld and refused.reward == float(withheld)
        begin(world, task)
        assert advance(world, Action(tool_calls=(world.solution()[0],))).is_valid is not withheld
    hidden = Calc(steps=1, names=0, checks=0, withheld=0.5, listed=False)
    assert "Tools" not in str(begin(hidden, tasks[0]))


def test_it_trains_with_refusals(train: Any) -> None:
    rows = train("agent_flan", environment=WORLD, demonstrations=12)
    assert rows[-1]["agent_flan/negative"] == pytest.approx(0.2)


def test_replies_count_where_the_expert_calls_nothing(trajectory: Make) -> None:
    world = Calc(steps=1, names=0, checks=0, withheld=0.5)
    said = ["I call add.", REFUSAL, '<tool_call>{"name": "add"}'] * 4
    episodes: list[Trajectory] = []
    is_withheld: list[bool] = []
    for number, text in enumerate(said):
        task = world.task("eval", number)
        shown = as_content(begin(world, task))
        is_withheld.append(world.is_withheld())
        made = trajectory([((1,), (2,))], [text])
        episodes.append(replace(made, task=task, turns=(replace(made.turns[0], observation=shown),)))
    assert {True, False} == set(is_withheld)
    found = agent_flan.find_uncalled(WORLD, episodes)
    assert found == [t.turns[0] for t, is_on in zip(episodes, is_withheld, strict=True) if is_on]
    assert [agent_flan.has_form(t.turns[0]) for t in episodes[:3]] == [True, False, True]
    called = replace(episodes[1].turns[0], action=tool_action("add", a=1, b=2))
    assert agent_flan.has_form(called)
