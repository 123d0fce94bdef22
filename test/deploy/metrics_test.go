package deploy

import (
	"regexp"
	"slices"
	"testing"
)

// metricName is one as queries have it, listedMetric as docs/metrics.md does, which is held against what is served.
var (
	metricName   = regexp.MustCompile(`\betcd_dr_[a-z0-9_]+`)
	listedMetric = regexp.MustCompile("(?m)^\\| `(etcd_dr_[a-z0-9_]+)`")
)

// served are the metrics of dr serve and dr archive.
func served(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range listedMetric.FindAllStringSubmatch(readFile(t, "../../docs/metrics.md"), -1) {
		names = append(names, m[1])
	}
	return names
}

// wantMetrics fails the test unless text names metrics, and only such as are served. A misspelt one is no error to
// Prometheus: the alert on it is silent for ever.
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
