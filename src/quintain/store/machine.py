"""The name of what computes here: two that are called the same give the same bits for the same step.

Processors round differently, and so do the libraries that were built for them and sums over other numbers of threads.
What is not loaded has no part in it; torch is never loaded for its name.
"""

import platform
import sys
from functools import cache
from pathlib import Path

INFO = Path("/proc/cpuinfo")


def machine() -> str:
    """Return processor, torch with the instructions it uses, its threads, and the device: as of now.

    Example: ``"AMD EPYC 9B14, torch 2.11.0+cpu (AVX512, 2 threads)"``.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return processor()
    kind = torch.backends.cpu.get_cpu_capability()
    threads = torch.get_num_threads()
    name = f"{processor()}, torch {torch.__version__} ({kind}, {threads} thread{'s' * (threads != 1)})"
    return f"{name}, {torch.cuda.get_device_name()}" if torch.cuda.is_initialized() else name


@cache
def processor() -> str:
    """Return what the system calls the processor."""
    try:
        lines = INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine() or "an unnamed processor"
