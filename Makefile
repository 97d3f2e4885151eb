# Every target is a line or two that a person could type. The environment .venv is made when it is missing.
PYTHON ?= python3
VENV   := .venv/bin
READY  := .venv/.ready

.PHONY: install demo demo-programs test test-fast lint format clean

install: $(READY)

# Made again when the dependencies change; a second run starts at once.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "No $(PYTHON) here: install Python 3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: make PYTHON=python3.11 …"; exit 1; }
	@test -x $(VENV)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv (once; about five minutes) …"
	$(VENV)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Evaluate, train with GRPO and QLoRA on the CPU, evaluate again: about a minute. One thread, since the model is so small
# that two would mostly wait for one another.
demo: $(READY)
	@OMP_NUM_THREADS=1 $(VENV)/python run_grpo.py --config recipes/demo-arithmetic.yaml

# The same with programs that are executed in the sandbox.
demo-programs: $(READY)
	@OMP_NUM_THREADS=1 $(VENV)/python run_grpo.py --config recipes/demo-programs.yaml

# Three processes on two cores, since tests wait a lot; a file's tests in one of them, since they share what was trained.
# The slow files come first (tests/conftest.py), so that no process waits long for the others at the end.
test: $(READY) lint
	$(VENV)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

test-fast: $(READY)
	$(VENV)/python -m pytest --numprocesses 2 -m "not slow"

lint: $(READY)
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/lint-imports

format: $(READY)
	$(VENV)/ruff format .
	$(VENV)/ruff check --fix .

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .mypy_cache
