"""What is published is what is here, and works where nothing else is: python tests/wheel_gate.py

Builds the source distribution, and the wheel from it; looks whether every file of the package is in both; installs the
wheel into an empty virtual environment with pip, and into another with uv, and runs the commands of a first hour there,
outside this folder.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = "uv==0.13.9"
EXTRAS = "data,serve"
WORLD = '''import quintain


class Echo(quintain.Environment):
    """Say the word you are shown."""

    def reset(self, task):
        self.word = task.rng.choice(["ball", "door", "key"])
        return f"Say: {self.word}"

    def legal_actions(self):
        return ("ball", "door", "key")

    def expert_action(self):
        return quintain.Action(text=self.word)

    def step(self, action):
        is_right = action.text.strip() == self.word
        return quintain.StepResult(observation="", reward=float(is_right), is_terminated=True, is_success=is_right)
'''
TRAIN = (
    "train", "grpo", "--environment", "echo.py", "--model", "micro", "--run", "first", "--steps", "2",
    "--tasks", "4", "--group-size", "4", "--eval-episodes", "16",
)  # fmt: skip
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("environments",),
    ("methods",),
    ("check", "echo.py"),
    TRAIN,
    ("view", "first", "--static"),
    ("eval", "first", "--episodes", "16"),
    ("export", "first", "--to", "messages", "--out", "messages.jsonl"),
    ("export", "first", "--to", "hf", "--out", "exported"),
    ("check", "exported"),
    ("serve", "--help"),
)
"""What is run where the wheel is installed, each in the same folder."""
EVIDENCE: tuple[tuple[str, ...], ...] = (
    ("bench", "--help"),
    ("bench", "methods", "--pages", "--docs", "pages"),
)
"""What is run where the wheel of evidence is installed, too."""
PACKAGES = {"quintain": "src", "quintain_evidence": "evidence/src"}


def package_files(package: str) -> set[str]:
    """Return every file of `package` that is kept in git, as its path below src."""
    place = PACKAGES[package]
    found = subprocess.run(
        ["git", "ls-files", f"{place}/{package}"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {line.removeprefix(f"{place}/") for line in found.stdout.splitlines()}


def run(command: list[str | Path], folder: Path) -> None:
    """Run `command` in `folder`; its output is shown where it fails."""
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    said = " ".join(Path(part).name if isinstance(part, Path) else part for part in command)
    print(f"{time.monotonic() - started:6.1f} s  {said[:110]}", flush=True)
    if done.returncode:
        raise SystemExit(
            f"{said}: exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )


def find_links() -> list[str | Path]:
    """Return the folders of wheels that pip is set to look into, as options of uv, which does not read them."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    )
    lines = (line.partition("=") for line in told.stdout.splitlines())
    places = {place for key, _, value in lines if "find-links" in key for place in value.strip("'").split()}
    return [part for place in sorted(places) for part in ("--find-links", place)]


def new_environment(folder: Path, *, has_pip: bool) -> Path:
    """Return the interpreter of a new, empty virtual environment."""
    venv.create(folder, with_pip=has_pip)
    return folder / "bin" / "python"


def check_contents(wheel: Path, source: Path) -> None:
    """Raise where a file of the package is missing in the wheel or the source distribution."""
    wanted = package_files(wheel.name.partition("-")[0])
    with zipfile.ZipFile(wheel) as opened:
        inside = set(opened.namelist())
    with tarfile.open(source) as opened:
        base = source.name.removesuffix(".tar.gz") + "/"
        packed = {name.removeprefix(base) for name in opened.getnames()}
    for what, missing in (
        (wheel.name, wanted - inside),
        (source.name, {f"src/{name}" for name in wanted} - packed),
    ):
        if missing:
            raise SystemExit(f"{what}: got it without {len(missing)} files, such as {sorted(missing)[:3]}")
    kinds = sorted({Path(name).suffix for name in wanted})
    print(f"{len(wanted)} files of the package ({' '.join(kinds)}) are in {wheel.name} and {source.name}")


def use(python: Path, folder: Path) -> None:
    """Run the commands of a first hour with the interpreter that Quintain is installed for."""
    folder.mkdir()
    (folder / "echo.py").write_text(WORLD, encoding="utf-8")
    for command in COMMANDS:
        run([python, "-I", "-m", "quintain.cli", *command], folder)
    run([python.with_name("quintain"), "--help"], folder)
    found = subprocess.run(
        [python, "-I", "-c", "import quintain; print(quintain.__file__)"],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    if str(ROOT / "src") in found.stdout:
        raise SystemExit(f"quintain was imported from {found.stdout.strip()}, not from the wheel")


def use_evidence(python: Path, folder: Path, install: list[str | Path]) -> None:
    """See that `quintain bench` says how it is installed, then `install` evidence and write its pages."""
    done = subprocess.run(
        [python, "-I", "-m", "quintain.cli", "bench"], cwd=folder, capture_output=True, text=True
    )
    if done.returncode != 2 or not done.stderr.endswith("from a clone: pip install ./evidence\n"):
        raise SystemExit(f"quintain bench without evidence: got {done.stderr or done.stdout}")
    run(install, folder)
    (folder / "pages").mkdir()
    for command in EVIDENCE:
        run([python, "-I", "-m", "quintain.cli", *command], folder)
    index = (folder / "pages" / "results" / "index.md").read_text(encoding="utf-8")
    if "| `grpo` | works" not in index:
        raise SystemExit(f"the wheel of evidence does not know its results: {index[-2000:]}")


def main() -> None:
    """Build, look, install twice and use."""
    with tempfile.TemporaryDirectory(prefix="quintain-wheel-") as place:
        folder = Path(place)
        tools = new_environment(folder / "tools", has_pip=True)
        run([tools, "-m", "pip", "install", "-q", "--disable-pip-version-check", UV], folder)
        uv = tools.with_name("uv")
        wheels: dict[str, Path] = {}
        for package, place in PACKAGES.items():
            built = folder / "dist" / package
            run([uv, "build", "--quiet", "--out-dir", built, (ROOT / place).parent], folder)
            (wheels[package],), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
            check_contents(wheels[package], source)
        wheel, evidence = wheels["quintain"], wheels["quintain_evidence"]
        what, limits = f"{wheel}[{EXTRAS}]", ROOT / "constraints.txt"
        by_pip = new_environment(folder / "by-pip", has_pip=True)
        pip: list[str | Path] = [by_pip, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run([*pip, "-c", limits, what], folder)
        use(by_pip, folder / "with-pip")
        use_evidence(by_pip, folder / "with-pip", [*pip, evidence])
        by_uv = new_environment(folder / "by-uv", has_pip=False)
        run([uv, "pip", "install", "--quiet", *find_links(), "--python", by_uv, "-c", limits, what], folder)
        use(by_uv, folder / "with-uv")
        use_evidence(
            by_uv, folder / "with-uv", [uv, "pip", "install", "--quiet", "--python", by_uv, evidence]
        )
    print("the wheels work in an empty environment, installed by pip and by uv")


if __name__ == "__main__":
    main()
