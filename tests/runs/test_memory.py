"""What a run needs of memory is said before it begins, refused where it cannot fit, and near what is measured."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from quintain import api
from quintain.errors import MemoryShortage, is_out_of_memory, name_shortage
from quintain.learning.sections import PolicySettings
from quintain.learning.train_config import GroupConfig, PolicySpec, TrainConfig
from quintain.models.memory import GIB, MODELS, Use, phases
from quintain.models.save import save
from quintain.models.tiny import COPIES, build_tiny
from quintain.runs import memory
from quintain.runs.memory import Part, Plan, describe_where, plan_memory
from quintain.text.tokenizer import train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
CUDA, CPU = torch.device("cuda"), torch.device("cpu")
EIGHT = MODELS["Qwen3-8B"]


def part(device: torch.device = CUDA, name: str = "policy", **use: Any) -> Part:
    given: dict[str, Any] = {"device": device.type, "engine": "local", "streams": 64, "length": 2048, **use}
    return Part(name=name, shape=EIGHT, use=Use(**given), device=device)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set how many GiB are free, of how many."""

    def have(free: float, total: float = 80.0) -> None:
        monkeypatch.setattr(memory, "free_memory", lambda _: (int(free * GIB), int(total * GIB)))

    return have


LORA: dict[str, Any] = {"precision": "bf16", "lora_rank": 16, "is_frozen": True, "checkpoints": True}


def test_what_fits_passes_and_what_cannot_says_what_to_give(free: Any) -> None:
    free(79)
    Plan(parts=(part(**LORA),)).check()
    with pytest.raises(MemoryShortage) as found:
        Plan(parts=(part(),)).check()
    text = str(found.value)
    assert text.startswith(
        "memory of cuda for the policy policy: got 79.0 GiB free of 80.0 GiB, and it needs at least "
    )
    assert "optimizer 61.0 GiB" in text
    assert text.endswith("give --gradient-checkpointing true --lora-rank 16")


def test_a_card_that_is_half_full(free: Any) -> None:
    free(14)
    with pytest.raises(
        MemoryShortage, match=r"got 14.0 GiB free of 80.0 GiB \(66.0 GiB are held by others\).*take a"
    ):
        Plan(parts=(part(**LORA),)).check()
    free(20)
    with pytest.raises(MemoryShortage, match="give --precision bf16"):
        Plan(parts=(part(**dict(LORA, precision="fp32")),)).check()


