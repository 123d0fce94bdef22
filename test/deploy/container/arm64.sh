#!/usr/bin/env bash
# Runs a program for arm64, and the programs that it starts itself, under qemu:
#
#   arm64.sh PROGRAM [ARGUMENT...]
#
# The emulator is registered in a user namespace of the program's own, so the machine does not learn of it
# (binfmt_misc in Documentation/admin-guide of Linux; a namespace has its own since Linux 6.7).
set -euo pipefail

magic='\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
rule=":arm64:M::$magic:$mask:$(type -P qemu-aarch64-static):F"

exec unshare --user --map-root-user --mount bash -euo pipefail -c '
	mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
	printf %s "$0" >/proc/sys/fs/binfmt_misc/register
	exec "$@"
' "$rule" "$@"
