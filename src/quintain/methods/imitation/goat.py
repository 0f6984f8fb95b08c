"""GOAT (arXiv 2510.12218): makes chains of API calls first, then the request, and imitates them.

L = -Σ log π(a_t | h_t).

From documents alone. A graph says which call's result fills which argument of which other: (i, j, k). It begins with
all pairs, keeps those whose documents share words, then those that hold when they are carried out: of `probes` calls of
i with the examples of its document, each from a reset environment, j must take every result. Chains are walked in the
graph and carried out; then the goal is written that they reach, in words of the documents that name no call. What is
learned is the goal, the calls with their real results, and the answer, played once more from a reset.

Differences to the paper: documents are compared by their words, where it embeds them, and no language model judges
pairs in between; a template writes goals (give `write` another), and sub-queries are left out; the retriever of
documents, trained where `retriever` names its file, is one of hashed words, embeds whole goals, and shows the agent
nothing: its recall is measured on held-out goals. Goals that belong to held-out tasks are left out. Measured on `api`;
the paper has RestBench, API-Bank and a benchmark of its own.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from quintain.config.ranges import PositiveInt, Share
from quintain.data import stages
from quintain.data.pipeline import Pipeline, PipelineResult, check_stage
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, advance, begin, tool_action
from quintain.environments.splitting import is_eval
from quintain.errors import ConfigError, DataError
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector, Needs
from quintain.retrieval.dense import Dense, Embedder
from quintain.types import Action, Task, ToolSpec, as_text
from quintain.types.json_text import load_json

RESULT = re.compile(r"(?:Gives|Returns|Finds) (?:the |a |an )?(\w+)", re.IGNORECASE)
"""What a call finds out, as its document begins."""
IDLE = frozenset({"a", "an", "and", "for", "gives", "not", "of", "or", "the", "to"})
ANSWERS = ("answer", "submit", "finish", "final_answer", "respond", "done")
"""Names of tools that an answer is given by."""
CURES = {
    "replayed": "let reset() take Task.data (goal, calls, answer), and end the episode with success where the answer, "
    "by a tool with one argument or in words, is that of the task",
}
MAX_TRIES = 20
"""Chains that are tried for each that is wanted."""
EPOCHS, BATCH = 20, 64
"""Of the retriever."""


class Edge(NamedTuple):
    """What `source` gives fills `argument` of `tool`: ``Edge("zormip", "takluv", "x")``."""

    source: str
    tool: str
    argument: str


class Made(NamedTuple):
    """A call that was carried out: ``Made("takluv", {"x": 301}, 655, "x")``."""

    tool: str
    arguments: Mapping[str, Any]
    result: Any
    filled: str = ""
    """the argument that is the result of the call before it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A goal with the calls that reach it: ``Sample(goal="Find the owner of …", calls=(…,))``."""

    goal: str
    calls: tuple[Made, ...]

    @property
    def data(self) -> dict[str, Any]:
        """What a task brings that has this goal."""
        calls = [[made.tool, dict(made.arguments)] for made in self.calls]
        return {"goal": self.goal, "calls": calls, "answer": self.calls[-1].result}


Write = Callable[[Mapping[str, ToolSpec], Sequence[Made]], str]
"""(documents by name, calls) → the goal that they reach"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of GOAT."""

    renamed: ClassVar[Mapping[str, str]] = {"least_similarity": "min_similarity"}
    """earlier names of options"""

    environment: str = "api"
    demonstrations: int | str | None = 300
    """Samples that are made."""
    hops: PositiveInt = 2
    """Calls of a chain."""
    min_similarity: Share = 0.05
    """Share of words, as a cosine, from which on documents may belong together; 0 compares none."""
    probes: PositiveInt = 5
    """Values that an edge must carry."""
    links: Literal["graph", "random"] = "graph"
    """Whether calls follow the graph, or any call comes next, with the examples of its document."""
    retriever: str = ""
    """File, .safetensors, for a retriever of documents that is trained on the goals; empty: none is."""
    unseen_goals: Share = 0.2
    """Share of the goals that the retriever is tested on and not trained."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ImitationConfig.check(self)
        if not isinstance(self.demonstrations, int) or not self.demonstrations:
            raise ConfigError(
                f"demonstrations: got {self.demonstrations!r}, and goat makes its data from calls; give a number"
            )
        if self.retriever and (
            Path(self.retriever).suffix != ".safetensors" or Path(self.retriever).is_dir()
        ):
            raise ConfigError(f"retriever: got {self.retriever!r}; give a file that ends in .safetensors")
        if self.retriever and not 0 < self.unseen_goals < 1:
            raise ConfigError(f"unseen_goals: got {self.unseen_goals:g}; give a share above 0 and below 1")


def method(config: Config) -> Offline:
    """Return GOAT as `config` describes it."""
    counts: dict[str, float] = {}

    def data(collector: Collector) -> PipelineResult:
        assert isinstance(config.demonstrations, int), "checked"
        tasks = collector.tasks(0, config.demonstrations)
        with closing(find(collector.environment)()) as environment:
            bench = Bench(environment, tasks[0])
            found = stages_of_graph(bench, least=config.min_similarity, probes=config.probes)
            counts.update({f"goat/{name}": float(len(edges)) for name, edges in found.items()})
            edges = found["executed"] if config.links == "graph" else None
            rng = random.Random(collector.seed("goat"))
            samples = make_samples(bench, edges, len(tasks), hops=config.hops, rng=rng)
        if config.retriever:
            learned, tested = retrieval_pairs(samples, config.unseen_goals)
            embedder, measured = train_retriever(
                bench.tools, learned, tested, count=config.hops, epochs=EPOCHS
            )
            counts.update({f"goat/{name}": recall for name, recall in measured.items()})
            Path(config.retriever).parent.mkdir(parents=True, exist_ok=True)
            embedder.save(Path(config.retriever))
        given = [
            replace(task, id=f"{task.environment}/goat/{number}", data=sample.data)
            for number, (task, sample) in enumerate(zip(tasks, samples, strict=False))
        ]
        answer = answer_tool(bench.environment, bench.tools)
        done = {task.id: script(sample, answer) for task, sample in zip(given, samples, strict=False)}
        shown = collector.expert_episodes(given, by=done)
        return choose_trajectories(shown, pipeline([*bench.tools]), "imitating chains of calls", CURES)

    return imitate_data(
        config, data, batch_size=config.batch_size, metrics=lambda _: counts, needs=Needs(environment=True)
    )


def script(sample: Sample, answer: ToolSpec | None) -> tuple[Action, ...]:
    """Return the calls that reach the goal of `sample`, then its answer: by the tool that takes one, else in words."""
    result = sample.calls[-1].result
    if answer is None:
        last = Action(text=str(result))
    else:
        ((name, schema),) = answer.parameters["properties"].items()
        last = tool_action(answer.name, **{name: str(result) if schema.get("type") == "string" else result})
    return (*(tool_action(made.tool, **made.arguments) for made in sample.calls), last)


def answer_tool(environment: Environment, tools: Mapping[str, ToolSpec]) -> ToolSpec | None:
    """Return the tool that an answer is given by: none of `tools`, and with one argument; None where there is none.

    Where there are several, it is the one that is called an answer.
    """
    others = [spec for spec in environment.tools() if spec.name not in tools]
    found = [spec for spec in others if len(spec.parameters.get("properties", {})) == 1]
    named = [spec for spec in found if spec.name in ANSWERS]
    return next(iter(named or (found if len(found) == 1 else [])), None)


def pipeline(names: Sequence[str]) -> Pipeline:
    """Return what reaches its answer again → whose goal names no call."""
    return Pipeline(
        stages.keep_solved(name="replayed"),
        check_stage(
            "unnamed",
            "names a call in its goal",
            lambda example: not names_any(str(example.trajectory.task.data.get("goal", "")), names),
        ),
    )


def names_any(text: str, names: Sequence[str]) -> bool:
    """Return whether `text` has one of `names` as a word."""
    return bool(set(re.findall(r"\w+", text.lower())) & {name.lower() for name in names})


class Bench:
    """Where calls are tried: an environment, reset before every chain, and the calls whose documents give examples."""

    def __init__(self, environment: Environment, task: Task) -> None:
        """Read the documents.

        Raises:
            DataError: no call has a document with examples of all of its arguments.
        """
        self.environment, self.task = environment, task
        self.tools = {spec.name: spec for spec in environment.tools() if arguments_of(spec)}
        if not self.tools:
            raise DataError(
                f"calls of {task.environment}: got none whose document gives examples of every argument; write them "
                "into the schema, as examples"
            )

    def run(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any] | None:
        """Return the results of `calls`, one after the other from a reset; None where one is refused."""
        begin(self.environment, self.task)
        found: list[Any] = []
        for name, arguments in calls:
            reply = advance(self.environment, tool_action(name, **arguments))
            if not reply.is_valid or reply.is_terminated:
                return None
            found.append(read_result(as_text(reply.observation)))
        return found


def read_result(text: str) -> Any:
    """Return the value in `text`, the text itself where it is no JSON."""
    try:
        return load_json(text)
    except ValueError:
        return text


def arguments_of(spec: ToolSpec) -> Mapping[str, Mapping[str, Any]]:
    """Return the schemas of the arguments of a call; none where one has no examples."""
    found: Mapping[str, Mapping[str, Any]] = spec.parameters.get("properties", {})
    return found if found and all(schema.get("examples") for schema in found.values()) else {}


def example(spec: ToolSpec, number: int) -> dict[str, Any]:
    """Return the arguments that the examples of a document give, the one of the `number`, counted round and round."""
    return {name: own["examples"][number % len(own["examples"])] for name, own in arguments_of(spec).items()}


def stages_of_graph(bench: Bench, *, least: float, probes: int) -> dict[str, list[Edge]]:
    """Return the edges that each stage leaves: all pairs, similar documents, executed."""
    pairs = all_pairs(bench.tools)
    near = [edge for edge in pairs if similarity(bench.tools, edge) >= least]
    return {
        "pairs": pairs,
        "similar": near,
        "executed": [edge for edge in near if holds(bench, edge, probes)],
    }


def all_pairs(tools: Mapping[str, ToolSpec]) -> list[Edge]:
    """Return every edge that there could be: a call's result in each argument of each other one."""
    return [
        Edge(source, name, argument)
        for source in tools
        for name, spec in tools.items()
        for argument in arguments_of(spec)
        if source != name
    ]


