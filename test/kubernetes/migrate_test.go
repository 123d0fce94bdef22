package kubernetes

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/operators"
)

// coreosCluster is the EtcdCluster of the walk-through.
const coreosCluster = "example-etcd-cluster"

// TestWalkThrough compares the commands of docs/migrate.md, which testCoreos runs, with the walk-through of coreos' operator, which they must be
// word for word.
func TestWalkThrough(t *testing.T) {
	want := filled(t, "testdata/walkthrough.sh")
	got := strings.Join(blocksOf(filled(t, "../../docs/migrate.md"), "With coreos' manifests"), "")
	if got != want {
		t.Errorf("docs/migrate.md has:\n%s\nwant:\n%s", got, want)
	}
}

// testCoreos follows the walk-through of coreos' backup and restore operators in docs/migrate.md, word for word, and both ways back. A stand-in
// for coreos' operator has created the EtcdCluster, and runs all the time, as one in another namespace would. The members end in a StatefulSet.
func (s *site) testCoreos(t *testing.T) {
	t.Parallel()
	const namespace = "default"
	s.TagImage(t, "etcd-dr.test/etcd:3.6", "etcd-dr.test/etcd:v3.6.1") // the tags of coreos' images begin with a v
	s.startCoreos(t, namespace, coreosCluster)
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
	s.bash(t, dir, "kubectl get crd\n"+order)
	s.wantCoreosBackup(t)

	late := s.put(t, namespace, "late", "after the backup")
	all := s.keysAt(t, namespace, 0)
	off := strings.ReplaceAll(page, "example", coreosCluster)
	back := blocksOf(off, "Off coreos' operator")
	s.goBack(t, dir, "kubectl create -f example/etcd-restore-operator"+restore, back[0])
	s.wantKeys(t, namespace, all)
	_, again, _ := strings.Cut(restore, "kubectl get pods\n")
	s.bash(t, dir, again)
	s.waitCoreosRestore(t, coreosCluster)
	s.wantAdopted(t, namespace, journal, address)
	saved := s.wantSaved(t, late)

	s.bash(t, dir, strings.ReplaceAll(back[1], coreosCluster+"-before-12345678", saved))
	s.Kubectl(t, "", "wait", "etcdrestores.legacy.etcd-dr.io/"+coreosCluster+"-back", "--for=condition=Complete", "--timeout", patience.String())
	s.wantAdopted(t, namespace, all, address)
	s.bash(t, dir, strings.TrimSpace(back[2])+" --cascade=foreground")
	s.wantAdopted(t, namespace, all, address)
	s.Kubectl(t, "", "delete", "statefulset", coreosCluster)

	s.testCoreosLost(t, dir)
	s.bash(t, dir, "kubectl delete -f example/etcd-backup-operator/deployment.yaml -f example/etcd-restore-operator/deployment.yaml")
}

// startCoreos starts a cluster of coreos' operator, which runs until the test ends. etcdctl asks its members.
func (s *site) startCoreos(t *testing.T, namespace, name string) {
	t.Helper()
	s.endpoints.set(namespace, "http://"+name+"-client."+namespace+".svc.cluster.local:2379")
	s.operate(t, namespace, name, operators.Coreos)
	s.waitPhase(t, namespace, name, "Running")
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Ready", "--timeout", patience.String(), "pods", "-l", "etcd_cluster="+name)
}

// waitPhase waits until coreos' operator has set the phase of an EtcdCluster.
func (s *site) waitPhase(t *testing.T, namespace, name, phase string) {
	t.Helper()
	s.Eventually(t, phase, "-n", namespace, "get", "etcdclusters.etcd.database.coreos.com", name, "-o", "jsonpath={.status.phase}")
}

