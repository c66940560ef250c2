# The two commands of this project: `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := server,espeak,japanese,qwen3,pipecat,livekit,agents,bench,dev
# The version whose CPU build is tested. A plain `torch` would pull the newest CUDA build.
TORCH ?= torch==2.13.0

.PHONY: setup demo test check bench-ttfa bench-transport clean
.DEFAULT_GOAL := help

help:
	@echo "make demo             hear (and see) an agent that is interrupted, on the embedded voice"
	@echo "make test             run every test"
	@echo "make check            formatting, lint, types, import rules, tests"
	@echo "make bench-ttfa       time to first audio, as a client hears it"
	@echo "make bench-transport  how many paced streams one server carries"

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[$(EXTRAS)]"
	touch $@

demo: setup
	$(BIN)/python -m agents.pipecat_demo

test: setup
	$(BIN)/python -m pytest

check: setup
	scripts/check

bench-ttfa: setup
	$(BIN)/python -m benchmarks.ttfa

bench-transport: setup
	$(BIN)/python -m benchmarks.transport

clean:
	rm -rf $(VENV) out