def similarity(tools: Mapping[str, ToolSpec], edge: Edge) -> float:
    """Return the cosine of the words of the call's document and of the argument's."""
    first = words(tools[edge.source].description)
    second = words(str(arguments_of(tools[edge.tool])[edge.argument].get("description", edge.argument)))
    return len(first & second) / (len(first) * len(second)) ** 0.5 if first and second else 0.0


def words(text: str) -> set[str]:
    """Return the words of `text` that say something."""
    return set(re.findall(r"\w+", text.lower())) - IDLE


def holds(bench: Bench, edge: Edge, probes: int) -> bool:
    """Return whether the argument takes every result that the examples of the documents lead to, each from a reset."""
    source, tool = bench.tools[edge.source], bench.tools[edge.tool]
    for number in range(probes):
        first = (edge.source, example(source, number))
        results = bench.run([first])
        if results is None:
            return False
        second = (edge.tool, {**example(tool, number), edge.argument: results[0]})
        if bench.run([first, second]) is None:
            return False
    return True


def make_samples(
    bench: Bench,
    edges: Sequence[Edge] | None,
    count: int,
    *,
    hops: int,
    rng: random.Random,
    write: Write | None = None,
) -> list[Sample]:
    """Return up to `count` samples with goals of their own that are no held-out ones, of chains of `hops` calls.

    Without `edges` any call comes next.

    Raises:
        DataError: there is none.
    """
    found: dict[str, Sample] = {}
    for _ in range(MAX_TRIES * count):
        calls = walk(bench, edges, hops, rng)
        if calls is None:
            continue
        goal = (write or write_goal)(bench.tools, calls)
        if not is_eval(goal):
            found.setdefault(goal, Sample(goal=goal, calls=tuple(calls)))
        if len(found) == count:
            break
    if not found:
        raise DataError(
            f"chains of {hops} calls in {bench.task.environment}: got none that could be carried out; lower hops or "
            "min_similarity"
        )
    return list(found.values())


