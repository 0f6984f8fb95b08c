"""A script that keeps every promise of an engine, and the program of a process that hosts it."""

import os
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from quintain.engines.process_host import Host
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.errors import ModelError
from quintain.processes.keeper import fork_keeper

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (
    f"import sys; sys.path[:0] = [{{!r}}, {str(ROOT)!r}]; from tests.engines.scripts import main; main()"
)
"""What stands for `engines.process.PROGRAM`: it starts at once."""
MAX_LENGTH = 2000


def talk(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
    """Say tokens that depend on seed and stream alone, up to a stop id or a limit."""
    sampling = request.sampling
    rng = Random(f"{request.seed if sampling.temperature else ''}/{stream}")
    said: list[int] = []
    while len(said) < min(sampling.max_tokens, MAX_LENGTH - len(stream)):
        said.append(rng.randrange(40))
        if said[-1] in sampling.stop_ids:
            break
    return tuple(said)


def scripted(**options: Any) -> Scripted:
    """Return an engine that says this."""
    return Scripted(talk, max_length=MAX_LENGTH, **options)


class ScriptedHost(Host):
    """A host whose engine is a script; the folder's name says what goes wrong."""

    def on_open(self, folder: str, settings: dict[str, Any], policy: str) -> dict[str, Any]:
        """Build the script, or go wrong."""
        wrong = Path(folder).name
        if wrong == "broken":
            raise ModelError("model 'broken': got no weights; give some")
        if wrong == "dies":
            print("out of memory", file=sys.stderr, flush=True)
            os._exit(3)
        if wrong == "hangs":
            time.sleep(60)
        self._wrong = wrong
        self._engine = scripted(policy=policy, tokens_per_round=1)
        told = {
            "max_length": MAX_LENGTH,
            "vocabulary": 1000,
            "capabilities": sorted(self._engine.capabilities),
        }
        return {} if wrong == "odd" else told

    def _advance(self) -> None:
        """Do a round of work, or go wrong in the middle of it."""
        if self._wrong == "babbles":
            os.write(self._replies, b"\xff" * 8)
        if self._wrong == "floods":
            os.write(2, b"x" * (5 << 20))
        if self._wrong == "freezes":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._wrong == "raises":
            raise RuntimeError("a device ran out of memory")
        time.sleep(0.0005)
        super()._advance()


def main() -> None:
    """Serve on the standard streams."""
    fork_keeper()
    requests, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    ScriptedHost(requests, replies).serve()
