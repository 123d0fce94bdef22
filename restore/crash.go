package restore

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// guard turns a panic on this goroutine into an error. bbolt and etcd's packages panic on what they cannot read; what
// panics elsewhere ends the process, and Spawn finds the same words on its stderr.
func guard(stage string, do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a page beyond the file's end faults in the mapping
	defer func() {
		if words := recover(); words != nil {
			err = died(stage, fmt.Sprint(words))
		}
	}()
	return do()
}

// died makes an error of the last words of code that gave up. Only stages that read the database can blame it.
func died(stage, words string) error {
	words, _, _ = strings.Cut(strings.TrimSpace(words), "\n")
	switch {
	case strings.Contains(words, syscall.ENOSPC.Error()):
		return fmt.Errorf("at stage %s: %w", stage, syscall.ENOSPC)
	case stage == "check" || stage == "prove" || stage == "build" || stage == "boot":
		return fmt.Errorf("the database is %w, at stage %s: %s", repository.ErrDamaged, stage, words)
	}
	return fmt.Errorf("at stage %s: %w", stage, errors.New(words))
}

// lastWords is the logger for etcd's packages: it is silent, and where they would log and end the process it panics
// with what they were about to say, so that guard hears it.
func lastWords() *zap.Logger {
	return zap.NewNop().WithOptions(zap.WithFatalHook(panicHook{}), zap.WithPanicHook(panicHook{}))
}

type panicHook struct{}

func (panicHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	words := entry.Message
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok {
			words += ": " + err.Error()
		}
	}
	panic(words)
}