def walk(bench: Bench, edges: Sequence[Edge] | None, hops: int, rng: random.Random) -> list[Made] | None:
    """Return a chain of `hops` calls with their results; None where the graph ends before, or one is refused."""
    name, filled, made = rng.choice(list(bench.tools)), "", list[Made]()
    while True:
        arguments = {
            argument: made[-1].result if argument == filled else rng.choice(own["examples"])
            for argument, own in arguments_of(bench.tools[name]).items()
        }
        results = bench.run([*((m.tool, m.arguments) for m in made), (name, arguments)])
        if results is None:
            return None
        made.append(Made(name, arguments, results[-1], filled))
        if len(made) == hops:
            return made
        following = [edge for edge in edges or () if edge.source == name]
        if edges is None:
            name, filled = rng.choice(list(bench.tools)), ""
        elif following:
            _, name, filled = rng.choice(following)
        else:
            return None


def write_goal(tools: Mapping[str, ToolSpec], calls: Sequence[Made]) -> str:
    """Return what `calls` find out, in words of their documents: ``Find the owner of the sender of parcel 512.``

    Calls that the last one does not build on are asked for before it.
    """
    parts: list[str] = []
    for made in calls:
        before = parts.pop() if made.filled else ""
        told = [
            before if name == made.filled else f"{schema_word(tools[made.tool], name)} {value}"
            for name, value in made.arguments.items()
        ]
        found = RESULT.match(tools[made.tool].description)
        result = found[1] if found else " ".join(sorted(words(tools[made.tool].description)))
        parts.append(f"the {result} of {' with '.join(told)}")
    return f"Find {', then '.join(parts)}."


