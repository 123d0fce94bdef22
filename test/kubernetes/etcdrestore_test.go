package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// testRightToRestore makes a dry run before and after the operator gets the right to carry out restores.
func (s *site) testRightToRestore(t *testing.T) {
	s.Kubectl(t, restoreOf("payments", "rehearsal", "target: {latest: {}}\n  dryRun: true"), "apply", "-f", "-")
	s.waitMessage(t, "payments", "rehearsal", "the operator has no right to carry out restores in namespace payments")
	s.Kubectl(t, "", "apply", "-f", "../../deploy/kubernetes/restores.yaml")
	s.wantPhase(t, "payments", "rehearsal", handoff.Planned)
	s.Kubectl(t, restoreOf("payments", "too-late", "target: {revision: 123456789}\n  confirm: etcd"), "apply", "-f", "-")
	s.wantPhase(t, "payments", "too-late", handoff.Refused)
}

// testRestore loses the data of all members, and restores a revision in the same StatefulSet, on the same claims. While the data is
// exchanged, another program starts the members again and again: none answers with old data, nor without any. The same EtcdRestore, applied
// again, changes nothing.
func (s *site) testRestore(t *testing.T) {
	t.Parallel()
	const namespace = "market"
	s.startEtcd(t, namespace, "3.6")
	w := s.startWorkload(t, namespace)
	s.apply(t, namespace, "schedule: {cron: '* * * * *'}\n  archive: {flush: 1s}")
	target := s.waitArchived(t, namespace, w)
	claims := s.claims(t, namespace)

	s.loseData(t, namespace)
	text := restoreOf(namespace, "all-lost", fmt.Sprintf("target: {revision: %d}\n  confirm: etcd\n  bumpRevision: '1000000000'", target.revision))
	s.Kubectl(t, text, "create", "-f", "-")
	p := s.watchRestore(t, namespace, "all-lost", func(phase handoff.Phase) {
		if phase == handoff.Placing {
			s.scaleUp(t, namespace, 4) // after five times the restore goes back
		}
	})
	end := s.probe(t, namespace)
	s.wantSucceeded(t, namespace, "all-lost")
	outcome := p.wait(t, handoff.Succeeded).Outcome
	wantOnlyRestored(t, end(), p.wait(t, handoff.Placing).at, outcome.ClusterID)

	s.wantSameClaims(t, namespace, claims)
	last := w.wantState(t, s.keysAt(t, namespace, outcome.Revision))
	if last.revision != target.revision {
		t.Errorf("revision %d is restored, want %d", last.revision, target.revision)
	}
	w.wantContinued(t)
	s.wantNoBackup(t, namespace, p)
	s.wantNotRepeated(t, namespace, "all-lost", text)
	s.leave(t, namespace)
}

// leave deletes a namespace, so that its etcd needs no cores of the other tests.
func (s *site) leave(t *testing.T, namespace string) {
	t.Helper()
	s.Kubectl(t, "", "delete", "namespace", namespace, "--wait=false")
}

// waitArchived waits until the archived log contains some seconds of writes. It returns one of the last.
func (s *site) waitArchived(t *testing.T, namespace string, w *workload) write {
	t.Helper()
	s.waitBased(t, namespace, func() {})
	w.waitFor(t, 40)
	one := w.last()
	w.waitFor(t, 10)
	s.waitLogged(t, namespace, one.revision, w.last().revision)
	return one
}

// waitBased waits until the archived log continues a backup, while it writes again and again: without a segment the log has no beginning. The
// first backup alone may be older than the log.
func (s *site) waitBased(t *testing.T, namespace string, write func()) {
	t.Helper()
	s.wantProtected(t, namespace)
	s.waitWindow(t, namespace, func(document.Window) bool { return true }, write)
}

// waitLogged waits until the archived log begins before one revision and reaches another one.
func (s *site) waitLogged(t *testing.T, namespace string, before, to int64) {
	t.Helper()
	s.waitWindow(t, namespace, func(w document.Window) bool { return w.From.Revision < before && to <= w.To.Revision }, func() {})
}

