"""What other recorders got wrong, one test for each: retries, sub-agents, compaction, delivery, versions, loss."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import anthropic
import httpx2
import numpy as np
import openai
import pytest

from quintain.dashboard.transcript import transcript_html
from quintain.data.pack import Aggregation, pack
from quintain.data.samples import imitation_samples
from quintain.data.used import AUXILIARY, LEFT, NOT_READ, REPEATED, find_unused
from quintain.engines.scripted import Scripted
from quintain.errors import DataError
from quintain.rollout.measures import call_metrics
from quintain.rollout.request import EpisodeRequest
from quintain.serve.chat_completions import read
from quintain.serve.endpoint import MAX_READERS, EpisodeLimits, Session
from quintain.serve.recorder import Recorder, find_changed, node_digest
from quintain.serve.source import episode_of, outcome_of
from quintain.store.codec import decode, encode
from quintain.text.chat import Chat
from quintain.types import Failure, Score, Stop, Task, Trajectory, Turn
from quintain.types.forest import find_parents

Served = Any
"""What the fixture of that name gives."""
Eventually = Callable[[Callable[[], bool]], None]
GUESS = {
    "type": "function",
    "function": {
        "name": "guess",
        "description": "Guess.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
    },
}
CALL = '<tool_call>{"name": "guess", "arguments": {"number": 3}}</tool_call>'
USER = {"role": "user", "content": "A wall."}


def client(url: str, key: str, retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=retries, timeout=20)


def post(
    url: str, key: str, body: Any, path: str = "/v1/chat/completions", **headers: str
) -> tuple[int, Any]:
    """Return status and body of a request with `headers` (``_`` stands for ``-``)."""
    sent = {"Authorization": f"Bearer {key}"} | {
        name.replace("_", "-"): text for name, text in headers.items()
    }
    with httpx2.Client(timeout=20) as plain:
        answer = plain.post(url + path, headers=sent, content=json.dumps(body).encode())
    return answer.status_code, answer.json()


def body_of(*messages: Any, **more: Any) -> Any:
    return {"model": "m", "messages": list(messages), **more}


def said(text: str) -> Any:
    return {"role": "assistant", "content": text}


def turns_of(session: Session) -> tuple[Turn, ...]:
    """Return the turns when it is known of all answers whether they were read."""
    for _ in range(1000):
        if not session.num_sending:
            break
        time.sleep(0.01)
    return session.recorder.turns()


def episode(session: Session, outcome: Score | None = None) -> Trajectory:
    task = Task(id="wall/0", environment="wall", seed=0)
    request = EpisodeRequest(task=task, group="g", index=0, seed=1)
    score = outcome or Score(value=1.0, is_success=True)
    return episode_of(turns_of(session), request, score, Stop.TERMINATED, 0.0)


def unused(session: Session) -> dict[int, str]:
    return find_unused(turns_of(session))


def parents(session: Session) -> list[int | None]:
    return [None if node.parent is None else node.parent.number for node in session.recorder.nodes]


def hang_up(url: str, key: str, body: Any, served: Served, eventually: Eventually) -> None:
    """Ask, and close the connection before the answer comes."""
    asked = len(served.endpoint.sessions["a"].pending)
    served.gate.clear()
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), int(parts.port or 0), timeout=10)
    connection.request(
        "POST", f"{parts.path}/v1/chat/completions", json.dumps(body), {"Authorization": f"Bearer {key}"}
    )
    eventually(lambda: len(served.endpoint.sessions["a"].pending) > asked)
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    time.sleep(0.05)
    served.gate.set()
    pending = served.endpoint.sessions["a"].pending[-1]
    eventually(pending.done.done)


def changing(served: Served, *, loads: int | None = None, **fields: Any) -> None:
    """Let the engine's next answer have other `fields`; before it is taken, weights of version `loads` are served."""
    pump = served.endpoint.pump
    engine = pump.engine
    advance = engine.advance

    def changed() -> Any:
        replies = advance()
        if replies:
            engine.advance = advance
            if loads is not None:
                engine.load_weights(loads, None)
        return [replace(reply, result=replace(reply.result, **fields)) for reply in replies]

    engine.advance = changed


