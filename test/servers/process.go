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

func environment() []string { return process.Environment("ETCD_", "ETCDCTL_") }
