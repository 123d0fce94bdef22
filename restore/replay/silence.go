package replay

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// LastWords is the logger for etcd's packages: it is silent, and where they would log and end the process it panics with
// what they were about to say.
func LastWords() *zap.Logger {
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
