package apiserver

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/tools"
)

// controllers are those that create, own and delete objects of a namespace.
var controllers = []string{
	"namespace-controller", "garbage-collector-controller", "deployment-controller", "replicaset-controller", "statefulset-controller",
	"job-controller", "cronjob-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller",
	"endpoints-controller", "endpointslice-controller", "persistentvolumeclaim-protection-controller",
}

// StartControllers starts a kube-controller-manager on the API server. It ends with the test. There is neither a
// scheduler nor a kubelet: pods stay pending.
func (s *APIServer) StartControllers(t testing.TB) {
	t.Helper()
	log := filepath.Join(s.dir, "controllers.log")
	running, err := process.Start(log, exec.Command(tools.Path(t, "kubernetes", "kube-controller-manager"),
		"--kubeconfig", s.Kubeconfig, "--leader-elect=false", "--secure-port", "0",
		"--controllers", strings.Join(controllers, ","),
		"--root-ca-file", s.certificates.CA, "--service-account-private-key-file", s.certificates.ServerKey,
		"--kube-api-qps", "500", "--kube-api-burst", "1000",
	))
	if err != nil {
		t.Fatalf("start kube-controller-manager: %v", err)
	}
	t.Cleanup(func() {
		_ = running.End(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("kube-controller-manager logged:\n%s", process.Excerpt(log))
		}
	})
}
