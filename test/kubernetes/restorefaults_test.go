package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// testRestoreKilled restores a cluster of which one member has lost its data. It kills the leader of the operators at each phase, and a
// Job's pod in each phase that has some. The restore goes through each phase at most once, and all members are in its one cluster.
func (s *site) testRestoreKilled(t *testing.T) {
	t.Parallel()
	const namespace = "bank"
	s.startEtcd(t, namespace, "3.7")
	w := s.startWorkload(t, namespace)
	s.apply(t, namespace, "schedule: {cron: '@yearly'}")
	s.wantProtected(t, namespace)
	w.waitFor(t, 10)
	s.loseMember(t, namespace, "etcd-2")

	s.Kubectl(t, restoreOf(namespace, "killed", "target: {latest: {}}\n  confirm: etcd"), "apply", "-f", "-")
	p := s.watchRestore(t, namespace, "killed", func(phase handoff.Phase) {
		s.killLeader(t)
		task := map[handoff.Phase]string{handoff.Staging: "-stage-", handoff.Sealing: "-seal-", handoff.Placing: "-place-"}[phase]
		if task != "" {
			s.killJob(t, namespace, task)
		}
	})
	s.wantSucceeded(t, namespace, "killed")
	outcome := p.wait(t, handoff.Succeeded).Outcome
	p.wantForward(t)
	w.wantState(t, s.keysAt(t, namespace, outcome.Revision))
	id := fmt.Sprintf("%x", s.clusterID(t, namespace))
	if id != outcome.ClusterID {
		t.Errorf("the members are in cluster %s, want %s", id, outcome.ClusterID)
	}
	s.leave(t, namespace)
}

// loseMember removes the data dir of a member and starts the member again. Its etcd ends, because the others know it, and leaves a part of a
// data dir. The kubelet starts it again and again.
func (s *site) loseMember(t *testing.T, namespace, pod string) {
	t.Helper()
	lose(t, filepath.Join(s.Volume(t, namespace, "data-"+pod), "data"))
	s.Kubectl(t, "", "-n", namespace, "delete", "pod", pod, "--grace-period=0", "--force")
	eventually(t, pod+" has ended twice", func() bool {
		restarts, err := s.Try("", "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
		return err == nil && restarts != "" && restarts != "0" && restarts != "1"
	})
}

// killLeader kills the operator that carries out restores, unless none does at the moment.
func (s *site) killLeader(t *testing.T) {
	leader, err := s.Try("", "-n", "etcd-dr", "get", "lease", "etcd-dr", "-o", "jsonpath={.spec.holderIdentity}")
	pod := leader[:max(0, strings.LastIndex(leader, "-"))]
	if err == nil && pod != "" {
		_, err = s.Try("", "-n", "etcd-dr", "delete", "pod", pod, "--grace-period=0", "--force", "--wait=false", "--ignore-not-found")
	}
	if err != nil {
		t.Error(err)
	}
}

// killJob kills a pod of a task's Jobs that is not done, as soon as there is one.
func (s *site) killJob(t *testing.T, namespace, task string) {
	for begin := time.Now(); time.Since(begin) < patience; {
		pods, _ := s.Try("", "-n", namespace, "get", "pods", "--field-selector", "status.phase!=Succeeded", "-o", "name")
		all := strings.Fields(pods)
		i := slices.IndexFunc(all, func(pod string) bool { return strings.Contains(pod, task) })
		if i < 0 {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		_, err := s.Try("", "-n", namespace, "delete", all[i], "--grace-period=0", "--force", "--wait=false")
		if err == nil {
			t.Log("killed " + all[i])
			return
		}
	}
	t.Errorf("no pod with %s in its name was killed", task)
}

// wantForward fails the test if a phase came again after another one.
func (p *progress) wantForward(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var phases []handoff.Phase
	for _, o := range p.all {
		phases = append(phases, o.Phase)
	}
	phases = slices.Compact(phases)
	if len(slices.Compact(slices.Sorted(slices.Values(phases)))) != len(phases) {
		t.Errorf("the phases are %q", phases)
	}
}

// testRestoreRefused orders restores that cannot be carried out. Each is refused with its reason, and the members run all the time.
func (s *site) testRestoreRefused(t *testing.T) {
	t.Parallel()
	const namespace = "books"
	s.startEtcd(t, namespace, "3.6")
	w := s.startWorkload(t, namespace)
	s.applyEncrypted(t, namespace, "schedule: {cron: '@yearly'}\n  archive: {flush: 1s}")
	revision := s.waitArchived(t, namespace, w).revision
	backup := s.backups(t, namespace)[0].ID
	before := s.members(t, namespace)

	s.wantRestoreRefused(t, namespace, "wrong-key", "target: {latest: {}}\n  identitySecret: {name: wrong}", "none of the given keys opens it")
	s.flip(t, namespace, backup)
	s.wantRestoreRefused(t, namespace, "damaged", fmt.Sprintf("target: {backup: %s}\n  identitySecret: {name: identity}", backup), "damaged")
	s.flip(t, namespace, backup)
	withoutFile(t, s.segmentOf(t, namespace, revision), func() {
		s.wantRestoreRefused(t, namespace, "gap", fmt.Sprintf("target: {revision: %d}\n  identitySecret: {name: identity}", revision),
			fmt.Sprintf("no backup is at revision %d, and no part of the log", revision))
	})
	s.wantUntouched(t, namespace, before)
	s.wantQuotaNamed(t, namespace)
	s.wantUntouched(t, namespace, before)
	w.wantContinued(t)
	s.leave(t, namespace)
}

// applyEncrypted is apply with backups that the site's identity opens. It creates the Secrets identity and wrong, with another one.
func (s *site) applyEncrypted(t *testing.T, namespace, fields string) {
	t.Helper()
	wrong := filepath.Join(t.TempDir(), "wrong.txt")
	command.Must(t, nil, "keygen", "--to", wrong)
	for name, file := range map[string]string{"identity": s.identity, "wrong": wrong} {
		s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", name, "--from-file=key.txt="+file)
	}
	url := s.store.Bucket(t, namespace)
	s.urls.set(namespace, url)
	s.credentials(t, namespace)
	text := strings.Replace(object(namespace, url, fields), "unencrypted: true", "recipients: ["+s.recipient+"]", 1)
	s.Kubectl(t, text, "apply", "-f", "-")
}

// wantRestoreRefused orders a restore that is refused for a reason.
func (s *site) wantRestoreRefused(t *testing.T, namespace, name, fields, reason string) {
	t.Helper()
	s.Kubectl(t, restoreOf(namespace, name, fields+"\n  confirm: etcd"), "apply", "-f", "-")
	s.wantRefused(t, namespace, name, reason)
}

// segmentOf returns the file of the archived segment that contains a revision.
func (s *site) segmentOf(t *testing.T, bucket string, revision int64) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.store.Folder(bucket), "*", "*", segments))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		h := headerOf(t, file)
		if int64(h.First) <= revision && revision <= int64(h.Last) {
			return file
		}
	}
	t.Fatalf("none of %d segments contains revision %d", len(files), revision)
	return ""
}

