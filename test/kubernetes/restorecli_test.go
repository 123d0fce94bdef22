package kubernetes

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// testRestoreByCommand takes a cluster back to a backup with dr restore --into, without the operator. It kills the command between the two
// barriers, where another program starts the members: none begins an empty cluster. It continues with the same command, which reaches the
// members through the API server, goes back to the old data, and removes the restored data.
func (s *site) testRestoreByCommand(t *testing.T) {
	t.Parallel()
	const namespace = "till"
	s.startEtcd(t, namespace, "3.6")
	journal := s.journal(t, namespace, "sale", 5)
	s.backUp(t, namespace)
	s.put(t, namespace, "late", "it came after the backup")
	claims := s.claims(t, namespace)

	planned := dr[document.IntoPlan](t, s, s.intoArgs(namespace, "--dry-run")...)
	if planned.Target != "StatefulSet till/etcd" || len(planned.Members) != 3 || len(planned.Acts) == 0 {
		t.Errorf("the plan is %+v", planned)
	}
	s.wantFailure(t, 4, "to confirm that, pass --confirm etcd", s.intoArgs(namespace)...)
	confirmed := s.intoArgs(namespace, "--confirm", "etcd", "--port-forward")
	allow, end := s.forbidPlacing(t, namespace), s.probe(t, namespace)
	s.killAt(t, "placing", confirmed...)
	s.wantNoneServes(t, namespace, end)
	allow()
	restored := s.restoreWithoutDNS(t, confirmed...)
	if restored.State != document.IntoRestored || restored.ID != planned.ID || restored.HashKV == "" || restored.Downtime == 0 {
		t.Errorf("the result is %+v", restored)
	}
	s.wantServed(t, namespace, journal)
	s.wantFailure(t, 4, "--clean "+planned.ID, confirmed...)

	undone := dr[document.Into](t, s, restored.Undo[1:]...)
	if undone.State != document.IntoUndone {
		t.Errorf("the result is %+v", undone)
	}
	journal["late"] = "it came after the backup"
	s.wantServed(t, namespace, journal)
	dr[document.Into](t, s, undone.Clean[1:]...)
	s.Eventually(t, "", "-n", namespace, "get", "jobs,configmaps", "-l", "app.kubernetes.io/name=etcd-dr-restore", "-o", "name")
	if !maps.Equal(claims, s.claims(t, namespace)) {
		t.Errorf("the claims were %v, and are %v", claims, s.claims(t, namespace))
	}
	s.leave(t, namespace)
}

// TestSoakDowntime restores a database of 200 MB in place. From the stop of the members to the first write that etcd confirms again, 20 s pass
// at most.
func TestSoakDowntime(t *testing.T) {
	soak.Only(t, "measures durations on a quiet machine")
	const namespace, value, values, limit = "bulk", 1 << 20, 200, 20 * time.Second
	s := newSite(t)
	s.startEtcd(t, namespace, "3.6")
	// By default the pauses between a client's tries grow, which adds up to 10 s here.
	often := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1, MaxDelay: 100 * time.Millisecond}
	w := s.startWorkload(t, namespace, grpc.WithConnectParams(grpc.ConnectParams{Backoff: often, MinConnectTimeout: time.Second}))
	random := rand.NewChaCha8([32]byte{})
	for i := range values {
		text := make([]byte, value)
		_, _ = random.Read(text) // never fails
		_, err := w.client.Put(t.Context(), fmt.Sprintf("bulk-%03d", i), string(text))
		if err != nil {
			t.Fatal(err)
		}
	}
	s.backUp(t, namespace)
	w.waitFor(t, 10)
	restored := dr[document.Into](t, s, s.intoArgs(namespace, "--confirm", "etcd")...)
	w.waitFor(t, 10)
	down := w.longestPause()
	t.Logf("the client waited for %s; the phases: %+v; downtime %.1f s", down, restored.Phases, restored.Downtime)
	if down > limit {
		t.Errorf("etcd was down for %s, want at most %s", down, limit)
	}
}

// backUp takes an encrypted backup of a namespace's etcd, without the operator, into a bucket of its own.
func (s *site) backUp(t *testing.T, namespace string) {
	t.Helper()
	s.urls.set(namespace, s.store.Bucket(t, namespace))
	s.credentials(t, namespace)
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", "backups-key", "--from-file=key.txt="+s.identity)
	dr[document.BackupResult](t, s, "backup", "--recipient", s.recipient, "--repo", s.urls.of(namespace), "--cluster", namespace+".etcd",
		"--endpoints", "http://etcd-0.etcd."+namespace+".svc.cluster.local:2379")
}

