# Two commands matter: `make dev` runs Fairlead, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
PIP_INSTALL := $(BIN)/pip install -qq --disable-pip-version-check
# uv, itself as the lock file has it, takes a quarter of the time; but it does not know which index pip was set up with.
UV_INSTALL := sed -n '/^uv==/,/\# via/p' requirements.lock >$(VENV)/uv.lock \
	&& $(PIP_INSTALL) --require-hashes -r $(VENV)/uv.lock \
	&& scripts/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
UV_LOG := $(VENV)/uv.log
# Four test processes, also on two cores: many a test mostly waits.
# A test process, with its share of PostgreSQL, takes a good gigabyte: three where memory is 4 GiB.
FEWER := $(or $(TEST_MEMORY_GIB),$(shell awk '/^MemTotal/ && $$2 < 6000000 { print "yes" }' /proc/meminfo 2>/dev/null))
AT_ONCE := -n $(if $(FEWER),3,4) --dist worksteal
FAST := "not thorough"
DEEP := "thorough or deeper"
# Ends what a run of the tests leaves behind, also after Ctrl-C.
CONTAINED := $(BIN)/python tests/contained.py

# Compiled modules are kept, whatever this shell says: the tests start hundreds of processes, and compiling took each of
# them longer than all else.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup dev check test fast thorough deep budget exact oracle fuzz hooks chaos chaos-parts kills durable hostile interleavings cells moves mutants chaos-bridges failover citus postgres-versions tools compiled bench screenshots docs release cut schema settings matrix sync typescript lock format clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(STAMP) ## the environment in .venv, from the lock file

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Fairlead needs Python 3.11 or later; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "==> setting up $(VENV) from requirements.lock"
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv"; exit 1; }
	@{ $(UV_INSTALL); } 2>$(UV_LOG) || { echo "    with pip, which takes its time; why uv could not is in $(UV_LOG)"; \
		$(PIP_INSTALL) --require-hashes -r requirements.lock; }
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

dev: setup ## run Fairlead here: embedded PostgreSQL, demo tenant; with ARGS="hello:fl" your own module too
	@exec $(BIN)/fairlead dev $(ARGS)

check: setup ## ruff, mypy, import-linter
	@echo "==> ruff"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@echo "==> mypy"
	@$(BIN)/mypy --no-error-summary
	@echo "==> import-linter"
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

test: setup ## the checks, then every promise once: within eight minutes
	@$(MAKE) --no-print-directory -j 3 check tools compiled
	@$(MAKE) --no-print-directory fast

# Collect all tests while the checks run: else, in a new clone, each of the test processes would compile them all.
compiled: $(COMPILED)

$(COMPILED): $(STAMP)
	@$(BIN)/pytest --collect-only -qq -m $(FAST) >/dev/null 2>&1 || true # fast shows what is wrong
	@touch $@

tools: setup # what some tests need beside Python; they are skipped, with a reason, where it cannot be had
	@echo "==> test tools"
	@scripts/test-tools $(TOOLS)

fast: setup # the tests of `make test` without the checks
	@echo "==> pytest, the fast tests"
	@$(CONTAINED) $(BIN)/pytest $(AT_ONCE) -m $(FAST) $(ARGS)

thorough: test ## every test: `make test`, then all that it leaves out, in about half an hour more
	@$(MAKE) --no-print-directory tools TOOLS=thorough
	@$(MAKE) --no-print-directory deep

deep: setup # the tests of `make thorough` that `make test` leaves out
	@echo "==> pytest, the thorough tests"
	@THOROUGH=1 $(CONTAINED) $(BIN)/pytest $(AT_ONCE) -m $(DEEP) $(ARGS)

budget: setup ## hold the CPU seconds of the last `make test` and `make thorough` against tests/budget.toml
	@$(BIN)/python -m tests.budget

exact: setup ## limits, rates and keys under half a minute of churn; `make test` churns for a moment
	@CHURN_SECONDS=30 $(BIN)/pytest -q -s tests/store/test_claim_exact.py tests/store/test_flow_exact.py $(ARGS)

oracle: setup ## 10,000 requests of an operator who tries to learn a secret; `make thorough` sends some hundreds
	@ORACLE_REQUESTS=10000 $(BIN)/pytest -q -s -o timeout=1800 tests/server/test_secret_requests.py $(ARGS)

fuzz: setup ## 12,000 requests that name what another tenant owns, over every route as every role; `make thorough` sends some hundreds
	@FUZZ_REQUESTS=12000 $(BIN)/pytest -q -s -n 0 -o timeout=3600 tests/server/test_foreign_requests.py $(ARGS)

hooks: setup ## 20,000 webhooks at two servers, a third repeated, some forged; `make thorough` sends some hundreds
	@HOOK_DELIVERIES=20000 $(BIN)/pytest -q -s -o timeout=1800 tests/server/test_hooks_of_servers.py $(ARGS)

chaos: setup ## everything under faults for 20 minutes, then a check of every job (CHAOS="--seed 7" for other options); `make thorough` does it until three faults have begun
	@$(BIN)/fairlead chaos --minutes 20 $(CHAOS)
	@$(MAKE) --no-print-directory chaos-parts

chaos-parts: setup ## schedulers and workers killed and stopped at random for minutes; `make thorough` does it for some seconds
	@CHAOS_SECONDS=120 CHAOS_EVENTS=5000 CHAOS_RUNS=200 CHAOS_TASKS=10000 $(BIN)/pytest -q -s tests/acceptance/test_triggers_chaos.py tests/acceptance/test_workflow_chaos.py $(ARGS)
	@BLAME_SECONDS=60 BLAME_JOBS=40 BLAME_OUTAGES=3 $(BIN)/pytest -q -s tests/acceptance/test_blame.py $(ARGS)

