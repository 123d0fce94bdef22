#!/usr/bin/env bash
# Builds dr as it is released: static, and the same bytes wherever it is built with the same Go.
#
#   GOARCH=arm64 deploy/build.sh FILE VERSION
set -euo pipefail

mkdir -p "$(dirname "$1")"
file=$(realpath "$1") version=$2
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Google's client would link a second stack of gRPC, 13 MB, for a protocol that is not spoken here.
GOFLAGS='' CGO_ENABLED=0 GOOS=linux go build -trimpath -buildvcs=false -tags=disable_grpc_modules \
	-ldflags "-s -w -X main.release=$version" -o "$file" ./cmd/dr
