package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
)

// testDiskLost restores a cluster whose store stops answering: the restore waits, and the members serve meanwhile. When the members are
// stopped, the restore is killed, and a member loses its disk. On the way back the others serve the old data. The member without a disk is
// not started: without its data it could elect a leader that lacks acknowledged writes. The next restore builds its data again.
func (s *site) testDiskLost(t *testing.T) {
	const namespace = "sluice"
	s.startEtcd(t, namespace, "3.6")
	w := s.startWorkload(t, namespace)
	s.backUp(t, namespace)
	id := dr[document.IntoPlan](t, s, s.intoArgs(namespace, "--dry-run")...).ID

	s.Kubectl(t, "", append([]string{"cordon"}, allNodes...)...) // so that no Job starts before the store hangs
	r := s.beginRestore(t, namespace)
	r.wait(t, "building the new data")
	s.store.Freeze(t)
	s.Kubectl(t, "", append([]string{"uncordon"}, allNodes...)...)
	eventually(t, "a Job asks the store", func() bool {
		logs, err := s.Try("", "-n", namespace, "logs", "-l", "etcd-dr.io/restore")
		return err == nil && strings.Contains(logs, "fetching the snapshot")
	})
	w.waitFor(t, 50)
	if r.said("stopping all members") {
		t.Error("the Jobs did not wait for the store")
	}
	s.store.Thaw(t)
	s.killRestore(t, namespace, r, "moving the new data into its place")
	s.Kubectl(t, "", "-n", namespace, "delete", "pvc", "data-etcd-2", "--wait=false")

	undone := dr[document.Into](t, s, "restore", "--into", "statefulset/etcd", "-n", namespace, "--undo", id)
	if undone.State != document.IntoUndone || !strings.Contains(undone.Why, "etcd-2") {
		t.Errorf("the result is %+v", undone)
	}
	w.wantContinued(t)
	dr[document.Into](t, s, undone.Clean[1:]...)
	s.wantBlocked(t, namespace, "etcd-2")

	restored := dr[document.Into](t, s, s.intoArgs(namespace, "--confirm", "etcd")...)
	if restored.State != document.IntoRestored {
		t.Errorf("the result is %+v", restored)
	}
	w.wantContinued(t)
	s.wantOneHash(t, namespace)
	s.leave(t, namespace)
}

// killRestore kills the dr that restores a namespace's etcd once it has printed a text.
func (s *site) killRestore(t *testing.T, namespace string, r *restoring, text string) {
	t.Helper()
	for begin := time.Now(); !r.said(text); time.Sleep(20 * time.Millisecond) { // the next phase begins some seconds later
		if time.Since(begin) > patience {
			t.Fatalf("waited for: %s", text)
		}
	}
	out, err := s.Command(nil, "pkill", "-KILL", "-f", "restore --into statefulset/etcd -n "+namespace).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	<-r.ended
}

// wantBlocked fails the test unless a file is in the place of a member's data dir.
func (s *site) wantBlocked(t *testing.T, namespace, pod string) {
	t.Helper()
	info, err := os.Stat(filepath.Join(s.Volume(t, namespace, "data-"+pod), "data"))
	if err != nil || !info.Mode().IsRegular() {
		t.Errorf("the data dir of %s: %v, %v; want a file", pod, info, err)
	}
}
