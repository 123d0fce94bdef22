package kubernetes

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/servers"
)

// testSidecar runs examples/archive-sidecar.yaml as it is written, in a namespace under the standard "restricted", next to an EtcdBackup of
// the same repository. The log that the sidecars read from the members' disks contains users too.
func (s *site) testSidecar(t *testing.T) {
	t.Parallel()
	const namespace, size = "relay", 512 << 20
	s.Kubectl(t, "", "create", "namespace", namespace)
	s.Kubectl(t, "", "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	s.LocalVolumes(t, namespace, size, 1)
	certificates := servers.NewCertificatesFor(t, 365*24*time.Hour)
	server, serverKey := certificates.Server("etcd-server", "*.etcd."+namespace+".svc", "*.etcd."+namespace+".svc.cluster.local")
	client, clientKey := certificates.User("root", "client")
	s.tlsSecret(t, namespace, "etcd-server", server, serverKey, certificates.CA)
	s.tlsSecret(t, namespace, "etcd-client", client, clientKey, certificates.CA)
	s.credentials(t, namespace)
	s.urls.set(namespace, s.store.Bucket(t, namespace))
	s.identities.set(namespace, s.identity)
	s.flags.set(namespace, []string{"--cacert", certificates.CA, "--cert", client, "--key", clientKey})

	s.Kubectl(t, s.sidecarExample(t, namespace), "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "rollout", "status", "statefulset/etcd", "--timeout", patience.String())
	sealed := strings.NewReplacer("unencrypted: true", "recipients: ["+s.recipient+"]", "{name: etcd}}", "{name: etcd}, tlsSecret: {name: etcd-client}}")
	s.Kubectl(t, sealed.Replace(object(namespace, s.urls.of(namespace), `schedule: {cron: "@yearly"}`)), "apply", "-f", "-")
	s.wantProtected(t, namespace)
	s.etcdctl(t, namespace, nil, "user", "add", "ada:countess")
	restored := s.wantPoint(t, namespace, "3.6")
	users, err := restored.Client(t).UserList(t.Context())
	if err != nil || len(users.Users) != 1 || users.Users[0] != "ada" {
		t.Errorf("the restored users are %v: %v", users, err)
	}
	s.Kubectl(t, "", "delete", "namespace", namespace, "--timeout", patience.String())
}

// sidecarExample returns the manifest of the example, with the values of this site in place of its own.
func (s *site) sidecarExample(t *testing.T, namespace string) string {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/kubernetes/examples/archive-sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	own := strings.NewReplacer(
		"s3://backups/etcd?region=eu-central-1", s.urls.of(namespace), "payments", namespace,
		"registry.example.com/etcd-dr:v1.0.0", s.image, "registry.k8s.io/etcd:3.6.5-0", "etcd-dr.test/etcd:3.6",
		"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", s.recipient,
		"accessModes: [ReadWriteOnce]", "accessModes: [ReadWriteOnce]\n        storageClassName: local", "storage: 10Gi", "storage: 256Mi")
	return own.Replace(string(manifest))
}
