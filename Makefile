# VENV: where the virtual environment is made, if there is none yet.   PYTHON: what makes it (3.11 or newer).
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
STAMP = $(VENV)/.memup-installed

.PHONY: demo test check lint types tests test-learning test-faults test-slurm test-experiments benchmarks docs setup clean

demo: setup            ## From nothing to a solved T-Maze, shown
	PATH="$(abspath $(BIN)):$$PATH" bash examples/quickstart.sh

test: setup check      ## Lint, types and tests

check: lint types tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy --strict stores
	$(BIN)/mypy memup_cli

tests: setup
	$(BIN)/pytest -n 2 --dist loadfile

test-learning: setup   ## Trainings to a solved task, the whole tour of the README, the experiments at their tiniest size
	$(BIN)/pytest -n 2 -m learning --override-ini addopts="-ra --strict-markers"

test-slurm: setup      ## The chain of examples/slurm on a Slurm of its own: preempted, requeued, cancelled
	bash tests/slurm/install.sh
	$(BIN)/pytest -m slurm --override-ini addopts="-ra --strict-markers" tests/slurm

test-faults: setup     ## Every fault at every call of every stage; counts at the end
	$(BIN)/pytest -n 2 tests/faults --override-ini addopts="-ra --strict-config --strict-markers"

test-experiments: setup ## The paper's experiments at their small sizes, into runs/; an hour or two
	for script in ablation noisy_tv space scaling tmaze memory_size supervised_table; do \
	  PATH="$(abspath $(BIN)):$$PATH" bash examples/experiments/$$script.sh --small --local || exit; done

benchmarks: setup
	$(BIN)/python benchmarks/collect.py
	$(BIN)/python benchmarks/stream.py
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/train_memory.py
	$(BIN)/python benchmarks/memory_use.py
	$(BIN)/python benchmarks/importing.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/ddp.py
	$(BIN)/python benchmarks/agent.py
	$(BIN)/python benchmarks/env_workers.py
	$(BIN)/python benchmarks/two_colors.py
	$(BIN)/python benchmarks/cells.py
	$(BIN)/python benchmarks/peers.py

docs: setup            ## docs/commands.md, from the help texts
	$(BIN)/python docs/generate.py

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
