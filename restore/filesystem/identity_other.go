//go:build unix && !linux

package filesystem

import (
	"os"
	"syscall"
)

// IdentityOf returns the identity of the directory at path.
func IdentityOf(path string) (Identity, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Inode: info.Sys().(*syscall.Stat_t).Ino}, nil
}
