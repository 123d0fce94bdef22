package replay

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LastWords returns a logger for etcd's packages. It writes nothing. For a message with which they would end the process or
// panic, it panics with that message and its errors.
func LastWords() *zap.Logger {
	return zap.NewNop().WithOptions(zap.WithFatalHook(panicHook{}), zap.WithPanicHook(panicHook{}))
}

type panicHook struct{}

func (panicHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	words := entry.Message
	for _, f := range fields {
		err, ok := f.Interface.(error)
		if ok {
			words += ": " + err.Error()
		}
	}
	panic(words)
}
