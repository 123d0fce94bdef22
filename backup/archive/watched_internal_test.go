package archive

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/embedded"
)

// TestEndpointsOfAnotherCluster checks that a watch does not report a missing leader if the endpoints lead to another cluster than before.
func TestEndpointsOfAnotherCluster(t *testing.T) {
	etcd := embedded.Start(t, nil)
	c := cluster.Config{Endpoints: []string{etcd.URL}, DialTimeout: 5 * time.Second, CommandTimeout: 5 * time.Second}
	w := &watched{config: c}
	err := w.choose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	w.cluster.ID = 0xc0ffee
	err = w.choose(t.Context())
	if !errors.Is(err, fault.Unreachable) || errors.Is(err, cluster.ErrCutOff) || !strings.Contains(err.Error(), "c0ffee") {
		t.Errorf("error %v", err)
	}
}
