"""Scripts that are no package, of speed/ and evidence/studies/, as modules that a test may look into."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def load_script(place: str) -> ModuleType:
    """Import the script at `place` in the repository: ``load_script("speed/capacity.py")``."""
    found = importlib.util.spec_from_file_location(Path(place).stem, ROOT / place)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # dataclasses look their module up
    found.loader.exec_module(module)
    return module
