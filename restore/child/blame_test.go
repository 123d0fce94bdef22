package child_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// A lack of resources is not reported as a damaged backup, and neither is a failure at a stage that does not read the
// database.
func TestBlame(t *testing.T) {
	for _, test := range []struct {
		stage, words string
		damaged      bool
		is           error
	}{
		{"check", "page 7: invalid type: unknown<00>", true, nil},
		{"prove", "index out of range [3] with length 2\ngoroutine 1 [running]:", true, nil},
		{"boot", "failed to recover store from backend", true, nil},
		{"fetch", "nil pointer", false, nil},
		{"build", "failed to commit tx: write db: no space left on device", false, syscall.ENOSPC},
		{"check", "mmap: cannot allocate memory", false, syscall.ENOMEM},
		{"prove", "runtime: out of memory: cannot allocate 4194304-byte block", false, syscall.ENOMEM},
	} {
		err := child.Blame(test.stage, test.words)
		if errors.Is(err, catalog.ErrDamaged) != test.damaged || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: %q gives %v", test.stage, test.words, err)
		}
		if !strings.Contains(err.Error(), "stage "+test.stage) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q gives %q", test.stage, test.words, err)
		}
	}
}
