# Builds, tests and runs this project; `make` lists the targets. Everything is installed into .venv and nothing else on the
# machine is changed.

VENV ?= .venv
FITS := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do $$p -c '$(FITS)' 2>/dev/null && echo $$p && break; done)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
PARALLEL ?= -n 3 --dist worksteal
EPOCHS ?= 30
SEED_START ?= 0
N ?= 10000
PROTOC := ../$(BIN)/python -m grpc_tools.protoc -I. --plugin=protoc-gen-mypy=../$(BIN)/protoc-gen-mypy --python_out=. --mypy_out=quiet:.
MNIST := data/mnist
TEST_TOOLS := hypothesis pytest pytest-asyncio pytest-timeout pytest-xdist

# The tests start hundreds of processes. Without compiled files each of them would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup constraints train test unit sim sim-mutations histories contract integration e2e cluster-up cluster-down test-cluster bench-cluster s3-server postgres-server prometheus-server otel-collector nats-cli lowest cov docs recording lint format type imports proto proto-fresh crd web bench bench-chaos bench-moves quality check fleet wheel clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

##- Setting up

setup: $(READY) ## Create .venv with everything in it (other targets do this when needed)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo 'Python 3.11 to 3.13 with its venv module is needed. Install it, or give its path: make PYTHON=/path/to/python3' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev,docs]' && touch $@

constraints: $(READY) ## Pin in constraints.txt what .venv holds now
	echo "# Versions that the project is developed and tested with; made by 'make constraints', used by 'make setup'." > constraints.txt
	$(BIN)/python -m pip freeze --disable-pip-version-check --exclude-editable >> constraints.txt && touch $(READY)

##- Running

train: $(READY) ## Train the example: handwritten digits, 2 workers, 1 ps; the model goes to output/
	$(BIN)/elasticdl zoo data mnist $(MNIST)
	$(BIN)/elasticdl train --model_def=mnist_functional_api.custom_model --training_data=$(MNIST)/train --validation_data=$(MNIST)/test --num_epochs=$(EPOCHS) --output=output

bench: $(READY) ## Measure the parameter server's kernels beside a plain copy
	$(BIN)/python benchmarks/kernels.py

build/clicks2m: $(READY)
	$(BIN)/elasticdl zoo data deepfm $@ --records=2000000

bench-chaos: build/clicks2m ## Train DeepFM for minutes while its processes are killed: audit, AUC, goodput
	$(BIN)/python benchmarks/chaos.py build/clicks2m

bench-moves: $(READY) ## Measure how long rows wait while they move from one ps to another
	$(BIN)/python benchmarks/moves.py

quality: $(READY) ## Compare the models of jobs with those of fit, in about two hours; writes docs/quality.md
	$(BIN)/python -m benchmarks.quality

##- Testing

test: $(READY) s3-server ## Run the tests, without those that need a cluster or are marked as thorough
	$(PYTEST) tests/unit $(PARALLEL)
	$(PYTEST) tests/contract tests/sim tests/fleet tests/integration $(PARALLEL)
	$(PYTEST) tests/e2e $(PARALLEL) -m 'not thorough'

unit: $(READY) ## Run the fast unit tests, those that import TensorFlow left out
	$(PYTEST) tests/unit $(PARALLEL) -m 'not tensorflow'

sim: $(READY) ## Simulate 10,000 jobs under faults (SEED=n: that one; SEED_START=n N=k: k of them from n)
	$(BIN)/python -m tests.sim $(if $(SEED),--verbose --seed $(SEED),--seed-start $(SEED_START) --count $(N))

fleet: $(READY) ## Simulate 10,000 clusters that jobs share, under faults (SEED=n: that one; SEED_START=n N=k)
	$(BIN)/python -m tests.fleet $(if $(SEED),--seed $(SEED),--seed-start $(SEED_START) --count $(N))

sim-mutations: $(READY) ## Plant bugs, have the simulation find them, and write the seeds to tests/sim/mutations/seeds.py
	$(BIN)/python -m tests.sim.mutations

histories: $(READY) ## Record the event logs of real jobs again, after an intended change of decisions
	$(BIN)/python -m tests.histories.record

contract: $(READY) s3-server ## Run the tests that hold the in-memory adapters and real servers to one contract
	$(PYTEST) tests/contract

integration: $(READY) ## Run the tests of single services as processes, on a real nats-server
	$(PYTEST) tests/integration $(PARALLEL)

e2e: $(READY) s3-server ## Run all end-to-end tests: real processes, real kills
	$(PYTEST) tests/e2e $(PARALLEL)

