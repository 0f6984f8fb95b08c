"""The comparison of WebDancer's stages: what its arms imitate, and what its table says."""

from typing import Any

from tests.speed_scripts import load_script

from quintain.methods.imitation import web_dancer
from quintain.types import Action, Completion, Score, Stop, Task, Trajectory, Turn, as_content

chain = load_script("evidence/studies/web_dancer_chain.py")


def tried(number: int, *, is_solved: bool) -> Trajectory:
    task = Task(id=f"q/{number}", environment="q", seed=number)
    turn = Turn(
        observation=as_content("q"),
        prompt_ids=(1,),
        completion=Completion(token_ids=(2,), logprobs=(0.0,), stop="stop"),
        action=Action(text="answer"),
    )
    return Trajectory(
        task=task, turns=(turn,), outcome=Score(value=float(is_solved), is_success=is_solved),
        stop=Stop.TERMINATED, seed=0, group=task.id, index=0,
    )  # fmt: skip


def imitated(make: Any) -> set[str]:
    shown = [tried(number, is_solved=number < 3) for number in range(10)]
    found = make(web_dancer.Config()).cold_start.choose(shown, str)
    return {example.trajectory.task.id for example in found.examples}


def test_arms_imitate_all_tries_or_as_many_as_the_filters_leave() -> None:
    good = {f"q/{number}" for number in range(3)}
    assert imitated(web_dancer.method) == good
    assert len(imitated(chain.unfiltered)) == 10
    drawn = imitated(chain.as_many)
    assert len(drawn) == len(good) and drawn != good


def test_longer_imitates_for_at_least_the_updates_of_rl() -> None:
    updates = chain.SETTINGS["steps"] * chain.SETTINGS["num_minibatches"]
    for kept in (1, 8, 9, 446):
        passes, of_a_pass = chain.further_epochs(kept), -(-kept // chain.DEMONSTRATIONS_PER_UPDATE)
        assert (passes - 1) * of_a_pass < updates <= passes * of_a_pass


def test_differences_are_of_the_same_seed() -> None:
    def arms(filtered: float, free: float) -> dict[str, Any]:
        found = {
            arm: chain.Outcome(kept=3, before=0.0, imitated=free, trained=None)
            for arm in ("unfiltered", "as many")
        }
        own = {"kept": 3, "before": 0.0, "imitated": filtered}
        found["chain"] = chain.Outcome(**own, trained=filtered + 0.125)
        found["longer"] = chain.Outcome(**own, trained=None)
        return found

    lines = chain.compared({1: arms(0.5, 0.25), 2: arms(0.25, 0.25)})
    assert [line.split(" | ")[-1] for line in lines] == [
        "+12.5, +12.5 |", "+12.5, +12.5 |", "+25.0, +0.0 |", "+25.0, +0.0 |", "+37.5, +12.5 |",
    ]  # fmt: skip
    assert "| +12.5 [+12.5, +12.5] |" in lines[0]
