package kubernetes

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/command"
)

// testOffCoreos follows docs/migrate.md off coreos' operator. Of the operator there is only a stand-in: its custom resources, and the pods and
// Services that it would have made for one.
func (s *site) testOffCoreos(t *testing.T) {
	t.Parallel()
	const namespace = "legacy"
	s.Kubectl(t, "", "create", "namespace", namespace)
	s.startCoreos(t, namespace)
	journal := s.journal(t, namespace, "early", 5)

	page := filled(t, "../../docs/migrate.md", "payments", namespace, "example", "etcd")
	dir := t.TempDir()
	for i, step := range blocksOf(page, "Off coreos' operator") {
		if i == 2 { // the last backup has what was written meanwhile
			s.put(t, namespace, "late", "after the first backup")
			journal["late"] = "after the first backup"
			chooseImage(t, dir+"/our-clusters.yaml")
		}
		s.bash(t, dir, dedented(step))
	}
	s.wantServed(t, namespace, journal)
	get := s.Command(nil, "etcdctl", "--endpoints", "http://etcd-client."+namespace+".svc.cluster.local:2379", "get", "late", "--print-value-only")
	value, err := get.Output()
	if err != nil || strings.TrimSpace(string(value)) != journal["late"] {
		t.Errorf("the Service for clients returns %q, %v", value, err)
	}
	s.leave(t, namespace)
}

// startCoreos starts the cluster etcd in the form of coreos' operator, and creates its EtcdBackup.
func (s *site) startCoreos(t *testing.T, namespace string) {
	t.Helper()
	s.store.Bucket(t, namespace)
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", "aws", "--from-literal=config=[default]\nregion = us-east-1\n",
		"--from-literal=credentials=[default]\naws_access_key_id = "+s.store.AccessKey+"\naws_secret_access_key = "+s.store.SecretKey+"\n")
	s.Kubectl(t, "", "apply", "-f", "testdata/coreos.yaml")
	s.Kubectl(t, "", "wait", "--for=condition=Established", "--timeout", patience.String(), "-f", "testdata/coreos.yaml")
	values := []string{"NAMESPACE", namespace, "VERSION", "3.6", "ENDPOINT", s.store.Endpoint}
	s.Kubectl(t, filled(t, "testdata/coreos-cluster.yaml", values...), "-n", namespace, "apply", "-f", "-")
	uid := s.Kubectl(t, "", "-n", namespace, "get", "etcdclusters.etcd.database.coreos.com", "etcd", "-o", "jsonpath={.metadata.uid}")
	s.Kubectl(t, filled(t, "testdata/coreos-members.yaml", append(values, "UID", uid)...), "-n", namespace, "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Ready", "--timeout", patience.String(), "pods", "-l", "etcd_cluster=etcd")
}

// chooseImage replaces the image in a file, whose tag is that of coreos' images, by the one that exists here.
func chooseImage(t *testing.T, file string) {
	t.Helper()
	text := filled(t, file, "etcd-dr.test/etcd:v", "etcd-dr.test/etcd:")
	err := os.WriteFile(file, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

// bash runs commands in a directory.
func (s *site) bash(t *testing.T, dir, commands string) {
	t.Helper()
	cmd := s.Command(nil, withDR(commands)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, commands, out)
	}
}

// withDR returns a command that runs a script in which dr is the binary under test.
func withDR(script string) []string {
	return []string{"bash", "-euo", "pipefail", "-c", `dr() { ` + command.Path() + ` "$@"; }` + "\n" + script}
}

var indent = regexp.MustCompile(`(?m)^   `)

// dedented returns a block of an item of a list as a reader copies it.
func dedented(block string) string { return indent.ReplaceAllString(block, "") }
