"""What a run needs of machines, and whether they have it."""

from pathlib import Path

import pytest

from quintain.config import build
from quintain.distributed.placement import (
    Bundle,
    Engines,
    LearnerRanks,
    Placement,
    PolicyRanks,
    Workers,
    bundles,
    count_workers,
    find_unplaced,
    load_placement,
    refuse_unplaced,
)
from quintain.errors import ConfigError, UsageError


def test_a_file_says_what_differs_from_the_usual(tmp_path: Path) -> None:
    file = tmp_path / "placement.toml"
    file.write_text("wait = 5\n[workers]\nmax = 64\nresources = {data = 1}\n[engines]\ngpus = 1\n")
    found = load_placement(str(file))
    assert found == Placement(
        wait=5, workers=Workers(max=64, resources={"data": 1.0}), engines=Engines(gpus=1.0)
    )
    assert load_placement("") == Placement()
    file.write_text("[policies.critic]\nranks = 2\ngpus = 1\n")
    assert load_placement(str(file)).policies == {"critic": PolicyRanks(ranks=2, gpus=1.0)}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"worker": {}}, "worker"),
        ({"workers": {"min": 3, "max": 2}}, "workers.max of a placement: got 2, below workers.min 3"),
        ({"workers": {"episodes": 0}}, "episodes"),
        ({"engines": {"replicas": "two"}}, "replicas"),
    ],
)
def test_what_is_no_placement_is_refused(values: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build(Placement, values, "placement.toml")


def test_a_run_needs_engines_for_each_policy_its_ranks_and_the_fewest_workers() -> None:
    placement = Placement(
        workers=Workers(min=2, cpus=0.5, resources={"data": 1.0}),
        engines=Engines(replicas=2, gpus=1.0),
        learner=LearnerRanks(cpus=4.0, gpus=1.0),
        policies={"reference": PolicyRanks(ranks=2, cpus=3.0)},
    )
    assert bundles(placement, num_policies=2, num_ranks=1) == [
        *[Bundle(part="engine", needs={"CPU": 1.0, "GPU": 1.0})] * 4,
        Bundle(part="learner rank", needs={"CPU": 4.0, "GPU": 1.0}),
        *[Bundle(part="reference", needs={"CPU": 3.0})] * 2,
        *[Bundle(part="worker", needs={"CPU": 0.5, "data": 1.0})] * 2,
    ]


def test_an_actor_fits_on_one_machine_and_not_on_two_halves() -> None:
    four = Bundle(part="engine", needs={"CPU": 4.0})
    assert find_unplaced([four], [{"CPU": 2.0}, {"CPU": 2.0}]) == four
    assert find_unplaced([four, four], [{"CPU": 9.0}]) is None
    assert find_unplaced([four] * 3, [{"CPU": 9.0}]) == four


def test_what_needs_a_gpu_comes_first() -> None:
    cpu, gpu = (
        Bundle(part="worker", needs={"CPU": 2.0}),
        Bundle(part="engine", needs={"CPU": 1.0, "GPU": 1.0}),
    )
    assert find_unplaced([cpu, gpu], [{"CPU": 2.0, "GPU": 1.0}, {"CPU": 2.0}]) is None


def test_what_does_not_fit_is_one_line_that_says_what_is_there() -> None:
    needs = bundles(Placement(workers=Workers(min=3), engines=Engines(gpus=1.0)))
    with pytest.raises(UsageError) as told:
        refuse_unplaced(needs, [{"CPU": 8.0, "memory": 7.0, "node:10.0.0.1": 1.0}])
    assert str(told.value) == (
        "placement: got 1 × engine (1 CPU 1 GPU), 3 × worker (1 CPU), and no room for one engine on the machines of "
        "the cluster (8 CPU); ask for less in the placement file, add machines, or give wait = SECONDS where an "
        "autoscaler adds them"
    )
    refuse_unplaced(needs, [{"CPU": 4.0, "GPU": 1.0}])


@pytest.mark.parametrize(("episodes", "wanted"), [(0, 2), (16, 2), (17, 3), (64, 8), (1000, 10)])
def test_there_are_as_many_workers_as_episodes_need(episodes: int, wanted: int) -> None:
    assert count_workers(episodes, Workers(min=2, max=10, episodes=8)) == wanted