cluster-up: $(READY) ## Start a Kubernetes node for tests; compiles it once, which takes about 10 minutes
	@$(BIN)/python -m tests.cluster up

cluster-down: $(READY) ## Take the Kubernetes node for tests down
	@$(BIN)/python -m tests.cluster down

test-cluster: $(READY) ## Run the tests that need a Kubernetes cluster: the one of KUBECONFIG, else the node of cluster-up
	-$(BIN)/python -m tests.cluster prepare
	$(PYTEST) tests/cluster -m 'cluster and not bench_cluster'

bench-cluster: $(READY) ## Measure jobs that share a Kubernetes cluster, in about half an hour; writes build/cluster
	$(BIN)/python -m tests.cluster prepare && $(PYTEST) tests/cluster -m bench_cluster

s3-server: $(READY) ## Provide an S3 server for the tests: build MinIO once if it is not installed
	$(BIN)/python -m tests.contract.servers.s3

postgres-server: $(READY) ## Check that there is a Postgres server for the tests of SQL, or say how to get one
	$(BIN)/python -m tests.contract.servers.postgres

prometheus-server: $(READY) ## Provide Prometheus and promtool for the tests: unpack Debian's package once if they are not installed
	$(BIN)/python -m tests.contract.servers.prometheus

otel-collector: $(READY) ## Provide an OpenTelemetry collector for the tests: build it once
	$(BIN)/python -m tests.contract.servers.collector

nats-cli: $(READY) ## Provide NATS' command line for the tests: build it once if it is not installed
	$(BIN)/python -m tests.contract.servers.nats_cli

lowest: $(READY) ## Install the lowest versions that pyproject.toml allows into build/lowest, and run a part of the tests there
	mkdir -p build && $(BIN)/python .ci/lowest.py > build/lowest.txt && $(BIN)/python -m venv --clear build/lowest
	build/lowest/bin/python -m pip install --quiet --constraint build/lowest.txt --editable '.[all]' $(TEST_TOOLS)
	NUMBA_CACHE_DIR=build/lowest/numba build/lowest/bin/python -m pytest tests/unit tests/contract/bus tests/e2e/test_train.py $(PARALLEL)

cov: $(READY) ## Run the unit tests and report which lines they reach
	$(PYTEST) tests/unit $(PARALLEL) --cov --cov-report=term --cov-report=html:build/coverage

##- Checking

check: export ELASTICDL_SIM_SEEDS = 500
check: lint type imports proto-fresh docs test ## Everything that must pass before a change is merged

lint: $(READY) ## Check style and formatting
	$(BIN)/ruff check && $(BIN)/ruff format --check

format: $(READY) ## Format the code and fix what can be fixed automatically
	$(BIN)/ruff check --fix && $(BIN)/ruff format

type: $(READY) ## Check types, strictly
	$(BIN)/mypy

imports: $(READY) ## Check which package may import which
	$(BIN)/lint-imports

##- Generated code, documentation and packages

docs: $(READY) ## Build the site of the documentation into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

recording: $(READY) ## Record docs/recording.svg: the example job in a terminal, while its processes are killed
	$(PYTHON) -m venv build/recording && build/recording/bin/pip install --quiet termtosvg setuptools
	PATH="$(CURDIR)/$(BIN):$(CURDIR)/build/recording/bin:$$PATH" TERM=xterm-256color $(BIN)/python -m website.recording docs/recording.svg

proto: $(READY) ## Generate the published schemas of messages, and the protobuf modules
	$(BIN)/python -m elasticdl.shared.proto.published
	cd shared && $(PROTOC) elasticdl/shared/proto/perfetto.proto elasticdl/shared/proto/tensorboard.proto elasticdl/shared/proto/wire.proto
	cd client && $(PROTOC) elasticdl/zoo/*.proto

crd: $(READY) ## Generate the definition of the Kubernetes resource TrainingJob
	$(BIN)/python -m elasticdl.shared.kubernetes.training_job.definition deploy/kustomize/controller/crd.yaml

web: ## Build the page of the dashboard from web/ with Node.js, as it is committed
	cd web && npm ci --no-audit --no-fund && npm run build

proto-fresh: proto ## Fail when the committed schemas or protobuf modules are stale
	git diff --exit-code --stat -- '*.proto' '*_pb2.py' '*_pb2.pyi'

wheel: $(READY) ## Build dist/elasticdl-*.whl
	$(BIN)/python -m build --wheel

clean: ## Remove generated files and .venv (data/ and output/ stay)
	rm -rf $(VENV) build dist .coverage* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
