"""GOAT: stages only take edges away, every sample comes to its answer again from a reset, goals name no call."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain.environments.protocol import advance, begin, tool_action
from quintain.environments.splitting import is_eval
from quintain.errors import ConfigError, DataError
from quintain.methods.imitation import goat
from quintain.methods.imitation.goat import Bench, Edge, Made, Sample
from quintain.retrieval.dense import Embedder
from quintain.types import Task, ToolSpec
from quintain.worlds.api.game import Api
from quintain.worlds.guess.game import Guess


def bench_of(**options: Any) -> Bench:
    world = Api(**options)
    return Bench(world, world.task("train", 0))


def test_stages_only_take_edges_away_and_keep_one_for_each_argument() -> None:
    for registry in range(5):
        bench = bench_of(registry=registry)
        found = goat.stages_of_graph(bench, least=0.05, probes=5)
        assert set(found["executed"]) <= set(found["similar"]) <= set(found["pairs"])
        num = sum(len(goat.arguments_of(spec)) for spec in bench.tools.values())
        assert len(found["pairs"]) == num * (len(bench.tools) - 1) == len(set(found["pairs"]))
        assert isinstance(bench.environment, Api)
        assert "answer" not in bench.tools
        assert bench.environment.registry.edges() <= {tuple(edge) for edge in found["executed"]}
    bench = bench_of()
    found = goat.stages_of_graph(bench, least=0.05, probes=5)
    blind = goat.stages_of_graph(bench, least=0.0, probes=1)
    assert blind["similar"] == blind["pairs"] and set(found["executed"]) <= set(blind["executed"])


class Once(Bench):
    """A bench that is never reset."""

    def run(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any] | None:
        replies = [advance(self.environment, tool_action(name, **own)) for name, own in calls]
        return [int(str(r.observation)) for r in replies] if all(r.is_valid for r in replies) else None


def test_what_an_earlier_probe_left_behind_would_hide_edges() -> None:
    bench = bench_of(stateful=1.0)
    world = bench.environment
    assert isinstance(world, Api)
    truth = {Edge(*edge) for edge in world.registry.edges()}
    assert set(goat.stages_of_graph(bench, least=0.0, probes=5)["executed"]) >= truth
    begin(world, bench.task)
    spoiled = Once(world, bench.task)
    assert not set(goat.stages_of_graph(spoiled, least=0.0, probes=5)["executed"]) & truth


def test_one_lucky_value_proves_nothing() -> None:
    lucky = careful = 0
    for registry in range(10):
        bench = bench_of(registry=registry, overlap=0.3)
        assert isinstance(bench.environment, Api)
        truth = {Edge(*edge) for edge in bench.environment.registry.edges()}
        lucky += len(set(goat.stages_of_graph(bench, least=0.0, probes=1)["executed"]) - truth)
        careful += len(set(goat.stages_of_graph(bench, least=0.0, probes=5)["executed"]) - truth)
    assert careful < 0.1 * lucky


@pytest.mark.parametrize("links", ["graph", "random"])
def test_every_sample_comes_to_its_answer_again(links: str) -> None:
    bench = bench_of(stateful=0.5)
    edges = goat.stages_of_graph(bench, least=0.05, probes=5)["executed"] if links == "graph" else None
    samples = goat.make_samples(bench, edges, 100, hops=2, rng=random.Random(0))
    assert len({sample.goal for sample in samples}) == len(samples) == 100
    for sample in samples:
        calls = [(made.tool, made.arguments) for made in sample.calls]
        assert bench.run(calls) == [made.result for made in sample.calls]
        assert not is_eval(sample.goal) and not goat.names_any(sample.goal, [*bench.tools])
        first, second = sample.calls
        assert first.filled == "" and bool(second.filled) is (links == "graph")
        if second.filled:
            assert second.arguments[second.filled] == first.result
        world = bench.environment
        assert begin(world, replace(bench.task, data=sample.data)) == sample.goal
        for name, arguments in calls:
            advance(world, tool_action(name, **arguments))
        assert advance(world, tool_action("answer", value=sample.data["answer"])).is_success


def document(told: str, **arguments: str) -> ToolSpec:
    schema = {name: {"description": text, "examples": [1, 2]} for name, text in arguments.items()}
    return ToolSpec(name="", description=told, parameters={"properties": schema})


def test_goals_are_written_in_words_of_documents() -> None:
    tools = {
        "zor": document("Gives the owner of an order.", x="order number"),
        "mip": document("Looks a guest up.", x="guest key", y=""),
    }
    chain = [Made("zor", {"x": 5}, 7), Made("mip", {"x": 7, "y": 3}, 9, "x")]
    assert goat.write_goal(tools, chain) == "Find the guest looks up of the owner of order 5 with y 3."
    apart = [Made("zor", {"x": 5}, 7), Made("zor", {"x": 6}, 8)]
    assert goat.write_goal(tools, apart) == "Find the owner of order 5, then the owner of order 6."
    assert goat.similarity(tools, Edge("zor", "mip", "x")) == 0.0
    assert goat.similarity(tools, Edge("mip", "zor", "x")) == 0.0
    assert goat.similarity(
        {**tools, "tak": document("A guest.", x="t")}, Edge("tak", "mip", "x")
    ) == pytest.approx(0.5**0.5)
    assert goat.names_any("Find ZOR.", ["zor"]) and not goat.names_any("Find zorro.", ["zor"])
    assert goat.read_result('{"a": 1}') == {"a": 1} and goat.read_result("none") == "none"


def test_no_goal_of_the_retriever_is_on_both_sides() -> None:
    samples = [Sample(goal=f"g{n % 5}", calls=(Made("a", {}, 1), Made("b", {}, 2))) for n in range(10)]
    learned, tested = goat.retrieval_pairs(samples, 0.4)
    assert len(learned) + len(tested) == 20 and tested
    assert not {goal for goal, _ in learned} & {goal for goal, _ in tested}


def test_a_retriever_finds_the_documents_of_goals_that_it_has_not_seen() -> None:
    bench = bench_of(tools=12)
    edges = goat.stages_of_graph(bench, least=0.05, probes=5)["executed"]
    samples = goat.make_samples(bench, edges, 60, hops=2, rng=random.Random(0))
    learned, tested = goat.retrieval_pairs(samples, 0.25)
    embedder, measured = goat.train_retriever(bench.tools, learned, tested, count=2, epochs=4)
    assert measured["recall"] > measured["recall_before"] + 0.1
    assert measured["recall"] == goat.recall(embedder, bench.tools, tested, 2)
    assert goat.recall(embedder, bench.tools, tested, 12) == 1.0
    assert "names" not in goat.document_of(document("Gives it.", names="order number"))


def test_the_retriever_is_written_and_its_recall_is_measured(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goat, "EPOCHS", 1)
    file = tmp_path / "made" / "documents.safetensors"
    rows = train(
        "goat", environment="api?hops=1", hops=1, demonstrations=8, retriever=str(file), unseen_goals=0.25
    )
    assert 0 <= rows[-1]["goat/recall_before"] <= 1 and 0 <= rows[-1]["goat/recall"] <= 1
    assert Embedder.load(file).embed(["x"]).shape == (1, 64)


def test_recall_is_the_share_of_the_calls_that_are_found() -> None:
    tools = {name: document(f"{name} {name}", x="") for name in ("owner", "guest", "slot")}
    pairs = [("owner", "owner"), ("owner", "slot"), ("guest", "guest")]
    assert goat.recall(Embedder(), tools, pairs, 1) == pytest.approx(0.75)
    assert goat.recall(Embedder(), tools, pairs, 3) == 1.0
    with pytest.raises(DataError, match="got 3 pairs to learn from and 0 to test by"):
        goat.train_retriever(tools, pairs, [], count=1, epochs=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retriever": "here.pt"}, "retriever: got 'here.pt'; give a file that ends in .safetensors"),
        ({"retriever": "a.safetensors", "unseen_goals": 0.0}, "unseen_goals: got 0; give a share above 0"),
    ],
)
def test_a_retriever_that_cannot_be_is_refused(options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        goat.Config(**options).check()


def test_what_cannot_be_made_is_told() -> None:
    with pytest.raises(
        ConfigError, match=r"demonstrations: got 'chats.jsonl', and goat makes its data from calls"
    ):
        goat.Config(demonstrations="chats.jsonl").check()
    with pytest.raises(DataError, match="none whose document gives examples of every argument"):
        Bench(Guess(), Task(id="t", environment="guess", seed=0))
    bench = bench_of()
    with pytest.raises(
        DataError, match="chains of 3 calls in api: got none that could be carried out; lower hops"
    ):
        goat.make_samples(bench, [], 2, hops=3, rng=random.Random(0))
    broken = set(goat.all_pairs(bench.tools)) - set(
        goat.stages_of_graph(bench, least=0.0, probes=5)["executed"]
    )
    walks = [goat.walk(bench, sorted(broken), 4, random.Random(n)) for n in range(30)]
    assert None in walks
    nothing = bench_of()
    nothing.run = lambda calls: None  # type: ignore[method-assign] # pyright: ignore[reportAttributeAccessIssue]
    assert not goat.holds(nothing, Edge(*sorted(broken)[0]), 1)


def test_it_trains_on_what_it_called(train: Any) -> None:
    rows = train("goat", environment="api?hops=2", demonstrations=10, eval_start=False, max_turn_tokens=32)
    last = rows[-1]
    assert last["goat/pairs"] >= last["goat/similar"] >= last["goat/executed"] > 0
    assert last["data/in"] == last["data/replayed"] == last["data/unnamed"] == 10
