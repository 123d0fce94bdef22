#!/usr/bin/env bash
# Writes the container image NAME:VERSION as an archive of an OCI layout, for all architectures or the given ones. It needs neither
# docker nor a registry. The same commit and the same Go give the same bytes.
#
#   deploy/image.sh FILE NAME VERSION [ARCHITECTURE...]
#
# Nothing is in the image but dr, the certificates that public stores are verified against, and a /tmp for drills. Zones are
# in the binary. It runs as user 65532, which must be able to read the configuration and its secrets.
set -euo pipefail

mkdir -p "$(dirname "$1")"
file=$(realpath "$1") name=$2 version=$3 architectures=("${@:4}")
if [[ ${#architectures[@]} == 0 ]]; then
	architectures=(amd64 arm64)
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

roots=()
for arch in "${architectures[@]}"; do
	root=$scratch/$arch
	GOARCH=$arch deploy/build.sh "$root/usr/local/bin/dr" "$version"
	mkdir -p "$root/etc/ssl/certs"
	cp --dereference /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
	mkdir -m 1777 "$root/tmp"
	roots+=(-root "linux/$arch=$root")
done
GOFLAGS='' go -C deploy/image build -o "$scratch/image" .
"$scratch/image" -name "$name:$version" -user 65532:65532 -entrypoint /usr/local/bin/dr -cmd serve -cmd --config -cmd /etc/etcd-dr/dr.yaml \
	-label org.opencontainers.image.title=etcd-dr -label "org.opencontainers.image.description=Backups of etcd that restore" \
	-label org.opencontainers.image.source=https://github.com/etcd-dr/etcd-dr -label org.opencontainers.image.licenses=Apache-2.0 \
	-label "org.opencontainers.image.version=$version" "${roots[@]}" "$file"
