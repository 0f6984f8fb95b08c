"""One command in a box: what it wrote, how it ended, and why it was killed if it was.

Nothing that happens inside is waited for longer than the limits say, not even the end of its output, because a
process that was left behind can hold that open for ever.
"""

import os
import selectors
import time
from collections.abc import Mapping, Sequence
from subprocess import Popen

from quintain.errors import SandboxError
from quintain.processes.frames import read_into
from quintain.safety.box import TICK, Box, check_files
from quintain.safety.limits import Finished, Limits, Reason
from quintain.types import NOTHING


def run(
    command: Sequence[str], files: Mapping[str, str | bytes] = NOTHING, limits: Limits | None = None
) -> Finished:
    """Run `command` in a new box and return what became of it.

    It starts in `/tmp`, the only place it can write to, where `files` (relative path → content) lie; it has
    no network, no environment variables, and dies with all its processes when it ends or passes a limit.

    Raises:
        SandboxError: isolation is missing or does not work; nothing was run.
        UsageError: a file's name leads out of the folder.
    """
    limits = limits or Limits()
    box = Box(command, limits, files=check_files(files))
    try:
        written, reason = _watch(box, limits)
    finally:
        code = box.end()
    if not reason and box.is_starved:
        reason = "memory"
    return Finished(
        stdout=written["stdout"].decode(errors="replace"),
        stderr=written["stderr"].decode(errors="replace"),
        exit_code=None if reason else code,
        was_killed=bool(reason),
        reason=reason,
    )


def _watch(box: Box, limits: Limits) -> tuple[dict[str, bytearray], Reason]:
    """Return what the command in `box` wrote until it ended or passed a limit, and that limit."""
    written = {"stdout": bytearray(), "stderr": bytearray()}
    deadline = time.monotonic() + limits.seconds
    with selectors.DefaultSelector() as selector:
        for name, stream in _streams(box.process).items():
            os.set_blocking(stream, False)
            selector.register(stream, selectors.EVENT_READ, name)
        selector.register(box.exited, selectors.EVENT_READ, "end")
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return written, "time"
            ready = {str(key.data): key.fd for key, _ in selector.select(min(TICK, remaining))}
            for name in ready.keys() - {"end"}:
                if not read_into(written[name], ready[name], limits.output_bytes):
                    selector.unregister(ready[name])
            if sum(map(len, written.values())) > limits.output_bytes:
                return {name: content[: limits.output_bytes] for name, content in written.items()}, "output"
            # What is in a pipe when the command has ended is read; nobody is waited for to close it.
            if "end" in ready and len(ready) == 1:
                return written, ""
            reason = box.find_passed_limit()
            if reason:
                return written, reason


def _streams(process: Popen[bytes]) -> dict[str, int]:
    """Return the two ends of pipes that `process` writes to."""
    if process.stdout is None or process.stderr is None:
        raise SandboxError("reading from a sandbox: got no pipes; report this")
    return {"stdout": process.stdout.fileno(), "stderr": process.stderr.fileno()}