// headerOf returns the header of a segment's file.
func headerOf(t *testing.T, file string) segment.Header {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, _, err := segment.ReadHeader(f)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// withoutFile calls do while a file has another name.
func withoutFile(t *testing.T, file string, do func()) {
	t.Helper()
	hidden := filepath.Join(t.TempDir(), "hidden")
	err := os.Rename(file, hidden)
	if err != nil {
		t.Fatal(err)
	}
	do()
	err = os.Rename(hidden, file)
	if err != nil {
		t.Fatal(err)
	}
}

// wantQuotaNamed orders a restore whose Jobs' pods a quota refuses, and ends it once the status names the quota. The restore would be
// refused 15 minutes later: with ETCD_DR_SOAK it waits for that.
func (s *site) wantQuotaNamed(t *testing.T, namespace string) {
	t.Helper()
	s.Kubectl(t, "", "-n", namespace, "create", "quota", "full", "--hard=pods=3")
	s.Kubectl(t, restoreOf(namespace, "full", "target: {latest: {}}\n  identitySecret: {name: identity}\n  confirm: etcd"), "apply", "-f", "-")
	s.waitMessage(t, namespace, "full", "exceeded quota: full")
	reason := "exceeded quota: full"
	if !soak.On() {
		reason = "ordered to go back"
		s.Kubectl(t, "", "-n", namespace, "patch", "edr", "full", "--type=merge", "-p", `{"spec": {"rollback": true}}`)
	}
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Failed", "--timeout=20m", "edr/full")
	s.wantRefused(t, namespace, "full", reason)
	s.Kubectl(t, "", "-n", namespace, "delete", "quota", "full")
}

// testRestoreBack orders restores of one StatefulSet. One is deleted before it has stopped the members: nothing is left of it. Another one
// waits for the first, which is deleted while its data is put in place: the members serve the old data again. Then the second restores them.
func (s *site) testRestoreBack(t *testing.T) {
	t.Parallel()
	const namespace = "desk"
	s.startEtcd(t, namespace, "3.6")
	s.apply(t, namespace, "schedule: {cron: '@yearly'}")
	restored := s.journal(t, namespace, "early", 5)
	s.wantProtected(t, namespace)
	s.wantOneBackup(t, namespace, "after-early")
	revision := s.put(t, namespace, "late", "after the backup")
	old, hash := s.clusterID(t, namespace), s.hashKV(t, namespace, revision)
	s.wantNoTraceOfADeletedRestore(t, namespace)

	s.suspended(t, namespace, "first")
	s.Kubectl(t, restoreOf(namespace, "second", "target: {latest: {}}\n  confirm: etcd\n  suspend: true"), "apply", "-f", "-")
	s.waitMessage(t, namespace, "second", "has claimed StatefulSet desk/etcd")
	s.watchRestore(t, namespace, "first", s.deletingWhile(t, handoff.Placing, "-n", namespace, "edr/first"))
	s.goAhead(t, namespace, "first")
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=delete", "--timeout", patience.String(), "edr/first")
	s.wantCluster(t, namespace, old, revision, hash)

	s.waitMessage(t, namespace, "second", "no member is stopped until spec.suspend is removed")
	s.goAhead(t, namespace, "second")
	s.wantRestored(t, namespace, "second", restored)
	s.wantCopy(t, namespace, "branch", restored)
	s.wantNamespaceGone(t, namespace)
	s.leave(t, "branch")
}

// suspended orders a restore, and waits until its new data is built and it may stop the members.
func (s *site) suspended(t *testing.T, namespace, name string) {
	t.Helper()
	s.Kubectl(t, restoreOf(namespace, name, "target: {latest: {}}\n  confirm: etcd\n  suspend: true"), "apply", "-f", "-")
	s.waitMessage(t, namespace, name, "no member is stopped until spec.suspend is removed")
}

// goAhead ends the suspension of an EtcdRestore.
func (s *site) goAhead(t *testing.T, namespace, name string) {
	t.Helper()
	s.Kubectl(t, "", "-n", namespace, "patch", "edr", name, "--type=merge", "-p", `{"spec": {"suspend": null}}`)
}

// deletingWhile returns a function that deletes an object when a restore is in a phase.
func (s *site) deletingWhile(t *testing.T, during handoff.Phase, object ...string) func(handoff.Phase) {
	return func(phase handoff.Phase) {
		if phase != during {
			return
		}
		_, err := s.Try("", append([]string{"delete", "--wait=false"}, object...)...)
		if err != nil {
			t.Error(err)
		}
	}
}

// wantNoTraceOfADeletedRestore deletes an EtcdRestore whose new data is built. The members run on, and nothing is left on their disks.
func (s *site) wantNoTraceOfADeletedRestore(t *testing.T, namespace string) {
	t.Helper()
	pods := s.members(t, namespace)
	s.suspended(t, namespace, "dropped")
	s.Kubectl(t, "", "-n", namespace, "delete", "edr", "dropped", "--timeout", patience.String())
	for claim := range s.claims(t, namespace) {
		files, err := os.ReadDir(s.Volume(t, namespace, claim))
		if err != nil || len(files) != 1 {
			t.Errorf("%s contains %q: %v", claim, files, err)
		}
	}
	s.wantUntouched(t, namespace, pods)
}

// wantCopy restores the newest backup of a namespace into a StatefulSet of another one that has never run.
func (s *site) wantCopy(t *testing.T, from, to string, journal map[string]string) {
	t.Helper()
	s.Kubectl(t, "", "create", "namespace", to)
	s.credentials(t, to)
	s.applyEtcd(t, to, "3.6", "replicas: 3", "replicas: 0")
	s.Kubectl(t, s.fromRepository(from, restoreOf(to, "copy", "target: {latest: {}}\n  clone: true")), "apply", "-f", "-")
	s.wantRestored(t, to, "copy", journal)
}

// wantNamespaceGone deletes a namespace while data is put in place there. It is gone within a minute.
func (s *site) wantNamespaceGone(t *testing.T, namespace string) {
	t.Helper()
	s.suspended(t, namespace, "torn")
	p := s.watchRestore(t, namespace, "torn", s.deletingWhile(t, handoff.Placing, "namespace/"+namespace))
	s.goAhead(t, namespace, "torn")
	p.wait(t, handoff.Placing)
	s.Kubectl(t, "", "wait", "--for=delete", "--timeout=1m", "namespace/"+namespace)
}
