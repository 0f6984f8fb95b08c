"""Settings name an engine; what cannot be is refused in one line, and weights get to every kind."""

import dataclasses
from pathlib import Path

import pytest
import torch
from tests.engines.conftest import small_model
from tests.engines.scripts import PROGRAM, scripted

from quintain.agents.catalog import engine_needs
from quintain.engines import process
from quintain.engines.build import build_engine, find_device, hand_over
from quintain.engines.local import Local
from quintain.engines.process import ProcessEngine
from quintain.engines.protocol import (
    CAPABILITIES,
    Candidates,
    EngineStats,
    Grammar,
    Reply,
    Request,
    Sampling,
    needs_of,
    require,
)
from quintain.engines.settings import KINDS, EngineSettings, check_settings
from quintain.engines.wire import from_row, to_row
from quintain.errors import EngineFault, UsageError
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Completion, Failure


def test_a_local_engine_shares_the_model_it_is_given(tmp_path: Path) -> None:
    model = small_model("qwen3")
    engine = build_engine(EngineSettings(max_length=50, max_batch=3), model, policy="opponent")
    assert isinstance(engine, Local) and engine.shares(model)
    assert (engine.max_length, engine.max_batch, engine.policy) == (50, 3, "opponent")
    assert engine.capabilities == KINDS["local"] - {"grammar"}, "it has no tokenizer"
    hand_over(engine, model, 4, tmp_path / "weights")
    assert engine.policy_version == 4 and not (tmp_path / "weights").exists(), "nothing is copied"


def test_a_local_engine_of_a_folder_gets_weights_by_file(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["a b"] * 20, 280)
    model = build_tiny(tokenizer, size="micro")
    engine = build_engine(
        EngineSettings(device="cpu", dtype="float32"), save(model, tokenizer, tmp_path / "model")
    )
    assert engine.capabilities == KINDS["local"] and not engine.shares(model)
    with torch.no_grad():
        model.get_parameter("model.norm.weight").add_(0.5)
    before = engine.fingerprint()
    for version in (1, 2):
        hand_over(engine, model, version, tmp_path / "weights")
    served = build_engine(EngineSettings(), model)
    assert before != engine.fingerprint() == served.fingerprint()
    assert engine.score([[1, 2, 3]]) == served.score([[1, 2, 3]])
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["2"], "old versions are deleted"


