"""Kernels in C for the processor, compiled on this machine the first time they are needed.

Between matrix products, a small model spends its time on norms, rotations and attention that torch runs as many passes
over memory; these kernels take one. The system's C compiler makes a library for this very processor and keeps it in the
user's cache. Without a compiler, or off the processor, everything works the same, only slower, and `unavailable` says
why.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
SOURCES = Path(__file__).parent / "kernels"
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
COMPILE_SECONDS = 120
MAY_FAIL = frozenset(
    {
        "qt_rms_norm_backward",
        "qt_heads_backward",
        "qt_packed_attention",
        "qt_packed_attention_backward",
        "qt_layers",
        "qt_product_half",
        "qt_sample",
    }
)
"""Kernels that allocate, and return whether they could not."""
_FUNCTIONS: dict[str, Callable[..., int | None]] = {}
"""Those that were called before, declared."""


class Unavailable(Exception):
    """The kernels cannot be used; the text says why."""


@cache
def unavailable() -> str | None:
    """Return why the kernels cannot be used on this machine, or None when they can. Compiles them if need be."""
    try:
        library()
    except Unavailable as reason:
        LOG.warning("the kernels in C are not used, torch is slower: %s", reason)
        return str(reason)
    return None


def fits(*tensors: Tensor) -> bool:
    """Whether the kernels can run on `tensors`: 32-bit floats in the processor's memory."""
    return all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors) and not unavailable()


@cache
def library() -> ctypes.CDLL:
    """Return the compiled kernels.

    Raises:
        Unavailable: there is no compiler, it fails, or its result cannot be loaded.
    """
    if platform.system() not in ("Linux", "Darwin"):
        raise Unavailable(f"the system is {platform.system()}")
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise Unavailable("there is no C compiler; install gcc or clang for faster training on the processor")
    try:
        return ctypes.CDLL(str(_compile_library(compiler)))
    except OSError as error:
        raise Unavailable(f"the compiled kernels cannot be loaded: {error}") from error


def call(name: str, *arguments: Tensor | int | float | None) -> None:
    """Call the kernel `name`: tensors by address (their rows must be dense), numbers as int64 and float.

    Raises:
        MemoryError: the kernel found no memory.
    """
    function = _FUNCTIONS.get(name) or _declare_function(name, arguments)
    if function(*[part.data_ptr() if isinstance(part, Tensor) else part for part in arguments]):
        raise MemoryError(f"the kernel {name} found no memory")


def _declare_function(
    name: str, arguments: Sequence[Tensor | int | float | None]
) -> Callable[..., int | None]:
    """Return the C function `name`, declared for what it is called with: the kinds never change."""
    kinds: dict[type, type] = {int: ctypes.c_int64, float: ctypes.c_float}
    signature = ctypes.CFUNCTYPE(
        ctypes.c_int if name in MAY_FAIL else None,
        *(kinds.get(type(argument), ctypes.c_void_p) for argument in arguments),
    )
    function = _FUNCTIONS[name] = signature((name, library()))
    return function


def _compile_library(compiler: str) -> Path:
    """Return the library for the sources, the compiler and the processor of now, compiled if it is not there."""
    sources = sorted(SOURCES.iterdir())
    identity = hashlib.sha256()
    for part in (compiler, " ".join(FLAGS), platform.platform(), processor(), torch.__version__):
        identity.update(part.encode())
    for source in sources:
        identity.update(source.read_bytes())
    folder = cache_folder()
    target = folder / f"kernels-{identity.hexdigest()[:24]}.so"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=folder) as place:
        made = Path(place) / "kernels.so"
        files = [str(source) for source in sources if source.suffix == ".c"]
        _run(compiler, files, made)
        made.replace(target)
    return target


def _run(compiler: str, files: list[str], made: Path) -> None:
    """Compile `files` into the library `made`, with threads where the compiler can."""
    problem = ""
    for threads in (("-fopenmp",), ()):
        # The library is linked without an OpenMP runtime of its own: it shares that of torch.
        objects = [str(made.with_name(f"{Path(file).stem}.o")) for file in files]
        commands = [
            [compiler, *FLAGS, *threads, "-c", file, "-o", made_object]
            for file, made_object in zip(files, objects, strict=True)
        ]
        commands.append([compiler, "-shared", *objects, "-o", str(made), "-lm"])
        problem = next((said for command in commands if (said := _run_compiler(command))), "")
        if not problem:
            return
    raise Unavailable(f"{compiler} cannot compile them: {problem}")


def _run_compiler(command: list[str]) -> str:
    """Run `command` and return what it complained of when it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no message"])[0]


def cache_folder() -> Path:
    """Return the folder that holds compiled kernels: the user's own, closed to others.

    Raises:
        Unavailable: it cannot be made, or others could write to it.
    """
    folder = Path.home() / ".cache" / "quintain"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    except (OSError, RuntimeError) as error:
        raise Unavailable(f"the cache {folder} cannot be made: {error}") from error
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise Unavailable(f"others may write to the cache {folder}; own it and run chmod go-w on it")
    return folder


def processor() -> str:
    """Return what tells processors apart, as far as the system says: what they can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("flags")), "") + platform.machine()
