"""A5: what must not leave the host: keys, the environment, files of credentials; nor lie about in a run."""

import traceback
from collections.abc import Callable
from pathlib import Path

from tests.attacks.attack import Attack, Found, Scene, both
from tests.attacks.box import bare, filled, inside, shown, started_with
from tests.attacks.canaries import SECRET
from tests.attacks.network import CASE, KEY, asked, served

from quintain.environments.dialogue import UserFault
from quintain.store import creation
from quintain.store.run import Run
from quintain.worlds.desk.endpoint import EndpointUser

ENVIRONMENT = started_with(env=lambda scene, _: {"CANARY": SECRET, "PATH": "/usr/bin"})
CREDENTIALS = {
    "git": ".git-credentials",
    "the cloud": ".aws/credentials",
    "the hub": ".cache/huggingface/token",
    "ssh": ".ssh/id_ed25519",
    "package indexes": ".netrc",
}


def write_weights(folder: Path) -> None:
    """Write what stands for a checkpoint."""
    (folder / "weights").write_bytes(b"w")


def credential(name: str) -> Callable[[Scene], Found]:
    """Return the attempt to read a file of credentials in the home folder."""

    def attempt(scene: Scene) -> Found:
        home = scene.canaries.folder / "home"
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SECRET)
        for place in (file, file.parent, home):
            place.chmod(0o755)
        return inside(f"return open('CANARY_FOLDER/home/{name}').read()")(scene)

    return attempt


def failing(status: int, body: bytes) -> Callable[[Scene], Found]:
    """Return the attempt to have an endpoint's failure tell the key."""

    def attempt(scene: Scene) -> Found:
        with served(status, {"WWW-Authenticate": f"Bearer {KEY}"}, body) as (url, _):
            said = asked(url, scene)
        return Found(KEY in said, said)

    return attempt


def telling(scene: Scene) -> None:
    """Put what was sent, and what came, into the message of a failure."""
    original = UserFault.of
    scene.patch.setattr(
        UserFault, "of", classmethod(lambda cls, kind, url, got: original(kind, url, f"{got} for key {KEY}"))
    )


def traced(scene: Scene) -> Found:
    """Attempt to have the traceback of a refused endpoint tell the key."""
    key = scene.folder / "key"
    key.write_text(KEY)
    with served(401, {}) as (url, _):
        try:
            EndpointUser(url, model="m", key_file=str(key)).opening(CASE)
        except UserFault:
            said = traceback.format_exc()
        else:
            raise AssertionError("the endpoint was to refuse")
    return Found(KEY in said, said[-300:])


def recorded(config: dict[str, object]) -> Callable[[Scene], Found]:
    """Return the attempt to find the key in a run whose settings are `config`, by what it was started with."""

    def attempt(scene: Scene) -> Found:
        key = scene.folder / "key"
        key.write_text(KEY)
        scene.patch.setenv("HF_TOKEN", KEY)
        values = {
            name: filled(str(value), scene).replace("KEY_FILE", str(key)) for name, value in config.items()
        }
        with Run.create(scene.folder / "run", recipe="grpo", config=values) as run:
            run.commit(0, {"loss": 1.0})
            run.checkpoint(0, write_weights)
            run.event("note", "started", environment=values)
        found = [
            file.name
            for file in (scene.folder / "run").rglob("*")
            if file.is_file() and KEY.encode() in file.read_bytes()
        ]
        return Found(bool(found), str(found) if found else f"only the name of the file is there: {key.name}")

    return attempt


def with_environment(scene: Scene) -> None:
    """Write the environment into the settings of a run."""
    original = creation._settings  # pyright: ignore[reportPrivateUsage]

    def settings(name: str, recipe: str, config: dict[str, object]) -> bytes:
        return original(name, recipe, {**config, "environ": {"HF_TOKEN": KEY}})

    scene.patch.setattr(creation, "_settings", settings)


ATTACKS = [
    Attack("A5", "the environment", inside("return only(os.environ.get('CANARY'))"), both(bare, ENVIRONMENT)),
    Attack(
        "A5",
        "the environment of the first process",
        inside("return only(open('/proc/1/environ').read().replace('PWD=/tmp\\0', ''))"),
        ENVIRONMENT,
    ),
    Attack(
        "A5", "the environment of a neighbour", inside("return open('/proc/CANARY_PID/environ').read()"), bare
    ),
    Attack(
        "A5", "the arguments of a neighbour", inside("return open('/proc/CANARY_PID/cmdline').read()"), bare
    ),
    *(
        Attack(
            "A5",
            f"credentials of {name}",
            credential(file),
            shown("--ro-bind", "CANARY_FOLDER", "CANARY_FOLDER"),
        )
        for name, file in CREDENTIALS.items()
    ),
    Attack("A5", "the key in a refusal", failing(401, KEY.encode()), telling),
    Attack("A5", "the key in an answer that is no JSON", failing(200, KEY.encode()), telling),
    Attack("A5", "the key in a failure of the server", failing(500, KEY.encode()), telling),
    Attack("A5", "the key in a traceback", traced, telling),
    Attack(
        "A5",
        "the key in the files of a run",
        recorded({"environment": "desk?user_key_file=KEY_FILE"}),
        with_environment,
    ),
]
