package log

import "testing"

// FillFolds makes the process remember as many folded indexes as it may.
func FillFolds(t *testing.T) {
	foldsKept.Add(maxFolds)
	t.Cleanup(func() { foldsKept.Add(-maxFolds) })
}
