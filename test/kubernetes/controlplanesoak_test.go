package kubernetes

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// TestSoakControlPlane restores a control plane whose etcd has 200 MB. Apart from the engine, the grace period of the API server, and the start of
// etcd and the API server, the restore takes 2 s at most.
func TestSoakControlPlane(t *testing.T) {
	soak.Only(t, "measures durations on a quiet machine")
	const value, values, limit = 1 << 20, 200, 2.0
	c := newControlPlane(t)
	for i := range values {
		text := make([]byte, value)
		_, _ = rand.Read(text) // never fails
		put := c.Etcdctl("n1", "put", fmt.Sprintf("bulk-%03d", i))
		put.Stdin = strings.NewReader(string(text))
		must(t, put)
	}
	c.Kubectl(t, "", "create", "configmap", "before")
	parts := c.blocks(t, "Back up")
	c.do(t, "n1", parts[1]) // the DaemonSet of the agents is left out
	c.do(t, "n1", c.blocks(t, "Restore etcd")[1])
	c.Kubectl(t, "", "create", "configmap", "mistake")

	restore := strings.TrimSpace(c.blocks(t, "Restore etcd")[2])
	results := c.onAll(t, func(node string) string { return restore + " -o json 2>progress-" + node })
	c.wantConfigMaps(t, "before")
	for _, node := range allNodes {
		var restored document.Into
		command.Output{Stdout: results[node]}.Decode(t, &restored)
		took := map[string]float64{}
		for _, phase := range restored.Phases {
			took[phase.Stage] += phase.Seconds
		}
		t.Logf("%s: downtime %.1f s: %v", node, restored.Downtime, took)
		ours := 0.0
		for _, phase := range []string{"planning", "sealing", "placing"} {
			seconds, reported := took[phase]
			if !reported {
				t.Errorf("%s: the phase %s is not reported", node, phase)
			}
			ours += seconds
		}
		if ours > limit {
			t.Errorf("%s: %.1f s were needed apart from the engine and the start of the programs, want at most %.1f s", node, ours, limit)
		}
	}
}
