import sys

import pytest

from quintain.adapters.reasoning_gym.environment import (
    UNANSWERED,
    Answered,
    GraderFault,
    ReasoningGym,
    answer_in,
)
from quintain.environments.baselines import expert, play
from quintain.environments.check import check
from quintain.environments.protocol import advance, begin
from quintain.errors import MissingExtra, UsageError
from quintain.types import Action


def test_the_answer_is_what_the_tags_hold_or_everything() -> None:
    assert answer_in(" 4\n") == "4"
    assert answer_in("<answer>3</answer> no: <answer> 4 </answer>.") == "4"
    assert answer_in("<answer>5") == "5"


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[reasoning-gym\]"'):
        ReasoningGym("chain_sum")


@pytest.mark.real("reasoning_gym", "reasoning-gym")
def test_keeps_the_contract() -> None:
    report = check("reasoning-gym/chain_sum", episodes=5)
    assert report.has_passed, list(report.lines())
    assert report.measured["first_observation_overlap"] == 0


@pytest.mark.real("reasoning_gym", "reasoning-gym")
@pytest.mark.parametrize(
    "dataset", ["basic_arithmetic", "maze", "leg_counting", "word_sorting", "zebra_puzzles"]
)
def test_the_expert_wins(dataset: str) -> None:
    world = ReasoningGym(dataset)
    for index in range(3):
        assert play(world, world.task("eval", index), expert).rewards == (1.0,)


@pytest.mark.real("reasoning_gym", "reasoning-gym")
def test_the_score_is_the_graders() -> None:
    world = ReasoningGym("chain_sum", min_terms=2, max_terms=2)
    assert isinstance(world, Answered)
    begin(world, world.task("train", 0))
    right = world.expert_action().text
    assert advance(world, Action(text=f"so <answer>{right}</answer>")).is_success
    begin(world, world.task("train", 0))
    wrong = advance(world, Action(text="<answer>none</answer>"))
    assert (wrong.is_success, wrong.is_terminated) == (False, True) and wrong.reward < 1
    assert not isinstance(ReasoningGym(sorted(UNANSWERED)[0]), Answered)


@pytest.mark.real("reasoning_gym", "reasoning-gym")
def test_a_grader_that_breaks_is_the_judges_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReasoningGym("chain_sum")
    begin(world, world.task("train", 0))

    def broken(**_given: object) -> float:
        raise RuntimeError("no")

    for grader, said in ((broken, "RuntimeError: no"), (lambda **_given: float("nan"), "score nan")):
        monkeypatch.setattr(type(world._source), "score_answer", staticmethod(grader))  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(GraderFault, match=said) as raised:
            advance(world, Action(text="4"))
        assert raised.value.owner == "judge"


@pytest.mark.real("reasoning_gym", "reasoning-gym")
def test_what_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'chain_sum'"):
        ReasoningGym("chain_sums")
    with pytest.raises(UsageError, match="min_word"):
        ReasoningGym("chain_sum", min_word=3)
    with pytest.raises(UsageError, match="pass_mark"):
        ReasoningGym("chain_sum", pass_mark=0)
