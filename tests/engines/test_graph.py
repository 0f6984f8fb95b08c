from dataclasses import replace
from random import Random

import pytest
from tests.engines.scripts import scripted

from quintain.engines.graph import (
    Call,
    Criterion,
    Objective,
    deduce_objectives,
    order_calls,
    run_graph,
    sort_calls,
)
from quintain.engines.protocol import Request, Sampling
from quintain.engines.scripted import Scripted
from quintain.errors import EngineFault, UsageError
from quintain.types import Completion, Failure

MAPS: dict[str, Criterion] = {"sum": "latency", "chat": "latency", "log": "throughput"}


def call(fills: str, *prompt: str | tuple[int, ...], tokens: int = 2, stop: int | None = None) -> Call:
    """Return a call that reads what `prompt` names, or the token 1."""
    sampling = Sampling(max_tokens=tokens, stop_ids=frozenset() if stop is None else frozenset({stop}))
    return Call(fills=fills, prompt=prompt or ((1,),), seed=3, sampling=sampling)


def map_reduce() -> list[Call]:
    """Return a plan, two parts of it, their sum, and two single calls, of which one can wait."""
    return [
        call("log"),
        call("chat"),
        call("sum", "a", "b"),
        call("a", "plan"),
        call("b", "plan"),
        call("plan"),
    ]


def test_objectives_are_handed_backwards_and_a_stage_of_several_asks_for_throughput() -> None:
    found = deduce_objectives(map_reduce(), MAPS)
    assert found == {
        "log": Objective(urgency="throughput", depth=1),
        "chat": Objective(urgency="latency", depth=1),
        "sum": Objective(urgency="latency", depth=1),
        "a": Objective(urgency="latency", depth=2, group="sum/2"),
        "b": Objective(urgency="latency", depth=2, group="sum/2"),
        "plan": Objective(urgency="latency", depth=3),
    }
    assert [found[name].criterion for name in ("log", "a", "plan")] == ["throughput", "throughput", "latency"]


def test_the_most_urgent_end_counts_and_of_those_the_deepest() -> None:
    calls = [call("x"), call("slow", "x", "long"), call("long", "x"), call("fast", "x")]
    both = deduce_objectives(calls, {"slow": "throughput", "fast": "latency"})
    assert both["x"] == Objective(urgency="latency", depth=2)
    alike = deduce_objectives(calls, {"slow": "latency", "fast": "latency"})
    assert alike["x"] == Objective(urgency="latency", depth=3)
    read_and_wanted = deduce_objectives(calls, {"slow": "throughput", "fast": "latency", "long": "latency"})
    assert read_and_wanted["long"] == Objective(urgency="latency", depth=1)


def test_deep_calls_begin_first_then_those_by_themselves_then_group_by_group() -> None:
    calls = [call("a1"), call("z", "b1", "b2"), call("b1"), call("y", "a1", "a2"), call("b2"), call("a2")]
    calls += [call("c"), call("w", "c")]
    goals = deduce_objectives(calls, dict.fromkeys("wyz", "latency"))
    assert [each.fills for each in order_calls(calls, goals)] == ["c", "a1", "a2", "b1", "b2", "z", "y", "w"]


def test_what_can_wait_begins_last_however_deep_it_is() -> None:
    calls = [call("deep"), call("log", "deep"), call("chat")]
    goals = deduce_objectives(calls, {"log": "throughput", "chat": "latency"})
    assert [each.fills for each in order_calls(calls, goals)] == ["chat", "deep", "log"]


