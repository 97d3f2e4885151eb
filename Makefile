# Every target is a line or two that a person could type. A missing .venv is created first.
PYTHON ?= python3
VENV   := .venv/bin
READY  := .venv/.ready
TESTS  := .venv/.ready-for-tests
# uv installs faster than pip, if it is there. Both print errors only, and compile all modules: where
# PYTHONDONTWRITEBYTECODE is set, Python would compile them at every start, for half a minute.
UV     ?= $(shell command -v uv)
PIP    := $(if $(UV),$(UV) pip install --quiet --compile-bytecode --python $(VENV)/python,$(VENV)/python -m pip install --quiet --disable-pip-version-check)
# Compiling all modules would take as long as the rest, and tests import few of them.
VLLM_PIP := .venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile
TORCH_CPU ?= https://download.pytorch.org/whl/cpu
# Three processes on two cores, since tests wait a lot; each imports everything. A file's tests share one process, and so
# what they trained.
PYTEST := $(VENV)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

.PHONY: install demo demo-programs demo-tools test test-all test-vllm lint format clean

install: $(READY)
	@echo "Installed. Next: . .venv/bin/activate && make demo   (trains a tiny model, less than a minute)"

# Rebuilt when the dependencies change; a second run starts at once.
$(READY): pyproject.toml setup.py constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: make PYTHON=python3.11 …"; exit 1; }
	@test -x $(VENV)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv with $(if $(UV),uv,pip) (once; a few minutes, and only errors are printed) …"
	@$(PIP) --constraint constraints.txt --editable .
	@touch $@

# pip compiles nothing here: tests keep the bytecode of the few modules that they import (tests/conftest.py).
$(TESTS): $(READY)
	@echo "Installing what the tests need …"
	@$(PIP) $(if $(UV),,--no-compile) --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Evaluate, train with GRPO and QLoRA on the CPU, evaluate again: less than a minute. One thread: for so small a model, more
# threads mostly wait for one another.
demo: $(READY)
	@$(VENV)/python run_grpo.py --config recipes/demo-arithmetic.yaml

# The same with programs that the model writes and the sandbox runs.
demo-programs: $(READY)
	@$(VENV)/python run_grpo.py --config recipes/demo-programs.yaml

# The same with a tool: a calculator, and several turns.
demo-tools: $(READY)
	@$(VENV)/python run_grpo.py --config recipes/demo-tools.yaml

# For every commit: what is not slow, and one smoke test of each large part.
test: $(TESTS) lint
	$(PYTEST) -m "not slow or smoke"

# Every test.
test-all: $(TESTS) lint
	$(PYTEST)

# Training with vLLM on the CPU, in an environment of its own: vLLM pins other versions, and none of its releases is for
# CPUs alone.
test-vllm: .venv-vllm/.ready
	.venv-vllm/bin/python -m pytest --numprocesses 2 --dist loadfile tests/vllm

# Hashes are checked, and nothing is resolved: the file lists all packages. torch's CPU build is on an index of its own.
.venv-vllm/.ready: constraints-vllm.txt pyproject.toml
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	@echo "Installing vLLM into .venv-vllm (once; a few minutes, 4 GB) …"
	@sed -n '/^torch==/,/[^\\]$$/p' constraints-vllm.txt | $(VLLM_PIP) --require-hashes --extra-index-url $(TORCH_CPU) --requirement /dev/stdin
	@$(VLLM_PIP) --require-hashes --requirement constraints-vllm.txt
	@$(VLLM_PIP) --editable .
	@touch $@

lint: $(TESTS)
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/lint-imports

format: $(TESTS)
	$(VENV)/ruff format .
	$(VENV)/ruff check --fix .

clean:
	rm -rf .venv .venv-vllm build *.egg-info .pytest_cache .ruff_cache .mypy_cache
