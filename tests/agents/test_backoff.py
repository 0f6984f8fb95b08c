"""Who gets nowhere by acting thinks, and who is not sure by thinking acts."""

from collections.abc import Sequence

import pytest

from quintain.agents.backoff import THINK, Backoff, majority, must_back_off
from quintain.agents.catalog import build
from quintain.agents.harness import ReAct
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Trajectory
from quintain.warm_start.start import expert_action
from quintain.worlds.calc.game import Calc

ANSWER = 'Thought: so\nAction: answer[{{"number": {}}}]'
LOOK = 'Action: lookup[{"name": "fig"}]'


def test_the_commonest_answer_counts_and_of_equals_the_first() -> None:
    assert majority(["7", "", "8", "8"]) == ("8", 2)
    assert majority(["9", "7", "7", "9"]) == ("9", 2)
    assert majority(["", ""]) == majority([]) == ("", 0)


def test_less_than_half_is_not_sure() -> None:
    assert [must_back_off(count, 21) for count in (10, 11)] == [True, False]
    assert [must_back_off(count, 4) for count in (1, 2)] == [True, False]


def play_out(chat: Chat, agent: Backoff, said: Sequence[str]) -> tuple[Trajectory, list[tuple[float, str]]]:
    left, heard = list(said), list[tuple[float, str]]()

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        heard.append((request.sampling.temperature, chat.encoder.decode(stream)))
        return chat.write(left.pop(0))

    world = Calc(names=1)
    rollout = Rollout(agent, lambda: Calc(names=1), Scripted(script))
    (group,) = rollout.groups([world.task("train", 0)], size=1, seed=0)
    assert not left
    return group.trajectories[0], heard


def test_without_an_answer_in_so_many_steps_chains_of_thought_answer(small_chat: Chat) -> None:
    agent = Backoff(ReAct(small_chat, temperature=0.0), small_chat, steps=2, samples=3)
    chains = [ANSWER.format(5), "Thought: hm\nAction: add[1]", ANSWER.format(5)]
    episode, heard = play_out(small_chat, agent, [LOOK, LOOK, *chains])
    assert [turn.is_internal for turn in episode.turns] == [False, False, True, True, False]
    assert {turn.seat for turn in episode.turns if turn.is_internal} == {"agent/chain"}
    last = episode.turns[-1]
    assert last.action.tool_calls[0].arguments == {"number": 5} and last.reward_terms.keys() == {"answer"}
    assert [temperature for temperature, _ in heard] == [0.0, 0.0, 0.7, 0.7, 0.7]
    assert heard[2][1] == heard[3][1] == heard[4][1], "no chain sees what was done, or another chain"
    assert THINK in heard[2][1] and "lookup[" not in heard[2][1].rpartition("<|user|>")[2]


def test_chains_that_agree_answer_at_once(small_chat: Chat) -> None:
    agent = Backoff(ReAct(small_chat), small_chat, samples=2, first="think")
    episode, _ = play_out(small_chat, agent, [ANSWER.format(4), ANSWER.format(3)])
    assert [turn.is_internal for turn in episode.turns] == [True, False]
    assert episode.turns[-1].action.tool_calls[0].arguments == {"number": 4}, "of equals the first"


def test_chains_that_do_not_agree_leave_it_to_acting(small_chat: Chat) -> None:
    agent = Backoff(ReAct(small_chat, temperature=0.5), small_chat, samples=3, first="think", steps=1)
    said = [ANSWER.format(4), ANSWER.format(3), "I do not know.", LOOK, ANSWER.format(9)]
    episode, heard = play_out(small_chat, agent, said)
    assert [turn.is_internal for turn in episode.turns] == [True, True, True, False, False]
    assert [temperature for temperature, _ in heard][-2:] == [0.5, 0.5], "and it does not go back to thinking"
    assert THINK not in heard[3][1] and episode.turns[-1].action.tool_calls[0].arguments == {"number": 9}


@pytest.mark.parametrize("spec", ["backoff+react", "backoff?first=think&samples=2+react"])
def test_an_expert_acts(small_chat: Chat, spec: str) -> None:
    agent = build(spec, small_chat, Calc())
    rollout = Rollout(agent, Calc, None)
    (group,) = rollout.demonstrations(
        [Calc().task("train", 0)], lambda world, rng, seen: expert_action(world, rng, seen), seed=0
    )
    assert group.trajectories[0].is_success


def test_what_cannot_answer_is_refused(small_chat: Chat) -> None:
    with pytest.raises(UsageError, match=r"backoff: got steps=0, samples=21; give 1 or more"):
        Backoff(ReAct(small_chat), small_chat, steps=0)
    agent = Backoff(ReAct(small_chat), small_chat, answer="tell")
    with pytest.raises(
        UsageError, match=r"answer of backoff: got 'tell'; the tools are add, .*: name the one"
    ):
        play_out(small_chat, agent, [])


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("react", "Thought: next is lookup"),
        ("react?thoughts=false", "Action: lookup["),
        ("react?filler=1", "Thought: "),
        ("backoff+react", "Action: lookup["),
    ],
)
def test_a_demonstration_thinks_what_the_environment_knows(small_chat: Chat, spec: str, said: str) -> None:
    def make() -> Calc:
        return Calc(names=2, steps=1, calculator=False)

    rollout = Rollout(build(spec, small_chat, make()), make, None)
    (group,) = rollout.demonstrations(
        [make().task("train", 3)], lambda world, rng, seen: expert_action(world, rng, seen), seed=0
    )
    (episode,) = group.trajectories
    texts = [small_chat.text(turn.completion.token_ids) for turn in episode.turns]
    assert episode.is_success and texts[0].startswith(said), texts[0]
    if spec == "react":
        number = episode.turns[-1].action.tool_calls[0].arguments["number"]
        assert f" is {number}\nAction: answer[" in texts[-1]
    if "filler" in spec:
        assert "next is" not in texts[0] and "\nAction: lookup[" in texts[0]