def test_a_process_is_given_a_model_as_a_folder_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process, "PROGRAM", PROGRAM)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tokenizer = train_tokenizer(["a b"] * 20, 280)
    model = build_tiny(tokenizer, size="micro")
    with pytest.raises(UsageError, match="got a model without its tokenizer; give both"):
        build_engine(EngineSettings(kind="process"), model)
    engine = build_engine(EngineSettings(kind="process"), model, tokenizer)
    assert isinstance(engine, ProcessEngine)
    assert (engine.folder / "config.json").exists() and (engine.folder / "tokenizer.json").exists()
    engine.close()
    assert not engine.folder.exists()
    monkeypatch.setattr(process, "PROGRAM", "raise SystemExit(4)")
    with pytest.raises(EngineFault, match="ended with exit status 4"):
        build_engine(EngineSettings(kind="process"), model, tokenizer)
    assert list(tmp_path.glob("quintain-engine-*")) == []
    with pytest.raises(EngineFault, match="ended with exit status 4"):
        build_engine(EngineSettings(kind="process"), tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "locall"}, "kind of an engine: got 'locall'; did you mean 'local'?"),
        ({"max_batch": 0}, "max_batch of an engine: got 0; give a number above 0"),
        ({"max_length": -1}, "max_length of an engine: got -1"),
        ({"reply_timeout": 0.0}, "reply_timeout of an engine: got 0"),
    ],
)
def test_settings_that_cannot_be(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as found:
        build_engine(dataclasses.replace(EngineSettings(), **fields), small_model("qwen3"))  # type: ignore[arg-type] # pyright: ignore
    assert str(found.value).startswith(message)


def test_devices() -> None:
    assert find_device("cpu") == torch.device("cpu")
    assert find_device("auto").type in ("cpu", "cuda")
    with pytest.raises(UsageError, match="device: got 'gpu'; give auto, cpu, cuda, cuda:1 or mps"):
        find_device("gpu")
    with pytest.raises(UsageError, match=r"got 'cuda:99', which torch does not see"):
        find_device("cuda:99")
    with pytest.raises(
        UsageError, match="got 'meta' for a model on cpu; move the model, or take the engine process"
    ):
        build_engine(EngineSettings(device="meta"), small_model("qwen3"))


def test_what_is_needed_is_asked_for_before_anything_is_built() -> None:
    assert set(KINDS) == {"local", "process", "vllm", "sglang"}
    check_settings(EngineSettings(), CAPABILITIES - {"adapters"}, by="everything")
    with pytest.raises(UsageError) as found:
        check_settings(EngineSettings(kind="process"), ["shared_weights", "score"], by="method 'vine'")
    text = str(found.value)
    assert text.startswith(
        "method 'vine' needs an engine that can do shared_weights: got the engine process, which"
    )
    assert text.endswith("; take the engine local")
    require("scripted", {"score"}, ["score"], by="gold")
    with pytest.raises(UsageError, match="can do nothing beyond sampling; take an engine that can"):
        require("chat", (), ["score"], by="gold")


def test_agents_and_requests_say_what_they_need() -> None:
    assert engine_needs("auto") == engine_needs("window?turns=2+tools") == frozenset()
    assert engine_needs("budget+constrained") == {"grammar"}
    assert (
        engine_needs("constrained?masked=true")
        == engine_needs("ordered?masked=true+text")
        == {"grammar", "masked"}
    )
    assert {name for name, able in KINDS.items() if "masked" in able} == {"local", "process"}
    assert engine_needs("glam") == engine_needs("scored") == {"candidates"}
    named = Candidates(token_ids=((1,),), lengths=(1.0,))
    assert needs_of(Sampling()) == frozenset()
    assert needs_of(Sampling(candidates=named, constraint=Grammar.of_tokens((1,)))) == {
        "candidates",
        "tokens",
    }
    assert needs_of(Sampling(constraint=Grammar(text=""))) == {"grammar"}
    assert needs_of(Sampling().under(Grammar(text=""), is_masked=True)) == {"grammar", "masked"}
    with pytest.raises(
        UsageError, match="session a needs an engine that can do grammar: got the engine Scripted"
    ):
        scripted().submit(
            Request(session="a", prompt_ids=(1,), seed=1, sampling=Sampling(constraint=Grammar(text="")))
        )


def test_rows_of_json_and_back() -> None:
    sampling = Sampling(
        temperature=0.5,
        max_tokens=3,
        stop_ids=frozenset({4, 2}),
        candidates=Candidates(token_ids=((1, 2), (3,)), lengths=(2.0, 1.0)),
        constraint=Grammar.of_tokens((1, 2)),
    )
    request = Request(session="a", prompt_ids=(5, 6), seed=(1 << 62) + 1, sampling=sampling)
    assert from_row(Request, to_row(request)) == request
    spans = ((0, 1), (1, 2))
    done = Completion(token_ids=(1, 2), logprobs=(-0.1, -1e-9), stop="stop", policy="x", version_spans=spans)
    for result in (done, Failure(owner="engine", kind="crash", message="gone")):
        assert from_row(Reply, to_row(Reply(session="a", result=result))) == Reply(session="a", result=result)
    stats = EngineStats(num_sampled=3, busy_seconds=0.5)
    assert from_row(EngineStats, to_row(stats)) == stats
    settings = EngineSettings(kind="process", max_length=7)
    assert from_row(EngineSettings, to_row(settings)) == settings
    with pytest.raises(
        EngineFault, match=r"a request between processes: got seed that does not fit .*; use one"
    ):
        from_row(Request, to_row(request) | {"seed": "many"})
