package servers

import (
	"os/exec"

	"github.com/etcd-dr/etcd-dr/test/process"
)

func startProcess(log, program string, args ...string) (*process.Process, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = environment()
	return process.Start(log, cmd)
}

// environment gives each server one processor: many run at the same time, and Go's scheduler would wake threads for nothing.
func environment() []string {
	return append(process.Environment("ETCD_", "ETCDCTL_"), "GOMAXPROCS=1")
}
