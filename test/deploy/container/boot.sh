#!/usr/bin/env bash
# Boots systemd in a container of its own, has it run DIRECTORY/script.sh as root, and ends with that script's exit code:
#
#   boot.sh DIRECTORY
#
# The directory is /run/shared in the container; the script's output is in its file output. Nothing else that happens in
# there reaches the machine: network, processes, mounts and cgroups are the container's own, /etc, /var, /mnt and /usr/local
# are overlays, /run and /tmp are empty, and none of systemd's own services starts.
set -euo pipefail

self=$(realpath "${BASH_SOURCE[0]}")

# join moves this process into a cgroup of its own in each hierarchy of version 1, and prints their directories.
join() {
	local name=dr-container-$BASHPID controller path dir lines
	lines=$(cat /proc/self/cgroup) # changes with the first move
	while IFS=: read -r _ controller path; do
		dir=/sys/fs/cgroup/${controller#name=}${path%/}
		if [[ -z $controller || ! -d $dir ]]; then
			continue
		fi
		mkdir "$dir/$name"
		echo "$dir/$name"
		if [[ -e $dir/cpuset.cpus ]]; then
			cat "$dir/cpuset.cpus" >"$dir/$name/cpuset.cpus"
			cat "$dir/cpuset.mems" >"$dir/$name/cpuset.mems"
		fi
		echo "$BASHPID" >"$dir/$name/cgroup.procs"
	done <<<"$lines"
}

# outside runs inside in new namespaces and cgroups, and removes the cgroups.
outside() {
	local list code=0 dir
	list=$(mktemp)
	(
		join >"$list"
		exec unshare --net --mount --pid --uts --ipc --cgroup --fork --kill-child --mount-proc "$self" inside "$1"
	) || code=$?
	while read -r dir; do
		remove "$dir"
	done <"$list"
	rm "$list"
	exit "$code"
}

# remove removes a cgroup and those below it; the kernel needs a moment until the last process is gone from them.
remove() {
	for _ in {1..100}; do
		if find "$1" -depth -type d -exec rmdir {} + 2>/dev/null; then
			return
		fi
		sleep 0.1
	done
	echo "the cgroup $1 cannot be removed" >&2
}

mount_cgroups() {
	local controller type
	if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
		mount -t cgroup2 cgroup /sys/fs/cgroup
		return
	fi
	mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
	while IFS=: read -r _ controller _; do
		if [[ -n $controller ]]; then
			type=$controller
			if [[ $controller == name=* ]]; then
				type=none,$controller
			fi
			mkdir "/sys/fs/cgroup/${controller#name=}"
			mount -t cgroup -o "$type" cgroup "/sys/fs/cgroup/${controller#name=}"
		fi
	done <<<"$(cat /proc/self/cgroup)"
}

# mount_own gives the container file systems of its own where something is written, and the shared directory in /run.
mount_own() {
	local shared=$1 scratch=/run/container dir target
	mkdir -p "$scratch"
	mount -t tmpfs tmpfs "$scratch"
	for dir in /etc /var /mnt /usr/local; do
		mkdir -p "$scratch$dir/upper" "$scratch$dir/work"
		mount -t overlay -o "lowerdir=$dir,upperdir=$scratch$dir/upper,workdir=$scratch$dir/work" overlay "$dir"
	done
	mkdir "$scratch/run" "$scratch/tmp"
	mkdir "$scratch/run/shared"
	mount --bind "$shared" "$scratch/run/shared"
	chmod 1777 "$scratch/tmp"
	mount --rbind "$scratch/tmp" /tmp
	mount --rbind "$scratch/run" /run
	for target in sysinit basic sockets local-fs timers multi-user; do
		rm -rf "/etc/systemd/system/$target.target.wants"
		if [[ -d /lib/systemd/system/$target.target.wants ]]; then
			mount -t tmpfs tmpfs "/lib/systemd/system/$target.target.wants"
		fi
	done
	rm -f /etc/fstab
	: >/etc/machine-id
}

# inside is the container's first process; it becomes systemd, which ends with the exit code of the script.
inside() {
	mount_cgroups
	mount_own "$1"
	cat >/etc/systemd/system/script.target <<-'END'
		[Unit]
		Requires=basic.target
		After=basic.target
		Wants=script.service
	END
	cat >/etc/systemd/system/script.service <<-'END'
		[Service]
		ExecStart=/bin/bash -c '/run/shared/script.sh >/run/shared/output 2>&1; systemctl exit $?'
	END
	exec env -i container=other PATH="$PATH" HOME=/root /lib/systemd/systemd --system --log-target=console --log-level=warning \
		--show-status=no --unit=script.target
}

if [[ $1 == inside ]]; then
	inside "$2"
fi
outside "$1"
