package controller

import (
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/util/workqueue"

	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/storage"
)

// TestMetricsOfTheControllerAreServed checks that /metrics contains those of controller-runtime next to the service's own.
func TestMetricsOfTheControllerAreServed(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](), workqueue.TypedRateLimitingQueueConfig[string]{Name: "etcdbackup"},
	)
	defer queue.ShutDown()
	op := newOperator(Options{}, func(storage.Event) {})
	r := httptest.NewRequest("GET", "http://127.0.0.1/metrics", nil)
	w := httptest.NewRecorder()
	server.Serve(op.server(), server.Access{}).ServeHTTP(w, r)
	for _, name := range []string{"etcd_dr_build_info{", "etcd_dr_config_refused 0", `workqueue_depth{controller="etcdbackup"`, "go_goroutines "} {
		if !strings.Contains(w.Body.String(), "\n"+name) {
			t.Errorf("/metrics lacks %s:\n%s", name, w.Body)
		}
	}
}
