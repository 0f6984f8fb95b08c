"""What is exported is read back equal: token by token what the harness shows in a rollout, in every world."""

import json
from typing import Any, Literal

import pytest

from quintain.agents.transcripts import Rules, Transcriber, longest_stream, same_tools, train_only
from quintain.data.atif import to_atif
from quintain.data.files import FileValue
from quintain.data.messages import OpeningPrompt, to_record
from quintain.data.records import Record, read_preferences, read_record
from quintain.data.seats import by_seat
from quintain.environments.boundary import ask
from quintain.environments.catalog import find
from quintain.environments.protocol import Legal
from quintain.errors import DataError, UsageError
from quintain.safety.isolation import find_fault
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Score, ToolSpec, Trajectory, as_text
from quintain.warm_start.demonstrations import place_of, teller
from quintain.warm_start.start import build_agent, demonstrate

WORLDS = (
    "bandit", "calc", "collab", "craft", "desk", "guess", "hopqa", "house", "keydoor", "plan", "repo", "room",
    "screen", "shop", "sokoban", "stream", "sums", "twenty", "twocards", "web", "mix:guess,keydoor",
)  # fmt: skip
CASES = [*((world, "auto") for world in WORLDS), ("guess", "react"), ("calc", "react"), ("desk", "react")]


def stream(trajectory: Trajectory) -> tuple[list[int], list[bool]]:
    """Return the tokens of `trajectory` and which of them are trained."""
    ids: list[int] = []
    trained: list[bool] = []
    for turn in trajectory.turns:
        ids += [*turn.prompt_ids, *turn.completion.token_ids]
        trained += [False] * len(turn.prompt_ids) + [True] * len(turn.completion.token_ids)
    return ids, trained


def written(trajectory: Trajectory, chat: Chat, told: OpeningPrompt, *, write: Any = to_record) -> Record:
    """Return `trajectory` after a way through a file."""
    line = json.dumps(write(trajectory, chat.text, told=told), default=dict)
    return read_record(json.loads(line), FileValue(file="f.jsonl", line=1, value=None))


@pytest.mark.parametrize(("world", "agent"), CASES)
def test_an_exported_episode_is_read_back_token_by_token(world: str, agent: str) -> None:
    if world == "repo" and (fault := find_fault()):
        pytest.skip(fault)
    make = find(world)
    is_choice = ask(make, lambda e: isinstance(e, Legal)) and agent == "auto"
    tokenizer = train_tokenizer(["some text of everything 0123456789"])
    chat = Chat(tokenizer)
    harness = build_agent(tokenizer, make, temperature=1.0, agent=agent)
    tell = teller(world)
    place = place_of(world, harness)
    assert place is not None
    checked = 0
    for episode in demonstrate(harness, make, count=2, seed=3):
        for part in by_seat(episode):
            transcriber = Transcriber(chat, Rules(), place=place)
            record = written(part, chat, tell(part))
            again = transcriber.trajectory(record)
            other = transcriber.trajectory(written(part, chat, tell(part), write=to_atif))
            assert again is not None and other is not None
            assert stream(other) == stream(again), "and so it is by way of ATIF"
            own, read = stream(part), stream(again)
            assert "".join(map(as_text, [turn.observation for turn in again.turns])) == "".join(
                map(as_text, [turn.observation for turn in part.turns])
            )
            if is_choice:  # a choice ends with its last token; written anew, it has the end of the turn
                ended = own[0] + [chat.end_id] * (own[0][-1] != chat.end_id)
                assert read[0] == ended, chat.text(own[0]) + "\n!=\n" + chat.text(read[0])
                more = {
                    i for i, was, now in zip(ended, [*own[1], False], read[1], strict=False) if was != now
                }
                assert more <= {chat.end_id}
            else:
                assert own == read, chat.text(own[0]) + "\n!=\n" + chat.text(read[0])
            assert not transcriber.notes.other_tools
            checked += 1
    assert checked


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(train_tokenizer(["look here and there, say hi"]))


def record(*said: dict[str, Any], **fields: Any) -> Record:
    return read_record({"messages": list(said), **fields}, FileValue(file="f.jsonl", line=7, value=None))