class TestForest:
    def test_nothing_changes_and_serving_does_not_select(self, served: Served) -> None:
        """1: an append-only forest; what is left out is said later, by a rule, with the reason."""
        session, url, key = served.open()
        served.says += ["one", "two", "three"]
        post(url, key, body_of(USER))
        post(url, key, body_of(USER, said("one"), USER))
        before = session.recorder.turns()
        post(url, key, body_of(USER, said("one"), USER))
        turns = session.recorder.turns()
        assert [replace(turn, facts={}) for turn in turns[:2]] == [replace(turn, facts={}) for turn in before]
        assert parents(session) == [None, 0, 0]
        assert [node.fork for node in session.recorder.nodes] == ["root", "", "repeat"]
        assert find_parents(turns)[2] == (0, len(session.recorder.nodes[0].whole))

    def test_tokens_decide_and_messages_only_propose(self, served: Served, chat: Chat) -> None:
        """2: what the client says it was told must be what was sampled, or the chat is rendered anew."""
        session, url, key = served.open()
        served.says += ["go on", "left", "right", "left"]
        post(url, key, body_of(USER))
        post(url, key, body_of(USER, said("go on"), USER))
        first, second = session.recorder.nodes
        assert second.parent is first
        assert served.streams[1] == first.whole + second.prompt_ids
        assert served.requests[1].prompt_ids == second.prompt_ids  # the engine goes on in its stream
        post(url, key, body_of(USER, said("go  on"), USER))
        assert session.recorder.nodes[2].parent is None
        assert session.recorder.nodes[2].fork == "rewrite"
        post(
            url,
            key,
            body_of(USER, {"role": "assistant", "content": [{"type": "text", "text": "go on"}]}, USER),
        )
        assert session.recorder.nodes[3].parent is first

    def test_arguments_are_compared_as_json(self, served: Served) -> None:
        """2: blanks and the order of keys in arguments make no other call."""
        session, url, key = served.open()
        served.says += ['<tool_call>{"name": "guess", "arguments": {"b": 1, "a": [2]}}</tool_call>', "done"]
        _, answer = post(url, key, body_of(USER, tools=[GUESS]))
        call = answer["choices"][0]["message"]["tool_calls"][0]
        assert json.loads(call["function"]["arguments"]) == {"b": 1, "a": [2]}
        call["function"]["arguments"] = '{ "a":[2],"b":1 }'
        back = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "higher"}
        post(url, key, body_of(USER, back, result, tools=[GUESS]))
        assert parents(session) == [None, 0]
        call["function"]["arguments"] = '{"a": [3], "b": 1}'
        post(url, key, body_of(USER, back, result, tools=[GUESS]))
        assert parents(session) == [None, 0, None]

    def test_tools_belong_to_the_root(self, served: Served) -> None:
        """6: the same text with other tools is another root, and of several callers."""
        session, url, key = served.open()
        served.says += ["go on", "go on", "left"]
        post(url, key, body_of(USER))
        post(url, key, body_of(USER, tools=[GUESS]), x_quintain_agent="scout")
        post(url, key, body_of(USER, said("go on"), USER, tools=[GUESS]))
        assert parents(session) == [None, None, 1]
        assert session.recorder.nodes[1].fork == "sub-agent"
        assert session.recorder.turns()[1].facts["lineage"] == "scout"

    def test_what_was_cut_off_or_is_empty_is_gone_on_from_by_nobody(self, served: Served) -> None:
        """18: truncated generations close their path; empty ones never become parents."""
        session, url, key = served.open()
        served.says += ["bcdfg", "", "left"]
        _, answer = post(url, key, body_of(USER, max_tokens=2))
        assert answer["choices"][0]["finish_reason"] == "length"
        cut = answer["choices"][0]["message"]["content"]
        post(url, key, body_of(USER, said(cut), USER))
        post(url, key, body_of(USER, said(cut), USER, said(""), USER))
        assert parents(session) == [None, None, None]

    def test_a_stop_text_cuts_what_was_sampled(self, served: Served) -> None:
        """2: what is recorded ends with the token that completes the stop; what comes next is written without it."""
        session, url, key = served.open()
        served.says += ["left Observation: I see", "done"]
        _, answer = post(url, key, body_of(USER, stop=["Observation:"], return_token_ids=True))
        choice = answer["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("left ", "stop")
        node = session.recorder.nodes[0]
        assert choice["token_ids"] == list(node.completion.token_ids)
        assert served.endpoint.chat.text(node.completion.token_ids) == "left Observation:"
        assert len(node.completion.logprobs) == len(node.completion.token_ids)
        post(url, key, body_of(USER, said("left "), USER))
        assert parents(session) == [None, None]
        chat = served.endpoint.chat
        shown = chat.conversation().prompt(
            [each.message() for each in read(body_of(USER, said("left "), USER)).messages]
        )
        assert served.streams[1] == shown.token_ids and "Observation" not in chat.text(served.streams[1])
        first, second = session.recorder.turns()
        assert (second.facts["fork"], first.facts["carried"]) == ("stop", True)
        assert first.completion.token_ids == node.completion.token_ids

    def test_one_call_is_one_call(self, served: Served) -> None:
        """Where a client wants no calls side by side, it is handed the first, and goes on from that."""
        call = '<tool_call>{"name": "%s", "arguments": {}}</tool_call>'
        tools = [
            {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
            for name in "ab"
        ]
        for wanted, count in ((None, 2), (True, 2), (False, 1)):
            session, url, key = served.open(f"e{wanted}")
            served.says += [call % "a" + call % "b", "done"]
            more = {} if wanted is None else {"parallel_tool_calls": wanted}
            _, answer = post(url, key, body_of(USER, tools=tools, **more))
            calls = answer["choices"][0]["message"]["tool_calls"]
            assert [each["function"]["name"] for each in calls] == ["a", "b"][:count]
            results = [{"role": "tool", "tool_call_id": each["id"], "content": "x"} for each in calls]
            post(url, key, body_of(USER, answer["choices"][0]["message"], *results, tools=tools, **more))
            assert parents(session) == ([None, 0] if count == 2 else [None, None])
            assert session.recorder.turns()[1].facts.get("fork", "") == ("" if count == 2 else "stop")

    def test_custody_of_a_node(self, served: Served) -> None:
        """17: a digest names parent, tokens, log-probs and versions; any other number gives another one."""
        session, url, key = served.open()
        post(url, key, body_of(USER))
        post(url, key, body_of(USER, said("go on"), USER))
        first, second = session.recorder.nodes
        assert second.digest == node_digest(first.digest, 1, second.prompt_ids, second.completion)
        for changed in (
            replace(second.completion, policy_version=1),
            replace(second.completion, logprobs=(-0.5, *second.completion.logprobs[1:])),
            replace(second.completion, token_ids=(7, *second.completion.token_ids[1:])),
        ):
            assert node_digest(first.digest, 1, second.prompt_ids, changed) != second.digest
        assert session.recorder.turns()[1].facts["digest"] == second.digest


class TestRetries:
    def test_equal_bodies_are_two_requests(self, served: Served) -> None:
        """3: nothing is replayed because two bodies are equal."""
        session, url, key = served.open()
        served.says += ["left", "right"]
        answers = [post(url, key, body_of(USER))[1]["choices"][0]["message"]["content"] for _ in range(2)]
        assert answers == ["left", "right"]
        assert len({request.seed for request in served.requests}) == 2
        assert len(session.recorder.nodes) == 2

    @pytest.mark.parametrize("is_streamed", [False, True])
    def test_an_idempotency_key_replays(self, served: Served, is_streamed: bool) -> None:
        """3: an idempotency key is bound to path and body; streamed answers are kept, too."""
        session, url, key = served.open()
        served.says += ["left", "right"]
        with client(url, key) as sdk:
            found: list[str] = []
            for _ in range(2):
                more: Any = {"extra_headers": {"Idempotency-Key": "k1"}, "messages": [USER], "model": "m"}
                if is_streamed:
                    chunks = list(sdk.chat.completions.create(stream=True, **more))
                    found.append("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
                else:
                    found.append(sdk.chat.completions.create(**more).choices[0].message.content or "")
        assert found == ["left", "left"]
        assert len(session.recorder.nodes) == len(served.requests) == 1
        status, answer = post(url, key, body_of(USER, USER), Idempotency_Key="k1")
        assert status == 422 and "with another request" in answer["error"]["message"]

    def test_a_retry_of_the_sdk_is_one_call(self, served: Served, eventually: Eventually) -> None:
        """3: the header in which SDKs count retries joins what is under way, and what was lost is told again."""
        session, url, key = served.open()
        served.says += ["left", "right"]
        served.gate.clear()
        answers: list[Any] = []

        def ask(count: str) -> None:
            answers.append(post(url, key, body_of(USER), X_Stainless_Retry_Count=count)[1])

        threads = [threading.Thread(target=ask, args=(count,)) for count in ("0", "1")]
        threads[0].start()
        eventually(lambda: bool(session.pending))
        threads[1].start()
        eventually(lambda: session.pending[0].num_retries == 1)
        served.gate.set()
        for thread in threads:
            thread.join(10)
        assert [each["choices"][0]["message"]["content"] for each in answers] == ["left", "left"]
        assert len(session.recorder.nodes) == 1
        assert session.recorder.turns()[0].facts["retries"] == 1
        assert call_metrics([episode(session)])["endpoint/retries"] == 1.0

    def test_the_sdk_retries_what_timed_out(self, served: Served, eventually: Eventually) -> None:
        """3 and 11: a real client that gives up and asks again is told the answer of its first request."""
        session, url, key = served.open()
        served.says += ["left", "right"]
        served.gate.clear()
        threading.Timer(0.6, served.gate.set).start()
        with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=3, timeout=0.3) as sdk:
            answer = sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "A wall."}])
        assert answer.choices[0].message.content == "left"
        assert len(session.recorder.nodes) == 1
        eventually(lambda: session.recorder.turns()[0].facts["delivery"] == "whole")

    def test_a_retried_last_call_is_decided_by_delivery(self, served: Served, eventually: Eventually) -> None:
        """4: of two equal last calls the one that was read is trained; where none was, none is, and it is counted."""
        session, url, key = served.open()
        served.says += ["go on", "lost", "read"]
        post(url, key, body_of(USER))
        last = body_of(USER, said("go on"), USER)
        hang_up(url, key, last, served, eventually)
        post(url, key, last)
        assert parents(session) == [None, 0, 0]
        assert unused(session) == {1: NOT_READ}
        other, url, key = served.open("a")
        served.says += ["lost", "lost too"]
        hang_up(url, key, body_of(USER), served, eventually)
        hang_up(url, key, body_of(USER), served, eventually)
        assert unused(other) == {0: NOT_READ, 1: NOT_READ}
        assert call_metrics([episode(other)])["endpoint/unused"] == 1.0

    def test_of_a_repeated_call_the_one_gone_on_from(self, served: Served) -> None:
        """1 and 4: an answer that was asked for again and left is not trained, whoever was read."""
        session, url, key = served.open()
        served.says += ["left", "right", "done"]
        post(url, key, body_of(USER))
        post(url, key, body_of(USER))
        assert unused(session) == {}  # both were read: nothing says which was used
        post(url, key, body_of(USER, said("right"), USER))
        assert unused(session) == {0: REPEATED}


