# The ways to build and test etcd-dr; `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Everything but the race detector's part is compiled as a release is (deploy/build.sh), so that tests and releases share the build cache.
# Google's client would link a second stack of gRPC, 13 MB, for a protocol that is not spoken here.
export GOFLAGS := $(GOFLAGS) -trimpath -tags=disable_grpc_modules
export CGO_ENABLED := 0

# How many packages are compiled and tested at a time: more than two cores have room for, since most tests wait for servers.
P ?= 3
# What a run of all tests leaves out: lint has vetted the code, and nothing looks at the symbols that debuggers read.
lean = -vet=off -ldflags '-s -w'
# soak: where its random numbers begin, and how long each of its tests goes on.
SEED ?= 1
SECONDS ?= 60
# fuzz: what all targets have together, as 90s, 10m or 1h.
FUZZTIME ?= 2m

# Asked for only by the recipes that need it, since it runs a script.
with_tools = ETCD_DR_TOOLS="$${ETCD_DR_TOOLS:-$$(test/tools/build.sh --dir)}"
with_soak = ETCD_DR_SOAK=1 ETCD_DR_SEED=$(SEED) ETCD_DR_SECONDS=$(SECONDS)
# The packages that run dr as a process share one binary.
with_dr = ETCD_DR_BINARY="$(CURDIR)/bin/dr"
# All but e2e, which has no short tests.
packages = $$(go list ./... | grep -v '/test/e2e')

##@ Build

.PHONY: help
help: ## list the targets
	@awk -f test/help.awk $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## build ./bin/dr
	go build -o bin/dr ./cmd/dr

# What dist and image are called after.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE ?= etcd-dr

.PHONY: dist
dist: ## release archives for linux/amd64 and arm64 with checksums, in ./dist; VERSION=
	deploy/dist.sh dist "$(VERSION)"

.PHONY: image
image: ## the image for linux/amd64 and arm64, as an archive of an OCI layout in ./dist; IMAGE= VERSION=
	deploy/image.sh dist/etcd-dr-"$(VERSION)".oci.tar "$(IMAGE)" "$(VERSION)"

.PHONY: completion
completion: build ## completions for bash, zsh and fish, in ./bin
	for shell in bash zsh fish; do bin/dr completion $$shell >bin/dr.$$shell; done

.PHONY: clean
clean: ## remove ./bin and ./dist; the tools stay in the user's cache
	rm -rf bin dist

##@ Test

.PHONY: test-short
test-short: ## the inner loop: no real servers, no tools
	packages=$(packages); go test -p $(P) -short -timeout 5m $$packages

.PHONY: test
test: tools build ## short tests under the race detector, then everything with real servers, then each benchmark once, small
	packages=$$(go list ./... | grep -v '/test/'); CGO_ENABLED=1 go test $(lean) -p $(P) -short -race -timeout 30m $$packages
	packages=$$(test/full.sh); $(with_tools) $(with_dr) go test $(lean) -p 2 -parallel 2 -count=1 -timeout 75m $$packages
	test/light.sh | xargs --no-run-if-empty go test $(lean) -p $(P) -run '^$$' -bench . -benchtime 1x -timeout 10m
	$(with_tools) go run ./test/bench -quick

.PHONY: e2e
e2e: tools build ## of these, what needs minutes of wall clock, a browser or Kubernetes
	$(with_tools) $(with_dr) go test -parallel 3 -count=1 -timeout 75m ./test/e2e ./test/kubernetes

.PHONY: lint
lint: ## format, vet, staticcheck, go.mod, and the rules on who imports whom
	@unformatted=$$(gofmt -l .); if [[ -n $$unformatted ]]; then echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	go mod tidy -diff
	go test -count=1 -timeout 2m -run '^TestTree' ./test

.PHONY: tools
tools: ## build the etcd servers, object stores and tools that the tests run on, into the user's cache
	test/tools/build.sh

.PHONY: generate
generate: tools ## the custom resource definitions, their page and the deep copies, from api/v1alpha1 and api/coreos, and the chart's copies
	$(with_tools) go test -count=1 ./api/v1alpha1 ./api/coreos -run Generated -update
	go test -count=1 -short ./test/deploy -run ChartContains -update

##@ Long runs, never in CI

.PHONY: bench
bench: tools ## measure against the limits and write docs/benchmarks.md
	$(with_tools) go run ./test/bench

.PHONY: soak
soak: tools ## the large counts and what only runs there, then the tests that otherwise take one version of etcd; SEED= and SECONDS=
	$(with_tools) $(with_soak) go test -p 1 -count=1 -v -run Soak -timeout 12h ./...
	packages=$$(grep -rl --include='*_test.go' 'servers\.Some(' . | xargs -n 1 dirname | sort -u); \
		$(with_tools) $(with_soak) go test -p 1 -count=1 -skip Soak -timeout 12h $$packages

.PHONY: fuzz
fuzz: ## fuzz every target; FUZZTIME= is shared evenly
	test/fuzz.sh $(FUZZTIME)
