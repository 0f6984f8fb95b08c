"""What computes has a name that changes with what changes the bits."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import quintain
from quintain.store import machine as named
from quintain.store.machine import machine, processor

SAID = """
import sys
from quintain.store.machine import machine
print(machine())
assert "torch" not in sys.modules
import torch
for number in (1, 2):
    torch.set_num_threads(number)
    print(machine())
"""


def said(capability: str) -> list[str]:
    """What a process says before it loaded torch, and with one and with two threads of it."""
    source = str(Path(quintain.__file__).parents[1])
    variables = {"PYTHONPATH": source, "PATH": "/usr/bin:/bin", "ATEN_CPU_CAPABILITY": capability}
    command = [sys.executable, "-c", SAID]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=True)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_it_names_the_processor_and_what_torch_makes_of_it() -> None:
    built = f"{processor()}, torch {torch.__version__}"
    assert said("default") == [processor(), f"{built} (DEFAULT, 1 thread)", f"{built} (DEFAULT, 2 threads)"]


def test_here_it_is_what_torch_says() -> None:
    assert machine() == machine()
    assert f"({torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} thread" in machine()


@pytest.mark.parametrize(
    ("info", "name"), [("flags\t: a\nmodel name\t: A Chip @ 2 GHz\n", "A Chip @ 2 GHz"), ("", ""), (None, "")]
)
def test_a_system_that_says_little_has_a_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, info: str | None, name: str
) -> None:
    if info is not None:
        (tmp_path / "cpuinfo").write_text(info)
    monkeypatch.setattr(named, "INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    processor.cache_clear()
    try:
        assert processor() == (name or "riscv64")
    finally:
        processor.cache_clear()


def test_before_torch_is_loaded_it_is_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert machine() == processor()
