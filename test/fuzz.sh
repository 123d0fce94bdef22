#!/usr/bin/env bash
# Fuzzes every target of the packages that light.sh lists, for an even share of the given time (90s, 10m, 1h).
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

# go test names the targets of a package first and the package after them.
list_targets() {
	test/light.sh | xargs --no-run-if-empty go test -list '^Fuzz' |
		awk '/^Fuzz/ { names[++n] = $1 } /^ok/ { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }'
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
