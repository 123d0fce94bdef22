package kubernetes

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// testSecuredEtcd archives an etcd that requires clients' certificates and a login, into MinIO. The certificates are in Secrets as
// cert-manager writes them.
func (s *site) testSecuredEtcd(t *testing.T) {
	const namespace, password = "vault", "correct horse"
	certificates := servers.NewCertificatesFor(t, 365*24*time.Hour) // no finding
	s.Kubectl(t, "", "create", "namespace", namespace)
	server, serverKey := certificates.Server("etcd-server", "*.etcd."+namespace+".svc", "*.etcd."+namespace+".svc.cluster.local")
	client, clientKey := certificates.User("no user of etcd", "client")
	s.tlsSecret(t, namespace, "etcd-server", server, serverKey, certificates.CA)
	s.tlsSecret(t, namespace, "etcd-client", client, clientKey, certificates.CA)
	s.applyEtcd(t, namespace, "3.5",
		"- --listen-client-urls=http:", strings.Join([]string{
			"- --cert-file=/tls/tls.crt", "- --key-file=/tls/tls.key", "- --trusted-ca-file=/tls/ca.crt", "- --client-cert-auth",
			"- --listen-metrics-urls=http://0.0.0.0:2381", "- --listen-client-urls=https:",
		}, "\n            "),
		"--advertise-client-urls=http:", "--advertise-client-urls=https:",
		"{path: /health, port: 2379}", "{path: /health, port: 2381}",
		"- {name: data, mountPath: /var/lib/etcd}", "- {name: data, mountPath: /var/lib/etcd}\n            - {name: tls, mountPath: /tls}",
		"      containers:", "      volumes: [{name: tls, secret: {secretName: etcd-server}}]\n      containers:")

	s.flags[namespace] = []string{"--cacert", certificates.CA, "--cert", client, "--key", clientKey}
	s.etcdctl(t, namespace, nil, "user", "add", "root:"+password)
	s.etcdctl(t, namespace, nil, "user", "grant-role", "root", "root")
	s.etcdctl(t, namespace, nil, "auth", "enable")
	s.flags[namespace] = append(s.flags[namespace], "--user", "root:"+password)

	s.credentials(t, namespace)
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", "etcd-user", "--from-literal=username=root", "--from-literal=password="+password)
	s.urls[namespace] = s.StartMinio(t).Bucket(t, namespace)
	text := object(namespace, s.urls[namespace], "schedule: {cron: '* * * * *'}\n  archive: {flush: 1s}")
	text = strings.Replace(text, "{statefulSet: {name: etcd}}", "{statefulSet: {name: etcd}, tlsSecret: {name: etcd-client}, authSecret: {name: etcd-user}}", 1)
	s.Kubectl(t, text, "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Protected", "--timeout="+patience.String(), "etcdbackup/etcd")
	s.wantPoint(t, namespace, "3.5", servers.As("root", password))
	s.Kubectl(t, "", "delete", "namespace", namespace, "--timeout", patience.String())
}

// tlsSecret creates a Secret with the keys of cert-manager.
func (s *site) tlsSecret(t *testing.T, namespace, name, cert, key, ca string) {
	t.Helper()
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", name,
		"--from-file=tls.crt="+cert, "--from-file=tls.key="+key, "--from-file=ca.crt="+ca)
}

// wantPoint writes revisions, waits until the window in the status contains them, and restores one between them. The restored etcd has
// the same key space as the members had at that revision.
func (s *site) wantPoint(t *testing.T, namespace, version string, login ...servers.ClientOption) {
	t.Helper()
	var revisions []int64
	for i := range 20 {
		revisions = append(revisions, s.put(t, namespace, fmt.Sprint("order/", i%7), fmt.Sprint("value ", i)))
	}
	const middle = 12
	eventually(t, "the window contains all revisions", func() bool {
		var w struct{ From, To struct{ Revision int64 } }
		text, err := s.Try("", "-n", namespace, "get", "edb", "etcd", "-o", "jsonpath={.status.window}")
		return err == nil && json.Unmarshal([]byte(text), &w) == nil && w.From.Revision < revisions[middle] && w.To.Revision >= revisions[19]
	})
	into, peer := filepath.Join(t.TempDir(), "restored"), servers.FreeURLs(t, 1)[0]
	dr[document.Restore](t, s, "restore", "--repo", s.urls[namespace], "--cluster", namespace+".etcd", "--to-revision", fmt.Sprint(revisions[middle]),
		"--old-is-dead", "--output-dir", into, "--initial-cluster", "m1="+peer)
	booted := servers.Boot(t, servers.Options{Version: version}, servers.Existing{Name: "m1", DataDir: filepath.Join(into, "m1"), PeerURL: peer})
	client := booted.Client(t, login...)
	restored := servers.HashKV(t, client, booted.Members[0].ClientURL, revisions[middle])
	var live []struct{ HashKV struct{ Hash uint32 } }
	s.etcdctl(t, namespace, &live, "endpoint", "hashkv", "--rev", fmt.Sprint(revisions[middle]))
	if len(live) != 1 || live[0].HashKV.Hash != restored.Hash {
		t.Errorf("HashKV at revision %d is %d, want %+v", revisions[middle], restored.Hash, live)
	}
	got, err := client.Get(t.Context(), "order/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, kv := range got.Kvs {
		values = append(values, string(kv.Value))
	}
	want := []string{"value 6", "value 7", "value 8", "value 9", "value 10", "value 11", "value 12"}
	if !slices.Equal(values, want) {
		t.Errorf("revision %d contains %q, want %q", revisions[middle], values, want)
	}
}
