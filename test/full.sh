#!/usr/bin/env bash
# Lists the packages whose tests do more without -short, which also reduces the checks of rapid, the longest first: full.sh busy|waiting.
# The busy ones take whole processors. The others mostly wait, so that more of them run at once.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
busy=$(go list ./test/kubernetes ./test/e2e ./test/faults)
if [[ $1 == busy ]]; then
	echo "$busy"
	exit
fi
go list ./test/deploy ./test/runbooks ./test/... | grep -vxF "$busy"
grep -rlE --include='*_test.go' 'testing\.Short\(\)|rapid\.|etcd-dr/test/(command|embedded|objectstores|servers)"' . |
	xargs -n 1 dirname | sort -u | grep -v '^\./test'