def test_values_stand_in_prompts_without_stop_ids_and_special_tokens() -> None:
    seen: dict[str, tuple[int, ...]] = {}

    def say(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        seen[request.session] = stream
        return (7, 99, 8, 2)

    calls = [call("answer", (5,), "plan", (6,), "fact", tokens=4), call("plan", tokens=4, stop=2)]
    found = run_graph(Scripted(say), calls, given={"fact": (4, 4)}, special_ids=frozenset({99}))
    assert seen == {"plan": (1,), "answer": (5, 7, 8, 6, 4, 4)}
    assert isinstance(found["answer"], Completion) and found["answer"].token_ids == (7, 99, 8, 2)


def test_no_call_begins_before_what_it_reads_in_random_graphs() -> None:
    rng = Random(0)
    for _ in range(300):
        names = [f"n{k}" for k in range(rng.randint(1, 9))]
        calls = [
            call(name, (1,), *rng.sample(names[:k], rng.randint(0, min(k, 3))), tokens=rng.randint(1, 4))
            for k, name in enumerate(names)
        ]
        rng.shuffle(calls)
        engine = scripted(tokens_per_round=1)
        most = rng.choice([None, 1, 3])
        found = run_graph(engine, calls, max_running=most)
        places = {request.session: place for place, request in enumerate(engine.requests)}
        assert set(found) == set(names) == set(places)
        assert all(places[read] < places[each.fills] for each in calls for read in each.reads)
        order = sort_calls(calls)
        assert all(order.index(read) < order.index(each.fills) for each in calls for read in each.reads)
        stats = engine.stats()
        assert (stats.num_sessions, stats.num_running, stats.num_finished) == (0, 0, len(names))


def test_no_more_run_at_once_than_may() -> None:
    engine = scripted(tokens_per_round=1)
    rounds: list[int] = []
    advance = engine.advance
    engine.advance = lambda: (
        rounds.append(engine.stats().num_waiting + engine.stats().num_running) or advance()
    )
    run_graph(engine, [call(f"c{k}", tokens=3) for k in range(5)], max_running=2)
    assert rounds == [2, 2, 2, 2, 2, 2, 1, 1, 1]


def test_what_reads_a_failure_fails_and_the_others_go_on() -> None:
    def say(request: Request, stream: tuple[int, ...]) -> tuple[int, ...] | Failure:
        broken = Failure(owner="engine", kind="x", message="broken")
        return broken if request.session == "bad" else (5,) * 12

    calls = [
        call("end", "next"),
        call("next", "bad"),
        call("bad"),
        call("good", tokens=12),
        call("long", "good"),
    ]
    engine = Scripted(say, max_length=12)
    found = run_graph(engine, [*calls[:3], call("other")])
    assert found["end"] == Failure(owner="engine", kind="input", message="'next', which it reads, failed")
    assert isinstance(found["next"], Failure) and isinstance(found["other"], Completion)
    found = run_graph(Scripted(say, max_length=12), calls[3:])
    assert isinstance(found["long"], Failure) and found["long"].kind == "prompt"
    with pytest.raises(EngineFault, match="the engine holds 12"):
        run_graph(Scripted(say, max_length=12), [call("long", (1,) * 20)])
    assert run_graph(engine, []) == {}


@pytest.mark.parametrize(
    ("calls", "wanted", "message"),
    [
        (
            [call("a", "b"), call("b", "c"), call("c", "a")],
            None,
            "'a' → 'b' → 'c' → 'a', which wait for each other",
        ),
        ([call("a", "a")], None, "'a' → 'a'"),
        ([call("a"), call("a")], None, "'a' filled twice"),
        ([call("given")], None, "'given' filled twice"),
        ([call("a", "x")], None, "'a' reads 'x', which nobody fills"),
        ([call("a")], {"x": "latency"}, "'x' is wanted and nobody fills it"),
        ([call("a"), call("b")], {"a": "latency"}, "nobody reads or wants 'b'"),
    ],
)
def test_a_graph_that_cannot_be_run_is_refused_before_anything_is_sampled(
    calls: list[Call], wanted: dict[str, Criterion] | None, message: str
) -> None:
    engine = scripted()
    with pytest.raises(UsageError, match=message):
        run_graph(engine, calls, wanted, given={"given": (1,)})
    assert not engine.requests


def test_a_reply_that_nobody_asked_for_is_the_engine_s_fault() -> None:
    engine = scripted(tokens_per_round=1)
    engine.submit(Request(session="other", prompt_ids=(1,), seed=0, sampling=Sampling(max_tokens=1)))
    with pytest.raises(EngineFault, match="'other', which waits for none"):
        run_graph(engine, [replace(call("a"), sampling=Sampling(max_tokens=4))])