class TestManyAgents:
    def test_parallel_sub_agents_are_siblings(self, served: Served, eventually: Eventually) -> None:
        """5: requests in flight are resolved when they come and committed one by one; siblings are legal, and used."""
        session, url, key = served.open()
        served.says += ["go on", "left", "right"]
        post(url, key, body_of(USER))
        served.gate.clear()
        threads = [
            threading.Thread(
                target=post, args=(url, key, body_of(USER, said("go on"), {"role": "user", "content": text}))
            )
            for text in ("A wall.", "Go.")
        ]
        for number, thread in enumerate(threads):
            thread.start()
            eventually(lambda number=number: len(session.pending) == number + 2)
        served.gate.set()
        for thread in threads:
            thread.join(10)
        assert parents(session) == [None, 0, 0]
        assert [node.after for node in session.recorder.nodes] == [0, 1, 1]
        assert unused(session) == {}
        turns = turns_of(session)
        assert [turn.starts_segment for turn in turns] == [True, False, True]

    def test_auxiliary_calls_are_kept_and_not_trained(self, served: Served) -> None:
        """7: titles and probes are calls, too; they are kept, tagged, and get no reward."""
        session, url, key = served.open()
        served.says += ["A title", CALL, "on it", "done"]
        post(url, key, body_of({"role": "system", "content": "Write a title."}, USER))
        _, answer = post(url, key, body_of(USER, tools=[GUESS]))
        call = answer["choices"][0]["message"]
        post(url, key, body_of(USER), x_quintain_kind="auxiliary")
        result = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "higher"}
        post(url, key, body_of(USER, call, result, tools=[GUESS]))
        assert unused(session) == {0: AUXILIARY, 2: AUXILIARY}
        assert session.recorder.turns()[2].facts["kind"] == "auxiliary"
        paid = [turn.reward for turn in episode(session).turns]
        assert paid == [0.0, 0.0, 0.0, 1.0]

    def test_a_summary_is_trained_where_it_was_resumed_from(self, served: Served) -> None:
        """Compaction: the summary that the new history holds is used, one that was thrown away is not."""
        session, url, key = served.open()
        history = [USER, said("go on")]
        ask = {"role": "user", "content": "Summarise."}
        served.says += ["go on", "abandoned", "a short summary", "right", "left"]
        post(url, key, body_of(USER))
        post(url, key, body_of(*history, ask))
        post(url, key, body_of(*history, {"role": "user", "content": "Summarise briefly."}))
        post(url, key, body_of({"role": "user", "content": "So far: a short summary. Go."}))
        assert session.recorder.nodes[3].fork == "compaction"
        post(
            url,
            key,
            body_of({"role": "user", "content": "So far: a short summary. Go."}, said("right"), USER),
        )
        assert parents(session) == [None, 0, 0, None, 3]
        assert unused(session) == {1: LEFT}
        causes = call_metrics([episode(session)])
        assert causes["endpoint/forks/compaction"] == causes["endpoint/forks/branch"] == 1.0

    def test_a_rollout_weighs_one(self, served: Served) -> None:
        """8: three streams of one rollout are three samples of one trajectory, and nothing is trained twice."""
        session, url, key = served.open()
        served.says += ["go on", "left", "right"]
        post(url, key, body_of(USER))
        post(url, key, body_of(USER, said("go on"), USER))
        post(url, key, body_of({"role": "user", "content": "Go."}))
        trajectory = episode(session)
        samples = imitation_samples([trajectory])
        assert [sample.trajectory for sample in samples] == [0, 0]
        assert sum(float(sample.loss_weight.sum()) for sample in samples) == trajectory.num_sampled

    @pytest.mark.parametrize("aggregation", ["sequence_mean", "constant", "token_mean"])
    def test_one_stream_of_three_answers_weighs_what_three_streams_of_one_weigh(
        self, served: Served, aggregation: Aggregation
    ) -> None:
        """8: 1×3 against 3×1, beside another rollout: every token has the same weight however the rows are cut."""
        asked = [{"role": "user", "content": text} for text in ("A wall.", "Go.", "left")]
        weights: list[list[list[float]]] = []
        for is_one in (True, False):
            rollouts: list[Trajectory] = []
            for name, texts in (("long", ["go on", "left", "right"]), ("short", ["left"])):
                session, url, key = served.open(name)
                served.says[:] = texts
                history: list[Any] = []
                for user, text in zip(asked, texts, strict=False):
                    history = [*history, user] if is_one else [user]
                    post(url, key, body_of(*history))
                    history = [*history, said(text)]
                rollouts.append(episode(session))
            samples = imitation_samples(rollouts)
            assert [sample.trajectory for sample in samples] == ([0, 1] if is_one else [0, 0, 0, 1])
            constant = 5.0 if aggregation == "constant" else None
            batch = pack(samples, aggregation=aggregation, constant=constant)
            ends = np.cumsum([len(sample.token_ids) for sample in samples])
            per_row = np.split(np.asarray(batch.loss_weight), ends[:-1])
            found: list[list[float]] = [[], []]
            for row, sample in zip(per_row, samples, strict=True):
                found[sample.trajectory] += [float(weight) for weight in row if weight > 0]
            weights.append(found)
        assert weights[0] == weights[1]
        if aggregation == "sequence_mean":
            assert [sum(found) for found in weights[0]] == pytest.approx([0.5, 0.5])  # pyright: ignore[reportUnknownMemberType]