// waitWindow waits until a namespace's cluster has one recovery window, of a kind. Before each look it calls write.
func (s *site) waitWindow(t *testing.T, namespace string, is func(document.Window) bool, write func()) {
	t.Helper()
	var found document.List
	defer func() {
		if t.Failed() {
			s.showArchive(t, namespace, found)
		}
	}()
	eventually(t, "the log contains all that", func() bool {
		write()
		found = dr[document.List](t, s, "list", "--repo", s.urls.of(namespace), "--cluster", namespace+".etcd")
		return len(found.Windows) == 1 && is(found.Windows[0])
	})
}

// showArchive logs the backups, windows and gaps that were found, and the status and the operators' log of a namespace's EtcdBackup.
func (s *site) showArchive(t *testing.T, namespace string, found document.List) {
	t.Helper()
	t.Logf("backups: %+v\nwindows: %+v\ngaps: %+v", found.Backups, found.Windows, found.Gaps)
	status, _ := s.Try("", "-n", namespace, "get", "edb", "etcd", "-o", "jsonpath={.status}")
	log, _ := s.Try("", "-n", "etcd-dr", "logs", "-l", "app.kubernetes.io/name=etcd-dr", "--prefix", "--tail=-1", "--since=15m")
	lines := slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool { return !strings.Contains(line, namespace) })
	t.Logf("status: %s\noperators:\n%s", status, strings.Join(lines[max(0, len(lines)-50):], "\n"))
}

// scaleUp scales the StatefulSet up a number of times, one a second, as a program would that finds it stopped.
func (s *site) scaleUp(t *testing.T, namespace string, times int) {
	for range times {
		_, err := s.Try("", "-n", namespace, "scale", "statefulset/etcd", "--replicas=3")
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	}
}

// wantNoBackup fails the test if a backup was begun while the members were stopped or verified, which takes half a minute at least. It waits
// for the one after that.
func (s *site) wantNoBackup(t *testing.T, namespace string, p *progress) {
	t.Helper()
	from, to := p.wait(t, handoff.Sealing).at, p.wait(t, handoff.Releasing).Since.Add(30*time.Second)
	for _, b := range s.backups(t, namespace) {
		if b.Started.After(from) && b.Started.Before(to) {
			t.Errorf("backup %s was begun at %s, while the restore was at work from %s to %s", b.ID, b.Started, from, to)
		}
	}
	eventually(t, "a backup of the restored cluster is taken", func() bool { return s.backups(t, namespace)[0].Started.After(to) })
}

// wantNotRepeated deletes an EtcdRestore and applies it again, as a program would that keeps manifests applied. It is refused.
func (s *site) wantNotRepeated(t *testing.T, namespace, name, text string) {
	t.Helper()
	before := s.members(t, namespace)
	s.Kubectl(t, "", "-n", namespace, "delete", "edr", name, "--timeout", patience.String())
	s.Kubectl(t, text, "apply", "-f", "-")
	s.wantRefused(t, namespace, name, "was restored by "+name)
	s.wantUntouched(t, namespace, before)
}

// restoreOf returns an EtcdRestore of the EtcdBackup etcd into the StatefulSet etcd, with more fields of its spec.
func restoreOf(namespace, name, fields string) string {
	return fmt.Sprintf(`
apiVersion: etcd-dr.io/v1alpha1
kind: EtcdRestore
metadata: {name: %s, namespace: %s}
spec:
  from: {etcdBackup: {name: etcd}}
  into: {statefulSet: {name: etcd}}
  timeLimit: 1h # on cores that other tests use too
  %s
`, name, namespace, strings.TrimSpace(fields))
}

// fromRepository returns an EtcdRestore that names the cluster of a namespace and its repository, and no EtcdBackup.
func (s *site) fromRepository(namespace, order string) string {
	return strings.Replace(order, "{etcdBackup: {name: etcd}}",
		fmt.Sprintf("{cluster: %s.etcd, repository: {name: main, url: %q, credentialsSecret: {name: backups-s3}}}", namespace, s.urls.of(namespace)), 1)
}
