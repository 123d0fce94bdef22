#!/usr/bin/env bash
# Builds the programs that the tests run on: etcd, etcdctl and etcdutl of every minor version that the product serves, the object
# stores, and Kubernetes.
#
#   build.sh          build what is missing, and say what was done
#   build.sh --dir    print the directory they belong in, and build nothing
#
# Every clone of the project is fresh, so they are kept in the user's cache, below a hash of all that decides what comes out:
# a clone with the same versions finds them there and builds nothing. The directory has links to the parts, each of which is kept below
# a hash of its own inputs: a change of one has only that one built anew.
set -euo pipefail

unset CDPATH
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here"

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

# hash names what comes out of the text on stdin.
hash() {
	sha256sum | cut -c 1-16
}

# sources lists the files below the given ones; what npm installs on the spot is none.
sources() {
	if [[ $# == 0 ]]; then
		return # find would take the working directory
	fi
	find "$@" -name node_modules -prune -o -type f -print0 | sort -z
}

hash_of_inputs() {
	{
		go version
		sources build.sh ./*/ | xargs -0 sha256sum
	} | hash
}

# part makes one part available: part NAME 'COMMAND...' INPUT...
# The command is run with a directory as its last argument and fills it; one that leaves it empty has said why.
part() {
	local name=$1 command=$2 inputs=("${@:3}")
	local link=$dir/$name
	if [[ -d $link ]]; then
		return
	fi
	local kept
	kept=$cache/parts/${name//\//-}-$(hash_of_part "$command" "${inputs[@]}")
	if [[ ! -d $kept ]]; then
		local out=$scratch/${name//\//-}
		mkdir "$out"
		$command "$out"
		if [[ -z $(ls "$out") ]]; then
			return
		fi
		mkdir -p "$cache/parts"
		publish "$out" "$kept"
	fi
	mkdir -p "$(dirname "$link")"
	ln -sfn "$kept" "$link"
}

# The body of the function decides as much as the files do.
hash_of_part() {
	local command=$1 inputs=("${@:2}")
	{
		go version
		echo "$command"
		declare -f "${command%% *}"
		sources "${inputs[@]}" | xargs -0 --no-run-if-empty sha256sum
	} | hash
}

# publish moves a finished folder to its place in one step, so that a killed build leaves nothing that looks whole.
publish() {
	rm -rf "$2"
	mv "$1" "$2"
}

build_etcd() {
	local module=$1 version=$2 out=$3
	say "building etcd $version (about a minute, once)"
	# All three packages end in /v3, so each needs its own -o. The cgo setting is left alone: it shares the build cache with the tests.
	(
		cd "$module"
		go build -ldflags '-s -w' -o "$out/etcd" go.etcd.io/etcd/server/v3
		go build -ldflags '-s -w' -o "$out/etcdctl" go.etcd.io/etcd/etcdctl/v3
		go build -ldflags '-s -w' -o "$out/etcdutl" go.etcd.io/etcd/etcdutl/v3
	)
}

build_store() {
	local package=$1 out=$2
	local name=${package##*/}
	say "building $name (up to five minutes, once)"
	if ! (cd stores && go build -ldflags '-s -w' -o "$out/$name" "$package"); then
		rm -f "$out/$name"
		missing "$name did not build"
	fi
}

build_kubernetes() {
	local out=$1 p=k8s.io/component-base/version
	say "building Kubernetes (up to fifteen minutes, once)"
	# Unless it is told, a program says that it is v0.0.0-master.
	if ! (
		cd kubernetes || exit
		version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes) || exit
		IFS=. read -r major minor _ <<<"${version#v}"
		version="-X $p.gitVersion=$version -X $p.gitMajor=$major -X $p.gitMinor=$minor -X $p.gitTreeState=clean"
		CGO_ENABLED=0 go build -ldflags "-s -w $version -X $p.buildDate=1970-01-01T00:00:00Z" -o "$out/" \
			k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy,kubectl,kubeadm} ./dns
	); then
		rm -f "$out"/*
		missing "Kubernetes did not build"
	fi
}

# build_images makes the images of the test cluster: the sandbox of every pod, and etcd with its tools, the libraries they are linked with,
# and the stand-in for the scripts of bitnami's image.
build_images() {
	local out=$1 root=$scratch/root version
	say "building the images of the test cluster (a minute, once)"
	CGO_ENABLED=0 go build -ldflags '-s -w' -o "$scratch" ./pause ./bitnami
	CGO_ENABLED=0 go -C ../../deploy/image build -o "$scratch/image" .
	mkdir "$root"
	cp "$scratch/pause" "$root"
	"$scratch/image" -name etcd-dr.test/pause:1 -entrypoint /pause -root "linux/$(go env GOARCH)=$root" "$out/pause.tar"
	for version in 3.4 3.5 3.6 3.7; do
		rm -rf "$root"
		mkdir -p "$root/usr/local/bin"
		cp "$dir/etcd-$version"/etcd* "$root/usr/local/bin"
		copy_libraries "$root" "$root"/usr/local/bin/*
		cp "$scratch/bitnami" "$root/usr/local/bin/bitnami-stand-in"
		"$scratch/image" -name "etcd-dr.test/etcd:$version" -root "linux/$(go env GOARCH)=$root" "$out/etcd-$version.tar"
	done
}

# copy_libraries ROOT PROGRAM... copies the shared libraries of programs below ROOT.
copy_libraries() {
	local root=$1 library
	for library in $(ldd "${@:2}" 2>/dev/null | grep -o '/[^ ]*lib[^ ]*' | sort -u); do
		if [[ -f $library ]]; then
			cp --parents --dereference "$library" "$root"
		fi
	done
}

build_controller_gen() {
	local out=$1
	say "building controller-gen (a minute, once)"
	(cd controller-gen && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$out/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen)
}

build_helm() {
	local out=$1
	say "building helm (up to five minutes, once)"
	(cd helm && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$out/helm" helm.sh/helm/v4/cmd/helm)
}

# install_azurite brings its own Node: the one that a system has may be too old.
install_azurite() {
	local out=$1
	if [[ $(uname -sm) != "Linux x86_64" ]]; then
		missing "azurite comes with a Node for Linux on x86_64 alone"
		return
	fi
	if ! command -v npm >/dev/null; then
		return # install has said so
	fi
	say "installing azurite (a minute and 550 MB, once)"
	cp stores/azurite/package.json stores/azurite/package-lock.json stores/azurite/.npmrc "$out"
	# No script of any package runs. npm warns that the system's Node is too old; azurite does not run on that one.
	if ! (cd "$out" && npm ci --ignore-scripts --no-audit --no-fund >"$scratch/npm.log" 2>&1); then
		tail -n 20 "$scratch/npm.log" >&2
		rm -rf "${out:?}"/{*,.npmrc}
		missing "npm could not install azurite"
	fi
}

download_packages() {
	if apt-get download -q "$@" >download.log 2>&1; then
		return
	fi
	say "no package list yet, or an old one: apt-get update"
	apt-get update -q >download.log 2>&1 && apt-get download -q "$@" >download.log 2>&1
}

# unpack takes the programs out of Debian packages without installing them, so that no service starts: unpack OUT PACKAGE...
unpack() {
	local out=$1 packages=("${@:2}")
	if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
		missing "${packages[*]} come as Debian packages, and this system has no apt-get and dpkg"
		return
	fi
	say "unpacking ${packages[*]} from Debian"
	local from=$scratch/debian-${packages[0]} package
	mkdir "$from"
	if ! (cd "$from" && download_packages "${packages[@]}"); then
		cat "$from/download.log" >&2
		missing "apt-get could not download ${packages[*]}"
		return
	fi
	for package in "$from"/*.deb; do
		dpkg -x "$package" "$from/root"
	done
	mv "$from"/root/usr/bin/* "$out"
}

# unpack_etcd: etcd 3.4 does not build with a current Go; Debian still has it.
unpack_etcd() {
	local version=$1 out=$2
	unpack "$out" etcd-server etcd-client
	if [[ -x $out/etcd && $("$out/etcd" --version) != "etcd Version: $version."* ]]; then
		rm -f "$out"/*
		missing "this release of Debian has another etcd than $version: put etcd and etcdctl of $version into $dir/etcd-$version"
	fi
}

# unpack_promtool leaves out the server, which nothing here runs.
unpack_promtool() {
	local out=$1
	unpack "$out" prometheus
	rm -f "$out/prometheus"
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
	local log=$scratch/install-${command##*/}.log
	if ! apt-get install -q -y --no-install-recommends "${packages[@]}" >"$log" 2>&1; then
		apt-get update -q >"$log" 2>&1 || true
		if ! apt-get install -q -y --no-install-recommends "${packages[@]}" >"$log" 2>&1; then
			cat "$log" >&2
			missing "apt-get could not install ${packages[*]}"
		fi
	fi
}

