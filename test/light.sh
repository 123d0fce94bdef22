#!/usr/bin/env bash
# Lists the packages whose tests link nothing of etcd: they compile in seconds, so fuzz targets and quick benchmarks live there.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# A test binary is a package of its own to go list, named after the tested one, and its Deps are all that is linked.
go list -test -f '{{if eq .Name "main"}}{{.ImportPath}} {{join .Deps " "}}{{end}}' ./... |
	awk '$1 ~ /\.test$/ && !/ go\.etcd\.io\// { sub(/\.test$/, "", $1); print $1 }'
