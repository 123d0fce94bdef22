package restore

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// guard turns a panic on this goroutine into an error. bbolt and etcd's packages panic on what they cannot read; what
// panics elsewhere ends the process, and Spawn finds the same words on its stderr.
func guard(stage string, do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a page beyond the file's end faults in the mapping
	defer func() {
		if words := recover(); words != nil {
			err = Blame(stage, fmt.Sprint(words))
		}
	}()
	return do()
}

// Blame makes an error of the last words of code that gave up at stage. A machine that ran short of something says
// nothing about the backup; else stages that read the database blame that, and the error matches repository.ErrDamaged.
func Blame(stage, words string) error {
	words, _, _ = strings.Cut(strings.TrimSpace(words), "\n")
	if lack := lacking(words); lack != nil {
		return fmt.Errorf("at stage %s: %w", stage, lack)
	}
	switch stage {
	case "check", "prove", "replay", "build", "boot":
		return fmt.Errorf("the database is %w, at stage %s: %s", catalog.ErrDamaged, stage, words)
	}
	return fmt.Errorf("at stage %s: %w", stage, errors.New(words))
}

// lacking recognises what a machine ran short of by its words: they come out of panics and logs.
func lacking(words string) error {
	for _, lack := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if strings.Contains(words, lack.Error()) {
			return lack
		}
	}
	if strings.Contains(words, "out of memory") { // as Go's runtime says it
		return syscall.ENOMEM
	}
	return nil
}
