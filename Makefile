# Two commands for a fresh machine that has Python 3.11, make and the network:
#   make demo   ten minutes: makes .venv, fetches a real model of 135M (93 MB), trains it on a CPU by SFT and by its own verified
#               answers, and ends with six answers before and after, the verdict, and the report. The same command resumes it
#   make test   makes .venv, runs the tests but the slow ones (make test-slow: random at length, long runs)
#   make test-check     those of `plumbline check` alone, without torch: a minute
#   make test-studies   those of benchmarks/, experiments/ and page/
#   make gpu    on a machine with a GPU: the tests that need one, and a table of SmolLM2 and of random weights in the shapes of
#               Qwen3-0.6B and 8B against transformers and TRL (18 GB on disk)
#   make demo-control   the demo's negative control, after it
#   make docs   the documentation as a site, in site/
#   make page   the page that checks a log in a browser, in dist/page (needs npm)
# Others: lint, format, clean.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PROJECTS := $(wildcard environments/*/pyproject.toml)
ENVIRONMENTS := $(PROJECTS:%/pyproject.toml=./%)
# Threads that wait for work must not spin: two of them on two busy cores slow each other down.
export OMP_WAIT_POLICY := passive
# Processors without AMX (but AMD's with AVX-512) emulate bfloat16 or are slow at it.
DTYPE := --set model.dtype=$(shell awk '/vendor_id/ { amd = /AMD/ } /amx_bf16/ || (amd && /avx512_bf16/) { fast = 1 } \
	END { print fast ? "bfloat16" : "float32" }' /proc/cpuinfo 2>/dev/null || echo float32)
# Tests start the command line dozens of times; without bytecode each compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-started demo-control test test-slow test-check test-studies gpu docs page lint format clean
.DELETE_ON_ERROR:

define need_python
	@test -n "$(PYTHON)" || { echo "plumbline needs Python 3.11 or newer; name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; name another: make PYTHON=/path/to/python3.11" >&2; exit 1; }
endef

$(BIN)/python:
	$(need_python)
	@echo "making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv

# torch goes first and alone: its CPU build satisfies everything that depends on it, which would otherwise bring CUDA.
.venv/torch.stamp: constraints.txt | $(BIN)/python
	@echo "installing torch"
	@$(PIP) install "$$(grep '^torch==' constraints.txt)"
	@touch $@

.venv/train.stamp: .venv/torch.stamp pyproject.toml $(PROJECTS)
	@echo "installing plumbline, its environments and what training needs"
	@$(PIP) install -c constraints.txt -e '.[train]' $(ENVIRONMENTS:%=-e %)
	@touch $@

# At once, not on top of the training's: pip then looks for what fits, and builds the package, once.
.venv/dev.stamp: .venv/torch.stamp pyproject.toml $(PROJECTS)
	@echo "installing plumbline, its environments and what training and the tests need"
	@$(PIP) install -c constraints.txt -e '.[train,serve,constrained,vllm,ray,remote,trackio,wandb,tensorboard,dev]' \
		$(patsubst %,-e %,$(filter-out %/forms,$(ENVIRONMENTS))) -e './environments/forms[browser,formfactory]'
	@$(PIP) install --no-deps "$$(grep '^miniwob==' constraints.txt)"  # of which only the pages are used
	@touch .venv/train.stamp $@

demo: demo-started .venv/train.stamp
	@$(BIN)/plumbline get smollm2-135m
	@echo "training: SFT, then rounds of its own answers, of which the verifier keeps the right ones"
	@$(BIN)/plumbline run strict-json-demo $(DTYPE) --resume
	@echo
	@echo "Next, the negative control, which must not rise: the same rounds with answers that nothing checked:"
	@echo "    make demo-control"
	@echo "Your own rows and reward:"
	@echo "    $(BIN)/plumbline init --model models/smollm2-135m --data ROWS --reward MODULE:FUNCTION"
	@echo "The shop: reading reviews by GRPO after SFT (10 minutes with AMX, else an hour), and its four jobs in one run:"
	@echo "    $(BIN)/plumbline run commerce-demo $(DTYPE)"
	@echo "    $(BIN)/plumbline run commerce-smollm2 $(DTYPE)"

demo-started:
	@echo "make demo: about ten minutes on two cores: 2 for packages and the model, 5 to 8 for training and evaluation"

demo-control: demo
	@$(BIN)/plumbline run strict-json-demo-control $(DTYPE) --resume
	@echo "Report:  runs/strict-json-demo-control/report.html"

# In the order of their names: files with many tests first, as xdist would have them, leave the longest to the end.
PYTEST = $(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder
test: .venv/dev.stamp
	@$(PYTEST) -m "not slow"

test-slow: .venv/dev.stamp
	@$(PYTEST) -m slow

# Tests of `plumbline check`: under a minute, without torch, which .venv-check has not.
CHECK_TESTS = tests/diagnosis tests/test_public_reports.py tests/doorstep/test_doorstep.py::test_a_log_gets_its_right_answer
.venv-check/stamp: constraints.txt pyproject.toml environments/commerce/pyproject.toml
	$(need_python)
	@echo "making .venv-check, without torch, for the tests of plumbline check"
	@$(PYTHON) -m venv .venv-check
	@.venv-check/bin/python -m pip --quiet --disable-pip-version-check install -c constraints.txt \
		-e . -e ./environments/commerce jinja2 pandas pyarrow pytest
	@touch $@

test-check: .venv-check/stamp
	@.venv-check/bin/python -m pytest -q $(CHECK_TESTS)

# Of scripts that measure, and of studies that were made once.
test-studies: .venv/dev.stamp
	@$(PYTEST) benchmarks experiments page

gpu: .venv/dev.stamp
	@$(BIN)/python -c 'import sys, torch; sys.exit("make gpu needs a CUDA device" * (not torch.cuda.is_available()))'
	@$(BIN)/python -m pytest -q -m gpu
	@$(BIN)/plumbline get smollm2-135m
	@$(BIN)/python benchmarks/real.py --device cuda --trl --prompts 4 8 64
	@test -e models/random-0.6b || $(BIN)/python benchmarks/models.py qwen3-0.6b models/random-0.6b
	@$(BIN)/python benchmarks/real.py --device cuda --trl --model models/random-0.6b --adapters lora --prompts 8 64 --pairs 2
	@test -e models/random-8b || $(BIN)/python benchmarks/models.py qwen3-8b models/random-8b
	@$(BIN)/python benchmarks/real.py --device cuda --trl --model models/random-8b --adapters lora \
		--prompts 1 --copies 16 --sentences 32 --answer 512

# Without torch: the site needs none of it.
.venv/docs.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what the site of the documentation needs"
	@$(PIP) install -c constraints.txt -e '.[docs]'
	@touch $@

docs: .venv/docs.stamp
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Site:  site/index.html (search needs a server: $(BIN)/python -m http.server -d site)"

# WHEELS: a folder with the two compiled wheels, where Pyodide's own address is out of reach.
page: $(BIN)/python
	@$(BIN)/python page/build.py $(if $(WHEELS),--wheels $(WHEELS))

lint: .venv/dev.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: .venv/dev.stamp
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-check build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
