"""How processes that torchrun has started find together; whole runs under torchrun: make test-cluster."""

import socket
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from tests.learning.sharding.cases import check_case, save_start
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]
from transformers import GPT2Config, GPT2LMHeadModel

from quintain.errors import ConfigError, EngineFault, ModelError, UsageError
from quintain.learning.sharding.host import Host
from quintain.learning.sharding.torchrun import Launched, count_ranks, driving, join_torchrun
from quintain.models.save import save
from quintain.text.tokenizer import train_tokenizer

CONFIG = {"method": "grpo", "steps": 3}


@pytest.fixture(name="meet")
def _meet(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:  # pyright: ignore[reportUnusedFunction]
    """Have two processes meet that do not talk afterwards; return what each raised."""
    monkeypatch.setattr(Host, "answer", lambda *_: {"value": "cpu"})  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(dist, "new_group", lambda **_: None)  # pyright: ignore[reportUnknownLambdaType]

    def met(*configs: dict[str, Any]) -> list[Any]:
        store = HashStore()

        def one(number: int) -> BaseException | None:
            launched = Launched(number, 2, store)
            try:
                launched.meet(configs[number], "cpu", seconds=0.3)
            except (EngineFault, UsageError, SystemExit) as error:
                return error
            launched.close()
            return None

        with ThreadPoolExecutor(2) as pool:
            return [*pool.map(one, range(len(configs)))]

    return met


def test_other_versions_and_configurations_are_refused_by_the_first_alone(
    meet: Callable[..., list[Any]],
) -> None:
    assert meet(CONFIG, CONFIG) == [None, None]
    first, second = meet(CONFIG, {**CONFIG, "steps": 4})
    assert isinstance(first, UsageError) and isinstance(second, SystemExit) and second.code == first.exit_code
    host = socket.gethostname()
    assert str(first) == (
        f"torchrun: got steps 4 in rank 1 ({host}) for 3 in the first ({host}); give all machines the same packages, "
        "command and files"
    )
    first, _ = meet({**CONFIG, "quintain": "0.1.0+old"}, CONFIG)
    assert str(first).startswith("torchrun: got quintain '") and "for '0.1.0+old' in the first" in str(first)
    first, _ = meet(CONFIG, {**CONFIG, "torch": "1"})
    assert "got torch '1' in rank 1" in str(first)


def test_one_that_does_not_come_is_not_waited_for_for_ever(meet: Callable[..., list[Any]]) -> None:
    (error,) = meet(CONFIG)
    assert isinstance(error, EngineFault)
    assert str(error).startswith("torchrun: rank 0 of 2 got DistStoreError (")
    assert str(error).endswith("while it waited 0.3 s for the others; start them on all machines")


@pytest.fixture(name="single")
def _single() -> Generator[Launched]:  # pyright: ignore[reportUnusedFunction]
    found = Launched(0, 1, HashStore())
    found.meet(CONFIG, "cpu")
    yield found
    found.close()
    found.close()
    assert not dist.is_initialized()


def test_one_alone_drives_its_own_rank(single: Launched, tmp_path: Path) -> None:
    ranks = single.open(tmp_path / "ranks")
    check_case(ranks, save_start(tmp_path / "start"), "sft")
    with pytest.raises(
        ModelError, match=r"asked to build: rank 0 of 1 said: model .*; torchrun ends all, and the run"
    ):
        ranks.ask("build", "policy", {"folder": str(tmp_path / "none"), "optimization": {}})
    with pytest.raises(EngineFault, match="they were ended; resume the run"):
        ranks.ask("clip", "policy")
    dist.destroy_process_group()  # as its end would


def test_tokens_are_shared_only_where_the_attention_is_ours(single: Launched, tmp_path: Path) -> None:
    model: Any = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=300, n_positions=64))
    start = save(model, train_tokenizer(["a few words to cut"]), tmp_path / "other")
    with pytest.raises(ConfigError, match="context_ranks: got 2 with a model whose attention is its own"):
        single.ask("build", "policy", {"folder": str(start), "optimization": {}, "context_ranks": 2})
    dist.destroy_process_group()


def test_the_others_are_let_go_at_the_end(single: Launched, tmp_path: Path) -> None:
    folder = single.open(tmp_path / "ranks").folder
    assert (folder / "mark").is_file()
    single.close()
    assert not folder.exists()
    with pytest.raises(UsageError, match="torchrun: got a second training in one process"):
        single.meet(CONFIG, "cpu")


def test_without_torchrun_everything_is_as_it_was() -> None:
    assert join_torchrun() is None
    assert count_ranks(3) == 3
    with driving(CONFIG, "cpu") as is_driver:
        assert is_driver


def test_a_port_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for name, value in {
            "TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        with pytest.raises(
            EngineFault, match=rf"torchrun: got DistNetworkError .*{port}.* a port that is free"
        ):
            join_torchrun.__wrapped__()


def test_the_number_of_ranks_is_that_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Launched(0, 2, HashStore())
    monkeypatch.setattr("quintain.learning.sharding.torchrun.join_torchrun", lambda: found)
    assert count_ranks(0) == count_ranks(2) == 2
    with pytest.raises(
        UsageError, match=r"learner_ranks: got 3 with 2 processes of torchrun; leave it out, or give"
    ):
        count_ranks(3)