// placingRule is a rule of the API server that forbids the Jobs that put the new data of a namespace in place.
const placingRule = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-placing-NAMESPACE}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}]}
  validations: [{expression: "!object.metadata.name.contains('-place-')", message: the test forbids it}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-placing-NAMESPACE}
spec:
  policyName: no-placing-NAMESPACE
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
`

// forbidPlacing lets no restore of a namespace put new data in place until the returned function is called.
func (s *site) forbidPlacing(t *testing.T, namespace string) (allow func()) {
	t.Helper()
	rule := strings.ReplaceAll(placingRule, "NAMESPACE", namespace)
	s.Kubectl(t, rule, "apply", "-f", "-")
	job := []string{"-n", namespace, "create", "job", "etcd-place-0", "--image", s.image, "--dry-run=server"}
	eventually(t, "the rule is in force", func() bool {
		_, err := s.Try("", job...)
		return err != nil && strings.Contains(err.Error(), "the test forbids it")
	})
	return func() {
		s.Kubectl(t, rule, "delete", "-f", "-")
		eventually(t, "the rule is not in force", func() bool {
			_, err := s.Try("", job...)
			return err == nil
		})
	}
}

// wantNoneServes starts the members of a StatefulSet whose data dirs are closed, as a program would that finds it stopped. It waits until
// each etcd has ended or is ready. Those that a probe asks must have answered before, and not since. end ends the probe.
func (s *site) wantNoneServes(t *testing.T, namespace string, end func() []answer) {
	t.Helper()
	begin := time.Now()
	s.Kubectl(t, "", "-n", namespace, "scale", "statefulset/etcd", "--replicas=3")
	const state = "jsonpath={range .items[*].status.containerStatuses[*]}{.restartCount} {.ready}{\"\\n\"}{end}"
	var all string
	eventually(t, "each etcd has ended or is ready", func() bool {
		all = s.Kubectl(t, "", "-n", namespace, "get", "pods", "-l", "app=etcd", "-o", state)
		return strings.Count(all, "\n") == 3 && !strings.Contains("\n"+all, "\n0 false")
	})
	if strings.Contains(all, "true") {
		t.Errorf("members are ready: %s", all)
	}
	answers := end()
	if len(answers) == 0 || !answers[0].at.Before(begin) {
		t.Error("no member has answered before: the probe has not worked")
	}
	for _, a := range answers {
		if a.at.After(begin) {
			t.Errorf("member %d has answered at %s with revision %d: its data dir was closed", a.member, a.at, a.revision)
		}
	}
}

// restoreWithoutDNS runs dr where no name of a member resolves, as outside of the cluster.
func (s *site) restoreWithoutDNS(t *testing.T, args ...string) (result document.Into) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	err := os.WriteFile(file, []byte("nameserver 192.0.2.1\noptions timeout:1 attempts:1\n"), 0o644) // an address of no host (RFC 5737)
	if err != nil {
		t.Fatal(err)
	}
	const script = `mount --bind "$RESOLV" /etc/resolv.conf && exec "$@" -o json`
	cmd := s.Command(append(s.store.Env(), "RESOLV="+file), append([]string{"unshare", "--mount", "bash", "-c", script, "bash", command.Path()}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command.Output{Args: args, Stdout: string(out)}.Decode(t, &result)
	return result
}

// intoArgs returns the arguments of dr that restore the newest backup in place.
func (s *site) intoArgs(namespace string, more ...string) []string {
	return append([]string{
		"restore", "--into", "statefulset/etcd", "-n", namespace, "--repo", s.urls.of(namespace), "--cluster", namespace + ".etcd",
		"--job-image", s.image, "--credentials-secret", "backups-s3", "--identity-secret", "backups-key", "--job-memory", "256MiB",
	}, more...)
}

// wantFailure runs dr, and fails the test unless it ends with this code and message.
func (s *site) wantFailure(t *testing.T, code int, message string, args ...string) {
	t.Helper()
	out, err := s.Command(s.store.Env(), append([]string{command.Path()}, args...)...).CombinedOutput()
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ended.ExitCode() != code || !strings.Contains(string(out), message) {
		t.Errorf("dr %s: %v, want code %d and %q:\n%s", strings.Join(args, " "), err, code, message, out)
	}
}

// killAt kills a run of dr once it has begun a stage.
func (s *site) killAt(t *testing.T, stage string, args ...string) {
	t.Helper()
	const script = `coproc DR { exec "$@" -o json; }; grep -m1 "\"stage\":\"$STAGE\"" <&"${DR[0]}" && kill -9 "$DR_PID"`
	cmd := s.Command(append(s.store.Env(), "STAGE="+stage), append([]string{"bash", "-c", script, "bash", command.Path()}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
