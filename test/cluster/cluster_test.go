package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/cluster"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// TestSoakCluster checks on one cluster what other tests do with theirs: they fail too if it does not work.
func TestSoakCluster(t *testing.T) {
	soak.Only(t, "other tests need the same of their clusters")
	s := suite{cluster.Start(t)}
	t.Run("SecondCluster", s.testSecondCluster)
	t.Run("Components", s.testComponents)
	s.startEtcd(t)
	t.Run("Volumes", s.testVolumes)
	t.Run("FullVolume", s.testFullVolume)
	t.Run("Nodes", s.testNodes)
}

type suite struct{ *cluster.Cluster }

// testSecondCluster runs a second cluster. It does not see the volumes of the first, and leaves them and the nodes as they are.
func (s suite) testSecondCluster(t *testing.T) {
	folder := s.claim(t)
	file := filepath.Join(folder, "file")
	err := os.WriteFile(file, []byte("content"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Start", func(t *testing.T) {
		files, err := os.ReadDir(suite{cluster.Start(t)}.claim(t))
		if err != nil || len(files) != 0 {
			t.Errorf("the new volume of the second cluster contains %v (%v)", files, err)
		}
	})
	content, err := os.ReadFile(file)
	if err != nil || string(content) != "content" {
		t.Errorf("after the end of the second cluster, the file of the first contains %q (%v)", content, err)
	}
	_, err = os.Stat(filepath.Join("/tmp/hostpath_pv", filepath.Base(folder)))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the volume is in the machine's folder: %v", err)
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		s.WaitNode(t, node, "True")
	}
}

// claim creates a claim of the default StorageClass, and returns the folder of its volume.
func (s suite) claim(t *testing.T) (folder string) {
	t.Helper()
	s.Kubectl(t, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data},
		spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}`, "apply", "-f", "-")
	s.Eventually(t, "Bound", "get", "pvc", "data", "-o", "jsonpath={.status.phase}")
	return s.Volume(t, "default", "data")
}

// testComponents stops the controllers and the scheduler. Only the controllers create the pod of a Deployment, and only the scheduler
// places it.
func (s suite) testComponents(t *testing.T) {
	s.StopComponent(t, "kube-controller-manager")
	s.StopComponent(t, "kube-scheduler")
	s.Kubectl(t, "", "create", "deployment", "waiting", "--image=etcd-dr.test/pause:1")
	pods := []string{"get", "pods", "-l", "app=waiting", "-o"}
	name := s.Kubectl(t, "", append(pods, "name")...)
	if name != "" {
		t.Errorf("without controllers there is %s", name)
	}
	s.StartComponent(t, "kube-controller-manager")
	s.Eventually(t, "Pending", append(pods, "jsonpath={.items[*].status.phase}")...)
	node := s.Kubectl(t, "", append(pods, "jsonpath={.items[*].spec.nodeName}")...)
	if node != "" {
		t.Errorf("without a scheduler the pod is on %s", node)
	}
	s.StartComponent(t, "kube-scheduler")
	s.Eventually(t, "Running", append(pods, "jsonpath={.items[*].status.phase}")...)
}

const size = 256 << 20 // of a volume, in bytes

// startEtcd runs an etcd of three members on local volumes, as user 1001.
func (s suite) startEtcd(t *testing.T) {
	t.Helper()
	s.LocalVolumes(t, "disk", size, 1)
	manifest, err := os.ReadFile("../kubernetes/testdata/etcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("NAMESPACE", "default", "VERSION", "3.7",
		"      containers:", "      securityContext: {runAsUser: 1001, runAsGroup: 1001, fsGroup: 1001}\n      containers:",
		"accessModes:", "storageClassName: local\n        accessModes:",
		"storage: 1Gi", "storage: 200Mi").Replace(string(manifest))
	s.Kubectl(t, text, "apply", "-f", "-")
	s.Kubectl(t, "", "rollout", "status", "statefulset/etcd", "--timeout=10m")
}

// testVolumes finds the files of each member in the volume of its node.
func (s suite) testVolumes(t *testing.T) {
	var on []string
	for i := range 3 {
		pod := fmt.Sprint("etcd-", i)
		node, volume := s.node(t, pod), s.Kubectl(t, "", "get", "pvc", "data-"+pod, "-o", "jsonpath={.spec.volumeName}")
		if volume != "disk-"+node+"-0" {
			t.Errorf("%s on %s uses %s", pod, node, volume)
		}
		s.wantDataDir(t, pod)
		on = append(on, node)
	}
	slices.Sort(on)
	if !slices.Equal(on, []string{"n1", "n2", "n3"}) {
		t.Errorf("the members are on %q", on)
	}
}

// wantDataDir checks that the volume of a member contains a data dir of user 1001.
func (s suite) wantDataDir(t *testing.T, pod string) {
	t.Helper()
	info, err := os.Stat(filepath.Join(s.Volume(t, "default", "data-"+pod), "data", "member"))
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if owner.Uid != 1001 || owner.Gid != 1001 {
		t.Errorf("the data dir of %s belongs to %d:%d", pod, owner.Uid, owner.Gid)
	}
}

// testFullVolume writes more to a volume than it has room for.
func (s suite) testFullVolume(t *testing.T) {
	file := filepath.Join(s.Volume(t, "default", "data-etcd-0"), "file")
	err := os.WriteFile(file, make([]byte, size), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a file of the volume's size: %v", err)
	}
	err = os.Remove(file)
	if err != nil {
		t.Error(err)
	}
}

// testNodes stops the node of a member, and cuts off that of another. When both are back, all members serve again.
func (s suite) testNodes(t *testing.T) {
	stopped, cutOff := s.node(t, "etcd-0"), s.node(t, "etcd-1")
	s.StopNode(t, stopped)
	s.Partition(t, cutOff)
	s.WaitNode(t, stopped, "Unknown")
	s.WaitNode(t, cutOff, "Unknown")
	s.StartNode(t, stopped)
	s.Heal(t, cutOff)
	s.WaitNode(t, stopped, "True")
	s.WaitNode(t, cutOff, "True")
	for i := range 3 {
		s.Eventually(t, "OK", "exec", fmt.Sprint("etcd-", i), "--", "etcdctl", "put", "key", "value")
	}
}

func (s suite) node(t *testing.T, pod string) string {
	t.Helper()
	return s.Kubectl(t, "", "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
}
