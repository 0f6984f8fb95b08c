"""The rewards of searching, by the tables of the papers."""

from dataclasses import replace

import pytest
from tests.build import make_episode, make_turn

from quintain.errors import UsageError
from quintain.rewards.retrieval import (
    answer_score,
    first_stage,
    has_searched,
    is_well_formed,
    pay_stages,
    pay_with_floor,
    search_rate,
    second_stage,
    with_floor,
)
from quintain.text.parse import parse_tags
from quintain.types import Completion, Score, Stop, ToolSpec, Trajectory, Turn

TOOLS = tuple(
    ToolSpec(
        name=name, description="", parameters={"type": "object", "properties": {key: {"type": "string"}}}
    )
    for name, key in (("search", "query"), ("answer", "text"))
)


def episode(*texts: str, score: float = 0.0, stop: Stop = Stop.TERMINATED, ends: bool = True) -> Trajectory:
    """An episode in which `texts` are said; its answers are worth `score`."""
    turns: list[Turn] = []
    for text in texts:
        action = parse_tags(text, TOOLS)
        is_answer = any(call.name == "answer" for call in action.tool_calls)
        turns.append(
            make_turn(
                action=action,
                completion=Completion(token_ids=(2,), logprobs=(-0.5,), stop="stop" if ends else "length"),
                reward_terms={"answer": score} if is_answer else {},
                is_valid=action.error is None,
            )
        )
    return make_episode(*turns, outcome=Score(value=score, is_success=score == 1), stop=stop)


SEARCH, ANSWER = "<think>so</think><search>seat</search>", "<answer>Rome</answer>"


@pytest.mark.parametrize(
    ("texts", "score", "paper", "code", "second"),
    [
        ((SEARCH, ANSWER), 1.0, 1.0, 2.0, 1.0),
        ((SEARCH, ANSWER), 0.0, 1.0, 0.0, 0.0),
        ((ANSWER,), 0.5, 0.5, 1.5, 0.5),
        ((SEARCH, "<search>seat", ANSWER), 1.0, 0.5, 1.5, -1.0),
        (("<answer><search>seat</search></answer>",), 0.0, 0.0, -1.0, -2.0),
        ((SEARCH, "<answer>" + "word " * 11 + "</answer>"), 0.1, 0.5, 1.5, -1.9),
        ((SEARCH, "<think>a<think>b</think>" + ANSWER, ANSWER), 1.0, 0.5, 1.5, -1.0),
        ((SEARCH,), 0.0, 0.5, -0.5, -2.0),
    ],
)
def test_eight_episodes_of_r1_searcher(
    texts: tuple[str, ...], score: float, paper: float, code: float, second: float
) -> None:
    found = episode(*texts, score=score)
    assert pay_stages(is_first=True).measure(found) == paper
    assert pay_stages(is_first=True, pays_answers=True).measure(found) == code
    assert pay_stages(is_first=False).measure(found) == pytest.approx(second)


def test_a_search_that_finds_nothing_is_one_and_a_call_that_was_not_carried_out_is_none() -> None:
    found = episode(SEARCH, ANSWER)
    assert has_searched(found) and not has_searched(episode(ANSWER))
    refused = replace(found, turns=(replace(found.turns[0], is_valid=False), found.turns[1]))
    assert not has_searched(refused) and not is_well_formed(refused)
    assert search_rate([found, episode(ANSWER)]) == 0.5 and search_rate([]) == 0.0


@pytest.mark.parametrize(
    ("f1", "formed", "paper", "monotone"),
    [(1.0, True, 1.0, 1.0), (0.05, True, 0.05, 0.1), (0.0, True, 0.1, 0.1), (0.8, False, 0.0, 0.0)],
)
def test_research_pays_less_for_a_little_than_for_nothing(
    f1: float, formed: bool, paper: float, monotone: float
) -> None:
    assert with_floor(f1, formed) == paper and with_floor(f1, formed, is_monotone=True) == monotone
    found = episode(SEARCH, ANSWER, score=f1, stop=Stop.TERMINATED if formed else Stop.MAX_TOKENS)
    assert (
        pay_with_floor().measure(found) == paper
        and pay_with_floor(is_monotone=True).measure(found) == monotone
    )


def test_what_was_cut_has_no_form() -> None:
    assert answer_score(episode(SEARCH, ANSWER, score=0.5)) == 0.5 and is_well_formed(episode(ANSWER))
    assert not is_well_formed(episode(ANSWER, ends=False)), "no end token"
    assert not is_well_formed(episode(ANSWER, stop=Stop.CUT))
    assert not is_well_formed(episode(ANSWER, SEARCH)) and not is_well_formed(episode(ANSWER, ANSWER))
    assert first_stage(False, True) == 0.5 and second_stage(0.3, False, penalty=1.0) == pytest.approx(-0.7)


def test_numbers_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="penalty of a broken form: got -1"):
        pay_stages(is_first=True, penalty=-1)
    with pytest.raises(UsageError, match="floor of an answer's score: got 2"):
        pay_with_floor(floor=2)
