"""A2: files that are not the attacker's: by traversal, by links, by what is put in the place of a file."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.attacks.attack import Attack, Found, Scene, refused
from tests.attacks.box import LONG, inside, shown, without

from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import ModelError, StoreError, UsageError
from quintain.models import load
from quintain.safety import box, sandbox
from quintain.store import checkpoints, files
from quintain.store.checkpoints import Checkpoints, damage
from quintain.store.run import Run
from quintain.worlds.repo import game as repo

PLACED = ["../x", "/x", "a/../../x", "..", "./../x", "a/b/../../../x", "x" * 4096, "//x"]
HOST = {"users": "/etc/passwd", "groups": "/etc/group", "hosts": "/etc/hosts", "packages": "/etc/apt"}
WRITES = {
    "the root folder": "open('/x', 'w').close()\nreturn os.listdir('/')",
    "a folder beside the system's": "os.mkdir('/home')\nreturn os.listdir('/')",
    "a link in the root folder": "os.symlink('/usr/bin', '/x')\nreturn os.listdir('/')",
}
THROUGH = {
    "by its name": "return open('CANARY_FILE').read()",
    "through a link": "os.symlink('CANARY_FILE', '/tmp/x')\nreturn open('/tmp/x').read()",
    "through a link to its folder": "os.symlink('CANARY_FOLDER', '/tmp/y')\nreturn open('/tmp/y/canary.txt').read()",
    "through the root of a process": "return open('/proc/self/rootCANARY_FILE').read()",
    "by a way upwards": "return open('/tmp/../../..CANARY_FILE').read()",
    "by listing its folder": "return os.listdir('CANARY_FOLDER')",
    "through an open folder": "return os.open('canary.txt', 0, dir_fd=os.open('CANARY_FOLDER', 0))",
}
CANARY_FOLDER = shown("--ro-bind", "CANARY_FOLDER", "CANARY_FOLDER")


def placed(name: str) -> Callable[[Scene], object]:
    """Return work that lays a file `name` into a box."""
    return lambda _: sandbox.run(["/bin/true"], {name: "x"}, LONG)


def anywhere(scene: Scene) -> None:
    """Take every name for a file in a box."""
    scene.patch.setattr(box, "check_path", lambda name: f"/tmp/{name}")


def written(name: str) -> Callable[[Scene], Found]:
    """Return the attempt to write a file `name` as a tool of the world `repo`."""

    def attempt(_: Scene) -> Found:
        world = repo.Repo()
        try:
            begin(world, world.task("train", 0))
            result = advance(world, tool_action("write_file", path=name, text="x = 1"))
            return Found(result.is_valid, str(result.observation))
        finally:
            world.close()

    return attempt


def any_file_name(scene: Scene) -> None:
    """Let the world take every name."""
    scene.patch.setattr(repo, "FILE_NAME", repo.re.compile(r"(?s).*"))


def checkpoint(scene: Scene) -> Path:
    """Return an intact checkpoint."""

    def write(folder: Path) -> None:
        (folder / "weights").write_bytes(b"weights")

    return Checkpoints(scene.folder / "checkpoints", lambda kind, message: None).write(1, write).folder


def judged(spoil: Callable[[Path, Scene], None]) -> Callable[[Scene], Found]:
    """Return the attempt to have a checkpoint used that `spoil` has changed; one that hangs has landed."""

    def attempt(scene: Scene) -> Found:
        folder = checkpoint(scene)
        spoil(folder, scene)
        said: list[str | None] = []
        thread = threading.Thread(target=lambda: said.append(damage(folder)), daemon=True)
        thread.start()
        thread.join(2.0)
        if thread.is_alive():
            with open(folder / "weights", "wb"):  # lets the reader of the pipe go on
                pass
            thread.join(10.0)
            return Found(True, "it waits for ever")
        return Found(said[0] is None, said[0] or "")

    return attempt


def linked(folder: Path, scene: Scene) -> None:
    """Put a link to a file outside, of the same content, into the place of the weights."""
    outside = scene.folder / "outside"
    outside.write_bytes(b"weights")
    (folder / "weights").unlink()
    (folder / "weights").symlink_to(outside)


def piped(folder: Path, _: Scene) -> None:
    """Put a pipe that nobody writes to into the place of the weights."""
    (folder / "weights").unlink()
    os.mkfifo(folder / "weights")


def planted(folder: Path, scene: Scene) -> None:
    """Add a link that no manifest knows."""
    (folder / "more").symlink_to(scene.canaries.file)


def any_kind(scene: Scene) -> None:
    """Read whatever stands in the place of a file."""
    import hashlib

    def described(file: Path, **_: Any) -> dict[str, Any]:
        content = file.read_bytes()
        return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    scene.patch.setattr(checkpoints, "_describe", described)


def only_known(scene: Scene) -> None:
    """Overlook what the manifest does not name."""
    scene.patch.setattr(checkpoints, "_names", lambda folder: ["weights"])


def through_links(scene: Scene) -> None:
    """Write through links."""
    scene.patch.setattr(files, "_never_through_a_link", lambda file, flags: os.open(file, flags, 0o644))


def followed(plant: str, write: Callable[[Path], None]) -> Callable[[Scene], Found]:
    """Return the attempt to have `write` change a file outside, to which a link `plant` leads."""

    def attempt(scene: Scene) -> Found:
        victim = scene.folder / "victim"
        victim.write_text("mine")
        (scene.folder / plant).symlink_to(victim)
        try:
            write(scene.folder)
        except OSError as error:
            return Found(victim.read_text() != "mine", f"{type(error).__name__}: {error}")
        return Found(victim.read_text() != "mine", "it was written")

    return attempt


def resumed(scene: Scene) -> Found:
    """Attempt to have a resumed run write its metrics into a file outside."""
    folder = scene.folder / "run"
    with Run.create(folder, recipe="sft", config={}) as run:
        run.commit(0, {"a": 1.0})
    victim = scene.folder / "victim"
    victim.write_text("mine")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").symlink_to(victim)
    said = ""
    try:
        with Run.open(folder) as run:
            run.commit(1, {"a": 2.0})
    except StoreError as error:
        said = str(error)
    return Found(victim.read_text() != "mine", said or "the link was replaced")


def sharded(name: str) -> Callable[[Scene], object]:
    """Return work that looks over a model whose index names a file `name`."""

    def work(scene: Scene) -> object:
        folder = scene.folder / "model"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        return load._weight_files(folder, "model")  # pyright: ignore[reportPrivateUsage]

    return work


def any_shard(scene: Scene) -> None:
    """Take every name for that of a file in the folder."""
    scene.patch.setattr(load.Path, "name", property(str))


ATTACKS = [
    *(
        Attack("A2", f"a file for a box named {name[:20]}", refused(placed(name), by=UsageError), anywhere)
        for name in PLACED
    ),
    *(
        Attack(
            "A2",
            f"read the {name} of the host",
            inside(f"return may({path!r}, 4)"),
            shown("--ro-bind", path, path),
        )
        for name, path in HOST.items()
        if os.access(path, os.R_OK)
    ),
    *(
        Attack("A2", f"write {name}", inside(body), without("--remount-ro", "/"))
        for name, body in WRITES.items()
    ),
    *(
        Attack("A2", f"read a file of the host {name}", inside(body), CANARY_FOLDER)
        for name, body in THROUGH.items()
    ),
    Attack(
        "A2",
        "write a file of the host",
        inside("return may('CANARY_FOLDER/writable/stand-in', 2)"),
        shown("--bind", "CANARY_FOLDER", "CANARY_FOLDER"),
    ),
    Attack(
        "A2",
        "another name for a file of the host",
        inside(
            "os.link('CANARY_FOLDER/writable/stand-in', 'CANARY_FOLDER/writable/x')\n"
            "os.unlink('CANARY_FOLDER/writable/x')\nreturn 'linked'"
        ),
        shown("--bind", "CANARY_FOLDER", "CANARY_FOLDER"),
    ),
    *(
        Attack("A2", f"a file of a repository named {name[:20]}", written(name), any_file_name)
        for name in ("../x.py", "/etc/x.py", "a/b.py", "x.pth", "a\0.py", "aux.py\n", "\uff41.py")
    ),
    Attack("A2", "a link in a checkpoint", judged(linked), any_kind),
    Attack("A2", "a pipe in a checkpoint", judged(piped), any_kind),
    Attack("A2", "a file that no manifest knows", judged(planted), only_known),
    Attack(
        "A2",
        "a link where a file is written first",
        followed(".report.html.writing", lambda folder: files.replace_file(folder / "report.html", b"x")),
        through_links,
    ),
    Attack(
        "A2",
        "a link where lines are appended",
        followed("metrics.jsonl", lambda folder: files.append_line(folder / "metrics.jsonl", "x")),
        through_links,
    ),
    Attack(
        "A2",
        "a link where a new file is written",
        followed("manifest.json", lambda folder: files.write_file(folder / "manifest.json", b"x")),
        through_links,
    ),
    *(
        Attack(
            "A2",
            f"weights outside of their folder ({name})",
            refused(sharded(name), by=ModelError),
            any_shard,
        )
        for name in ("../x.safetensors", "/x.safetensors", "a/../../x.safetensors")
    ),
]
