# Sourced by the scripts that run under systemd in a container.

trap 'tail -n 30 /run/*.log /run/last; systemctl --no-pager --full --lines=0 status "etcd*"' ERR

step() { printf "%4d s  %s\n" "$SECONDS" "$1"; }

# eventually runs a command until it succeeds, for two minutes and more.
eventually() {
	for _ in {1..1200}; do
		if "$@" >/run/last 2>&1; then
			return
		fi
		sleep 0.1
	done
	echo "this did not succeed: $*" >&2
	return 1
}