def test_two_jobs_on_one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second sees what the first holds there, and of its own what torch keeps for it is free."""
    held = [0]
    monkeypatch.setattr(
        torch.cuda, "mem_get_info", lambda _: (80 * GIB - held[0], 80 * GIB)  # pyright: ignore
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: held[0] // 70)  # pyright: ignore
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)  # pyright: ignore
    plan = Plan(parts=(part(**LORA),))
    plan.check()
    held[0] = 70 * GIB
    with pytest.raises(
        MemoryShortage, match=r"got 11.0 GiB free of 80.0 GiB \(69.0 GiB are held by others\)"
    ):
        plan.check()


def test_other_policies_are_there_as_well(free: Any) -> None:
    free(30)
    policy, critic = (
        part(**LORA),
        part(name="critic", engine="", precision="bf16", is_trained=False, is_frozen=True),
    )
    Plan(parts=(policy,)).check()
    with pytest.raises(MemoryShortage, match=r"other policies 15\.3 GiB"):
        Plan(parts=(policy, critic)).check()


def test_lines_and_notes(free: Any) -> None:
    free(60)
    plan = Plan(parts=(part(**dict(LORA, checkpoints=False)),))
    lines = list(plan.lines())
    assert [line.partition(":")[0] for line in lines] == [
        "memory of cuda, load", "memory of cuda, sampling", "memory of cuda, update", "memory of cuda, hand-over"
    ]  # fmt: skip
    assert lines[0].endswith("; 60.0 GiB of 80.0 GiB are free")
    (note,) = plan.notes()
    assert "an update of policy with 16,384 tokens at once may not fit: give --tokens-per-microbatch " in note
    free(35)
    assert any("64 streams of 2,048 tokens of policy may not fit" in note for note in plan.notes())
    free(500)
    assert not list(plan.notes())


@pytest.mark.parametrize(
    ("device", "gib", "num"), [(CPU, 500, 1), (CPU, 100, 6), (CUDA, 500, 6)], ids=["ample", "tight", "card"]
)
def test_a_processor_with_room_to_spare_is_a_line(
    device: torch.device, gib: float, num: int, free: Any
) -> None:
    free(gib)
    plan = Plan(parts=(part(device, **LORA),))
    lines = list(api.describe_run(plan, GroupConfig(), is_brief=True))
    assert len(lines) == num
    assert len(list(api.describe_run(plan, GroupConfig(), is_brief=False))) == 6
    assert not list(api.describe_run(None, GroupConfig(), is_brief=True))
    if num == 1:
        largest = max(phase.total for phase in plan.phases(device))
        assert lines == [
            "on cpu: policy (8.2B, LoRA of rank 16, bf16, engine local); memory: up to "
            f"{largest / GIB:.1f} GiB of 500.0 GiB free"
        ]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer: PreTrainedTokenizerFast = train_tokenizer(["guess 1 to 8", "higher", "lower"], vocab_size=300)
    folder = save(
        build_tiny(tokenizer, size="micro"), tokenizer, tmp_path_factory.mktemp("model") / "elsewhere"
    )
    config = folder / "config.json"
    values = json.loads(config.read_text(encoding="utf-8"))
    del values[COPIES]
    config.write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_policies_of_a_job(pretrained: Path) -> None:
    assert plan_memory(TrainConfig(model="tiny"), {}) is None
    config = GroupConfig(model=str(pretrained), lora_rank=4, eval_episodes=8, max_context=128)
    specs = {"reference": PolicySpec(), "critic": PolicySpec(head="value", is_trained=True)}
    plan = plan_memory(config, specs)
    assert plan is not None
    main, reference, critic = plan.parts
    assert (main.use.lora_rank, main.use.engine, main.use.streams, main.use.length) == (4, "local", 64, 128)
    assert reference.use.shares and not reference.use.is_trained and reference.use.engine == ""
    assert critic.use.is_trained and critic.use.lora_rank == 0 and not critic.use.shares
    lines = list(describe_where(plan, config.engine, config.max_staleness))
    assert (
        "policy: " in lines[0] and "LoRA of rank 4" in lines[0] and "sampled by the engine local" in lines[0]
    )
    assert lines[-1] == "sampling and learning take turns"
    ahead = replace(config, rollout="async", max_staleness=2)
    assert (
        "up to 2 steps are begun ahead" in list(describe_where(plan, ahead.engine, ahead.max_staleness))[-1]
    )
    other = replace(
        config, policies={"critic": PolicySettings(model=str(pretrained), tokens_per_microbatch=99)}
    )
    found = plan_memory(other, specs)
    assert found is not None and found.parts[2].use.tokens == 99


def test_a_run_that_cannot_fit_writes_nothing(
    pretrained: Path, tmp_path: Path, free: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    free(0.001)
    fields: dict[str, Any] = {"model": str(pretrained), "environment": "guess?high=4", "device": "cpu"}
    with pytest.raises(MemoryShortage, match="memory of cpu for the policy policy: got 1 MiB free"):
        api.train("grpo", run="a", root=tmp_path, **fields)
    assert not list(tmp_path.iterdir())


def test_memory_that_runs_out_is_a_line() -> None:
    cards = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
    for error in (
        torch.OutOfMemoryError(cards),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000 bytes."),
        RuntimeError("MPS backend out of memory (MPS allocated: 1 GiB)"),
    ):
        assert is_out_of_memory(error)
        wanted = r"^a step: got no more memory \(.*\); lower it$"
        with pytest.raises(MemoryShortage, match=wanted), name_shortage("a step", "lower it"):
            raise error
    with pytest.raises(RuntimeError, match="another"), name_shortage("a step", "lower it"):
        raise RuntimeError("another")
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "tokens", "checkpoints"), [("135M", 1024, 0), ("135M", 2048, 1), ("600M", 512, 1)]
)
@pytest.mark.timeout(3600)
def test_peaks_that_are_measured_are_near_what_is_reckoned(which: str, tokens: int, checkpoints: int) -> None:
    if sys.platform != "linux":
        pytest.skip("peaks are read from /proc")
    start = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'src')!r}]"
    call = f"from tests.runs.peaks_program import main; main({which!r}, {tokens}, {bool(checkpoints)})"
    program = [sys.executable, "-c", f"{start}; {call}"]
    told = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr[-2000:]
    found = json.loads(told.stdout.splitlines()[-1])
    for name, measured in found["measured"].items():
        reckoned = found["reckoned"][name] + found["program"]
        print(f"{which} {name}: measured {measured / GIB:.2f} GiB, reckoned {reckoned / GIB:.2f}")
        assert 0.75 * measured < reckoned < 1.35 * measured, name


def test_every_phase_of_what_many_know_has_words() -> None:
    for shape in MODELS.values():
        assert all(str(phase).startswith(phase.name) for phase in phases(shape, Use(engine="local")))
