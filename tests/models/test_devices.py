import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration

from quintain.errors import ConfigError
from quintain.models.device import find_device

ROOT = Path(__file__).resolve().parents[2]


def test_names_of_devices() -> None:
    assert find_device("cpu") == torch.device("cpu")
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigError, match="device: got 'gpu'; give auto, cpu, cuda, cuda:1 or mps"):
        find_device("gpu")
    with pytest.raises(ConfigError, match="device: got 'cuda:77', which torch does not see on this machine"):
        find_device("cuda:77")


makes_devices = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch makes no devices in Python",
)


def run_on_other(call: str) -> None:
    """Run the module that `call` names, `other_device_program.main()`, in a process of its own."""
    start = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'src')!r}]"
    module, _, function = call.partition(".")
    program = f"{start}; from tests.models import {module}; {module}.{function}"
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr[-3000:]
    assert told.stdout.splitlines()[-1] == "done"


@makes_devices
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_of_the_processor_gets_into_what_a_device_computes() -> None:
    run_on_other("other_device_program.main()")


@makes_devices
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", ["grpo", "ppo", "archer", "eto"])
def test_a_run_on_a_device_without_float64_and_linux(method: str) -> None:
    run_on_other(f"other_device_runs.main({method!r})")
