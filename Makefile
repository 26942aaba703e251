# make demo: set everything up and run the main job.  make test: set everything up and pass the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python keeps what it has compiled, whatever the environment says: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test tests test-gpu docs bench bench-large bench-peers performance lint style types format clean chromium plotly

# Nothing is compiled beforehand: most of what is installed is never imported.
define install
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e $(1)
	@touch $(VENV)/.alone $@
endef

$(VENV)/.alone: pyproject.toml constraints.txt  # fedtct and what it needs
	$(call install,.)

$(VENV)/.installed: pyproject.toml constraints.txt  # and what it is tested, documented and deployed with
	$(call install,'.[dev]')

demo: $(VENV)/.alone
	$(BIN)/fedtct demo

# The CPU part of docs/performance.md, in less than 10 minutes on two quiet cores; the others are longer or download.
bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.cpu

bench-large: $(VENV)/.installed
	$(BIN)/python -m benchmarks.large

bench-peers: $(VENV)/.installed
	$(BIN)/python -m benchmarks.peers

performance: $(VENV)/.installed
	$(BIN)/python -m benchmarks.report

test: style chromium  # types are checked on one core while the tests begin on the others
	$(MAKE) --jobs 2 types tests

tests: $(VENV)/.installed  # workers share the cores: threads of their own would only wait for each other
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadgroup

test-gpu: $(VENV)/.installed  # what holds on a GPU; `make test` leaves it alone
	FEDTCT_TEST_GPU=1 $(BIN)/pytest -n0 tests/core/test_on_a_gpu.py

docs: $(VENV)/.installed
	$(BIN)/python -m sphinx -W -n -q -b html docs build/docs
	@echo 'open build/docs/index.html'

lint: style types

style: $(VENV)/.installed
	$(BIN)/ruff format --check src tests benchmarks studies docs examples
	$(BIN)/ruff check src tests benchmarks studies docs examples

types: $(VENV)/.installed
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff format src tests benchmarks studies docs examples
	$(BIN)/ruff check --fix src tests benchmarks studies docs examples

chromium:  # the report is tested in a real browser
	@command -v chromium >/dev/null || { SUDO=$$([ $$(id -u) = 0 ] || echo sudo); \
	$$SUDO apt-get update -qq && $$SUDO apt-get install -yqq --no-install-recommends chromium >/dev/null; }

PLOTLY := 4.1.1
plotly:  # fetch the script that reports carry, to update it
	npm pack --silent plotly.js-cartesian-dist-min@$(PLOTLY) | \
	xargs -I{} sh -c 'tar xzf {} --strip-components=1 -C src/fedtct/report/page package/plotly-cartesian.min.js; rm {}'

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
