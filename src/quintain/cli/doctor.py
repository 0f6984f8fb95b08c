"""``quintain doctor``: what can this machine do, what is missing, and how does one get it?

Nothing is changed but a cache: the kernels in C are compiled if they were not. Only what everything needs is a failure.
"""

import importlib.util
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from quintain.cli.arguments import Parser
from quintain.cli.findings import report
from quintain.errors import QuintainError, install_command
from quintain.types.findings import Finding

EXTRAS: dict[str, tuple[str, str]] = {
    "peft": ("peft", "LoRA layers, which large models are trained by"),
    "minigrid": ("minigrid", "the quickstart"),
    "smollm2": ("gguf", "models in GGUF files, such as smollm2"),
    "constrained": ("llguidance", "answers under a grammar"),
    "search": ("bm25s", "search in a corpus"),
    "serve": ("starlette", "serving a model to agents of yours"),
    "data": ("pyarrow", "data in Parquet"),
    "mcp": ("mcp", "tools of MCP servers"),
    "ray": ("ray", "a run on several machines"),
    "wandb": ("wandb", "metrics at Weights & Biases"),
    "tensorboard": ("tensorboard", "metrics in TensorBoard"),
}
"""Extra → what is imported of it, and what it is for."""
MIN_DISK = 5 << 30
"""Bytes of a disk below which a run of some size is in danger."""
VLLM = ("vllm", ".venv-vllm/bin/vllm")
VLLM_ADVICE = "for sampling on GPUs; in an environment of its own: make .venv-vllm/.ready (docs/engines.md)"


def doctor(argv: Sequence[str]) -> int:
    """Print what this machine can do and return the exit status."""
    parser = Parser("doctor", "Say what this machine can do, what is missing and how to get it.")
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    parser.switch("--json", "print JSON")
    arguments = parser.read(argv)
    found = [
        *program_lines(),
        *device_lines(),
        *box_lines(),
        *disk_lines(Path(arguments.runs)),
        *extra_lines(),
        *engine_lines(),
    ]
    return report("this machine", found, arguments.json, QuintainError)


def program_lines() -> Iterator[Finding]:
    """Yield what runs here: Python, the system, torch and the kernels."""
    import torch

    from quintain.models.cpu.native import processor, unavailable

    yield Finding(
        "python", "pass", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield Finding("torch", "pass", f"{torch.__version__}, {torch.get_num_threads()} threads")
    reason = unavailable()
    half = "with" if "avx512_bf16" in processor() else "without"
    yield Finding(
        "kernels", "skip" if reason else "pass", reason or f"compiled, {half} instructions for bf16"
    )


def device_lines() -> Iterator[Finding]:
    """Yield each device with its free memory, and the largest model that can be trained there."""
    import torch

    from quintain.models.device import free_memory
    from quintain.models.memory import amount

    free, total = free_memory(torch.device("cpu"))
    cores = torch.get_num_threads()
    yield Finding(
        "processor",
        "pass",
        f"{amount(free)} of {amount(total)} free, {cores} threads; {find_trainable(free, 'cpu')}",
    )
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for processors"
        yield Finding(
            "GPU", "skip", f"torch sees none ({built}); install a driver, and a torch that is built for it"
        )
    for card in range(torch.cuda.device_count()):
        device = torch.device("cuda", card)
        free, total = free_memory(device)
        used = f", {amount(total - free)} held by others" if total - free > total // 8 else ""
        name = torch.cuda.get_device_name(device)
        yield Finding(
            str(device),
            "pass",
            f"{name}, {amount(free)} of {amount(total)} free{used}; {find_trainable(free, 'cuda')}",
        )
    if torch.backends.mps.is_available():
        yield Finding(
            "mps", "pass", "for --device mps in one process; the engine process and learner ranks need Linux"
        )


def find_trainable(free: int, device: str) -> str:
    """Return which of the models that many know can be trained in so much memory."""
    from quintain.models.memory import largest_model

    whole, layers = (largest_model(free, device=device, lora_rank=rank) for rank in (0, 16))
    if not layers:
        return "trains models that are made here"
    return f"trains all weights of {whole or 'models that are made here'}, LoRA layers of {layers}"


def box_lines() -> Iterator[Finding]:
    """Yield whether code that a policy writes can be run."""
    from quintain.safety.isolation import find_fault

    fault = find_fault()
    yield Finding(
        "sandbox", "skip" if fault else "pass", fault or "bubblewrap isolates code that a policy writes"
    )


def disk_lines(runs: Path) -> Iterator[Finding]:
    """Yield what is free on the disks of the runs and of what is temporary."""
    import tempfile

    from quintain.models.memory import amount

    for name, place in (("runs", runs.absolute()), ("temporary files", Path(tempfile.gettempdir()))):
        there = next(folder for folder in (place, *place.parents) if folder.exists())
        free = shutil.disk_usage(there).free
        state = "fail" if free < MIN_DISK // 10 else "pass"
        todo = "; free space, or name another folder" if free < MIN_DISK else ""
        yield Finding(name, state, f"{amount(free)} free for {place}{todo}")


def extra_lines() -> Iterator[Finding]:
    """Yield each extra: its version, or how it is installed."""
    for extra, (module, purpose) in EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            yield Finding(extra, "skip", f"for {purpose}: {install_command(extra)}")
            continue
        try:
            told = version(module)
        except PackageNotFoundError:
            told = "there"
        yield Finding(extra, "pass", f"{told}, for {purpose}")


def engine_lines() -> Iterator[Finding]:
    """Yield which engines can be started."""
    found = next((place for name in VLLM if (place := shutil.which(name))), None)
    yield Finding(
        "vLLM",
        "pass" if found else "skip",
        f"{found}: --engine vllm?program={found}" if found else VLLM_ADVICE,
    )
    if sys.platform != "linux":
        yield Finding(
            "engines", "skip", "the engines process and vllm, and learner ranks, need Linux; local works"
        )