# take_turns lets one run at a time work in the cache; the second one then finds everything built.
take_turns() {
	if ! command -v flock >/dev/null; then
		return
	fi
	exec 9>"$cache/lock"
	if ! flock -n 9; then
		say "another run is building; waiting for it"
		flock 9
	fi
	rm -rf "$cache"/scratch.* # of runs that were killed
}

command -v go >/dev/null || fail "go is missing from PATH"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/etcd-dr
dir=$cache/$(hash_of_inputs)
if [[ ${1:-} == --dir ]]; then
	printf '%s\n' "$dir"
	exit 0
fi

export DEBIAN_FRONTEND=noninteractive
mkdir -p "$dir"
take_turns
# In the cache, so that publishing is a rename within one file system.
scratch=$cache/scratch.$$
mkdir "$scratch"
trap 'rm -rf "$scratch"' EXIT

part etcd-3.5 "build_etcd etcd35 3.5" etcd35
part etcd-3.6 "build_etcd etcd36 3.6" etcd36
part etcd-3.7 "build_etcd etcd37 3.7" etcd37
part etcd-3.4 "unpack_etcd 3.4"
install npm npm
part stores/versitygw "build_store github.com/versity/versitygw/cmd/versitygw" stores/go.mod stores/go.sum
part stores/gcsd "build_store ./gcsd" stores/go.mod stores/go.sum stores/gcsd
part stores/azurite install_azurite stores/azurite
part stores/minio "build_store github.com/minio/minio" stores/go.mod stores/go.sum
part kubernetes build_kubernetes kubernetes
part images build_images pause bitnami ../../deploy/image
part controller-gen build_controller_gen controller-gen
part helm build_helm helm
part prometheus unpack_promtool
install age age
install minisign minisign
install zstd zstd
install jq jq
install gcc gcc libc6-dev # the race detector links with it
install pkill procps
install ip iproute2
install unshare util-linux
install systemd-analyze systemd # judges the units in deploy, and runs them in a container
install qemu-aarch64-static qemu-user-static # runs the release for arm64
install chromium chromium
# For the nodes of the test cluster.
install containerd containerd runc
install /usr/lib/cni/bridge containernetworking-plugins
install nft nftables
install mkfs.ext4 e2fsprogs # their volumes
say "ready in $dir"
