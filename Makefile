.DEFAULT_GOAL := help
VENV := .venv
PYTHON := $(VENV)/bin/python
BUILD_VENV := build/package-venv
# Each process of the tests, and each service that they start, would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# $(call checked,ARGUMENTS): ruff, then types beside pytest. mypy speaks after pytest has; the failure of either fails the target.
define checked
	@$(VENV)/bin/ruff check && $(VENV)/bin/ruff format --check
	@mkdir -p build; $(VENV)/bin/mypy >build/mypy.txt 2>&1 & types=$$!; \
	echo $(PYTHON) -m pytest $(1); $(PYTHON) -m pytest $(1); tests=$$?; \
	wait $$types; types=$$?; cat build/mypy.txt; \
	exit $$((tests ? tests : types))
endef

.PHONY: help demo test test-all check bench truth coverage format package test-package lock clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/ready  ## three real Galera nodes, clustercheckd and HAProxy, to play with (ARGS=--once: a scripted tour)
	@$(PYTHON) -m harness.demo $(ARGS)

test: $(VENV)/ready  ## lint, types and tests, on real MariaDB and HAProxy: about four minutes (ARGS: options for pytest)
	$(call checked,-m "not long" $(ARGS))

test-all: test  ## make test, then the tests that take minutes each, then make test-package (root)
	$(PYTHON) -m pytest -m "(long or hypothesis) and not alone" --hypothesis-profile=many $(ARGS)
	$(PYTHON) -m pytest -n0 -m alone $(ARGS)
	$(MAKE) test-package

coverage: $(VENV)/ready  ## all tests, slower, and what of app/ they do not reach, in child processes too
	$(PYTHON) -m coverage erase
	$(PYTHON) -m coverage run -m pytest $(ARGS)
	$(PYTHON) -m coverage combine --quiet
	$(PYTHON) -m coverage report

bench: $(VENV)/ready  ## measure it on a real node beside the script and bare uvicorn, as one table (ARGS: --only NAME)
	@$(PYTHON) -m bench $(ARGS)

truth: $(VENV)/ready $(if $(findstring --plot,$(ARGS)),$(VENV)/plot)  ## 5 minutes of random faults: compare every answer with what a client could do (ARGS: --seed N --minutes M --plot FILE.png)
	@$(PYTHON) -m bench.truth $(ARGS)

check: $(VENV)/ready  ## lint, types and the tests that need no server
	$(call checked,-q -n 4 -m "not long" tests/unit tests/simulation/test_stories.py)

format: $(VENV)/ready  ## put the code into shape
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

package: $(BUILD_VENV)/ready  ## .deb and .rpm in dist/, self-contained, on Debian 12 (ARGS: --output DIRECTORY)
	@$(BUILD_VENV)/bin/python packaging/build.py $(ARGS)

test-package: $(VENV)/ready $(BUILD_VENV)/ready build/kubernetes-venv/ready build/ansible-venv/ready  ## build the packages, install them in booted Debian 12 and 13 systems, run MySQL of sid, and try everything (root)
	packaging/setup.sh tools
	$(PYTHON) -m pytest -rs tests/package $(ARGS)

lock:  ## take new versions of the dependencies into requirements/, with hashes
	python3 -m venv build/lock
	build/lock/bin/pip install --quiet uv
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --custom-compile-command 'make lock' pyproject.toml -o requirements/service.txt
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --custom-compile-command 'make lock' --group dev pyproject.toml -c requirements/service.txt -o requirements/dev.txt
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --custom-compile-command 'make lock' --group plot -o requirements/plot.txt
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --custom-compile-command 'make lock' --group package pyproject.toml -c requirements/dev.txt -o requirements/package.txt
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --custom-compile-command 'make lock' --group kubernetes -c requirements/dev.txt -o requirements/kubernetes.txt
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --custom-compile-command 'make lock' --group ansible -c requirements/dev.txt -o requirements/ansible.txt

clean:  ## remove what the targets above made
	rm -rf $(VENV) build dist .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(VENV)/ready: requirements/dev.txt pyproject.toml harness/setup.sh
	harness/setup.sh $(VENV)
	touch $@

$(VENV)/plot: $(VENV)/ready requirements/plot.txt
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/plot.txt
	touch $@

$(BUILD_VENV)/ready: requirements/package.txt packaging/setup.sh
	packaging/setup.sh venv $(BUILD_VENV)
	touch $@

build/%-venv/ready: $(VENV)/ready requirements/%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/$*.txt
	touch $@
