#!/usr/bin/env bash
# Lists the packages that have benchmarks, and whose tests link nothing of etcd: they compile in seconds.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t packages < <(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)
# A test binary is a package of its own to go list, named after the tested one, and its Deps are all that is linked.
go list -test -f '{{if eq .Name "main"}}{{.ImportPath}} {{join .Deps " "}}{{end}}' "${packages[@]}" |
	awk '$1 ~ /\.test$/ && !/ go\.etcd\.io\// { sub(/\.test$/, "", $1); print $1 }'
