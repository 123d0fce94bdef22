#!/usr/bin/env bash
# Builds the programs that the tests run on: etcd, etcdctl and etcdutl of every minor version that the product serves.
#
#   build.sh          build what is missing, and say what was done
#   build.sh --dir    print the directory they belong in, and build nothing
#
# Every clone of the project is fresh, so they are kept in the user's cache, below a hash of all that decides what comes out:
# a clone with the same versions finds them there and builds nothing.
set -euo pipefail

unset CDPATH
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here"

# etcd 3.4 does not build with a current Go; Debian still has it.
debian_packages=(etcd-server etcd-client)

say() {
	printf 'tools: %s\n' "$*" >&2
}

fail() {
	say "$*"
	exit 1
}

# missing names a tool that this system cannot have. In CI nothing may be missing; elsewhere the tests that need it are skipped.
missing() {
	if [[ ${CI:-} == true ]]; then
		fail "$*"
	fi
	say "$*; the tests that need it will be skipped"
}

hash_of_inputs() {
	{
		go version
		cat build.sh ./*/go.mod ./*/go.sum
	} | sha256sum | cut -c 1-16
}

# publish moves a finished folder to its place in one step, so that a killed build leaves nothing that looks whole.
publish() {
	rm -rf "$2"
	mv "$1" "$2"
}

build_from_modules() {
	local module=$1 version=$2
	local target=$dir/etcd-$version
	if [[ -x $target/etcd && -x $target/etcdctl && -x $target/etcdutl ]]; then
		return
	fi
	say "building etcd $version (about a minute, once)"
	local out=$scratch/etcd-$version
	# All three packages end in /v3, so each needs its own -o. The cgo setting is left alone: it shares the build cache with the tests.
	(
		cd "$module"
		go build -ldflags '-s -w' -o "$out/etcd" go.etcd.io/etcd/server/v3
		go build -ldflags '-s -w' -o "$out/etcdctl" go.etcd.io/etcd/etcdctl/v3
		go build -ldflags '-s -w' -o "$out/etcdutl" go.etcd.io/etcd/etcdutl/v3
	)
	publish "$out" "$target"
}

download_packages() {
	if apt-get download -q "${debian_packages[@]}" >download.log 2>&1; then
		return
	fi
	say "no package list yet, or an old one: apt-get update"
	apt-get update -q >download.log 2>&1 && apt-get download -q "${debian_packages[@]}" >download.log 2>&1
}

unpack_from_debian() {
	local version=$1
	local target=$dir/etcd-$version
	if [[ -x $target/etcd && -x $target/etcdctl ]]; then
		return
	fi
	if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
		missing "etcd $version comes as a Debian package, and this system has no apt-get and dpkg: put etcd and etcdctl into $target"
		return
	fi
	say "unpacking etcd $version from Debian"
	mkdir "$scratch/debian"
	if ! (cd "$scratch/debian" && download_packages); then
		cat "$scratch/debian/download.log" >&2
		missing "apt-get could not download ${debian_packages[*]}"
		return
	fi
	local package
	for package in "$scratch"/debian/*.deb; do
		dpkg -x "$package" "$scratch/debian/root"
	done
	if [[ $("$scratch/debian/root/usr/bin/etcd" --version) != "etcd Version: $version."* ]]; then
		missing "this release of Debian has another etcd than $version: put etcd and etcdctl of $version into $target"
		return
	fi
	publish "$scratch/debian/root/usr/bin" "$target"
}

# install makes sure that a command is there which the tests or the documentation use: install COMMAND PACKAGE...
install() {
	local command=$1 packages=("${@:2}")
	if command -v "$command" >/dev/null; then
		return
	fi
	if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
		missing "the command $command is missing: install ${packages[*]}"
		return
	fi
	say "installing ${packages[*]}"
	local log=$scratch/install-$command.log
	if ! apt-get install -q -y --no-install-recommends "${packages[@]}" >"$log" 2>&1; then
		apt-get update -q >"$log" 2>&1 || true
		if ! apt-get install -q -y --no-install-recommends "${packages[@]}" >"$log" 2>&1; then
			cat "$log" >&2
			missing "apt-get could not install ${packages[*]}"
		fi
	fi
}

# take_turns lets one run at a time work in the directory; the second one then finds everything built.
take_turns() {
	if ! command -v flock >/dev/null; then
		return
	fi
	exec 9>"$dir/lock"
	if ! flock -n 9; then
		say "another run is building; waiting for it"
		flock 9
	fi
	rm -rf "$dir"/scratch.* # of runs that were killed
}

command -v go >/dev/null || fail "go is missing from PATH"
dir=${XDG_CACHE_HOME:-$HOME/.cache}/etcd-dr/$(hash_of_inputs)
if [[ ${1:-} == --dir ]]; then
	printf '%s\n' "$dir"
	exit 0
fi

export DEBIAN_FRONTEND=noninteractive
mkdir -p "$dir"
take_turns
# Below the target, so that publishing is a rename within one file system.
scratch=$dir/scratch.$$
mkdir "$scratch"
trap 'rm -rf "$scratch"' EXIT

build_from_modules etcd35 3.5
build_from_modules etcd36 3.6
build_from_modules etcd37 3.7
unpack_from_debian 3.4
install age age
install zstd zstd
install jq jq
install gcc gcc libc6-dev # the race detector links with it
install pkill procps
install ip iproute2
install unshare util-linux
say "ready in $dir"
