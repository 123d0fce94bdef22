package kubernetes

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// wantPoint writes revisions, waits until the window in the status contains them, and restores one between them. The restored etcd, which
// it returns, has the same key space as the members had at that revision.
func (s *site) wantPoint(t *testing.T, namespace, version string, login ...servers.ClientOption) *servers.Cluster {
	t.Helper()
	var revisions []int64
	for i := range 20 {
		revisions = append(revisions, s.put(t, namespace, fmt.Sprint("order/", i%7), fmt.Sprint("value ", i)))
	}
	point := revisions[12]
	eventually(t, "the window contains all revisions", func() bool {
		from, to := s.window(t, namespace)
		return from < point && to >= revisions[19]
	})
	restored := s.restoreTo(t, namespace, version, point)
	client := restored.Client(t, login...)
	hash, want := servers.HashKV(t, client, restored.Members[0].ClientURL, point).Hash, s.hashKV(t, namespace, point)
	if hash != want {
		t.Errorf("HashKV at revision %d is %d, want %d", point, hash, want)
	}
	values := orders(t, client)
	if !slices.Equal(values, []string{"value 6", "value 7", "value 8", "value 9", "value 10", "value 11", "value 12"}) {
		t.Errorf("revision %d contains %q", point, values)
	}
	return restored
}

// window returns the first and the last revision in the window of the status, or zeroes.
func (s *site) window(t *testing.T, namespace string) (from, to int64) {
	t.Helper()
	text := s.Kubectl(t, "", "-n", namespace, "get", "edb", "etcd", "-o", "jsonpath={.status.window}")
	if text == "" {
		return 0, 0
	}
	var window struct{ From, To struct{ Revision int64 } }
	err := json.Unmarshal([]byte(text), &window)
	if err != nil {
		t.Fatalf("window %s: %v", text, err)
	}
	return window.From.Revision, window.To.Revision
}

// restoreTo restores a revision on this machine, and boots the result.
func (s *site) restoreTo(t *testing.T, namespace, version string, revision int64) *servers.Cluster {
	t.Helper()
	into, peer := filepath.Join(t.TempDir(), "restored"), servers.FreeURLs(t, 1)[0]
	args := []string{
		"restore", "--repo", s.urls.of(namespace), "--cluster", namespace + ".etcd", "--to-revision", fmt.Sprint(revision),
		"--old-is-dead", "--output-dir", into, "--initial-cluster", "m1=" + peer,
	}
	identity := s.identities.of(namespace)
	if identity != "" {
		args = append(args, "--identity", identity)
	}
	dr[document.Restore](t, s, args...)
	return servers.Boot(t, servers.Options{Version: version}, servers.Existing{Name: "m1", DataDir: filepath.Join(into, "m1"), PeerURL: peer})
}

// hashKV returns the hash of the first member's key space at a revision.
func (s *site) hashKV(t *testing.T, namespace string, revision int64) uint32 {
	t.Helper()
	var answers []struct{ HashKV struct{ Hash uint32 } }
	s.etcdctl(t, namespace, &answers, "endpoint", "hashkv", "--rev", fmt.Sprint(revision))
	if len(answers) != 1 {
		t.Fatalf("hashkv: %+v", answers)
	}
	return answers[0].HashKV.Hash
}

// orders returns the values below order/, by their revisions.
func orders(t *testing.T, client *clientv3.Client) (values []string) {
	t.Helper()
	got, err := client.Get(t.Context(), "order/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		values = append(values, string(kv.Value))
	}
	return values
}