def by(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def pieces(trajectory: Trajectory | None, chat: Chat) -> list[tuple[str, str]]:
    """Return what is given and what is trained in each turn."""
    assert trajectory is not None
    return [(chat.text(t.prompt_ids), chat.text(t.completion.token_ids)) for t in trajectory.turns]


CHAT = (by("user", "a"), by("assistant", "b", weight=0), by("user", "c"), by("assistant", "d"), by("user", "e"),
        by("assistant", "f", train=True), by("user", "g"))  # fmt: skip


def test_only_the_answers_that_are_asked_for_are_trained(chat: Chat) -> None:
    first = "<|user|>a<|assistant|>b<|end|><|user|>c<|assistant|>"
    every = Transcriber(chat, Rules()).trajectory(record(*CHAT))
    assert pieces(every, chat) == [(first, "d"), ("<|user|>e<|assistant|>", "f")]
    assert every is not None and as_text(every.final_observation) == "g"
    rules: tuple[Literal["last", "tagged"], ...] = ("last", "tagged")
    for rule in rules:
        found = Transcriber(chat, Rules(train_on=rule)).trajectory(record(*CHAT))
        assert pieces(found, chat) == [(f"{first}d<|end|><|user|>e<|assistant|>", "f")]
    transcriber = Transcriber(chat, Rules(train_on="tagged"))
    assert list(transcriber.trajectories([record(by("user", "a"), by("assistant", "b"))])) == []
    assert transcriber.notes.num_untrained == 1


def test_what_the_assistant_says_first_is_given_unless_a_system_message_asked_for_it(chat: Chat) -> None:
    said = (by("assistant", "hi"), by("user", "a"), by("assistant", "b"))
    assert pieces(Transcriber(chat, Rules()).trajectory(record(*said)), chat) == [
        ("<|assistant|>hi<|end|><|user|>a<|assistant|>", "b")
    ]
    assert len(pieces(Transcriber(chat, Rules()).trajectory(record(by("system", "s"), *said)), chat)) == 2


def test_reasoning_is_trained_in_front_of_its_answer(chat: Chat) -> None:
    thinks = by("assistant", "say hi", reasoning_content="look here")
    asked, bare = by("user", "and there"), by("assistant", "<think>\nlook here\n</think>\n\nsay hi")
    for answer in (thinks, bare):
        made = Transcriber(chat, Rules()).trajectory(record(answer, asked, answer))
        assert made is not None and chat.text(made.turns[0].completion.token_ids) == bare["content"]
        assert "look here" in chat.text(made.turns[0].prompt_ids)


def test_outcomes_and_origins_come_from_the_record(chat: Chat) -> None:
    found = Transcriber(chat, Rules()).trajectory(record(*CHAT, reward=0.5, is_success=False, id=3))
    assert found is not None and found.outcome == Score(value=0.5, is_success=False)
    own = {key: found.task.data[key] for key in ("file", "line", "id")}
    assert (found.task.id, own) == ("f.jsonl:7", {"file": "f.jsonl", "line": 7, "id": "3"})


def test_a_conversation_that_is_too_long_is_named_or_left_out(chat: Chat) -> None:
    long = record(by("user", "a"), by("assistant", "b " * 50))
    with pytest.raises(
        DataError, match=r"f.jsonl line 7: got a conversation of \d+ tokens, and max_context is 9"
    ):
        list(Transcriber(chat, Rules(max_tokens=9)).trajectories([long]))
    drops = Transcriber(chat, Rules(max_tokens=9, overlong="drop"))
    assert list(drops.trajectories([long])) == [] and drops.notes.num_long == 1
    preferences = list(read_preferences([FileValue(file="f", line=1, value={
        "prompt": "a", "chosen": "b " * 50, "rejected": "c"})]))  # fmt: skip
    assert list(drops.pairs(preferences)) == [] and drops.notes.num_long == 2
    (pair,) = Transcriber(chat, Rules()).pairs(preferences)
    assert (pair.chosen.index, pair.rejected.index) == (0, 1)


def test_several_results_are_a_message_each(chat: Chat) -> None:
    calls = [{"name": "guess", "arguments": {"number": n}} for n in (1, 2)]
    said = (by("user", "go"), by("assistant", "", tool_calls=calls), by("tool", "lower"), by("tool", "higher"),
            by("assistant", "done"))  # fmt: skip
    alone = pieces(Transcriber(chat, Rules()).trajectory(record(*said)), chat)
    assert alone[1][0] == "<|tool|>lower<|tool|>higher<|assistant|>"
    harness = build_agent(chat.tokenizer, find("guess"), temperature=1.0)
    inside = Transcriber(chat, Rules(), place=place_of("guess", harness))
    assert pieces(inside.trajectory(record(*said)), chat)[1] == alone[1]
    assert "Find the hidden number" in pieces(inside.trajectory(record(*said)), chat)[0][0]


def test_other_tools_are_said_and_unknown_ones_refused_where_they_are_trained(chat: Chat) -> None:
    harness = build_agent(chat.tokenizer, find("guess"), temperature=1.0)
    transcriber = Transcriber(chat, Rules(), place=place_of("guess", harness))
    call = [{"name": "look"}]
    fine = record(by("user", "a"), by("assistant", "b"), tools=[{"name": "look"}])
    assert transcriber.trajectory(fine) and list(transcriber.notes.other_tools) == ["f.jsonl line 7"]
    with pytest.raises(DataError, match="the tool 'look', and the tools of the environment guess are guess"):
        transcriber.trajectory(record(by("user", "a"), by("assistant", "b", tool_calls=call)))
    own = record(by("user", "a"), by("assistant", "b", tool_calls=call), tools=[{"name": "go"}])
    with pytest.raises(DataError, match="the tools of the record's own list are go"):
        Transcriber(chat, Rules()).trajectory(own)
    unasked = record(
        by("user", "a"),
        by("assistant", "b", tool_calls=call, weight=0),
        by("tool", "c"),
        by("assistant", "d"),
    )
    assert transcriber.trajectory(unasked) is not None
    assert not same_tools([ToolSpec(name="a", description="", parameters={})], [])


def test_wrapped_harnesses_refuse_conversations_of_others(chat: Chat) -> None:
    harness = build_agent(chat.tokenizer, find("guess"), temperature=1.0, agent="window+tools")
    with pytest.raises(UsageError, match="got conversations of others, which it would rewrite"):
        Transcriber(chat, Rules(), place=place_of("guess", harness)).trajectory(record(*CHAT))


def test_episodes_that_were_played_here_are_masked_by_the_same_rule(chat: Chat) -> None:
    harness = build_agent(chat.tokenizer, find("guess"), temperature=1.0)
    (episode,) = demonstrate(harness, find("guess"), count=1, seed=0)
    last = train_only(episode, "last")
    assert last is not None and len(last.turns) == 1 < len(episode.turns)
    assert stream(last)[0] == stream(episode)[0] and longest_stream(last) == len(stream(episode)[0])
    assert train_only(episode, "all") == episode and train_only(episode, "tagged") is None
