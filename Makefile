# SPDX-License-Identifier: BSD-3-Clause
# Everything below happens inside this checkout (.venv/ and .demo/); nothing is installed elsewhere.
#
#   make demo    the whole story on simulated GPUs; DEMO_EXIT=1 ends after it, DEMO_DEVICES=nvml
#                offers the real GPUs without the story
#   make test    everything this machine can test
#   make sim     faults on the production broker in virtual time: SEEDS=1000 FIRST_SEED=0; small
#                worlds that must come to rest: WORLDS=20000
#   make bench   what a user waits for; DATA=DIR also runs the experiments on published workloads
#   make lint ui docs clean setup

PYTHON ?= python3
SEEDS ?= 200
FIRST_SEED ?= 0
WORLDS ?= 20000
export PYTHON
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/.demo/npm/node_modules/.bin:$(PATH)

LAB := $(shell find labextension/src labextension/schema labextension/style -type f) \
	$(wildcard labextension/*.json labextension/yarn.lock)

.PHONY: demo test lint ui docs bench sim clean setup FORCE

demo: setup
	.venv/bin/python hub_config/demo/run.py $(DEMO_ARGS)

test: setup
	.ci/test

lint: .demo/stamp-package
	.ci/test lint

ui: .demo/stamp-lab
	.ci/test ui

docs: .demo/stamp-package
	.venv/bin/python .ci/docs.py

bench: setup
	.venv/bin/python -m tests.bench
	.venv/bin/jupyter gpubroker bench b4 --json
	.venv/bin/jupyter gpubroker bench b6 --json
	$(if $(DATA),.venv/bin/jupyter gpubroker bench b1 --data $(DATA) --json)
	$(if $(DATA),.venv/bin/jupyter gpubroker bench b2 --data $(DATA) --json)
	$(if $(DATA),.venv/bin/jupyter gpubroker bench b3 --data $(DATA) --json)

sim: .demo/stamp-package
	.venv/bin/python -m jupyter_gpubroker.sim --seeds $(SEEDS) --first $(FIRST_SEED) \
		--worlds $(WORLDS)

clean:
	rm -rf .venv .demo .bench build dist demo-report.json jupyter_gpubroker/labextension
	rm -rf labextension/lib labextension/node_modules labextension/tsconfig.tsbuildinfo

setup: .demo/stamp-lab .demo/stamp-proxy .demo/stamp-torch

.demo/stamp-venv:
	.ci/setup venv

.demo/stamp-node: .demo/stamp-venv
	.ci/setup node

.demo/stamp-package: .demo/stamp-node pyproject.toml labextension/package.json
	.ci/setup package

.demo/stamp-lab: .demo/stamp-package $(LAB)
	.ci/setup lab

.demo/stamp-proxy: .demo/stamp-node
	.ci/setup proxy

.demo/stamp-torch: .demo/stamp-venv requirements/demo.txt $(if $(DEMO_TORCH),FORCE)
	.ci/setup torch
