#!/usr/bin/env bash
# Lists the packages whose tests do more without -short, which also reduces the checks of rapid. The longest come first.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
go list ./test/{kubernetes,e2e,faults,deploy} ./test/...
grep -rlE --include='*_test.go' 'testing\.Short\(\)|rapid\.|etcd-dr/test/(command|embedded|objectstores|servers)"' . |
	xargs -n 1 dirname | sort -u | grep -v '^\./test'
