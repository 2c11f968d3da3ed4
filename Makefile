# `make` alone lists the targets. `make demo` and `make test` need nothing but Python >= 3.11 with its shared library,
# g++, make and perl: each builds .venv itself. PYTHON=python3.12 chooses the interpreter, JOBS=4 the number of test processes
# (by default one a processor, 8 at most).

PYTHON ?= python3
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))
VENV := .venv
BIN := $(VENV)/bin
LINT := build/lint

SWITCH ?= 127.0.0.1:9559
DEVICE ?= 0
P4_SHELL := .venv-p4-shell
FILES ?= hdl/stream hdl/arith hdl/aggregation hdl/bus
N ?= 20
MINUTES ?= 60

.PHONY: help demo demo-ring test test-all test-bare test-tools shards mutate lint docs host verilog p4 plan bitstreams bench p4-shell clean
.DELETE_ON_ERROR:
# Containers often set it; then each of the thousands of processes of tests and runs compiles fanin anew.
unexport PYTHONDONTWRITEBYTECODE

help:
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(VENV)/.user ## train on real data through generated RTL; the report is runs/demo/report.html
	$(BIN)/fanin train breast_cancer --epochs 10 -o runs/demo

demo-ring: $(VENV)/.user ## train over the ring of NICs, in RTL; the report is runs/ring/report.html
	$(BIN)/fanin ring train digits -o runs/ring

PYTEST = $(BIN)/pytest -n $(JOBS) --dist worksteal
test: $(VENV)/.developer ## the quick lane: unit tests, and a run of each system, in minutes
	$(PYTEST) --lane quick

test-all: $(VENV)/.developer ## every test (hours); SHARD=k/n: part k of n parts of equal time
	$(PYTEST) $(if $(SHARD),--shard $(SHARD))

test-bare: ## demo and test in a fresh clone, with the README's programs alone on PATH
	$(PYTHON) tests/bare.py

test-tools: $(VENV)/.developer ## print the commands that install what skipped tests need
	@$(BIN)/python -m tests.needs

shards: $(VENV)/.developer ## run parts of test-all, the longest not passed first (MINUTES=60); record those that pass
	$(BIN)/python -m tests.shards --jobs $(JOBS) --minutes $(MINUTES)

mutate: $(VENV)/.developer ## which of N small changes in FILES no test notices (SEED=1 repeats a sample)
	$(BIN)/python -m tests.mutation $(FILES) -n $(N) $(if $(SEED),--seed $(SEED))

# Types are checked as a user meets them: in the wheel, where hdl/ and sim/ have become fanin.hdl and fanin.sim.
lint: $(VENV)/.developer ## ruff, its formatter, and mypy on the installed wheel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(LINT) build/lib build/bdist.*
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir $(LINT)/wheel .
	$(BIN)/pip install --quiet --no-deps --target $(LINT)/site $(LINT)/wheel/fanin-*.whl
	cd $(LINT)/site && $(abspath $(BIN))/mypy --config-file $(abspath pyproject.toml) \
		--cache-dir $(abspath .mypy_cache) -p fanin

docs: $(VENV)/.docs ## the documentation as a site, in build/site/index.html; every link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# MPICC: the machine's own MPI, by default what the extra brings. Without MPI on the way: CFLAGS=... gcc codec.c socket.c.
MPICC ?= $(BIN)/mpicc
CFLAGS ?= -std=c11 -O2 -Wall -Wextra
HOST_PARTS := codec minifloat socket allreduce
host: $(VENV)/.mpi ## the codecs and the ring's all-reduce for C, in build/host: fanin.h, libfanin.a (MPICC=mpicc)
	mkdir -p build/host
	cp fanin/host/c/fanin.h build/host
	set -e; for part in $(HOST_PARTS); do \
		PATH=$(abspath $(BIN)):$$PATH $(MPICC) $(CFLAGS) -fPIC -c -o build/host/$$part.o fanin/host/c/$$part.c; done
	rm -f build/host/libfanin.a
	ar rcs build/host/libfanin.a $(HOST_PARTS:%=build/host/%.o)

