package servers

import (
	"os"
	"os/exec"
	"strings"

	"github.com/etcd-dr/etcd-dr/test/process"
)

func startProcess(log, program string, args ...string) (*process.Process, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = environment()
	return process.Start(log, cmd)
}

// environment omits ETCD_*: etcd reads its settings from there, and the machine's are not the test's.
func environment() []string {
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "ETCD_") && !strings.HasPrefix(entry, "ETCDCTL_") {
			kept = append(kept, entry)
		}
	}
	return kept
}
