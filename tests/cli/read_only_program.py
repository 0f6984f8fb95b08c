"""Commands about a run on a disk that is only read, in one process; the input names it and a folder to write to."""

import contextlib
import io
import json
import os
from pathlib import Path

from quintain.cli.main import main

READS = (
    "view one",
    "check one",
    "check one@best",
    "compare one two",
    "data one",
    "data one --out OUT/d.jsonl",
    "export one --to messages --out OUT/m.jsonl",
    "export one --to parquet --out OUT/rows",
    "export one --to hf --out OUT/model",
    "export one@0 --to hf --out OUT/start",
    "eval one --episodes 2",
    "eval one@0 --episodes 2",
)
WRITES = (
    "resume one",
    "resume one --steps 3",
    "train sft --environment guess --model micro --steps 1 --run three",
    "collect guess --episodes 2 --out runs/four",
    "export one --to messages --out m.jsonl",
    "export one --to hf --out model",
    "compare one two --picture p.png",
)


def run(disk: Path, out: Path) -> None:
    """Give every command, and print the status and the last line of each."""
    os.chdir(disk)
    found: dict[str, list[object]] = {}
    for command in (*READS, *WRITES):
        said, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
            status = main(command.replace("OUT", str(out)).split())
        found[command] = [status, said.getvalue(), error.getvalue()]
    print(json.dumps(found))


if __name__ == "__main__":
    run(Path(input()), Path(input()))
