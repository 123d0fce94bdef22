package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrintOwner checks that a restore by root prints how etcd's user gets the files, and that no other restore does.
func TestPrintOwner(t *testing.T) {
	var stdout strings.Builder
	a := &app{world: world{stdout: &stdout}}
	dir := t.TempDir()
	root := os.Getuid() == 0
	a.printOwner([]string{"", dir, filepath.Join(dir, "missing")})
	printed := strings.Contains(stdout.String(), "chown -R USER:GROUP "+dir+"\n")
	if printed != root {
		t.Errorf("as root %v it prints %q", root, stdout.String())
	}
	if !root {
		return
	}
	err := os.Chown(dir, 1234, 2345)
	if err != nil {
		t.Fatal(err)
	}
	stdout.Reset()
	a.printOwner([]string{dir})
	if stdout.Len() > 0 {
		t.Errorf("of another user's directory it prints %q", stdout.String())
	}
}
