package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// testDrill drills the backup of payments as a Job, with the identity in a Secret of that namespace. Then it flips one byte of the backup
// in the store: the next drill fails, and the status names the backup. Ended Jobs go by their TTL.
func (s *site) testDrill(t *testing.T) {
	t.Parallel()
	t.Cleanup(func() {
		if t.Failed() {
			s.logDrills(t)
		}
	})
	s.Kubectl(t, "", "-n", "payments", "create", "secret", "generic", "backups-identity", "--from-file=key.txt="+s.identity)
	s.Kubectl(t, "", "apply", "-f", "../../deploy/kubernetes/drills.yaml")
	s.patch(t, `{"spec": {"schedule": {"cron": "@yearly"}, "drill": {"schedule": {"cron": "@yearly"}, "identitySecret": {"name": "backups-identity"},
		"assert": ["key=order"], "memory": "256Mi", "scratch": "256Mi"}}}`)
	eventually(t, "the status shows the proof of a drill", func() bool {
		proof := s.Kubectl(t, "", "-n", "payments", "get", "edb", "etcd", "-o", "jsonpath={.status.last.proof}")
		return proof == string(catalog.Booted) && strings.HasPrefix(s.proven(t), "True")
	})
	backup := s.backups(t, "payments")[0]
	if len(backup.Proofs) != 1 || backup.Proofs[0].Verdict != catalog.Passed || !strings.HasPrefix(backup.Proofs[0].By, "etcd-drill-") {
		t.Errorf("the proofs are %+v, want one of the Job", backup.Proofs)
	}

	s.flip(t, "payments", backup.ID)
	s.patch(t, `{"spec": {"drill": {"schedule": {"cron": "* * * * *"}}}}`)
	eventually(t, "the status names the damage", func() bool {
		proven := s.proven(t)
		return strings.HasPrefix(proven, "False") && strings.Contains(proven, string(backup.ID))
	})
	s.patch(t, `{"spec": {"drill": {"schedule": {"cron": "@yearly"}}}}`)
	s.flip(t, "payments", backup.ID)

	ended := false
	eventually(t, "the ended Job goes", func() bool { // the last one: a drill may have been due before the patch
		name := s.jobs(t, "{.items[*].metadata.name}")
		if name != "" && s.jobs(t, "{.items[*].status.active}") == "" {
			_, err := s.Try("", "-n", "payments", "patch", "job", name, "--type=merge", "-p", `{"spec": {"ttlSecondsAfterFinished": 1}}`)
			ended = ended || err == nil
		}
		return ended && name == ""
	})
	s.patch(t, `{"spec": {"drill": null}}`)
}

// logDrills logs what has happened to the drills of payments, the Jobs' events first.
func (s *site) logDrills(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"-n", "payments", "get", "events", "--sort-by=.metadata.creationTimestamp"},
		{"-n", "etcd-dr", "get", "pods", "-o", "wide"},
		{"-n", "etcd-dr", "logs", "-l", "app.kubernetes.io/name=etcd-dr", "--prefix", "--tail=-1", "--since=20m"},
		{"-n", "payments", "get", "edb,jobs", "-o", "yaml"},
	} {
		out, err := s.Try("", args...)
		t.Logf("kubectl %s: %v", strings.Join(args, " "), err)
		for line := range strings.Lines(out) {
			if args[2] != "logs" || strings.Contains(line, "payments") {
				t.Log(strings.TrimSuffix(line, "\n"))
			}
		}
	}
}

// patch changes the EtcdBackup.
func (s *site) patch(t *testing.T, patch string, options ...string) {
	t.Helper()
	s.Kubectl(t, "", append([]string{"-n", "payments", "patch", "edb", "etcd", "--type=merge", "-p", patch}, options...)...)
}

// jobs returns a field of the Jobs of payments.
func (s *site) jobs(t *testing.T, field string) string {
	t.Helper()
	return s.Kubectl(t, "", "-n", "payments", "get", "jobs", "-l", "app.kubernetes.io/name=etcd-dr-drill", "-o", "jsonpath="+field)
}

// proven returns the condition Proven of payments.
func (s *site) proven(t *testing.T) string {
	t.Helper()
	const of = `.status.conditions[?(@.type=="Proven")]`
	return s.Kubectl(t, "", "-n", "payments", "get", "edb", "etcd", "-o", "jsonpath={"+of+".status} {"+of+".message}")
}

// flip flips one bit of the body of a backup in the store.
func (s *site) flip(t *testing.T, bucket string, id catalog.ID) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.store.Folder(bucket), "*", "*", "backups", string(id), catalog.SnapshotName+"*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files of backup %s are %q (%v), want one", id, files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	err = os.WriteFile(files[0], content, 0)
	if err != nil {
		t.Fatal(err)
	}
}
