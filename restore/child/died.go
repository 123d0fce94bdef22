package child

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Died returns the error that a child's death indicates, according to Blame. It returns err itself if err is not a
// *DiedError, or if the child was killed.
func Died(err error) error {
	dead, ok := errors.AsType[*DiedError](err)
	if !ok || dead.Killed {
		return err
	}
	return Blame(dead.Stage, dead.Words)
}

// Blame returns the error for a panic or a fatal error at stage with the message words. If words name a resource that ran
// out, the error matches its syscall.Errno. Any other error at a stage that reads the database matches catalog.ErrDamaged.
func Blame(stage, words string) error {
	words, _, _ = strings.Cut(strings.TrimSpace(words), "\n")
	lack := resourceError(words)
	if lack != nil {
		return fmt.Errorf("at stage %s: %w", stage, lack)
	}
	switch stage {
	case "check", "prove", "replay", "build", "boot":
		return fmt.Errorf("the database is %w, at stage %s: %s", catalog.ErrDamaged, stage, words)
	}
	return fmt.Errorf("at stage %s: %w", stage, errors.New(words))
}

// resourceError returns the syscall.Errno of the resource that ran out, according to words; nil if they name none.
func resourceError(words string) error {
	for _, lack := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if strings.Contains(words, lack.Error()) {
			return lack
		}
	}
	if strings.Contains(words, "out of memory") { // the words of Go's runtime
		return syscall.ENOMEM
	}
	return nil
}
