package kubernetes

import (
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/servers"
)

// testSecuredEtcd archives an etcd that requires clients' certificates and a login, into MinIO. The certificates are in Secrets as
// cert-manager writes them.
func (s *site) testSecuredEtcd(t *testing.T) {
	t.Parallel()
	const namespace = "vault"
	s.startSecured(t, namespace, "3.5")

	s.credentials(t, namespace)
	s.urls.set(namespace, s.minio.Bucket(t, namespace))
	s.Kubectl(t, secured(object(namespace, s.urls.of(namespace), "schedule: {cron: '* * * * *'}\n  archive: {flush: 1s}")), "apply", "-f", "-")
	s.Kubectl(t, "", "-n", namespace, "wait", "--for=condition=Protected", "--timeout="+patience.String(), "etcdbackup/etcd")
	s.wantPoint(t, namespace, "3.5", servers.As("root", password))
	s.Kubectl(t, "", "delete", "namespace", namespace, "--timeout", patience.String())
}

const password = "correct horse" // of root

// startSecured runs an etcd that requires clients' certificates and a login, with more changes of the manifest. It creates the Secrets
// etcd-client and etcd-user.
func (s *site) startSecured(t *testing.T, namespace, version string, changes ...string) {
	t.Helper()
	certificates := servers.NewCertificatesFor(t, 365*24*time.Hour) // no finding
	s.Kubectl(t, "", "create", "namespace", namespace)
	server, serverKey := certificates.Server("etcd-server", "*.etcd."+namespace+".svc", "*.etcd."+namespace+".svc.cluster.local")
	client, clientKey := certificates.User("no user of etcd", "client")
	s.tlsSecret(t, namespace, "etcd-server", server, serverKey, certificates.CA)
	s.tlsSecret(t, namespace, "etcd-client", client, clientKey, certificates.CA)
	s.userSecret(t, namespace, "etcd-user", password)
	s.applyEtcd(t, namespace, version, append(changes,
		"- --listen-client-urls=http:", strings.Join([]string{
			"- --cert-file=/tls/tls.crt", "- --key-file=/tls/tls.key", "- --trusted-ca-file=/tls/ca.crt", "- --client-cert-auth",
			"- --listen-metrics-urls=http://0.0.0.0:2381", "- --listen-client-urls=https:",
		}, "\n            "),
		"--advertise-client-urls=http:", "--advertise-client-urls=https:",
		"{path: /health, port: 2379}", "{path: /health, port: 2381}",
		"- {name: data, mountPath: /var/lib/etcd}", "- {name: data, mountPath: /var/lib/etcd}\n            - {name: tls, mountPath: /tls}",
		"      containers:", "      volumes: [{name: tls, secret: {secretName: etcd-server}}]\n      containers:")...)

	flags := []string{"--cacert", certificates.CA, "--cert", client, "--key", clientKey}
	s.flags.set(namespace, flags)
	s.etcdctl(t, namespace, nil, "user", "add", "root:"+password)
	s.etcdctl(t, namespace, nil, "user", "grant-role", "root", "root")
	s.etcdctl(t, namespace, nil, "auth", "enable")
	s.flags.set(namespace, append(flags, "--user", "root:"+password))
}

// secured returns an EtcdBackup that uses the Secrets of startSecured.
func secured(object string) string {
	return strings.Replace(object, "{statefulSet: {name: etcd}}", "{statefulSet: {name: etcd}, tlsSecret: {name: etcd-client}, authSecret: {name: etcd-user}}", 1)
}

// userSecret creates a Secret with a password of root.
func (s *site) userSecret(t *testing.T, namespace, name, password string) {
	t.Helper()
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", name, "--from-literal=username=root", "--from-literal=password="+password)
}

// tlsSecret creates a Secret with the keys of cert-manager.
func (s *site) tlsSecret(t *testing.T, namespace, name, cert, key, ca string) {
	t.Helper()
	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", name,
		"--from-file=tls.crt="+cert, "--from-file=tls.key="+key, "--from-file=ca.crt="+ca)
}
