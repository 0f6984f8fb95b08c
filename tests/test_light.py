"""The rooms of pure functions are imported without torch, so that a method's settings can be read without it."""

import subprocess
import sys
from pathlib import Path

import pytest

import quintain

PACKAGE = Path(quintain.__file__).parent


@pytest.mark.parametrize("room", ["credit", "losses", "rewards", "curriculum"])
def test_no_module_of_a_pure_room_imports_torch(room: str) -> None:
    names = [f"quintain.{room}.{path.stem}" for path in sorted((PACKAGE / room).glob("[!_]*.py"))]
    assert names
    program = f"import {', '.join(names)}, sys; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"
