package node_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/handoff/node"
)

func TestMember(t *testing.T) {
	plain := node.Member{
		Name: "m1", PeerURLs: []string{"https://10.0.0.1:2380"}, ClientURLs: []string{"https://127.0.0.1:2379"},
		DataDir: "/var/lib/etcd", CA: "/pki/ca.crt", Cert: "/pki/server.crt", Key: "/pki/server.key",
	}
	variables := map[string]string{
		"ETCD_NAME": "m1", "ETCD_DATA_DIR": "/var/lib/etcd", "ETCD_INITIAL_ADVERTISE_PEER_URLS": "https://10.0.0.1:2380",
		"ETCD_LISTEN_CLIENT_URLS": "https://10.0.0.1:2379,https://127.0.0.1:2379",
		"ETCD_TRUSTED_CA_FILE":    "/pki/ca.crt", "ETCD_CERT_FILE": "/pki/server.crt", "ETCD_KEY_FILE": "/pki/server.key",
	}
	withLog := plain
	withLog.WALDir = "/wal"
	for name, test := range map[string]struct {
		process node.Process
		want    node.Member
	}{
		"flags": {node.Process{Args: []string{
			"--name=m1", "--data-dir", "/var/lib/etcd", "-initial-advertise-peer-urls", "https://10.0.0.1:2380", "--client-cert-auth",
			"--listen-client-urls=https://127.0.0.1:2379,https://10.0.0.1:2379", "--trusted-ca-file", "ca.crt", "--cert-file", "/pki/server.crt",
			"--key-file=server.key", "--wal-dir", "/wal",
		}, Dir: "/pki"}, withLog},
		"variables":              {node.Process{Env: variables}, plain},
		"flags before variables": {node.Process{Env: variables, Args: []string{"--wal-dir=/wal"}}, withLog},
		"etcd's defaults": {node.Process{Dir: "/srv"}, node.Member{
			Name: "default", PeerURLs: []string{"http://localhost:2380"}, ClientURLs: []string{"http://localhost:2379"}, DataDir: "/srv/default.etcd",
		}},
		"wildcard addresses and a socket": {node.Process{Env: map[string]string{
			"ETCD_LISTEN_CLIENT_URLS": "https://0.0.0.0:1,https://[::]:2,unix://x", "ETCD_ADVERTISE_CLIENT_URLS": "https://a:1,https://b:1",
		}, Dir: "/"}, node.Member{
			Name: "default", PeerURLs: []string{"http://localhost:2380"}, ClientURLs: []string{"https://a:1"}, DataDir: "/default.etcd",
		}},
		"one address": {node.Process{Env: map[string]string{"ETCD_LISTEN_CLIENT_URLS": "https://0.0.0.0:1,https://10.0.0.1:1"}, Dir: "/"}, node.Member{
			Name: "default", PeerURLs: []string{"http://localhost:2380"}, ClientURLs: []string{"https://10.0.0.1:1"}, DataDir: "/default.etcd",
		}},
	} {
		got, err := test.process.Member()
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
}

// TestMemberOfAFile checks that etcd's own configuration file replaces all flags and variables.
func TestMemberOfAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		err := os.WriteFile(filepath.Join(dir, "etcd.yaml"), []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	p := node.Process{Args: []string{"--config-file", "etcd.yaml", "--name", "ignored"}, Env: map[string]string{"ETCD_CONFIG_FILE": "/ignored", "ETCD_WAL_DIR": "/ignored"}, Dir: dir}
	byVariable := node.Process{Args: []string{"--name", "ignored"}, Env: map[string]string{"ETCD_CONFIG_FILE": "etcd.yaml"}, Dir: dir}
	_, err := p.Member()
	if err == nil || !strings.Contains(err.Error(), "correct --config-file") {
		t.Errorf("without the file: %v", err)
	}
	write("name: m1\ndata-dir: data\ninitial-advertise-peer-urls: http://a:2380\nlisten-client-urls: http://a:2379\nquota-backend-bytes: 7\n" +
		"client-transport-security:\n  trusted-ca-file: ca.crt\n  cert-file: /c\n  key-file: /k\n")
	want := node.Member{
		Name: "m1", DataDir: dir + "/data", PeerURLs: []string{"http://a:2380"}, ClientURLs: []string{"http://a:2379"},
		CA: dir + "/ca.crt", Cert: "/c", Key: "/k",
	}
	for _, p := range []node.Process{p, byVariable} {
		got, err := p.Member()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	write("name: [")
	_, err = p.Member()
	if err == nil || !strings.Contains(err.Error(), "is not YAML") {
		t.Errorf("with a damaged file: %v", err)
	}
}

func TestExpand(t *testing.T) {
	p := node.Process{Env: map[string]string{"NAME": "m1", "MORE": "--a 1  --b", "EMPTY": ""}}
	got := p.Expand([]string{"etcd", "--name=${NAME}", "$MORE", "$EMPTY", "${NONE}x", "cost$", "$1"})
	want := []string{"etcd", "--name=m1", "--a", "1", "--b", "x", "cost$", "$1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