moves: setup ## 50 tenants moved between three cells under load by processes that are killed; `make thorough` moves a few
	@MOVES_EVERY_STEP=1 $(BIN)/pytest -q tests/test_tenant_moves.py $(ARGS)
	@MOVES_TENANTS=50 MOVES=50 $(BIN)/pytest -q -s -o timeout=3600 tests/acceptance/test_tenant_moves.py $(ARGS)

hostile: setup ## a hostile tenant beside measured ones: five seeds of four minutes each (HOSTILE="--seed 7 --minutes 1" for one run)
	@if [ -n "$(HOSTILE)" ]; then $(BIN)/python -m fairlead.chaos.hostile $(HOSTILE); else \
		for seed in 1 2 3 4 5; do $(BIN)/python -m fairlead.chaos.hostile --seed $$seed --minutes 4 || status=1; done; exit $${status:-0}; fi

kills: setup ## 200 workers killed between the changes of their handlers and the ends of their jobs; `make thorough` kills 7
	@TX_KILLS=200 $(BIN)/pytest -q -s tests/acceptance/test_transaction_kills.py $(ARGS)

durable: setup ## 500 durable functions of 20 steps while their workers are killed, stopped and cut off; `make thorough` runs 10
	@DURABLE_FUNCTIONS=500 $(BIN)/pytest -q -s -o timeout=3600 tests/acceptance/test_durable_kills.py $(ARGS)

interleavings: setup ## every order of the statements of two and three operations on a job; `make thorough` leaves out orders that cannot differ, and those that interrupt an operation more often than a scenario asks for
	@INTERLEAVINGS=1 $(BIN)/pytest -q -s -n 0 -o timeout=3600 tests/interleavings $(ARGS)

mutants: setup ## wrong versions of the protocol, one at a time in a scratch copy: each must be caught (about an hour); with ARGS="name" some, with ARGS="--generated" those of stored functions made by rules
	@$(BIN)/python -m tests.mutants $(ARGS)

cells: setup ## the tests of the API with tenants that live in another cell than the one that is asked; `make test` runs some
	@FAIRLEAD_TEST_CELLS=1 $(BIN)/pytest -q tests/server $(ARGS)

chaos-bridges: setup ## 10,000 jobs through each engine while bridge, workers and broker are killed; `make thorough` sends 40 through some
	@scripts/test-tools thorough
	@CHAOS_BRIDGE_JOBS=10000 CHAOS_BRIDGE_KILLS=10 $(BIN)/pytest -q -s -o timeout=3600 tests/acceptance/test_bullmq_chaos.py tests/acceptance/test_engines_chaos.py $(ARGS)

failover: setup ## the primary of a Patroni cluster killed ten times under load, with a synchronous standby and without; `make thorough` kills one where Patroni is
	@scripts/test-tools thorough
	@FAILOVER_KILLS=10 $(BIN)/pytest -q -s -o timeout=3600 tests/acceptance/test_failover.py $(ARGS)

citus: setup ## the suites of the store, of workers and of the HTTP API on a distributed schema of Citus; `make thorough` tries some jobs and a move
	@echo "==> pytest tests/store tests/runtime tests/conformance tests/server, on a Citus coordinator and worker"
	@FAIRLEAD_TEST_CITUS=1 $(BIN)/pytest -n 2 --dist worksteal -o timeout=600 tests/store tests/runtime tests/conformance tests/server $(ARGS)
	@echo "==> pytest tests/db/test_citus.py, on a Citus coordinator and two workers"
	@$(BIN)/pytest -q tests/db/test_citus.py

postgres-versions: setup ## the suites of store, runtime, db and server on each PostgreSQL, and docs/reference/postgresql-versions.md (with ARGS="17" on one)
	@$(BIN)/python -m tests.postgres_versions $(ARGS)

bench: setup ## measure, as ratios within one run
	@$(BIN)/fairlead bench $(ARGS)

lock: setup ## renew requirements.lock from pyproject.toml
	@scripts/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" --upgrade --quiet -o requirements.lock

screenshots: setup tools ## pictures of every page of the console, in screenshots/, and those that the docs show
	@$(BIN)/python -m tests.console.screenshots screenshots

docs: setup ## the documentation as a site: the folder of this version in site/ (SITE=folder for another), and docs/llms.txt
	@$(BIN)/python -m tests.site $(SITE)

release: setup ## build the wheel, the source distribution and the npm package in dist/, and prove them in an empty environment
	@echo "==> building dist/"
	@rm -rf dist
	@$(BIN)/python -m tests.release

cut: setup ## give all files a new version, and the changelog its section: make cut VERSION=0.2.0
	@$(BIN)/python -m tests.release cut "$(VERSION)"

schema: setup ## renew tests/db/schema.sql from the migrations
	@$(BIN)/python -m tests.schema_dump

settings: setup ## renew src/fairlead/fairlead.schema.json from the settings and the readers of fairlead.toml
	@$(BIN)/python -m tests.settings_schema

matrix: setup ## renew docs/reference/authorisation.md from the routes
	@WRITE_MATRIX=1 $(BIN)/pytest -q tests/server/test_authorisation.py -k documentation

sync: setup ## renew src/fairlead/sync.py from the asynchronous library
	@$(BIN)/python -m tests.sync_source

typescript: setup ## renew the generated sources of clients/typescript from the API, and build it; needs Node 20
	@$(BIN)/python -m tests.typescript

format: setup ## let ruff lay out the code
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

clean: ## remove what was made (not your data folder)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist site
