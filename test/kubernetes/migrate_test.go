package kubernetes

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/command"
)

// coreosCluster is the EtcdCluster of the walk-through.
const coreosCluster = "example-etcd-cluster"

// testCoreos follows the walk-through of coreos' backup and restore operators in docs/migrate.md, word for word. Of their etcd-operator there is
// only a stand-in: an EtcdCluster, and the pods and Services that it would have made for it. Its members end in a StatefulSet.
func (s *site) testCoreos(t *testing.T) {
	t.Parallel()
	const namespace = "default"
	s.endpoints.set(namespace, "http://"+coreosCluster+"-client."+namespace+".svc.cluster.local:2379")
	s.startCoreos(t, namespace)
	journal := s.journal(t, namespace, "early", 5)
	address := s.Kubectl(t, "", "get", "service", coreosCluster+"-client", "-o", "jsonpath={.spec.clusterIP}")

	page := filled(t, "../../docs/migrate.md")
	dir := s.coreosExamples(t)
	backup, restore, found := strings.Cut(strings.Join(blocksOf(page, "With coreos' manifests"), ""), "kubectl create -f example/etcd-restore-operator")
	if !found {
		t.Fatal("the walk-through has no restore operator")
	}
	operator, order, _ := strings.Cut(backup, "kubectl get crd\n")
	s.bash(t, dir, operator)
	s.Kubectl(t, "", "rollout", "status", "deployment/etcd-backup-operator", "--timeout", patience.String())
	s.bash(t, dir, "kubectl get crd etcdbackups.etcd.database.coreos.com\n"+order)
	s.wantCoreosBackup(t)

	late := s.put(t, namespace, "late", "after the backup")
	s.bash(t, dir, "kubectl create -f example/etcd-restore-operator"+restore)
	s.Kubectl(t, "", "wait", "etcdrestores.etcd.database.coreos.com/"+coreosCluster, "--for=jsonpath={.status.succeeded}=true", "--timeout", patience.String())
	s.wantAdopted(t, namespace, journal, address)
	s.wantSaved(t, late)
	remove := strings.Join(blocksOf(page, "Off coreos' operator"), "")
	s.bash(t, dir, strings.ReplaceAll(remove, " example\n", " "+coreosCluster+" --cascade=foreground\n"))
	s.wantAdopted(t, namespace, journal, address)

	s.Kubectl(t, "", "delete", "statefulset", coreosCluster)
	s.bash(t, dir, "kubectl delete -f example/etcd-backup-operator/deployment.yaml -f example/etcd-restore-operator/deployment.yaml")
}

// startCoreos starts the cluster in the form of coreos' operator.
func (s *site) startCoreos(t *testing.T, namespace string) {
	t.Helper()
	s.TagImage(t, "etcd-dr.test/etcd:3.6", "etcd-dr.test/etcd:v3.6.1") // the tags of coreos' images begin with a v
	s.Kubectl(t, "", "apply", "-f", "testdata/coreos.yaml")
	s.Kubectl(t, "", "wait", "--for=condition=Established", "--timeout", patience.String(), "-f", "testdata/coreos.yaml")
	values := []string{"CLUSTER", coreosCluster, "NAMESPACE", namespace, "VERSION", "3.6.1"}
	s.Kubectl(t, filled(t, "testdata/coreos-cluster.yaml", values...), "-n", namespace, "apply", "-f", "-")
	uid := s.Kubectl(t, "", "-n", namespace, "get", "etcdclusters.etcd.database.coreos.com", coreosCluster, "-o", "jsonpath={.metadata.uid}")
	s.Kubectl(t, filled(t, "testdata/coreos-members.yaml", append(values, "UID", uid)...), "-n", namespace, "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Ready", "--timeout", patience.String(), "pods", "-l", "etcd_cluster="+coreosCluster)
}

