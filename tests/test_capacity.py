"""The simulation of speed/capacity.py against what queues must do."""

import pytest
from tests.speed_scripts import load_script

capacity = load_script("speed/capacity.py")
QUICK = capacity.Times(
    worker_turn=1e-6, driver_episode=1e-6, round_fixed=1e-6, round_each=0.0, learner_token=0.0, weights=0.0
)
ONE_SECOND = capacity.Work(turns=(4, 4), tokens=1, tool=(1.0, 1.0, 1.0))


def test_where_only_tools_take_time_it_is_slots_over_seconds() -> None:
    cluster = capacity.Cluster(workers=4, slots=8, replicas=2, episodes_of_step=32)
    found = capacity.simulate(cluster, ONE_SECOND, QUICK, seconds=400)
    assert found.episodes == pytest.approx(4 * 8 / 4, rel=0.02)
    assert found.busy["slots"] == pytest.approx(1, abs=0.03)
    assert found.limit == "slots"


def test_where_only_the_engine_takes_time_it_is_full_batches_over_rounds() -> None:
    times = capacity.replace(QUICK, round_fixed=0.01, round_each=0.001)
    work = capacity.replace(ONE_SECOND, tokens=100, tool=(1e-3, 1e-3, 1.0))
    cluster = capacity.Cluster(workers=8, slots=8, replicas=1, most_running=16, episodes_of_step=64)
    found = capacity.simulate(cluster, work, times, seconds=400)
    assert found.tokens == pytest.approx(16 / (0.01 + 0.001 * 16), rel=0.03)
    assert found.limit == "engines"


@pytest.mark.parametrize(
    ("changed", "rate", "limit"),
    [({"driver_episode": 0.5}, 2.0, "driver"), ({"worker_turn": 0.5}, 2 / (5 * 0.5), "workers")],
)
def test_one_server_is_the_limit_where_it_is_slow(changed: dict[str, float], rate: float, limit: str) -> None:
    cluster = capacity.Cluster(workers=2, slots=16, replicas=2, episodes_of_step=32)
    found = capacity.simulate(cluster, ONE_SECOND, capacity.replace(QUICK, **changed), seconds=800)
    assert found.episodes == pytest.approx(rate, rel=0.05)
    assert found.limit == limit


def test_in_step_the_slowest_tool_and_the_learner_are_waited_for() -> None:
    times = capacity.replace(QUICK, weights=2.0)
    cluster = capacity.Cluster(workers=1, slots=8, replicas=1, episodes_of_step=8, mode="synchronous")
    found = capacity.simulate(cluster, ONE_SECOND, times, seconds=600)
    assert found.steps == pytest.approx(1 / 6, rel=0.03)
    without = capacity.simulate(
        capacity.replace(cluster, mode="asynchronous"), ONE_SECOND, times, seconds=600
    )
    assert without.steps == pytest.approx(1 / 4, rel=0.03)


def test_times_of_a_model_follow_from_the_machine() -> None:
    model = capacity.Model(name="1B", parameters=1e9, cache=1e4)
    machine = capacity.Machine(bandwidth=1e12, reads=0.5, flops=1e14, learns=0.3, launch=0.0, network=1e9)
    times = model.times(machine, capacity.Work(context=1000), QUICK, learners=2)
    assert times.round_fixed == pytest.approx(2e9 / 0.5e12)
    assert times.round_each == pytest.approx(1e7 / 0.5e12)
    assert times.learner_token == pytest.approx(6e9 / (1e14 * 0.3 * 2))
    assert times.weights == pytest.approx(1 + 2)
