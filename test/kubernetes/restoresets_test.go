package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// testRestoreOrdered restores a time between two backups into a StatefulSet of OrderedReady. It has lost its quorum and the volume of a
// member, no pod is ready, Kubernetes would delete its claims with its pods, and its Service hides pods that are not ready. Its members are
// stopped within a minute.
func (s *site) testRestoreOrdered(t *testing.T) {
	t.Parallel()
	const namespace = "granary"
	s.startOrdered(t, namespace)
	w := s.startWorkload(t, namespace)
	s.apply(t, namespace, "schedule: {cron: '@yearly'}\n  archive: {flush: 1s}")
	target := s.waitArchived(t, namespace, w)
	s.wantOneBackup(t, namespace, "later")
	s.loseQuorum(t, namespace)
	claims := s.claims(t, namespace)

	at := target.at.UTC().Format(time.RFC3339Nano)
	s.Kubectl(t, restoreOf(namespace, "quorum-lost", fmt.Sprintf("target: {time: %q}\n  confirm: etcd\n  bumpRevision: '1000000'", at)), "apply", "-f", "-")
	p := s.watchRestore(t, namespace, "quorum-lost", nil)
	s.wantSucceeded(t, namespace, "quorum-lost")
	stopping := p.wait(t, handoff.Sealing).at.Sub(p.wait(t, handoff.Fencing).at)
	if stopping > time.Minute { // about 10 s, and 20 s more if another test has killed the operator meanwhile
		t.Errorf("the members were stopped within %s", stopping)
	}
	last := w.wantState(t, s.keysAt(t, namespace, p.wait(t, handoff.Succeeded).Outcome.Revision))
	if last.value > target.value {
		t.Errorf("the write %d at %s is restored, which is after %s", last.value, last.at, at)
	}
	t.Logf("the last restored write is %s before the target", target.at.Sub(last.at))
	w.wantContinued(t)
	claims["data-etcd-1"] = s.claims(t, namespace)["data-etcd-1"] // a new one
	s.wantSameClaims(t, namespace, claims)
	s.Eventually(t, "Delete Delete", "-n", namespace, "get", "statefulset", "etcd", "-o", "jsonpath={.spec.persistentVolumeClaimRetentionPolicy.*}")
	s.Eventually(t, "", "-n", namespace, "get", "service", "etcd", "-o", "jsonpath={.spec.publishNotReadyAddresses}")
	s.leave(t, namespace)
}

// startOrdered runs an etcd in a StatefulSet of OrderedReady. Its members would wait for one another at their first start, so another
// StatefulSet starts them.
func (s *site) startOrdered(t *testing.T, namespace string) {
	t.Helper()
	s.startEtcd(t, namespace, "3.5")
	s.Kubectl(t, "", "-n", namespace, "delete", "statefulset", "etcd", "--cascade=orphan")
	s.applyEtcd(t, namespace, "3.5",
		"podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady\n  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete}",
		"publishNotReadyAddresses: true", "publishNotReadyAddresses: false")
}

