package deploy

import (
	"regexp"
	"slices"
	"testing"
)

// metricName matches metrics in queries, listedMetric those in docs/metrics.md, which another test compares with the
// served ones.
var (
	metricName   = regexp.MustCompile(`\betcd_dr_[a-z0-9_]+`)
	listedMetric = regexp.MustCompile("(?m)^\\| `(etcd_dr_[a-z0-9_]+)`")
)

// served returns the metrics of dr serve and dr archive.
func served(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range listedMetric.FindAllStringSubmatch(readFile(t, "../../docs/metrics.md"), -1) {
		names = append(names, m[1])
	}
	return names
}

// wantMetrics fails the test unless text names metrics, and only served ones. A misspelt metric is no error for
// Prometheus: the alert on it never fires.
func wantMetrics(t *testing.T, where, text string) {
	t.Helper()
	names := metricName.FindAllString(text, -1)
	if len(names) == 0 {
		t.Errorf("%s names no metric", where)
	}
	for _, name := range names {
		if !slices.Contains(served(t), name) {
			t.Errorf("%s: nothing serves %s", where, name)
		}
	}
}
