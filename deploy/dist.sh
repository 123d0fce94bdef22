#!/usr/bin/env bash
# Puts a release into a directory: an archive for each architecture, and their checksums. The same commit and the same Go give
# the same bytes.
#
#   deploy/dist.sh DIR VERSION [ARCHITECTURE...]
set -euo pipefail

mkdir -p "$1"
dir=$(realpath "$1") version=$2 architectures=("${@:3}")
if [[ ${#architectures[@]} == 0 ]]; then
	architectures=(amd64 arm64)
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The commit's, so that it is not the clock's.
modified=@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

# Completions are the same for all, and come from the binary that runs here.
mkdir "$scratch/completions"
here=$scratch/$(go env GOHOSTARCH)
GOARCH=$(go env GOHOSTARCH) deploy/build.sh "$here" "$version"
for shell in bash zsh fish; do
	"$here" completion "$shell" >"$scratch/completions/dr.$shell"
done

archives=()
for arch in "${architectures[@]}"; do
	name=etcd-dr-$version-linux-$arch
	mkdir "$scratch/$name"
	if [[ ! -e $scratch/$arch ]]; then
		GOARCH=$arch deploy/build.sh "$scratch/$arch" "$version"
	fi
	mv "$scratch/$arch" "$scratch/$name/dr"
	cp -r README.md LICENSE CHANGELOG.md docs deploy "$scratch/completions" "$scratch/$name"
	tar --create --directory "$scratch" --sort=name --mtime="$modified" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
		--format=posix --pax-option=delete=atime,delete=ctime,exthdr.name=%d/PaxHeaders/%f "$name" | gzip -9 -n >"$dir/$name.tar.gz"
	archives+=("$name.tar.gz")
done
cd "$dir"
sha256sum "${archives[@]}" >SHA256SUMS