// goBack orders a restore, and goes back once the new data is complete. The old members run on: a pod of coreos' operator in this namespace
// keeps the restore from stopping them.
func (s *site) goBack(t *testing.T, dir, order, back string) {
	t.Helper()
	const old = "etcd_cluster=" + coreosCluster
	before := s.uids(t, "default", "pods", "-l", old)
	s.bash(t, dir, order)
	s.Eventually(t, "1", "get", "etcdrestores.legacy.etcd-dr.io", "-o", "go-template={{len .items}}")
	s.Kubectl(t, "", "run", "theirs", "--image=etcd-dr.test/pause:1", "--labels=name=etcd-operator")
	s.Kubectl(t, "", "wait", "etcdrestores.legacy.etcd-dr.io", "--all", "--for=condition=Staged", "--timeout", patience.String())
	s.Eventually(t, "pod theirs of coreos' operator runs, and would start the old members again: delete its Deployment",
		"get", "etcdrestores.etcd.database.coreos.com", coreosCluster, "-o", "jsonpath={.status.reason}")
	s.bash(t, dir, back)
	s.Kubectl(t, "", "delete", "pod", "theirs", "--force")
	after := s.uids(t, "default", "pods", "-l", old)
	if !maps.Equal(before, after) {
		t.Errorf("after the way back the members are %v, before %v", after, before)
	}
}

// testCoreosLost restores an EtcdCluster whose pods are all gone, and with them their data. Coreos' operator has given up.
func (s *site) testCoreosLost(t *testing.T, dir string) {
	t.Helper()
	const namespace, name = "default", "lost"
	s.startCoreos(t, namespace, name)
	journal := s.journal(t, namespace, "only", 5)
	values := []string{
		coreosCluster, name, "<full-s3-path>", "mybucket/lost.backup", "<aws-secret>", "aws",
		"<etcd-cluster-endpoints>", "http://lost-client:2379",
	}
	s.Kubectl(t, filled(t, filepath.Join(dir, "example/etcd-backup-operator/backup_cr.yaml"), values...), "create", "-f", "-")
	s.waitCoreosBackup(t, name)
	s.Kubectl(t, "", "delete", "pods", "-l", "etcd_cluster="+name, "--timeout", patience.String())
	s.waitPhase(t, namespace, name, "Failed")

	s.Kubectl(t, filled(t, filepath.Join(dir, "example/etcd-restore-operator/restore_cr.yaml"), values...), "create", "-f", "-")
	s.waitCoreosRestore(t, name)
	s.wantServed(t, namespace, journal)
	s.Kubectl(t, "", "delete", "etcdclusters.etcd.database.coreos.com", name, "--cascade=foreground")
	s.wantServed(t, namespace, journal)
	s.Kubectl(t, "", "delete", "statefulset", name)
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

// waitCoreosBackup waits until the EtcdBackup of theirs for a cluster has succeeded.
func (s *site) waitCoreosBackup(t *testing.T, cluster string) {
	t.Helper()
	s.Kubectl(t, "", "wait", "etcdbackups.etcd.database.coreos.com/"+cluster+"-backup", "--for=jsonpath={.status.succeeded}=true", "--timeout", patience.String())
}

// waitCoreosRestore waits until the EtcdRestore of theirs for a cluster has succeeded.
func (s *site) waitCoreosRestore(t *testing.T, cluster string) {
	t.Helper()
	s.Kubectl(t, "", "wait", "etcdrestores.etcd.database.coreos.com/"+cluster, "--for=jsonpath={.status.succeeded}=true", "--timeout", patience.String())
}

// wantCoreosBackup waits until their EtcdBackup has succeeded, and checks that its status is theirs.
func (s *site) wantCoreosBackup(t *testing.T) {
	t.Helper()
	s.waitCoreosBackup(t, coreosCluster)
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

// wantSaved checks that the old members were backed up before they were stopped, at a revision. It returns the name of the EtcdBackup.
func (s *site) wantSaved(t *testing.T, revision int64) (name string) {
	t.Helper()
	var all v1alpha1.EtcdBackupList
	err := json.Unmarshal([]byte(s.Kubectl(t, "", "get", "etcdbackups.legacy.etcd-dr.io", "-o", "json")), &all)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all.Items, func(b v1alpha1.EtcdBackup) bool { return b.Spec.Labels["before"] != "" })
	if i < 0 {
		t.Fatal("the old members were not backed up")
	}
	status := all.Items[i].Status
	if status.Phase != v1alpha1.PhaseCompleted || status.Last == nil || status.Last.Revision != revision {
		t.Errorf("the backup of the old members is %+v, want revision %d", status, revision)
	}
	return all.Items[i].Name
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
