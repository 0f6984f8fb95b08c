"""A run may be evaluated in another environment than the one it trains on, as long as it can act there."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from quintain.agents.protocol import Brief, Session
from quintain.api import check_parts, environment_of
from quintain.environments.protocol import Environment
from quintain.environments.tools import tool
from quintain.errors import ConfigError, UsageError
from quintain.methods.rl import gigpo, grpo
from quintain.runs.evaluator import innermost
from quintain.store.run import Run
from quintain.types import Action, StepResult, Task


class Lever(Environment):
    """Up is right."""

    max_turns = 1
    right = "up"

    def reset(self, task: Task) -> str:
        return "A lever."

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="", reward=float(action.text == self.right), is_terminated=True)

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "down")

    def expert_action(self) -> Action:
        return Action(text=self.right)

    def state_key(self) -> str:
        return "lever"


class Reversed(Lever):
    """Down is right, and no state has a key."""

    right = "down"
    state_key = None  # pyright: ignore[reportAssignmentType]


class Bell(Environment):
    """Ring it."""

    max_turns = 1

    def reset(self, task: Task) -> str:
        return "A bell."

    @tool
    def ring(self) -> str:
        """Ring."""
        return self.finish("Ring.", reward=1.0, success=True)


class Horn(Bell):
    """Blow it."""

    @tool
    def ring(self) -> str:
        """Not a tool of a horn."""
        raise AssertionError

    @tool
    def blow(self) -> str:
        """Blow."""
        return self.finish("Tut.", reward=1.0, success=True)

    def tools(self) -> Any:
        """Return the one tool of a horn."""
        return tuple(each for each in super().tools() if each.name == "blow")


pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def config() -> grpo.Config:
    return grpo.Config(
        environment=f"{__file__}:Lever",
        eval_environment=f"{__file__}:Reversed",
        model="micro",
        demonstrations=8,
        imitation_epochs=20,
        imitation_lr=1e-2,
        learning_rate=1e-9,
        steps=2,
        eval_every=1,
        eval_episodes=6,
        tasks=2,
        group_size=4,
    )


def trained(folder: Path, config: grpo.Config) -> list[dict[str, Any]]:
    with Run.create(folder, recipe="grpo", config=asdict(config)) as run:
        grpo.method(config).train(run, config)
        return run.metrics()


@pytest.mark.slow
def test_what_is_learned_is_examined_elsewhere(tmp_path: Path, config: grpo.Config) -> None:
    rows = trained(tmp_path / "run", config)
    assert [row["eval/success"] for row in rows] == [0.0, 0.0, 0.0]
    assert [row["train/success"] for row in rows[1:]] == [1.0, 1.0]
    with Run.open(tmp_path / "run", writable=False) as run:
        examined = list(run.trajectories(step=2, phase="eval"))
        learned = list(run.trajectories(step=2, phase="train"))
    assert {(t.task.environment, t.task.split) for t in examined} == {("reversed", "eval")}
    assert {(t.task.environment, t.task.split) for t in learned} == {("lever", "train")}
    at_home = trained(tmp_path / "home", replace(config, eval_environment=""))
    assert [row["eval/success"] for row in at_home] == [1.0, 1.0, 1.0]
    assert environment_of(tmp_path / "run") == config.eval_environment
    assert environment_of(tmp_path / "home") == config.environment


def test_a_resumed_run_is_examined_in_the_same_place(tmp_path: Path, config: grpo.Config) -> None:
    trained(tmp_path / "run", config)
    with Run.open(tmp_path / "run") as run:
        longer = replace(config, steps=3)
        grpo.method(longer).train(run, longer)
        assert [row["eval/success"] for row in run.metrics()] == [0.0] * 4


def test_the_examination_needs_no_state_keys(tmp_path: Path, config: grpo.Config) -> None:
    shared = {field.name for field in fields(gigpo.Config)}
    keyed = gigpo.Config(**{key: value for key, value in asdict(config).items() if key in shared})
    with Run.create(tmp_path / "run", recipe="gigpo", config=asdict(keyed)) as run:
        gigpo.method(keyed).train(run, keyed)
        assert [row["eval/success"] for row in run.metrics()] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"eval_environment": f"{__file__}:Bell"}, "which is acted in by JsonTools, not by Choice; name one"),
        (
            {"eval_environment": f"{__file__}:Bell", "agent": "choice"},
            "agent 'choice' needs legal_actions: got Bell, which has none",
        ),
        (
            {"environment": f"{__file__}:Bell", "eval_environment": f"{__file__}:Horn"},
            r"whose tools \(blow\) a new model never calls there",
        ),
    ],
)
def test_where_the_policy_could_not_act_it_is_not_examined(
    tmp_path: Path, config: grpo.Config, other: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"(?s)eval_environment: got .* for a run in .*{message}"):
        trained(tmp_path / "run", replace(config, **other))
    with Run.open(tmp_path / "run", writable=False) as run:
        assert not list(run.trajectories())


def test_an_agent_that_both_have_may_be_examined_anywhere(tmp_path: Path, config: grpo.Config) -> None:
    bell = replace(config, eval_environment=f"{__file__}:Bell", agent="window+react", model="micro", steps=1)
    with pytest.raises(ConfigError, match=r"whose tools \(ring\) a new model never calls there"):
        trained(tmp_path / "run", bell)
    same = replace(bell, environment=f"{__file__}:Bell", demonstrations=0)
    assert len(trained(tmp_path / "same", same)) == 2


def test_an_environment_that_is_not_there_is_refused_before_the_run_is_made(config: grpo.Config) -> None:
    with pytest.raises(UsageError, match="did you mean 'keydoor'"):
        check_parts(replace(config, eval_environment="keydor"))


def test_the_harness_within_its_wrappers() -> None:
    class Bare:
        def open(self, brief: Brief) -> Session:
            raise AssertionError(brief)

    class Wrapped(Bare):
        agent = Bare()

    assert innermost(Wrapped()) is Wrapped.agent
