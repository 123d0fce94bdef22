#!/usr/bin/env bash
# Fuzzes every target in the tree, for an even share of the given time (90s, 10m, 1h).
# A target that fails does not keep the others from running; its input is left in testdata/fuzz of its package.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

in_seconds() {
	local number=${1%[smh]}
	if [[ ! $number =~ ^[0-9]+$ ]]; then
		printf 'fuzz: %s is no time; give 90s, 10m or 1h\n' "$1" >&2
		return 2
	fi
	case $1 in
	*h) echo $((number * 3600)) ;;
	*m) echo $((number * 60)) ;;
	*) echo "$number" ;;
	esac
}

# Read from the sources: compiling every test to ask it would take minutes.
list_targets() {
	grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's|^(.*)/[^/]*:func (.*)$|\1 \2|' | sort
}

total=$(in_seconds "${1:-2m}")
list=$(list_targets)
if [[ -z $list ]]; then
	echo "fuzz: there are no targets"
	exit 0
fi
mapfile -t targets <<<"$list"
each=$((total / ${#targets[@]}))
each=$((each > 0 ? each : 1))
printf 'fuzz: %d targets, %d s each\n' "${#targets[@]}" "$each"

failed=()
for target in "${targets[@]}"; do
	read -r package name <<<"$target"
	printf 'fuzz: %s of %s\n' "$name" "$package"
	if ! go test -run '^$' -fuzz "^$name\$" -fuzztime "${each}s" -timeout "$((each + 600))s" "$package"; then
		failed+=("$target")
	fi
done
if ((${#failed[@]} > 0)); then
	printf 'fuzz: failed: %s\n' "${failed[@]}"
	exit 1
fi
echo "fuzz: all passed"
