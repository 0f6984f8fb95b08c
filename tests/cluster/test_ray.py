"""Episodes and runs on a Ray cluster of several nodes, which come and go (make test-cluster)."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.learning.sharding.cases import CASES, check_case, save_start

import quintain
from quintain.agents.catalog import build
from quintain.distributed.cluster import Cluster
from quintain.distributed.connection import Connection, fetch
from quintain.distributed.engine_host import EngineHost, Facts
from quintain.distributed.placement import Engines, LearnerRanks, Placement, Workers
from quintain.distributed.version import own_version
from quintain.distributed.worker import Harness
from quintain.engines.protocol import Engine, Request
from quintain.engines.scripted import Scripted
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.errors import EngineFault, UsageError
from quintain.learning.sharding.actors import RankActor, RankActors
from quintain.models.heads import ValueHead
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.models.weights import write_weights
from quintain.rollout.collect import Rollout
from quintain.rollout.request import EpisodeRequest, Limits
from quintain.store.run import Run
from quintain.testing.engines import check_engine
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Score, Trajectory, derive_seed
from quintain.warm_start.start import make_start

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
WORLD = "guess?high=8&max_turns=4"
SPEC = Harness(spec="tools", temperature=1.0, max_tokens=24)
LIMITS = Limits(concurrency=64)
TEXTS = [
    "<|system|>Guess a number from 1 to 8.<|user|>go<|assistant|>higher<|end|>",
    "<|tool|>lower<|end|>",
    "0123456789",
]
STORE = 100_000_000
JOB: dict[str, Any] = {
    "environment": WORLD, "model": "micro", "steps": 3, "eval_every": 3, "eval_episodes": 16,
    "demonstrations": 32, "imitation_epochs": 2, "tasks": 4, "group_size": 4,
}  # fmt: skip
COMPARED = ("eval/success", "train/success", "train/loss", "train/grad_norm", "train/entropy", "gap/canary")


def say(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
    """Say what depends on seed and stream alone."""
    chance = Random(derive_seed(request.seed, len(stream), sum(stream)))
    return (
        *(chance.randrange(5, 200) for _ in range(chance.randint(1, 8))),
        *sorted(request.sampling.stop_ids)[:1],
    )


class ScriptedHost(EngineHost):
    async def open(
        self, version: str, files: dict[str, bytes], settings: EngineSettings, policy: str
    ) -> Facts:
        self._engine = self._engine or Scripted(say, policy=policy, max_length=4096)
        return Facts(policy=policy, max_length=4096, vocabulary=None, capabilities=self._engine.capabilities)


@pytest.fixture(scope="module", name="nodes")
def _nodes() -> Generator[Any]:  # pyright: ignore[reportUnusedFunction]
    from ray.cluster_utils import Cluster as Machines  # pyright: ignore[reportMissingImports]

    machines = Machines(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "include_dashboard": False,
            "object_store_memory": STORE,
            "_system_config": {"worker_niceness": 0},
        },
    )
    ray.init(address=machines.address, log_to_driver=False)
    for _ in range(3):
        machines.add_node(num_cpus=3, object_store_memory=STORE)
    yield machines
    ray.shutdown()
    machines.shutdown()


def of_seed(count: int) -> list[EpisodeRequest]:
    task = find(WORLD)().task
    return [
        EpisodeRequest(task=task("train", place), group=f"{place}:g", index=0, seed=derive_seed("e", place))
        for place in range(count)
    ]


def rollout_on(cluster: Cluster | None, engine: Engine, chat: Chat) -> Rollout:
    make = find(WORLD)
    agent = build(SPEC.spec, chat, make(), temperature=1.0, max_tokens=SPEC.max_tokens)
    home = (
        "lockstep"
        if cluster is None
        else cluster.home(WORLD, {"policy": SPEC}, seats={}, limits=LIMITS, max_staleness=0)
    )
    return Rollout(agent, make, engine, limits=LIMITS, source=home)


def told(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    return {
        t.group: (t.seed, [turn.completion.token_ids for turn in t.turns], t.outcome) for t in trajectories
    }


@pytest.mark.timeout(450)
def test_two_thousand_episodes_survive_nodes_that_go_and_come(nodes: Any) -> None:
    tokenizer = train_tokenizer(TEXTS, 300)
    model = build_tiny(tokenizer, size="micro", seed=0)
    placement = Placement(
        workers=Workers(min=3, max=4, episodes=4), engines=Engines(replicas=2, cpus=1), start_timeout=120
    )
    chat, chance, asked = Chat(tokenizer), Random(3), of_seed(2000)
    with closing(rollout_on(None, Scripted(say, max_length=4096), chat)) as alone:
        expected = told(list(alone.play(asked)))
    with closing(Cluster("auto", placement)) as cluster:
        engine = cluster.engine(EngineSettings(), model, tokenizer, policy="policy", host=ScriptedHost)
        found: list[Trajectory] = []
        removed = 0
        for trajectory in rollout_on(cluster, engine, chat).play(asked):
            found.append(trajectory)
            if len(found) % 400 == 100:
                node = chance.choice(list(nodes.worker_nodes))
                nodes.remove_node(node, allow_graceful=False)
                nodes.add_node(num_cpus=3, object_store_memory=STORE)
                removed += 1
        assert removed == 5
        assert cluster.fleet.num_lost > 0
    assert max(Counter(t.group for t in found).values()) == 1
    assert told(found) == expected
    assert all(isinstance(t.outcome, Score) for t in found)


@pytest.fixture(scope="module", name="alone")
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Path:  # pyright: ignore[reportUnusedFunction]
    """A run in one process."""
    return quintain.train("grpo", run="alone", root=tmp_path_factory.mktemp("runs"), **JOB)


def curve(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in COMPARED if name in row} for row in rows]


def tokens(folder: Path) -> list[Any]:
    with Run.open(folder, writable=False) as run:
        return sorted(
            (t.group, t.index, t.seed, [turn.completion.token_ids for turn in t.turns])
            for step in range(1, 4)
            for t in run.trajectories(step=step, phase="train")
        )


def test_a_method_on_a_cluster_learns_what_it_learns_in_one_process(
    nodes: Any, alone: Path, tmp_path: Path
) -> None:
    file = tmp_path / "placement.toml"
    file.write_text("[workers]\nmin = 2\nmax = 2\nepisodes = 4\n[engines]\nreplicas = 2\n")
    there = quintain.train("grpo", run="there", root=tmp_path, cluster="auto", placement=str(file), **JOB)
    assert tokens(there) == tokens(alone)
    for row, same in zip(curve(there), curve(alone), strict=True):
        assert row == {name: pytest.approx(value, rel=1e-4, abs=1e-6) for name, value in same.items()}
    ends = [load_file(folder / "model" / "model.safetensors") for folder in (there, alone)]
    apart = max(float((ends[0][name] - ends[1][name]).abs().max()) for name in ends[1])
    print(f"largest difference of a weight after 3 steps: {apart:.2g}")
    assert apart < 1e-5


@pytest.fixture(scope="module", name="taught")
def _taught(tmp_path_factory: pytest.TempPathFactory) -> Path:  # pyright: ignore[reportUnusedFunction]
    """A model that is a reward model, too."""
    model, tokenizer = make_start("micro", find(WORLD), seed=0)
    return save(model, tokenizer, tmp_path_factory.mktemp("model") / "taught", ValueHead(32, seed=5))


@pytest.mark.parametrize(
    ("method", "options", "apart"),
    [
        ("dpo", {"tasks": 16, "group_size": 4, "batch_size": 4, "steps": 2}, {"reference": 1}),
        ("instruct_gpt", {"episodes": 8, "steps": 2}, {"reference": 1, "critic": 2, "reward_model": 1}),
    ],
)
def test_policies_beside_the_main_one_compute_on_the_cluster_what_they_compute_here(
    nodes: Any, taught: Path, tmp_path: Path, method: str, options: dict[str, Any], apart: dict[str, int]
) -> None:
    file = tmp_path / "placement.toml"
    file.write_text("\n".join(f"[policies.{name}]\nranks = {count}" for name, count in apart.items()))
    config: dict[str, Any] = {
        "environment": WORLD,
        "model": str(taught),
        "eval_every": 1,
        "eval_episodes": 8,
        **options,
    }
    config |= {"reward_model": str(taught)} if "reward_model" in apart else {"demonstrations": 32}
    here = quintain.train(method, run="here", root=tmp_path, **config)
    there = quintain.train(method, run="there", root=tmp_path, cluster="auto", placement=str(file), **config)
    rows = [
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (here, there)
    ]
    for one, other in zip(*rows, strict=True):
        names = [
            name
            for name in one
            if not name.startswith(("phase", "time/", "machine/", "tokens_per_second"))
            and not name.endswith(("preference/accuracy", "clip_fraction"))  # of what is equal, to rounding
        ]
        assert {name: other[name] for name in names} == {
            name: pytest.approx(one[name], rel=1e-4, abs=1e-4) for name in names
        }
    ends = [load_file(folder / "model" / "model.safetensors") for folder in (here, there)]
    assert max(float((ends[0][name] - ends[1][name]).abs().max()) for name in ends[0]) < 1e-5


def test_the_engine_on_a_cluster_keeps_what_engines_promise(nodes: Any, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, 300)
    model = build_tiny(tokenizer, size="micro", seed=0)
    versions = iter(range(100))
    with closing(Cluster("auto", Placement(engines=Engines(replicas=2)))) as cluster:
        engine = cluster.engine(EngineSettings(), model, tokenizer, policy="policy")

        def update() -> Path:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.9)
            return write_weights(model, tmp_path / str(next(versions)))

        found = list(check_engine(engine, update=update))
        print(*found, sep="\n")
        assert not [each for each in found if each.state == "fail"]


def test_ranks_on_a_cluster_have_the_gradient_of_one_process(nodes: Any, tmp_path: Path) -> None:
    connection = Connection("auto", [])
    start = save_start(tmp_path / "start")
    ranks = RankActors(connection, 2, LearnerRanks(cpus=1), tmp_path / "ranks", start_timeout=120)
    with closing(ranks):
        for name in CASES:
            check_case(ranks, start, name)
        policy = f"{next(iter(CASES))}/2/1"
        ray.kill(ranks._ranks[1])  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(
            EngineFault, match=r"asked to clip: rank 1 of 2 is gone .*can be resumed from its last"
        ):
            ranks.ask("clip", policy)
        with pytest.raises(EngineFault, match="they were ended"):
            ranks.ask("clip", policy)


def test_ranks_whose_machines_do_not_see_the_folder_are_refused(nodes: Any, tmp_path: Path) -> None:
    handle = ray.remote(RankActor).remote()
    (tmp_path / "mark").write_text("another")
    with pytest.raises(UsageError, match="which their machines do not see; put the runs into a folder"):
        fetch(ray, handle.open.remote(own_version(), str(tmp_path), "this"), 100, "a rank")
    ray.kill(handle)


def test_a_run_plays_ahead_on_a_cluster_of_its_own_and_goes_on_without_one(tmp_path: Path) -> None:
    def quintain_says(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "quintain.cli", *words], capture_output=True, text=True, timeout=250
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    options = [f"--{name.replace('_', '-')}={value}" for name, value in JOB.items()]
    ahead = [
        "--rollout=async",
        "--max-staleness=1",
        "--loss=clipped",
        "--decoupled=true",
        "--max-env-steps=100",
    ]
    where = ["--run=own", f"--runs={tmp_path}", "--cluster=local"]
    quintain_says("train", "policy_gradient", *options, *ahead, *where)
    with Run.open(tmp_path / "own", writable=False) as run:
        played = [t for step in range(1, run.next_step) for t in run.trajectories(step=step, phase="train")]
        assert len({t.seed for t in played}) == len(played) == 16 * (run.next_step - 1)
        assert all(isinstance(t.outcome, Score) for t in played)
        assert 1 < run.next_step < 5
    quintain_says("resume", str(tmp_path / "own"), "--cluster", "none")
