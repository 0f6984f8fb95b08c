"""A run on a disk that becomes full and is emptied again; the input names a folder on a small disk."""

import contextlib
import json
from pathlib import Path

from crash_program import do_step, trajectory  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

from quintain.errors import StoreError
from quintain.store.run import Run


def too_large(folder: Path) -> None:
    (folder / "weights").write_bytes(bytes(16 << 20))


def main(disk: Path) -> None:
    messages: list[str] = []
    folder = disk / "one"
    with Run.create(folder, recipe="r", config={}) as run:
        do_step(run)
        do_step(run)
        try:
            run.checkpoint(2, too_large)
        except StoreError as error:
            messages.append(str(error))
        ballast = disk / "ballast"
        with contextlib.suppress(OSError):  # the disk is full now
            ballast.write_bytes(bytes(16 << 20))
        try:
            for step in range(2, 2000):
                run.append([trajectory(step, index) for index in range(50)], step=step)
                run.commit(step, {"metric": step})
        except StoreError as error:
            messages.append(str(error))
        names = sorted(entry.name for entry in (folder / "checkpoints").iterdir())
        ballast.unlink()
        last = run.last_step
        run.commit(2000, {"metric": 1.0})
    with Run.open(folder) as run:
        do_step(run)
        after = [row["step"] for row in run.metrics()]
    print(json.dumps({"messages": messages, "checkpoints": names, "last": last, "after": after}))


if __name__ == "__main__":
    main(Path(input()))