# What these three emit goes by their arguments: make p4 TARGET=tna WORKERS=8.
NODE = glm-node
PRESET = u280
verilog: $(VENV)/.user ## Verilog, in build/verilog (NODE=glm-node PRESET=u280)
	mkdir -p build/verilog
	$(BIN)/fanin verilog $(NODE) --preset $(PRESET) -o build/verilog/$(subst -,_,$(NODE)).v

TARGET = v1model
WORKERS = 4
p4: $(VENV)/.user ## the switch program and its job, in build/p4 (TARGET=v1model WORKERS=4; tna: Tofino)
	$(BIN)/fanin p4 emit --target $(TARGET) --workers $(WORKERS) -o build/p4/$(TARGET)-$(WORKERS)

MODEL = example_cnn
CLUSTER = arria10x4
plan: $(VENV)/.all ## a CNN's layers on a cluster of FPGAs, in runs/plan (MODEL=example_cnn CLUSTER=arria10x4)
	$(BIN)/fanin plan $(MODEL) $(CLUSTER) -o runs/plan

BOARD = colorlight_5a75b
bitstreams: $(VENV)/.boards ## a board's bitstream, in build/boards; its report goes to bitstreams/ (BOARD=colorlight_5a75b)
	$(BIN)/fanin board build $(BOARD) -o build/boards/$(BOARD)
	mkdir -p bitstreams/$(BOARD)
	cp build/boards/$(BOARD)/report.json bitstreams/$(BOARD)/report.json

bench: $(VENV)/.developer $(VENV)/.boards ## speed and area, each figure beside its limit (hours)
	$(BIN)/fanin bench glm
	$(BIN)/fanin bench glm --part memory -o runs
	$(BIN)/fanin bench area
	$(BIN)/fanin bench allreduce -o runs
	$(BIN)/fanin bench boards
	$(BIN)/fanin bench switch
	$(BIN)/fanin bench serve
	$(BIN)/fanin bench plan
	$(BIN)/fanin bench codec
	$(BIN)/fanin bench codec-training
	$(BIN)/fanin bench hooks -o runs
	$(BIN)/fanin bench ring -o runs
	$(BIN)/fanin bench ring-training -o runs
	$(BIN)/fanin bench rdma
	$(BIN)/fanin bench ps
	$(BIN)/fanin bench cluster
	$(BIN)/fanin bench scale -o runs
	$(BIN)/fanin bench fmax

# p4runtime-shell wants a protobuf that nothing else here can live with; -P: our p4/ is not its p4 package.
p4-shell: $(P4_SHELL)/.ready ## p4runtime-shell against a running switch (SWITCH=127.0.0.1:9559 DEVICE=0)
	$(P4_SHELL)/bin/python -P -m p4runtime_sh --grpc-addr $(SWITCH) --device-id $(DEVICE) --election-id 0,1

clean: ## what these targets made, but .venv
	rm -rf build runs *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find fanin hdl p4 planner sim tests -name __pycache__ -prune -exec rm -rf {} +

# A virtual environment for users (what `fanin` needs) and, on top of it, what some targets need beside.
environment = @PYTHON=$(PYTHON) ./environment.sh $(@D)

$(VENV)/.user: pyproject.toml environment.sh
	$(environment) .
	@touch $@

$(P4_SHELL)/.ready: environment.sh
	$(environment) p4runtime-shell
	@touch $@

$(VENV)/.boards $(VENV)/.all $(VENV)/.mpi $(VENV)/.docs: $(VENV)/.user
	$(environment) . $(@F:.%=%)
	@touch $@

$(VENV)/.developer: $(VENV)/.user
	$(environment) . all test lint
	@touch $@