def schema_word(spec: ToolSpec, argument: str) -> str:
    """Return the first word of the document of `argument`; its name where it has none."""
    told = str(arguments_of(spec)[argument].get("description", ""))
    return told.split()[0] if told.split() else argument


def retrieval_pairs(
    samples: Sequence[Sample], held_out: float
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return (goal, call that it takes) to train a retriever by, and others to test it; no goal is in both."""
    apart = {s.goal for s in sorted(samples, key=lambda s: s.goal)[: round(held_out * len(samples))]}
    pairs = [(sample.goal, made.tool) for sample in samples for made in sample.calls]
    return [pair for pair in pairs if pair[0] not in apart], [pair for pair in pairs if pair[0] in apart]


def train_retriever(
    tools: Mapping[str, ToolSpec],
    learned: Sequence[tuple[str, str]],
    tested: Sequence[tuple[str, str]],
    *,
    count: int,
    epochs: int,
) -> tuple[Embedder, dict[str, float]]:
    """Return a retriever of the documents of `tools` that learned from (goal, call) pairs, and its recall at `count`.

    ``recall_before`` and ``recall`` are over the `tested` goals, before it learned and after.

    Raises:
        DataError: there is nothing to learn from, or to test by.
    """
    if not learned or not tested:
        raise DataError(
            f"retriever: got {len(learned)} pairs to learn from and {len(tested)} to test by; raise demonstrations"
        )
    embedder = Embedder()
    before = recall(embedder, tools, tested, count)
    pairs = [(goal, document_of(tools[tool])) for goal, tool in learned]
    embedder.fit(lambda _: pairs, epochs=epochs, batch_size=BATCH)
    return embedder, {"recall_before": before, "recall": recall(embedder, tools, tested, count)}


def recall(
    embedder: Embedder, tools: Mapping[str, ToolSpec], pairs: Sequence[tuple[str, str]], count: int
) -> float:
    """Return what share of the calls of a goal in `pairs` has its document among the `count` nearest, on average."""
    names = [*tools]
    index = Dense([document_of(tools[name]) for name in names], embedder)
    wanted: dict[str, set[str]] = {}
    for goal, tool in pairs:
        wanted.setdefault(goal, set()).add(tool)
    found = [
        len(own & {names[place] for place in index.best(goal, count)}) / len(own)
        for goal, own in wanted.items()
    ]
    return sum(found) / len(found)


def document_of(spec: ToolSpec) -> str:
    """Return the document of a call: what it says of the call and of its arguments, without their names."""
    told = (str(own.get("description", "")) for own in arguments_of(spec).values())
    return " ".join((spec.description, *told))
