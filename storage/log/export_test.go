package log

import "testing"

// FillFolds makes the process count maxFolds more cached folds, until the test ends.
func FillFolds(t *testing.T) {
	foldsKept.Add(maxFolds)
	t.Cleanup(func() { foldsKept.Add(-maxFolds) })
}