// coreosExamples returns a copy of deploy/coreos with the image and the store of this site, and the files of AWS_DIR.
func (s *site) coreosExamples(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, exec.Command("cp", "-r", "../../deploy/coreos/example", dir))
	s.store.Bucket(t, "mybucket")
	endpoint := "awsSecret: <aws-secret>\n    forcePathStyle: true\n    endpoint: " + s.store.Endpoint
	for _, file := range []string{
		"etcd-backup-operator/deployment.yaml", "etcd-backup-operator/backup_cr.yaml", "etcd-restore-operator/deployment.yaml", "etcd-restore-operator/restore_cr.yaml",
	} {
		path := filepath.Join(dir, "example", file)
		text := filled(t, path, "image: etcd-dr\n", "image: "+s.image+"\n", "--job-image=etcd-dr ", "--job-image="+s.image+" ", "awsSecret: <aws-secret>", endpoint)
		writeFile(t, path, text)
	}
	writeFile(t, filepath.Join(dir, "credentials"), "[default]\naws_access_key_id = "+s.store.AccessKey+"\naws_secret_access_key = "+s.store.SecretKey+"\n")
	writeFile(t, filepath.Join(dir, "config"), "[default]\nregion = us-east-1\n")
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

// wantCoreosBackup waits until their EtcdBackup has succeeded, and checks that its status is theirs.
func (s *site) wantCoreosBackup(t *testing.T) {
	t.Helper()
	s.Kubectl(t, "", "wait", "etcdbackups.etcd.database.coreos.com/"+coreosCluster+"-backup", "--for=jsonpath={.status.succeeded}=true", "--timeout", patience.String())
	var list struct {
		Items []struct{ Status map[string]any }
	}
	err := json.Unmarshal([]byte(s.Kubectl(t, "", "get", "etcdbackups.etcd.database.coreos.com", "-o", "json")), &list)
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d EtcdBackups, %v", len(list.Items), err)
	}
	status := list.Items[0].Status
	for _, field := range []string{"succeeded", "etcdRevision", "etcdVersion", "lastSuccessDate"} {
		if status[field] == nil {
			t.Errorf("the status has no %s: %v", field, status)
		}
	}
	if len(status) != 4 {
		t.Errorf("the status has other fields: %v", status)
	}
}

// wantAdopted checks that three members of the StatefulSet, and no others, serve the keys behind the Service at its old address.
func (s *site) wantAdopted(t *testing.T, namespace string, journal map[string]string, address string) {
	t.Helper()
	s.wantKeys(t, namespace, journal)
	names := s.Kubectl(t, "", "get", "pods", "-l", "etcd_cluster="+coreosCluster, "-o", `jsonpath={range .items[*]}{.metadata.name} {end}`)
	want := coreosCluster + "-0 " + coreosCluster + "-1 " + coreosCluster + "-2 "
	if names != want {
		t.Errorf("the members are %s, want %s", names, want)
	}
	ready := s.Kubectl(t, "", "get", "statefulset", coreosCluster, "-o", "jsonpath={.status.readyReplicas}/{.spec.replicas}")
	hidden := s.Kubectl(t, "", "get", "service", coreosCluster, "-o", "jsonpath={.spec.publishNotReadyAddresses}")
	if hidden != "true" {
		t.Errorf("members that are not ready do not find each other: %q", hidden)
	}
	got := s.Kubectl(t, "", "get", "service", coreosCluster+"-client", "-o", "jsonpath={.spec.clusterIP}")
	if ready != "3/3" || got != address {
		t.Errorf("%s members are ready, at %s, want 3/3 at %s", ready, got, address)
	}
}

// wantSaved checks that the old members were backed up before they were stopped, at a revision.
func (s *site) wantSaved(t *testing.T, revision int64) {
	t.Helper()
	saved := s.Kubectl(t, "", "get", "etcdbackups.legacy.etcd-dr.io", "-o", `jsonpath={.items[?(@.spec.labels.before)].status}`)
	var status struct {
		Phase string
		Last  struct{ Revision int64 }
	}
	err := json.Unmarshal([]byte(saved), &status)
	if err != nil || status.Phase != "Completed" || status.Last.Revision != revision {
		t.Errorf("the backup of the old members is %s, %v, want revision %d", saved, err, revision)
	}
}

// bash runs commands in a directory, which AWS_DIR names too.
func (s *site) bash(t *testing.T, dir, commands string) {
	t.Helper()
	cmd := s.Command([]string{"AWS_DIR=" + dir}, withDR(commands)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, commands, out)
	}
}

// withDR returns a command that runs a script in which dr is the binary under test.
func withDR(script string) []string {
	return []string{"bash", "-euo", "pipefail", "-c", `dr() { ` + command.Path() + ` "$@"; }` + "\n" + script}
}
