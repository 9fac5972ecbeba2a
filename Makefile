# What people and machines run. Every target works on a fresh clone; `tools` installs what is missing.

export PATH := $(CURDIR)/.tools/bin:$(PATH)

# Where recorded answers of a real kube-apiserver are, if they are here; see docs/conformance.md.
GOLDEN ?= ../shared/golden
# Extra arguments, such as BENCH="--quick".
BENCH ?=
UP ?=
# How many rounds of crashes, kills and random histories a soak runs; properties are tried a hundred times as often.
SOAK ?= 2000
# How many planes it makes.
PLANES ?= 1000000
# How many seconds each target is fuzzed, and which targets if not all.
FUZZ ?= 300
# Only these transcripts, such as TOUR="configmaps rbac".
TOUR ?=
# Arguments for comparing at random.
DIFFER ?=
# Upstream's conformance suite (e2e.test) and kube-controller-manager, if they are here, and arguments such as CONFORMANCE="--at plane --only Watchers".
E2E ?=
KUBE_CONTROLLER_MANAGER ?=
CONFORMANCE ?=
RUN_CONFORMANCE = python3 compat/conformance/run.py --e2e "$(E2E)" --controller-manager "$(KUBE_CONTROLLER_MANAGER)" $(CONFORMANCE)
# PyPI's Go puts gofmt beside its library, not on the PATH.
GOFMT = "$$(go env GOROOT)/bin/gofmt"

.DEFAULT_GOAL := help
.PHONY: help run test soak fuzz bench fmt fmt-check lint deny tools facts golden golden-update differ compat compat-record conformance conformance-update

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## start a server here (UP="--listen 127.0.0.1:7000")
	cargo run --release -- up $(UP)

test: tools ## set this machine up and run every check
	@scripts/test

soak: tools ## what takes hours: thousands of kills, fuzzing, very many planes
	MICA_SOAK=$(SOAK) PROPTEST_CASES=$(SOAK)00 cargo test --release --workspace -- --nocapture
	scripts/fuzz $(FUZZ)
	cargo build --release -p mica -p mica-bench
	target/release/mica-bench run --no-floor --mica target/release/mica --planes $(PLANES) --only planes,first-request,restart

fuzz: tools ## fuzz what reads foreign bytes (FUZZ="60 yaml cel": seconds for each target, and which)
	scripts/fuzz $(FUZZ)

bench: tools ## measure the server, the floors and (KUBE_APISERVER=path) a real kube-apiserver
	cargo build --release -p mica -p mica-bench
	cargo build --release -p mica-runtime --example measured_fleet
	target/release/mica-bench run --mica target/release/mica \
	  $(if $(KUBE_APISERVER),--kube-apiserver $(KUBE_APISERVER) --etcd "$$(command -v etcd)") $(BENCH)

fmt: ## format all code
	cargo fmt --all
	$(GOFMT) -w compat facts

fmt-check:
	cargo fmt --all --check
	@out=$$($(GOFMT) -l compat facts) && if [ -n "$$out" ]; then echo "gofmt these: $$out"; exit 1; fi

lint: ## clippy and go vet, no warnings allowed
	cargo clippy --workspace --all-targets -- -D warnings
	cd compat && go vet ./...
	cd facts && go vet ./...

deny: ## licences, banned crates and sources of what the workspace depends on
	cargo deny check licenses bans sources

tools: ## install what the checks need and this machine lacks
	@scripts/setup

facts: tools ## regenerate the table of built-in kinds, and what tests compare with, from upstream's Go modules
	cd facts && go run . > ../crates/mica-machinery/src/facts/kubernetes.tsv
	cd facts && go run . fixtures ../crates/mica-machinery/testdata

golden: tools ## replay recorded answers of a real kube-apiserver, if they are in GOLDEN=dir
	python3 compat/golden/check.py --recordings $(GOLDEN)

golden-update: tools ## the same, and rewrite the list of known differences
	python3 compat/golden/check.py --recordings $(GOLDEN) --update

differ: tools ## send random requests to our server and to the one that KUBE_APISERVER=path names, and compare (DIFFER="--seed 1")
	python3 compat/differ.py $(DIFFER)

compat: tools ## run real foreign clients against the server
	python3 compat/run.py $(TOUR)

compat-record: tools ## record the kubectl tour again (from KUBE_APISERVER=path where it is upstream's behaviour)
	python3 compat/run.py --record $(TOUR)

conformance: tools ## run upstream's API-only conformance specs (E2E=e2e.test KUBE_CONTROLLER_MANAGER=path)
	$(RUN_CONFORMANCE)

conformance-update: tools ## the same, and rewrite the list of results
	$(RUN_CONFORMANCE) --update
