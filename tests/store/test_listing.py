from pathlib import Path
from typing import Any

from quintain.store.listing import RunInfo, runs_in
from quintain.store.run import Run


def test_runs_are_listed_newest_first(folder: Path, make: Any) -> None:
    assert runs_in(folder.parent) == []
    with Run.create(folder, recipe="rl/grpo", config={}) as run:
        run.append([make(0)], step=1)
        run.commit(1, {})
        run.finish()
    with Run.create(folder.with_name("two"), recipe="rl/ppo", config={}) as two:
        Run.create(folder.with_name("broken"), recipe="r", config={}).close()
        (folder.with_name("broken") / "run.db").write_bytes(b"x")
        (folder.parent / "no run").mkdir()
        two_info, one_info, broken = runs_in(folder.parent)
        created = two.created
    assert two_info == RunInfo(
        name="two",
        folder=folder.with_name("two"),
        recipe="rl/ppo",
        status="running",
        created=created,
        last_step=None,
    )
    assert (one_info.name, one_info.status, one_info.last_step) == ("one", "done", 1)
    assert (broken.name, broken.status) == ("broken", "damaged")
