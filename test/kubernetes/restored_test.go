package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// waitMessage waits until the message of an EtcdRestore contains a text.
func (s *site) waitMessage(t *testing.T, namespace, name, text string) {
	t.Helper()
	await(t, often, name+": "+text, func() bool { return strings.Contains(s.message(namespace, name), text) })
}

// message returns the message of an EtcdRestore, or "" if there is none yet.
func (s *site) message(namespace, name string) string { return s.status(namespace, name, "message") }

// askTimeout bounds a request to an API server that may be stopped.
const askTimeout = 10 * time.Second

// status returns a text in the status of an EtcdRestore, or "" if there is none or the API server does not answer.
func (s *site) status(namespace, name, field string) string {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	o, err := s.client.Resource(v1alpha1.GroupVersion.WithResource("etcdrestores")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(o.Object, "status", field)
	return text
}

// wantPhase waits until a restore is in a phase, and ends the test if the restore has ended in another one.
func (s *site) wantPhase(t *testing.T, namespace, name string, want handoff.Phase) {
	t.Helper()
	var got handoff.Phase
	await(t, often, fmt.Sprintf("%s is %s", name, want), func() bool {
		got = s.phase(namespace, name)
		return got == want || got.HasEnded()
	})
	if got != want {
		t.Fatalf("%s is %s, want %s:\n%s", name, got, want, s.Kubectl(t, "", "-n", namespace, "describe", "edr", name))
	}
}

// phase returns the phase of an EtcdRestore, or "" as status does.
func (s *site) phase(namespace, name string) handoff.Phase {
	return handoff.Phase(s.status(namespace, name, "phase"))
}

// wantRefused waits until an EtcdRestore has ended, which must be because of a reason.
func (s *site) wantRefused(t *testing.T, namespace, name, reason string) {
	t.Helper()
	s.wantPhase(t, namespace, name, handoff.Refused)
	message := s.message(namespace, name)
	if !strings.Contains(message, reason) {
		t.Errorf("%s is refused because %q, want %q", name, message, reason)
	}
}

// wantSucceeded waits until a restore has succeeded. It fails the test unless all members are ready and agree, and were started once, and
// each event was recorded once.
func (s *site) wantSucceeded(t *testing.T, namespace, name string) {
	t.Helper()
	s.wantPhase(t, namespace, name, handoff.Succeeded)
	t.Log(s.Kubectl(t, "", "-n", namespace, "describe", "edr", name))
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Complete", "--timeout=1s", "edr/"+name)
	ready := s.Kubectl(t, "", "-n", namespace, "get", "statefulset", "etcd", "-o", "jsonpath={.status.readyReplicas}")
	if ready != "3" {
		t.Errorf("%s members are ready", ready)
	}
	s.wantUntouched(t, namespace, s.members(t, namespace))
	s.wantOneHash(t, namespace)
	repeated := s.Kubectl(t, "", "-n", namespace, "get", "events", "--field-selector", "involvedObject.kind=EtcdRestore,involvedObject.name="+name, "-o", "jsonpath={.items[*].series.count}")
	if repeated != "" {
		t.Errorf("events of %s were recorded again: %s", name, repeated)
	}
}

// wantRestored is wantSucceeded for a cluster that contains these keys, and to which no client writes.
func (s *site) wantRestored(t *testing.T, namespace, name string, want map[string]string) {
	t.Helper()
	s.wantSucceeded(t, namespace, name)
	s.wantKeys(t, namespace, want)
}

// wantServed fails the test unless the members serve these keys, and agree.
func (s *site) wantServed(t *testing.T, namespace string, want map[string]string) {
	t.Helper()
	s.wantKeys(t, namespace, want)
	s.wantOneHash(t, namespace)
}

func (s *site) wantKeys(t *testing.T, namespace string, want map[string]string) {
	t.Helper()
	got := s.keysAt(t, namespace, 0)
	if !maps.Equal(got, want) {
		t.Errorf("there are %d keys, want %d: %v", len(got), len(want), slices.Sorted(maps.Keys(got)))
	}
}

// keysAt returns all keys at a revision, or at the newest one if it is 0, with their values.
func (s *site) keysAt(t *testing.T, namespace string, revision int64) map[string]string {
	t.Helper()
	var answer struct{ Kvs []struct{ Key, Value []byte } }
	s.etcdctl(t, namespace, &answer, "get", "", "--prefix", "--rev", fmt.Sprint(revision))
	read := map[string]string{}
	for _, kv := range answer.Kvs {
		read[string(kv.Key)] = string(kv.Value)
	}
	return read
}

// journal writes keys, and returns them with their values.
func (s *site) journal(t *testing.T, namespace, prefix string, keys int) map[string]string {
	t.Helper()
	written := map[string]string{}
	for i := range keys {
		key, value := fmt.Sprintf("%s-%03d", prefix, i), fmt.Sprintf("value %d", i)
		s.put(t, namespace, key, value)
		written[key] = value
	}
	return written
}

// wantCluster checks the id of the cluster, and its hash at a revision.
func (s *site) wantCluster(t *testing.T, namespace string, id uint64, revision int64, hash uint32) {
	t.Helper()
	gotID, gotHash := s.clusterID(t, namespace), s.hashKV(t, namespace, revision)
	if gotID != id || gotHash != hash {
		t.Errorf("the cluster is %x with the hash %d, want %x with %d", gotID, gotHash, id, hash)
	}
}

// clusterID returns the id of the cluster that all members are in.
func (s *site) clusterID(t *testing.T, namespace string) uint64 {
	t.Helper()
	all := s.statuses(t, namespace)
	for _, m := range all {
		if m.Status.Header.ClusterID != all[0].Status.Header.ClusterID {
			t.Errorf("the members are in several clusters: %+v", all)
		}
	}
	return all[0].Status.Header.ClusterID
}

// wantOneHash fails the test unless all members have the same HashKV at a revision that all have.
func (s *site) wantOneHash(t *testing.T, namespace string) {
	t.Helper()
	revision := int64(math.MaxInt64)
	for _, m := range s.statuses(t, namespace) {
		revision = min(revision, m.Status.Header.Revision)
	}
	var answers []struct{ HashKV struct{ Hash uint32 } }
	s.etcdctl(t, namespace, &answers, "endpoint", "hashkv", "--cluster", "--rev", fmt.Sprint(revision))
	if len(answers) != 3 || answers[0].HashKV != answers[1].HashKV || answers[0].HashKV != answers[2].HashKV {
		t.Errorf("the hashes at revision %d are %+v", revision, answers)
	}
}

// memberStatus is the answer of a member to etcdctl endpoint status.
type memberStatus struct {
	Status struct {
		Header struct {
			ClusterID uint64 `json:"cluster_id"`
			Revision  int64
		}
	}
}

// statuses asks all members for their status.
func (s *site) statuses(t *testing.T, namespace string) (all []memberStatus) {
	t.Helper()
	s.etcdctl(t, namespace, &all, "endpoint", "status", "--cluster")
	if len(all) != 3 {
		t.Fatalf("%d members answer", len(all))
	}
	return all
}

// wantUntouched fails the test if a member's pod is another one, or its container was started again.
func (s *site) wantUntouched(t *testing.T, namespace string, before map[string]string) {
	t.Helper()
	after := s.members(t, namespace)
	if !maps.Equal(before, after) {
		t.Errorf("the pods were %v, and are %v", before, after)
	}
	restarts := s.Kubectl(t, "", "-n", namespace, "get", "pods", "-l", "app=etcd", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	if restarts != "0 0 0" {
		t.Errorf("the members were started again: %s", restarts)
	}
}

// members returns the UIDs of the members' pods, by name.
func (s *site) members(t *testing.T, namespace string) map[string]string {
	t.Helper()
	return s.uids(t, namespace, "pods", "-l", "app=etcd")
}

// claims returns the UIDs of the claims, by name.
func (s *site) claims(t *testing.T, namespace string) map[string]string {
	t.Helper()
	return s.uids(t, namespace, "persistentvolumeclaims")
}

// wantSameClaims fails the test if the claims have changed.
func (s *site) wantSameClaims(t *testing.T, namespace string, claims map[string]string) {
	t.Helper()
	after := s.claims(t, namespace)
	if !maps.Equal(claims, after) {
		t.Errorf("the claims were %v, and are %v", claims, after)
	}
}

// uids returns the UIDs of objects, by name.
func (s *site) uids(t *testing.T, namespace string, args ...string) map[string]string {
	t.Helper()
	var list struct {
		Items []struct{ Metadata struct{ Name, UID string } }
	}
	s.get(t, &list, namespace, args...)
	uids := map[string]string{}
	for _, item := range list.Items {
		uids[item.Metadata.Name] = item.Metadata.UID
	}
	return uids
}

// get reads objects.
func (s *site) get(t *testing.T, result any, namespace string, args ...string) {
	t.Helper()
	out := s.Kubectl(t, "", append([]string{"-n", namespace, "get", "-o", "json"}, args...)...)
	err := json.Unmarshal([]byte(out), result)
	if err != nil {
		t.Fatal(err)
	}
}

// loseData removes the data dirs of all members from their volumes.
func (s *site) loseData(t *testing.T, namespace string) {
	t.Helper()
	for claim := range s.claims(t, namespace) {
		lose(t, filepath.Join(s.Volume(t, namespace, claim), "data"))
	}
}

// lose removes a data dir that etcd may be using.
func lose(t *testing.T, dir string) {
	t.Helper()
	lost := dir + ".lost" // so that etcd creates no file in it meanwhile
	err := os.Rename(dir, lost)
	if err == nil {
		err = os.RemoveAll(lost)
	}
	if err != nil {
		t.Fatal(err)
	}
}