class TestServing:
    @pytest.mark.parametrize(
        "spans",
        [
            ((1, 3), (2, 3)),  # the first token has no version
            ((0, 4), (2, 3)),  # the weights went back
            ((0, 3), (0, 3)),  # one token has two
            ((0, 3), (9, 3)),  # a token that was not sampled has one
            ((0, 2),),  # older than what was served when it was dispatched
            ((0, 3), (2, 8)),  # newer than what is served
        ],
    )
    def test_what_cannot_be_dated_is_not_recorded(
        self, served: Served, spans: tuple[tuple[int, int], ...]
    ) -> None:
        """9: an answer of which it cannot be said which weights sampled it is a failure, and the agent reads on."""
        engine = served.endpoint.pump.engine
        assert isinstance(engine, Scripted)
        engine.load_weights(3, None)
        session, url, key = served.open()
        changing(served, version_spans=spans, policy_version=spans[-1][1])
        status, answer = post(url, key, body_of(USER))
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "go on")
        outcome, _ = outcome_of(session, Score(value=1.0, is_success=True))
        assert isinstance(outcome, Failure) and outcome.kind == "capture"
        assert "dispatched at 3 and served at 3" in outcome.message

    def test_weights_that_change_on_the_way_are_dated_by_token(self, served: Served) -> None:
        """9: a version at dispatch, and one for each token."""
        engine = served.endpoint.pump.engine
        assert isinstance(engine, Scripted)
        session, url, key = served.open()
        engine.load_weights(2, None)
        changing(served, version_spans=((0, 2), (1, 4)), policy_version=4, loads=4)
        post(url, key, body_of(USER))
        assert session.recorder.nodes[-1].completion.version_spans == ((0, 2), (1, 4))

    def test_another_policy_than_is_served_is_not_recorded(self, served: Served) -> None:
        """10: an answer of other weights, such as the base model's without the adapter, and one beyond its limit."""
        cases: list[tuple[dict[str, Any], str]] = [
            ({"policy": "base"}, "an answer of the policy 'base', and 'policy' is served"),
            ({"token_ids": (5,) * 30, "logprobs": (-1.0,) * 30}, "30 sampled tokens, and 20 were asked for"),
        ]
        for change, told in cases:
            session, url, key = served.open()
            changing(served, **change)
            post(url, key, body_of(USER, max_tokens=20))
            outcome, _ = outcome_of(session, Score(value=1.0, is_success=True))
            assert isinstance(outcome, Failure) and told in outcome.message

    def test_versions_are_those_of_sampling(self, chat: Chat, served: Served) -> None:
        """9: a version for each token, where weights change in the middle of an answer."""
        engine = served.endpoint.pump.engine
        assert isinstance(engine, Scripted)
        session, url, key = served.open()
        post(url, key, body_of(USER))
        engine.load_weights(7, None)
        _, answer = post(url, key, body_of(USER))
        assert answer["system_fingerprint"] == "policy@7"
        recorder = Recorder(chat)
        plan = recorder.plan(read(body_of(USER, stop=["f"])))
        ids = chat.write("bcdfgh")
        spans = ((0, 3), (2, 4), (len(ids) - 2, 5))
        completion = replace(
            session.recorder.nodes[0].completion,
            token_ids=ids, logprobs=(-1.0,) * len(ids), version_spans=spans, policy_version=5,
        )  # fmt: skip
        node = recorder.commit(plan, completion)
        assert node.completion.version_spans == ((0, 3), (2, 4))
        assert node.completion.policy_version == 4

    def test_sampling_is_pinned(self, served: Served) -> None:
        """10: temperature and the rest are the server's; what clients ask of it is counted."""
        session, url, key = served.open(terms=EpisodeLimits(temperature=0.7, max_turn_tokens=50))
        post(url, key, body_of(USER, temperature=0, top_p=0.1, seed=3, max_tokens=20))
        post(url, key, body_of(USER, max_completion_tokens=4000))
        assert [(r.sampling.temperature, r.sampling.max_tokens) for r in served.requests] == [
            (0.7, 20),
            (0.7, 50),
        ]
        assert session.recorder.num_pinned == 1

    @pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
    def test_several_answers_are_refused(self, served: Served, path: str) -> None:
        """10: n > 1 is refused."""
        _, url, key = served.open()
        status, answer = post(url, key, {"n": 2, "input": "x", **body_of(USER)}, path)
        assert status == 400 and answer["error"]["message"].startswith("n: got 2; one answer")

    @pytest.mark.parametrize("is_streamed", [False, True])
    def test_a_client_that_hangs_up(self, served: Served, eventually: Eventually, is_streamed: bool) -> None:
        """11: what it asked for is finished and kept, and was not delivered."""
        session, url, key = served.open()
        served.says += ["left"]
        hang_up(url, key, body_of(USER, stream=is_streamed), served, eventually)
        (node,) = session.recorder.nodes
        assert node.spoken.text == "left"
        assert session.recorder.turns()[0].facts["delivery"] == "broken"
        assert call_metrics([episode(session)])["endpoint/delivered"] == 0.0

    def test_a_stream_is_kept_awake(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        """11 and 16: signs of life are sent while the answer is sampled, and the SDK reads over them."""
        monkeypatch.setattr("quintain.serve.endpoint.PING_SECONDS", 0.05)
        _, url, key = served.open()
        served.gate.clear()
        with client(url, key) as sdk:
            stream = sdk.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Go."}], stream=True
            )
            served.gate.set()  # the head of the stream is here, and nothing was sampled
            chunks = list(stream)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "go on"

    def test_what_is_not_recorded_marks_the_rollout(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """13: the agent notices nothing; the episode is a failure of kind capture, and has no score."""

        def commit(*_: object, **__: object) -> None:
            raise RuntimeError("the disk is full")

        session, url, key = served.open()
        with monkeypatch.context() as broken:
            broken.setattr(Recorder, "commit", commit)
            status, answer = post(url, key, body_of(USER))
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "go on")
        post(url, key, body_of(USER))
        outcome, stop = outcome_of(session, Score(value=1.0, is_success=True))
        assert isinstance(outcome, Failure) and stop is Stop.FAILURE
        assert (outcome.owner, outcome.kind) == ("engine", "capture")
        assert outcome.message.startswith(
            "1 calls were not recorded, the first by RuntimeError: the disk is full"
        )
        trajectory = replace(episode(session), outcome=outcome)
        assert call_metrics([trajectory])["endpoint/not_recorded"] == 1.0

    def test_the_first_token_that_differs_is_told(self, served: Served, chat: Chat) -> None:
        """15: where a rewritten history leaves what was recorded, and in the transcript of the episode."""
        session, url, key = served.open()
        served.says += ["go on", "left", "right"]
        post(url, key, body_of(USER))
        post(url, key, body_of(USER, said("go on"), USER))
        post(url, key, body_of(USER, said("go off"), USER))
        first, second, third = (node.whole for node in session.recorder.nodes)
        differs = session.recorder.turns()[2].facts["differs"]
        at = differs["token"]
        assert second[:at] == third[:at] and second[at] != third[at] and at > len(first) - 5
        assert (differs["call"], session.recorder.nodes[2].fork) == (1, "rewrite")
        assert chat.text(second[at : at + 12]) == differs["was"] != differs["now"]
        assert "differs" not in session.recorder.turns()[1].facts
        shown = transcript_html(episode(session), None, heading="x")
        assert (
            f'call 2: rewrite · its prompt differs from <a href="#g-0-1">call 1</a> at token {at}: ' in shown
        )
        assert '<pre id="g-0-1">' in shown

    def test_what_is_not_trained_is_told_in_the_transcript(self, served: Served) -> None:
        """15: a leaf that was left out has its reason where a person reads it."""
        session, url, key = served.open()
        post(url, key, body_of(USER), x_quintain_kind="auxiliary")
        post(url, key, body_of({"role": "user", "content": "Go."}))
        assert f"not trained: {AUXILIARY}" in transcript_html(episode(session), None, heading="x")
        metrics = call_metrics([episode(session)])
        assert (metrics["endpoint/streams"], metrics["endpoint/delivered"], metrics["endpoint/unused"]) == (
            2,
            1,
            0.5,
        )

    def test_what_was_recorded_can_be_proved(self, served: Served) -> None:
        """17: a digest of a call and all before it; a changed token, log-prob, version or order is found."""
        session, url, key = served.open()
        served.says += ["go on", "left", "right", "done", "bcd"]
        post(url, key, body_of(USER))
        post(url, key, body_of(USER, said("go on"), USER))
        post(url, key, body_of(USER, said("go on"), {"role": "user", "content": "Go."}))
        post(url, key, body_of({"role": "user", "content": "Go."}, tools=[GUESS]))
        post(url, key, body_of(USER, tools=[GUESS]))
        turns = list(decode(encode(episode(session))).turns)
        assert find_changed(turns) == []
        for number, hurt in ((1, [1]), (0, [0, 1, 2])):
            for change in (
                {"token_ids": (*turns[number].completion.token_ids[:-1], 3)},
                {"logprobs": (*turns[number].completion.logprobs[:-1], -9.0)},
                {"policy_version": 5},
                {"policy": "other"},
            ):
                completion = replace(turns[number].completion, **change)
                forged = [*turns]
                forged[number] = replace(turns[number], completion=completion)
                assert find_changed(forged)[: len(hurt)] == hurt[: len(find_changed(forged))]
                assert number in find_changed(forged) and 3 not in find_changed(forged)
        forged = [*turns]
        forged[2] = replace(turns[2], prompt_ids=(5, *turns[2].prompt_ids[1:]))
        assert find_changed(forged) == [2]
        assert find_changed([replace(turn, facts={}) for turn in turns]) == []

    def test_what_a_newer_version_recorded_is_refused(self, served: Served) -> None:
        """17: readers refuse facts that they do not know."""
        session, url, key = served.open()
        post(url, key, body_of(USER))
        newer = [replace(turn, facts={**turn.facts, "version": 2}) for turn in turns_of(session)]
        for look in (find_changed, find_unused):
            with pytest.raises(DataError, match="got version 2, and this Quintain reads 1; update it"):
                look(newer)

    def test_facts_stand_in_the_journal(self, served: Served) -> None:
        """1 and 17: what was seen of a call is written and read with the episode."""
        session, url, key = served.open()
        post(url, key, body_of(USER), x_quintain_agent="scout")
        turns: tuple[Turn, ...] = session.recorder.turns()
        assert turns[0].facts["lineage"] == "scout"
        trajectory = episode(session)
        record = encode(trajectory)
        assert decode(record) == trajectory

    def test_a_body_beyond_the_limit_is_refused_in_a_line(
        self, served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """16: the limit is what a context can hold; what is longer is told so, and the episode goes on."""
        bodies = served.endpoint._bodies  # pyright: ignore[reportPrivateUsage]
        assert bodies.most == (1 << 20) + 64 * 2000
        monkeypatch.setattr(bodies, "most", 2000)
        session, url, key = served.open()
        status, answer = post(url, key, body_of(USER, metadata={"files": "x" * 3000}))
        told = "body: got more than 2000 bytes, which is more than the model can read; send less"
        assert (status, answer["error"]["message"]) == (413, told)
        assert post(url, key, body_of(USER))[0] == 200 and len(session.recorder.nodes) == 1

    def test_calls_that_wait_need_no_thread_each_and_no_probes(
        self, served: Served, eventually: Eventually
    ) -> None:
        """16: thirty calls wait at once in the server's one thread; nothing is asked of the engine but them."""
        session, url, key = served.open()
        served.gate.clear()
        before = threading.active_count()
        widest: list[int] = []

        async def ask_all() -> list[int]:
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx2.AsyncClient(timeout=30, headers=headers) as asker:
                asked = [
                    asyncio.create_task(
                        asker.post(
                            f"{url}/v1/chat/completions", json=body_of({"role": "user", "content": text})
                        )
                    )
                    for text in ("A wall.", "Go.", "left") * 10
                ]
                while len(session.pending) < len(asked):
                    await asyncio.sleep(0.01)
                widest.append(threading.active_count())
                served.gate.set()
                return [answer.status_code for answer in await asyncio.gather(*asked)]

        assert asyncio.run(ask_all()) == [200] * 30
        assert widest[0] <= before + 2 + MAX_READERS
        assert len(served.requests) == 30 == len(session.recorder.nodes)

    def test_headers_of_a_hop_end_at_it(self, served: Served) -> None:
        """16: what a client says of its own connection is not answered, and the connection is used again."""
        session, url, key = served.open()
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(str(parts.hostname), int(parts.port or 0), timeout=10)
        own = {
            "Keep-Alive": "timeout=5",
            "TE": "trailers",
            "Proxy-Authorization": "x",
            "Connection": "keep-alive, TE",
        }
        for _ in range(2):
            connection.request(
                "POST",
                f"{parts.path}/v1/chat/completions",
                json.dumps(body_of(USER)),
                {"Authorization": f"Bearer {key}", **own},
            )
            answer = connection.getresponse()
            names = {name.lower() for name, _ in answer.getheaders()}
            assert answer.status == 200 and not names & {name.lower() for name in own}
            answer.read()
            assert connection.sock is not None
        connection.close()
        assert len(session.recorder.nodes) == 2

    def test_long_bodies_are_read(self, served: Served) -> None:
        """16: a body may be longer than what its chat needs."""
        _, url, key = served.open()
        status, _ = post(url, key, body_of(USER, metadata={"files": "x" * (1 << 20)}))
        assert status == 200
        status, answer = post(url, key, body_of({"role": "user", "content": "bcdfg" * 500}))
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


class TestDialects:
    def test_thoughts_belong_to_the_identity(self, served: Served) -> None:
        """12: what a dialect keeps opaque comes back as it was; without it, or changed, it is another chat."""
        session, url, key = served.open()
        served.says += ["<think>a wall</think>left", "done", "done", "done"]
        with anthropic.Anthropic(base_url=url, api_key=key, max_retries=0) as sdk:
            more: Any = {"model": "m", "max_tokens": 90}
            answer = sdk.messages.create(messages=[{"role": "user", "content": "Go."}], **more)
            assert [block.type for block in answer.content] == ["thinking", "text"]
            again: Any = [
                {"role": "user", "content": "Go."},
                {"role": "assistant", "content": answer.content},
            ]
            sdk.messages.create(messages=[*again, {"role": "user", "content": "And?"}], **more)
            bare = [block for block in answer.content if block.type == "text"]
            again[1] = {"role": "assistant", "content": bare}
            sdk.messages.create(messages=[*again, {"role": "user", "content": "And?"}], **more)
        assert parents(session) == [None, 0, None]
        with client(url, key) as sdk:
            served.says[:] = ["<think>a wall</think>left", "done"]
            found = sdk.responses.create(model="m", input="Go.")
            assert [item.type for item in found.output] == ["reasoning", "message"]
            items: Any = [
                {"role": "user", "content": "Go."},
                *found.output,
                {"role": "user", "content": "And?"},
            ]
            sdk.responses.create(model="m", input=items)
        assert parents(session)[3:] == [None, 3]
