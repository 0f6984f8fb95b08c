"""The command line that shuts a command in: bubblewrap, under a real user id that is not root.

As root, bubblewrap alone is no sandbox: files of the kernel stay writable and the limit of processes does not hold.
So the user id is given up first, and for each box another one is taken. The environment is empty from the start,
because the first process in a box shows its own. What cannot be isolated is not run.
"""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from quintain.errors import SandboxError
from quintain.safety import syscalls
from quintain.safety.limits import Limits

FIRST_UID, NUM_UIDS = 64_000, 1_000
"""User ids that boxes are run under when we are root: no system gives them to anybody."""
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INSTALL = "install it: apt-get install bubblewrap"
SYSTEM = ("/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/bin", "/lib", "/lib32", "/lib64")
LOADER = "/etc/ld.so.cache"
PROBE = (
    "test ! -e /etc/shadow && test ! -e /root && test ! -w / && test ! -w /usr/bin && test ! -w /dev/shm && "
    "test ! -w /proc/sys/kernel/core_pattern && test -w /tmp && cd /proc/self/ns && "
)
FILTERED = "grep -q '^Seccomp:.2' /proc/self/status && "
NAMESPACES = ("net", "pid", "ipc", "uts", "user", "mnt")
_numbers = itertools.count(os.getpid())


def isolate(
    command: Sequence[str],
    limits: Limits,
    *,
    mounts: Sequence[str] = (),
    call_filter: int | None = None,
    forks: bool = False,
) -> list[str]:
    """Return the command line that runs `command` in a new box; run it with an empty environment.

    `mounts` are further arguments of bubblewrap, carried out when `/tmp` is there and before the rest is made
    read-only. `call_filter` is a file descriptor that holds `syscalls.program`; see `open_filter`. One that `forks` is
    our own program, which shuts others in: it keeps the capabilities that it has over its box, and no other.

    Raises:
        SandboxError: this is not Linux, or a program is missing.
    """
    if sys.platform != "linux":
        raise SandboxError(f"running code in a sandbox: got the system {sys.platform}; use Linux")
    bubblewrap, limiter = find_program("bwrap"), find_program("prlimit")
    return [
        *_without_root(),
        *(bubblewrap, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"),
        *(
            "--new-session",
            "--cap-add" if forks else "--cap-drop",
            "ALL",
            "--uid",
            "1000",
            "--gid",
            "1000",
            "--hostname",
            "box",
            "--as-pid-1",
        ),
        *(() if call_filter is None else ("--seccomp", str(call_filter))),
        *_system(),
        *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
        *("--size", str(limits.scratch_bytes), "--tmpfs", "/tmp", *mounts, "--remount-ro", "/"),
        *(
            "--chdir",
            "/tmp",
            "--",
            limiter,
            f"--nproc={limits.processes + 2 + 2 * forks}",
            "--core=0",
            "--nofile=256",
        ),
        *(f"--as={limits.memory_bytes}", f"--fsize={limits.scratch_bytes}", "--memlock=0", "--msgqueue=0"),
        *("--", *command),
    ]


def hold_in_memory(content: bytes) -> int:
    """Return a file descriptor to read `content` from."""
    handle = os.memfd_create("quintain")
    with os.fdopen(os.dup(handle), "wb") as file:
        file.write(content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def open_filter() -> int | None:
    """Return a file descriptor that holds the filter of system calls; None on processors without one."""
    content = syscalls.program()
    return hold_in_memory(content) if content else None


def find_program(program: str) -> str:
    """Return the path of `program` of the system.

    Raises:
        SandboxError: it is not installed.
    """
    found = shutil.which(program, path=SEARCHED)
    if found is None:
        raise SandboxError(f"running code in a sandbox needs {program}: it is not installed; {INSTALL}")
    return found


@cache
def find_interpreter() -> tuple[str, tuple[str, ...]]:
    """Return a Python that a box can see, and the mounts it needs besides the system's folders.

    It is the Python we run under where others than its owner may read it, else the system's.

    Raises:
        SandboxError: there is none.
    """
    ours = Path(sys.base_prefix).resolve()
    if _is_open(ours):
        name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        mounts = () if _is_below(ours) else ("--ro-bind", str(ours), str(ours))
        return str(ours / "bin" / name), mounts
    system = shutil.which("python3", path="/usr/bin:/bin")
    if system is None:
        raise SandboxError(
            f"a Python for the sandbox: got {ours}, which only its owner may read, and no /usr/bin/python3; "
            "install python3, or use a Python that others may read"
        )
    return system, ()


@cache
def find_fault() -> str:
    """Return what is wrong with isolation on this machine, or an empty text; it is tried once."""
    try:
        done = _probe()
    except SandboxError as error:
        return str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"running code in a sandbox: got {error}; {INSTALL}"
    ours = [os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES]
    theirs = done.stdout.decode(errors="replace").split()
    shared = [name for name, one, other in zip(NAMESPACES, ours, theirs, strict=False) if one == other]
    if done.returncode == 0 and len(theirs) == len(ours) and not shared:
        return ""
    said = " ".join(done.stderr.decode(errors="replace").split())[-200:] or f"shared: {', '.join(shared)}"
    return (
        f"running code in a sandbox: bubblewrap is installed but does not isolate "
        f"(got exit code {done.returncode}: {said}); install bubblewrap 0.8 or later "
        "(apt-get install bubblewrap) and allow user namespaces "
        "(sysctl kernel.unprivileged_userns_clone=1; in a container, a seccomp profile that permits them)"
    )


def _probe() -> "subprocess.CompletedProcess[bytes]":
    """Run `PROBE` in a box, which then names its namespaces."""
    handle = open_filter() if sys.platform == "linux" else None
    probe = PROBE if handle is None else f"{PROBE}{FILTERED}"
    try:
        return subprocess.run(
            isolate(
                ["/bin/sh", "-c", f"{probe}exec readlink {' '.join(NAMESPACES)}"],
                Limits(),
                call_filter=handle,
            ),
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            pass_fds=() if handle is None else (handle,),
        )
    finally:
        if handle is not None:
            os.close(handle)


def require() -> None:
    """Check that isolation works on this machine.

    Raises:
        SandboxError: it does not; the message says what to install or allow.
    """
    found = find_fault()
    if found:
        raise SandboxError(found)


def _without_root() -> list[str]:
    """Return the command that gives up the user id of root and every capability; nothing for another user."""
    if os.geteuid() != 0:
        return []
    uid = str(FIRST_UID + next(_numbers) % NUM_UIDS)
    return [
        *(find_program("setpriv"), "--reuid", uid, "--regid", uid, "--clear-groups", "--no-new-privs"),
        *("--inh-caps=-all", "--bounding-set=-all", "--"),
    ]


def _system() -> list[str]:
    """Return the mounts of the system's programs and libraries, read-only; links stay links."""
    mounts: list[str] = []
    for place in map(Path, SYSTEM):
        if place.is_symlink():
            mounts += ["--symlink", os.readlink(place), str(place)]
        elif place.is_dir():
            mounts += ["--ro-bind", str(place), str(place)]
    return [*mounts, "--ro-bind-try", LOADER, LOADER]


def _is_below(folder: Path) -> bool:
    """Whether the system's folders contain the Python in `folder`."""
    return folder == Path("/usr")


def _is_open(folder: Path) -> bool:
    """Whether the user that boxes run under may read `folder`."""
    if os.geteuid() != 0:
        return os.access(folder, os.R_OK | os.X_OK)
    return all(place.stat().st_mode & 0o005 == 0o005 for place in (folder, *folder.parents))