// loseQuorum damages the database of etcd-0 and deletes the volume of etcd-1, and waits until no pod is ready. The StatefulSet starts etcd-0
// again, which ends at once, and waits for it before it creates anything for etcd-1.
func (s *site) loseQuorum(t *testing.T, namespace string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(s.Volume(t, namespace, "data-etcd-0"), "data", "member", "snap", "db"), []byte("no database"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s.Kubectl(t, "", "-n", namespace, "delete", "persistentvolumeclaim", "data-etcd-1", "--wait=false")
	s.Kubectl(t, "", "-n", namespace, "delete", "pods", "etcd-0", "etcd-1", "--grace-period=0", "--force")
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=delete", "persistentvolumeclaim/data-etcd-1", "--timeout", patience.String())
	eventually(t, "no pod is ready", func() bool {
		ready := s.Kubectl(t, "", "-n", namespace, "get", "pods", "-l", "app=etcd", "-o", "jsonpath={.items[*].status.containerStatuses[*].ready}")
		return !strings.Contains(ready, "true")
	})
}

// testRestoreSecured restores an etcd of user 1001 that requires certificates and a login. Its data is in a folder of its volumes, and its
// log on volumes of its own. Its backups are in MinIO. A full volume refuses a restore. With room it succeeds. In the soak, an earlier restore
// has a wrong password: it cannot check the members, waits, and goes back when it is ordered to.
func (s *site) testRestoreSecured(t *testing.T) {
	t.Parallel()
	const namespace = "safe"
	s.LocalVolumes(t, namespace, 512<<20, 2)
	s.startSecured(t, namespace, "3.6",
		"- {name: data, mountPath: /var/lib/etcd}", "- {name: data, mountPath: /var/lib/etcd, subPath: etcd}\n            - {name: tls, mountPath: /tls}",
		"- --data-dir=/var/lib/etcd/data", "- --data-dir=/var/lib/etcd/data\n            - --wal-dir=/wal/log",
		"          volumeMounts:", "          volumeMounts:\n            - {name: log, mountPath: /wal}",
		"    spec:\n      terminationGracePeriodSeconds: 5", "    spec:\n      terminationGracePeriodSeconds: 5\n      securityContext: {runAsUser: 1001, runAsGroup: 1001, fsGroup: 1001}",
		"  volumeClaimTemplates:", "  volumeClaimTemplates:\n    - metadata: {name: log}\n      spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 500Mi}}}",
		"        accessModes: [ReadWriteOnce]\n", "        accessModes: [ReadWriteOnce]\n        storageClassName: local\n", "storage: 1Gi", "storage: 500Mi")
	url := s.minio.Bucket(t, namespace)
	s.urls.set(namespace, url)
	s.credentials(t, namespace)
	s.Kubectl(t, secured(object(namespace, url, "schedule: {cron: '@yearly'}")), "apply", "-f", "-")
	s.wantProtected(t, namespace)
	restored := s.journal(t, namespace, "early", 5)
	s.wantOneBackup(t, namespace, "after-early")
	revision := s.put(t, namespace, "late", "after the backup")
	if soak.On() {
		s.restoreWithWrongPassword(t, namespace, revision)
	}
	s.wantFullDiskRefused(t, namespace)
	s.Kubectl(t, restoreOf(namespace, "right", "target: {latest: {}}\n  confirm: etcd"), "apply", "-f", "-")
	s.wantRestored(t, namespace, "right", restored)
	for _, folder := range []string{filepath.Join(s.Volume(t, namespace, "data-etcd-0"), "etcd", "data", "member"), filepath.Join(s.Volume(t, namespace, "log-etcd-0"), "log")} {
		wantOwner(t, folder)
	}
	s.Kubectl(t, "", "delete", "namespace", namespace, "--timeout", patience.String()) // before its volumes
}

// restoreWithWrongPassword restores with a password that the restored members refuse, and goes back to a revision.
func (s *site) restoreWithWrongPassword(t *testing.T, namespace string, revision int64) {
	t.Helper()
	old, hash := s.clusterID(t, namespace), s.hashKV(t, namespace, revision)
	s.userSecret(t, namespace, "wrong-user", "wrong horse")
	const wrong = "target: {latest: {}}\n  confirm: etcd\n  access: {tlsSecret: {name: etcd-client}, authSecret: {name: wrong-user}}"
	s.Kubectl(t, restoreOf(namespace, "wrong", wrong), "apply", "-f", "-")
	s.waitMessage(t, namespace, "wrong", "the restored data has the users and the passwords of its time")
	s.Kubectl(t, "", "-n", namespace, "patch", "edr", "wrong", "--type=merge", "-p", `{"spec": {"rollback": true}}`)
	s.wantPhase(t, namespace, "wrong", handoff.Failed)
	s.Kubectl(t, "", "-n", namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
	s.wantCluster(t, namespace, old, revision, hash)
}

// wantFullDiskRefused orders a restore while the volume of a member has no room for it. The members serve on.
func (s *site) wantFullDiskRefused(t *testing.T, namespace string) {
	t.Helper()
	before := s.members(t, namespace)
	full := filepath.Join(s.Volume(t, namespace, "data-etcd-1"), "full")
	fill(t, full)
	s.wantRestoreRefused(t, namespace, "full", "target: {latest: {}}", "MiB free, the restore needs")
	s.wantUntouched(t, namespace, before)
	err := os.Remove(full)
	if err != nil {
		t.Fatal(err)
	}
}

// fill creates a file that leaves 8 MiB of its disk free, which etcd may need.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var disk unix.Statfs_t
	err = unix.Fstatfs(int(f.Fd()), &disk)
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, int64(disk.Bavail)*disk.Bsize-8<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantOwner fails the test if a folder does not belong to user 1001.
func wantOwner(t *testing.T, folder string) {
	t.Helper()
	info, err := os.Stat(folder)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if owner.Uid != 1001 || owner.Gid != 1001 {
		t.Errorf("%s belongs to %d:%d", folder, owner.Uid, owner.Gid)
	}
}
