"""The files for clusters in examples/cluster: they can be read, name what is there, and agree with each other."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from quintain.cli.training import train_parser
from quintain.config import build
from quintain.distributed.placement import CPU, GPU, Placement, bundles, find_unplaced, load_placement

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "cluster"
PLACEMENT = load_placement(str(FOLDER / "placement.toml"))
NEEDS = bundles(PLACEMENT)
KUBERAY: dict[str, Any] = {
    each["kind"]: each for each in yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text())
}
SKY: dict[str, Any] = yaml.safe_load((FOLDER / "skypilot.yaml").read_text())
SLURM = (FOLDER / "slurm.sh").read_text()


def shell(text: str) -> str:
    """Return what bash and dash say against `text`."""
    told = [
        subprocess.run([name, "-n"], input=text, capture_output=True, text=True) for name in ("bash", "sh")
    ]
    return "".join(each.stderr for each in told[: 1 if text.startswith("#!/usr/bin/env bash") else 2])


def flags(text: str) -> set[str]:
    """Return the flags that follow a command of ours in `text`."""
    joined = text.replace("\\\n", " ")
    return {
        flag
        for line in re.findall(r"quintain (?:train|resume)[^;\n]*", joined)
        for flag in re.findall(r"--[a-z-]+", line)
    }


def test_the_placement_fits_the_machines_of_the_slurm_script() -> None:
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)", SLURM, re.M))
    cores, count = int(options["cpus-per-task"]), int(options["nodes"])
    head = {CPU: cores - 4.0, GPU: 0.0}
    others = [{CPU: float(cores), GPU: float(options["gpus-per-node"])}] * (count - 1)
    assert find_unplaced(NEEDS, [head, *others]) is None
    assert find_unplaced(NEEDS, [head, *others[1:]]) is not None, "it uses all GPUs"


def test_the_placement_fits_the_machines_that_are_rented() -> None:
    gpus = float(SKY["resources"]["accelerators"].partition(":")[2])
    cores = float(SKY["resources"]["cpus"].rstrip("+"))
    assert find_unplaced(NEEDS, [{CPU: cores}, *[{CPU: cores, GPU: gpus}] * (SKY["num_nodes"] - 1)]) is None


def test_the_placement_fits_the_groups_of_kuberay() -> None:
    files = KUBERAY["ConfigMap"]["data"]
    placement = build(Placement, tomllib.loads(files["placement.toml"]), "kuberay.yaml")
    assert placement.engines == PLACEMENT.engines
    machines: list[dict[str, float]] = []
    most: list[dict[str, float]] = []
    cluster = KUBERAY["RayJob"]["spec"]["rayClusterSpec"]
    for group in cluster["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        limits = container["resources"]["limits"]
        assert container["resources"]["requests"] == limits
        custom = json.loads(json.loads(group["rayStartParams"].get("resources", '"{}"')))
        machine = {CPU: float(limits["cpu"]), GPU: float(limits.get("nvidia.com/gpu", 0)), **custom}
        machines += [machine] * group["minReplicas"]
        most += [machine] * group["maxReplicas"]
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert find_unplaced(bundles(placement), machines) is None
    largest = build(
        Placement,
        {
            "workers": {
                "min": placement.workers.max,
                "max": placement.workers.max,
                "resources": dict(placement.workers.resources),
            }
        },
        "most",
    )
    assert find_unplaced(bundles(largest)[1:], most) is None
    head = cluster["headGroupSpec"]
    assert head["rayStartParams"]["num-gpus"] == "0", "the GPU there is the driver's"
    images = {
        each["image"]
        for group in (head, *cluster["workerGroupSpecs"])
        for each in group["template"]["spec"]["containers"]
    }
    assert images == {"quintain:cuda"}
    tomllib.loads(files["recipe.toml"])


def test_what_the_volumes_of_kuberay_name_is_in_the_file() -> None:
    head = KUBERAY["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    volumes = {each["name"]: each for each in head["volumes"]}
    assert (
        volumes["runs"]["persistentVolumeClaim"]["claimName"]
        == KUBERAY["PersistentVolumeClaim"]["metadata"]["name"]
    )
    assert volumes["recipe"]["configMap"]["name"] == KUBERAY["ConfigMap"]["metadata"]["name"]
    mounts = {each["name"]: each["mountPath"] for each in head["containers"][0]["volumeMounts"]}
    assert mounts == {"runs": "/runs", "recipe": "/recipe"}
    assert set(re.findall(r"/(?:runs|recipe)\b", KUBERAY["RayJob"]["spec"]["entrypoint"])) == set(
        mounts.values()
    )


@pytest.mark.parametrize(
    "text",
    [SLURM, SKY["run"], SKY["setup"], shlex.split(KUBERAY["RayJob"]["spec"]["entrypoint"])[2]],
    ids=["slurm", "sky-run", "sky-setup", "kuberay"],
)
def test_a_script_is_one_for_the_shell_and_its_flags_are_ours(text: str) -> None:
    assert shell(text) == ""
    from quintain.config import options
    from quintain.methods.find import find_method

    ours = train_parser("grpo", "", options(find_method("grpo").config_class)).flags
    assert flags(text) <= set(ours)


def test_the_image_is_built_of_what_is_there() -> None:
    lines = re.sub(r"\\\n\s*", " ", (FOLDER / "Dockerfile").read_text()).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    by_kind: dict[str, list[str]] = {}
    for kind, rest in steps:
        by_kind.setdefault(kind, []).append(rest)
    assert set(by_kind) <= {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "CMD"}
    assert re.fullmatch(r"nvidia/cuda:\d+\.\d+\.\d+-cudnn-runtime-ubuntu\d\d\.\d\d", by_kind["FROM"][0])
    for line in by_kind["COPY"]:
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    for line in by_kind["RUN"]:
        assert shell(line) == ""
        assert ("apt-get install" in line) <= (
            "--no-install-recommends" in line and "rm -rf /var/lib/apt" in line
        )
        assert "sudo" not in line and "curl | sh" not in line
    kinds = [kind for kind, _ in steps]
    assert kinds.index("USER") > max(place for place, kind in enumerate(kinds) if kind == "RUN"), (
        "nothing runs as root"
    )
    json.loads(by_kind["CMD"][0])
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for text in (*by_kind["RUN"], SKY["setup"]):
        for named in re.findall(r"\"\.\[([^\]]+)\]\"", text):
            assert set(named.split(",")) <= set(extras)


def test_the_machines_of_one_cluster_share_a_token_and_no_port_of_another() -> None:
    assert "RAY_AUTH_TOKEN" in SLURM and "RAY_AUTH_TOKEN" in SKY["secrets"]
    assert KUBERAY["RayJob"]["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    assert "SLURM_JOB_ID" in re.findall(r"^PORT=.*", SLURM, re.M)[0]
    assert SKY["envs"]["RAY_PORT"] != "6380"
