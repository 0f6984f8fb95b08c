"""Desks of one engine: each gets its own replies, whoever lets the engine work."""

from typing import cast

from tests.testing.test_engines import failed, scripted

from quintain.engines.protocol import Engine, Request, Sampling
from quintain.engines.scripted import Scripted
from quintain.engines.shared_engine import EngineClient
from quintain.testing.engines import check_engine


def request(name: str) -> Request:
    return Request(session=name, prompt_ids=(5, 9), seed=1, sampling=Sampling(stop_ids=frozenset({2})))


def test_each_desk_gets_the_replies_to_its_own_requests() -> None:
    one = EngineClient(Scripted(lambda _, __: (7, 2)))
    two = one.new_client()
    for desk, names in ((one, "ab"), (two, "cd")):
        for name in names:
            desk.submit(request(name))
    assert [reply.session for reply in one.advance()] == ["a", "b"]
    two.release("d")
    assert [reply.session for reply in two.advance()] == ["c"]
    assert one.advance() == two.advance() == []
    assert two.stats().num_finished == 4 and two.policy_version == 0


def test_a_desk_is_an_engine() -> None:
    first = EngineClient(scripted(tokens_per_round=1))
    for desk in (first, first.new_client()):
        findings = list(check_engine(cast(Engine, desk)))
        assert findings and failed(findings) == []
