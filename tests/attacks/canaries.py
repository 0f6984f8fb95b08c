"""What is planted on the host for attacks to reach: a file, services, a process, a secret in the environment.

A canary that was touched says so.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

SECRET = "quintain-canary-7c1f"
WAITS = (
    "import ctypes, time\n"
    "ctypes.CDLL(None).prctl(0x59616d61, -1, 0, 0, 0)\n"  # whoever has the same user may trace it
    "print('ready', flush=True)\ntime.sleep(3600)"
)


class Canaries:
    """The canaries, in a new folder that everybody may read."""

    def __init__(self, without_root: list[str]) -> None:
        folder = self.folder = Path(mkdtemp(prefix="quintain-host-"))
        folder.chmod(0o755)
        self.file = folder / "canary.txt"
        self.file.write_text(SECRET)
        self.file.chmod(0o644)
        self.writable = folder / "writable"
        self.writable.mkdir()
        self.writable.chmod(0o777)
        self.stand_in = self.writable / "stand-in"
        self.stand_in.write_text("")
        self.stand_in.chmod(0o666)
        self.handle = os.open(folder, os.O_RDONLY)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.tcp6 = socket.create_server(("::1", 0), family=socket.AF_INET6)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract_name = f"quintain-canary-{os.getpid()}"
        self.abstract.bind(f"\0{self.abstract_name}")
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix_path = folder / "s"
        self.unix.bind(str(self.unix_path))
        self.unix_path.chmod(0o777)
        for each in (self.abstract, self.unix):
            each.listen()
        for each in self._services():
            each.setblocking(False)
        self.process = subprocess.Popen(
            [*without_root, sys.executable, "-I", "-S", "-c", WAITS],
            env={"CANARY": SECRET},
            stdout=subprocess.PIPE,
            cwd=folder,
        )
        if self.process.stdout is None or self.process.stdout.readline() != b"ready\n":
            raise AssertionError("the canary process did not start")

    def touched(self) -> list[str]:
        """Return the canaries that were touched since the last look."""
        found = [] if self.file.read_text() == SECRET else ["file"]
        found += [] if self.stand_in.read_text() == "" else ["stand-in"]
        found += [] if sorted(os.listdir(self.writable)) == ["stand-in"] else ["writable folder"]
        found += [] if self.process.poll() is None else ["process"]
        for number, each in enumerate(self._services()):
            with suppress(BlockingIOError):
                if each is self.udp:
                    each.recv(100)
                else:
                    each.accept()[0].close()
                found.append(f"service {number}")
        return found

    def close(self) -> None:
        """Take the canaries away."""
        for each in self._services():
            each.close()
        os.close(self.handle)
        rmtree(self.folder)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _services(self) -> list[socket.socket]:
        return [self.tcp, self.tcp6, self.udp, self.abstract, self.unix]
