package controller

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

// hidden is a part of each secret value of the tests. No fault may contain it.
const hidden = "hunter2"

// storeKeys are the credentials of a store.
func storeKeys() map[string][]byte {
	return map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("id"), "AWS_SECRET_ACCESS_KEY": []byte(hidden)}
}

// scheduled returns a valid EtcdBackup.
func scheduled(namespace, name string) *v1alpha1.EtcdBackup {
	return &v1alpha1.EtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1", Generation: 1},
		Spec: v1alpha1.EtcdBackupSpec{
			Source:   &v1alpha1.Source{Endpoints: []string{"https://etcd-0.etcd:2379"}},
			Schedule: &v1alpha1.Schedule{Cron: "@daily"}, Unencrypted: true,
			Repositories: []v1alpha1.Repository{{Name: "main", URL: "s3://backups/etcd", CredentialsSecret: &v1alpha1.SecretName{Name: "store"}}},
		},
	}
}

// certificates returns the certificates of a client.
func certificates(t *testing.T) spec.PEM {
	t.Helper()
	files := servers.NewCertificates(t)
	read := func(file string) []byte {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	return spec.PEM{CA: read(files.CA), Cert: read(files.Cert), Key: read(files.Key)}
}

// signing returns a new key pair for signatures.
func signing(t *testing.T) (secret []byte, public string) {
	t.Helper()
	secret, public, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return secret, public
}

func TestBuildSpecOfAFullEtcdBackup(t *testing.T) {
	b := scheduled("payments", "etcd")
	key, public := signing(t)
	_, other := signing(t)
	b.Spec = v1alpha1.EtcdBackupSpec{
		Source: &v1alpha1.Source{
			Endpoints: []string{"https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379"},
			TLSSecret: &v1alpha1.SecretName{Name: "tls"}, AuthSecret: &v1alpha1.AuthSecret{Name: "user"},
		},
		Repositories: []v1alpha1.Repository{
			{
				Name: "main", URL: "s3://backups/etcd?endpoint=https://minio.stores:9000", CredentialsSecret: &v1alpha1.SecretName{Name: "store"},
				CASecret: &v1alpha1.CASecret{Name: "tls"}, Limit: new(resource.MustParse("20Mi")),
				Lock:          &v1alpha1.Lock{For: "30d", Mode: "compliance"},
				SignKeySecret: &v1alpha1.SignKeySecret{Name: "sign"}, Trust: []string{other, public},
			},
			{Name: "away", URL: "s3://away/{{cluster}}", CredentialsSecret: &v1alpha1.SecretName{Name: "store"}},
		},
		RecipientsSecret: &v1alpha1.SecretName{Name: "keys"},
		Schedule:         &v1alpha1.Schedule{Cron: "0 */6 * * *", TimeZone: "Europe/Berlin", Jitter: "10m"},
		Triggers:         &v1alpha1.Triggers{Revisions: 1000},
		Retention:        &v1alpha1.Retention{Last: 10, Daily: 14, Within: "2d", Window: "14d", MaxSize: new(resource.MustParse("1Ki"))},
		Timeout:          "1h30m", Labels: map[string]string{"team": "payments"}, Suspend: true,
	}
	pem := certificates(t)
	d := declaration{spool: "/spool", secrets: secrets{
		"sign": {"sign.key": key},
		"tls":  {"ca.crt": pem.CA, "tls.crt": pem.Cert, "tls.key": pem.Key},
		"user": {"username": []byte("backup"), "password": []byte(hidden)}, "keys": {"recipients": []byte("# ours\n" + recipient + "\n")}, "store": storeKeys(),
	}}
	s, err := d.buildSpec(b)
	if err != nil {
		t.Fatal(err)
	}
	e, zone := s.Etcd, s.Retention.Zone
	s.Retention.Zone = nil
	for _, check := range []struct {
		field     string
		got, want any
	}{
		{"cluster", s.Cluster, "payments.etcd"},
		{"tenant", s.Tenant, "payments"},
		{"endpoints", e.Endpoints, b.Spec.Source.Endpoints},
		{"certificates", e.PEM, pem},
		{"user", e.User + " " + e.Password, "backup " + hidden},
		{"recipients", s.Backup.To.Seal().Encryption, "age"},
		{"schedule", s.Schedule.String(), "0 */6 * * *"},
		{"time zone", s.Schedule.Zone().String(), "Europe/Berlin"},
		{"time zone of the retention", zone.String(), "Europe/Berlin"},
		{"jitter", s.Schedule.Delay() <= 10*time.Minute, true},
		{"triggers", s.Triggers, spec.Triggers{Revisions: 1000, Every: 5 * time.Minute}},
		{"retention", s.Retention, retention.Policy{Last: 10, Daily: 14, Within: 48 * time.Hour, Window: 14 * 24 * time.Hour, MaxSize: 1024}},
		{"timeout", s.Timeout, 90 * time.Minute},
		{"labels", map[string]string(s.Backup.Labels), b.Spec.Labels},
		{"suspend", s.Suspend, true},
		{"first URL", s.Repositories[0].URL, b.Spec.Repositories[0].URL},
		{"CA of the store", s.Repositories[0].CA, pem.CA},
		{"no CA", s.Repositories[1].CA, []byte(nil)},
		{"limit", s.Repositories[0].Limit, int64(20 << 20)},
		{"no limit", s.Repositories[1].Limit, int64(0)},
		{"spool", s.Backup.Spool, "/spool"},
		{"lock", s.Repositories[0].Policy.Lock, records.Lock{For: 30 * 24 * time.Hour, Compliance: true}},
		{"signer", s.Repositories[0].Policy.Key.Trust().Keys(), []string{public}},
		{"trust", s.Repositories[0].Policy.Trust.Keys(), []string{other, public}},
		{"no signer", s.Repositories[1].Policy.Key.None(), true},
		{"no lock", s.Repositories[1].Policy.Lock, records.Lock{}},
		{"second URL", s.Repositories[1].URL, "s3://away/payments.etcd"},
	} {
		if !reflect.DeepEqual(check.got, check.want) {
			t.Errorf("%s: %v, want %v", check.field, check.got, check.want)
		}
	}
	aws, ok := s.Repositories[1].Credentials.AWS()
	if !ok || aws.SecretAccessKey != hidden {
		t.Errorf("the credentials of the second repository are %v", s.Repositories[1].Credentials)
	}
}

func TestBuildSpecDefaults(t *testing.T) {
	b := scheduled("payments", "etcd")
	b.Spec.Cluster, b.Spec.Schedule = "orders", nil
	d := declaration{secrets: secrets{"store": storeKeys()}}
	s, err := d.buildSpec(b)
	if err != nil || s.Cluster != "orders" || s.Timeout != 6*time.Hour || !s.Schedule.None() || !s.Triggers.None() || s.Prunes() || !s.Backup.Plain {
		t.Errorf("%v: %+v", err, s)
	}
	before := s.Digest
	d = declaration{secrets: secrets{"store": {"AWS_ACCESS_KEY_ID": []byte("id"), "AWS_SECRET_ACCESS_KEY": []byte("renewed")}}}
	s, err = d.buildSpec(b)
	if err != nil || s.Digest == before {
		t.Errorf("%v: renewed credentials have the old digest", err)
	}
}

func TestSecretsOfTheSource(t *testing.T) {
	type data = map[string][]byte
	all := certificates(t)
	ca, cert, key := all.CA, all.Cert, all.Key
	for name, test := range map[string]struct {
		tls  data
		want spec.PEM
	}{
		"cert-manager":          {data{"ca.crt": ca, "tls.crt": cert, "tls.key": key}, all},
		"coreos' operator":      {data{"etcd-client-ca.crt": ca, "etcd-client.crt": cert, "etcd-client.key": key}, all},
		"bitnami's chart":       {data{"ca.crt": ca, "cert.pem": cert, "key.pem": key}, all},
		"a CA alone":            {data{"ca.crt": ca}, spec.PEM{CA: ca}},
		"a CA of coreos' alone": {data{"etcd-client-ca.crt": ca}, spec.PEM{CA: ca}},
	} {
		d := declaration{secrets: secrets{"tls": test.tls}}
		got := d.tls("spec.source.tlsSecret", "tls")
		if !reflect.DeepEqual(got, test.want) || len(d.faults) > 0 {
			t.Errorf("%s: %s, faults %v", name, got, d.faults)
		}
	}
	for name, test := range map[string]struct {
		secret data
		keys   v1alpha1.AuthSecret
		want   string
	}{
		"basic-auth":      {data{"username": []byte("me"), "password": []byte("p")}, v1alpha1.AuthSecret{}, "me p"},
		"without a name":  {data{"password": []byte("p")}, v1alpha1.AuthSecret{}, "root p"},
		"with named keys": {data{"u": []byte("me"), "w": []byte("p")}, v1alpha1.AuthSecret{UserKey: "u", PasswordKey: "w"}, "me p"},
	} {
		test.keys.Name = "user"
		d := declaration{secrets: secrets{"user": test.secret}}
		user, password := d.user("spec.source.authSecret", test.keys)
		if user+" "+password != test.want || len(d.faults) > 0 {
			t.Errorf("%s: %s %s, faults %v", name, user, password, d.faults)
		}
	}
}

// TestCertificatesThatDoNotParse checks that the field is named before a connection fails, and that nothing of the Secret is shown.
func TestCertificatesThatDoNotParse(t *testing.T) {
	good, other := certificates(t), certificates(t)
	damaged := slices.Concat([]byte("-----BEGIN CERTIFICATE-----\n"), []byte(hidden), []byte("\n-----END CERTIFICATE-----\n"))
	for name, test := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"no PEM as a CA":            {map[string][]byte{"ca.crt": []byte(hidden)}, "ca.crt contains no certificate"},
		"a damaged CA":              {map[string][]byte{"ca.crt": damaged}, "ca.crt contains no certificate"},
		"a damaged CA next to keys": {map[string][]byte{"ca.crt": damaged, "tls.crt": good.Cert, "tls.key": good.Key}, "ca.crt contains no certificate"},
		"no PEM as a certificate":   {map[string][]byte{"tls.crt": []byte(hidden), "tls.key": good.Key}, "tls.crt and tls.key are no pair"},
		"another's key":             {map[string][]byte{"ca.crt": good.CA, "cert.pem": good.Cert, "key.pem": other.Key}, "cert.pem and key.pem are no pair"},
		"no PEM as a key":           {map[string][]byte{"tls.crt": good.Cert, "tls.key": []byte(hidden)}, "tls.crt and tls.key are no pair"},
		"swapped": {
			map[string][]byte{"etcd-client.crt": good.Key, "etcd-client.key": good.Cert}, "etcd-client.crt and etcd-client.key are no pair",
		},
	} {
		b := scheduled("payments", "etcd")
		b.Spec.Source.TLSSecret = &v1alpha1.SecretName{Name: "tls"}
		d := declaration{secrets: secrets{"store": storeKeys(), "tls": test.data}}
		_, err := d.buildSpec(b)
		if err == nil || !strings.Contains(err.Error(), "spec.source.tlsSecret: secret tls: "+test.want) || strings.Contains(err.Error(), hidden) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestFaultsNameTheFieldAndNoSecret makes one fault in a valid EtcdBackup each.
func TestFaultsNameTheFieldAndNoSecret(t *testing.T) {
	type change = func(*v1alpha1.EtcdBackupSpec, secrets)
	url := func(text string) change {
		return func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Repositories[0].URL = text }
	}
	endpoint := func(text string) change {
		return func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Source.Endpoints = append(s.Source.Endpoints, text)
		}
	}
	signedBy := func(secret, key string, trust ...string) change {
		return func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Repositories[0].SignKeySecret, s.Repositories[0].Trust = &v1alpha1.SignKeySecret{Name: secret, Key: key}, trust
		}
	}
	drills := func(d v1alpha1.Drill) change {
		return func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Drill = &d }
	}
	caIn := func(secret, key string) change {
		return func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Repositories[0].CASecret = &v1alpha1.CASecret{Name: secret, Key: key}
		}
	}
	limit := func(text string) change {
		return func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Repositories[0].Limit = new(resource.MustParse(text)) }
	}
	signKey, _ := signing(t)
	_, stranger := signing(t)
	for _, test := range []struct {
		name, want string
		change     change
	}{
		{"no Secret with a signing key", "spec.repositories[main].signKeySecret: there is no Secret gone", signedBy("gone", "")},
		{"no signing key", `spec.repositories[main].signKeySecret: secret odd has no key "sign.key"`, signedBy("odd", "")},
		{"no signing key of that name", `spec.repositories[main].signKeySecret: secret odd has no key "main.key"`, signedBy("odd", "main.key")},
		{"another kind of key", "spec.repositories[main].signKeySecret: bad key for signatures: it is not a minisign secret key", signedBy("odd", "tls.key")},
		{"the signer is not trusted", "spec.repositories[main].trust: trust must include the public key of the signing key", signedBy("sign", "", stranger)},
		{"no public key", "spec.repositories[main].trust: ", signedBy("sign", "", hidden)},
		{"no Secret with a CA", "spec.repositories[main].caSecret: there is no Secret gone", caIn("gone", "")},
		{"no CA", `spec.repositories[main].caSecret: secret odd has no key "ca.crt"`, caIn("odd", "")},
		{"no CA of that name", `spec.repositories[main].caSecret: secret odd has no key "main.crt"`, caIn("odd", "main.crt")},
		{"no PEM as a CA", "spec.repositories[main].caSecret: secret odd: tls.crt contains no certificate", caIn("odd", "tls.crt")},
		{"a limit without a spool", "spec.repositories[main].limit: it would slow down the member's snapshot", limit("20Mi")},
		{"a limit of nothing", "spec.repositories[main].limit: 0 would stop every transfer", limit("0")},
		{"a limit below nothing", "spec.repositories[main].limit: limit must be at least 64KiB/s", limit("-1Mi")},
		{"a limit of next to nothing", "spec.repositories[main].limit: limit must be at least 64KiB/s", limit("1k")},
		{"no Secret of the store", "spec.repositories[main].credentialsSecret: there is no Secret store", func(_ *v1alpha1.EtcdBackupSpec, all secrets) { delete(all, "store") }},
		{"an empty Secret of the store", "spec.repositories[main].credentialsSecret: ", func(_ *v1alpha1.EtcdBackupSpec, all secrets) { all["store"] = map[string][]byte{} }},
		{"half of the credentials", "spec.repositories[main].credentialsSecret: ", func(_ *v1alpha1.EtcdBackupSpec, all secrets) { delete(all["store"], "AWS_ACCESS_KEY_ID") }},
		{"no Secret with certificates", "spec.source.tlsSecret: there is no Secret gone", func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Source.TLSSecret = &v1alpha1.SecretName{Name: "gone"}
		}},
		{"a certificate without its key", "spec.source.tlsSecret: secret odd: no certificates", func(s *v1alpha1.EtcdBackupSpec, all secrets) {
			delete(all["odd"], "tls.key")
			s.Source.TLSSecret = &v1alpha1.SecretName{Name: "odd"}
		}},
		{"no Secret with a user", "spec.source.authSecret: there is no Secret gone", func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Source.AuthSecret = &v1alpha1.AuthSecret{Name: "gone"}
		}},
		{"no password", `spec.source.authSecret: secret odd has no key "word"`, func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Source.AuthSecret = &v1alpha1.AuthSecret{Name: "odd", PasswordKey: "word"}
		}},
		{"no Secret with recipients", "spec.recipientsSecret: there is no Secret gone", func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Unencrypted, s.RecipientsSecret = false, &v1alpha1.SecretName{Name: "gone"}
		}},
		{"no recipients", `spec.recipientsSecret: secret odd has no key "recipients"`, func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Unencrypted, s.RecipientsSecret = false, &v1alpha1.SecretName{Name: "odd"}
		}},
		{"a private key in place of recipients", "spec.recipients: ", func(s *v1alpha1.EtcdBackupSpec, all secrets) {
			s.Unencrypted, s.RecipientsSecret = false, &v1alpha1.SecretName{Name: "odd"}
			all["odd"]["recipients"] = []byte("AGE-SECRET-KEY-1" + hidden)
		}},
		{"another namespace's name", "spec.cluster: names that begin with bank. are those of the namespace bank", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Cluster = "bank.ledger" }},
		{"the begin of a namespace's name", "spec.cluster: names that begin with pay. are", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Cluster = "pay.etcd" }},
		{"an empty namespace's name", "spec.cluster: ", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Cluster = ".payments.etcd" }},
		{"loopback", "spec.source.endpoints[1]: 127.0.0.1:2379 is an address of the operator's own host", endpoint("http://127.0.0.1:2379")},
		{"loopback's name", "spec.source.endpoints[1]: localhost:2379", endpoint("http://localhost:2379")},
		{"loopback's name in capitals", "spec.source.endpoints[1]: LocalHost.:2379", endpoint("http://LocalHost.:2379")},
		{"a name below localhost", "spec.source.endpoints[1]: a.localhost:2379", endpoint("http://a.localhost:2379")},
		{"loopback of IPv6", "spec.source.endpoints[1]: [::1]:2379", endpoint("http://[::1]:2379")},
		{"loopback in IPv6", "spec.source.endpoints[1]: [::ffff:127.0.0.1]:2379", endpoint("http://[::ffff:127.0.0.1]:2379")},
		{"link-local", "spec.source.endpoints[1]: [fe80::1%eth0]:2379", endpoint("http://[fe80::1%25eth0]:2379")},
		{"unspecified", "spec.source.endpoints[1]: 0.0.0.0:2379", endpoint("http://0.0.0.0:2379")},
		{"metadata", "spec.source.endpoints[1]: 169.254.169.254:80", endpoint("http://169.254.169.254:80")},
		{"metadata of IPv6", "spec.source.endpoints[1]: [fd00:ec2::254]:80", endpoint("http://[fd00:ec2::254]:80")},
		{"no URL", "spec.source.endpoints[1]: it is not a URL with a host", endpoint("http://localhost:2379,etcd:2379")},
		{"a socket", "spec.source.endpoints[1]: it is not a URL with a host", endpoint("unix:///run/etcd.sock")},
		{"a store on loopback", "spec.repositories[main].url: 127.0.0.1:9000", url("s3://bucket/p?endpoint=http://127.0.0.1:9000")},
		{"a store that is metadata", "spec.repositories[main].url: 169.254.169.254:", url("gs://bucket/p?endpoint=http://169.254.169.254")},
		{"a store on loopback's name", "spec.repositories[main].url: localhost:9000", url("azblob://bucket/p?account=abc&endpoint=http://localhost:9000/abc")},
		{"the cluster's name as a store", "spec.repositories[main].url: 127.0.0.1:9000", func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Cluster, s.Repositories[0].URL = "127.0.0.1", "s3://bucket/p?endpoint=http://{{cluster}}:9000"
		}},
		{"a CA of the operator's host", "spec.repositories[main].url: the option ca", url("s3://bucket/p?ca=/etc/passwd")},
		{"the same beside the cluster's name", "spec.repositories[main].url: the option ca", url("s3://bucket/{{cluster}}?ca=/etc/passwd")},
		{"a directory", "spec.repositories[main].url: only s3, gs and azblob are allowed", url("file:///var/lib")},
		{"a password in a URL", "spec.repositories[main].url: ", url("s3://me:" + hidden + "@bucket/p")},
		{"a lock for no time", "spec.repositories[main].lock.for: 0s locks nothing", func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Repositories[0].Lock = &v1alpha1.Lock{For: "0s"}
		}},
		{"bad time of a lock", "spec.repositories[main].lock.for: ", func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Repositories[0].Lock = &v1alpha1.Lock{For: "soon"}
		}},
		{"an unknown kind of lock", "spec.repositories[main].lock: ", func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Repositories[0].Lock = &v1alpha1.Lock{For: "1d", Mode: "iron"}
		}},
		{"bad cron", "spec.schedule.cron: bad schedule", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Schedule.Cron = "61 * * * *" }},
		{"bad time zone", "spec.schedule.timeZone: unknown time zone", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Schedule.TimeZone = "Mars" }},
		{"the operator's time zone", "spec.schedule.timeZone: unknown time zone", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Schedule.TimeZone = "Local" }},
		{"bad jitter", "spec.schedule.jitter: ", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Schedule.Jitter = "soon" }},
		{"bad timeout", "spec.timeout: ", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Timeout = "99999999999999y" }},
		{"bad interval", "spec.triggers.every: ", func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Triggers = &v1alpha1.Triggers{Revisions: 1, Every: "m5"}
		}},
		{"no time between two flushes", "spec.archive.flush: 0s archives nothing", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Archive = &v1alpha1.Archive{Flush: "0s"} }},
		{"bad time between two flushes", "spec.archive.flush: ", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Archive = &v1alpha1.Archive{Flush: "s"} }},
		{"bad cron of drills", "spec.drill.schedule.cron: bad schedule", drills(v1alpha1.Drill{Schedule: v1alpha1.Schedule{Cron: "61 * * * *"}})},
		{"bad time zone of drills", "spec.drill.schedule.timeZone: unknown time zone", drills(v1alpha1.Drill{Schedule: v1alpha1.Schedule{Cron: "@daily", TimeZone: "Mars"}})},
		{"bad jitter of drills", "spec.drill.schedule.jitter: ", drills(v1alpha1.Drill{Schedule: v1alpha1.Schedule{Cron: "@daily", Jitter: "soon"}})},
		{"an unknown repository of drills", `spec.drill.repository: repository "away" is not in the cluster's`, drills(v1alpha1.Drill{Schedule: v1alpha1.Schedule{Cron: "@daily"}, Repository: "away"})},
		{"a bad assertion", "spec.drill.assert: ", drills(v1alpha1.Drill{Schedule: v1alpha1.Schedule{Cron: "@daily"}, Assert: []string{"order"}})},
		{"little memory for drills", "spec.drill.memory: 64Mi is too little", drills(v1alpha1.Drill{Schedule: v1alpha1.Schedule{Cron: "@daily"}, Memory: new(resource.MustParse("64Mi"))})},
		{"no scratch for drills", "spec.drill.scratch: it must be above 0", drills(v1alpha1.Drill{Schedule: v1alpha1.Schedule{Cron: "@daily"}, Scratch: new(resource.MustParse("0"))})},
		{"bad period", "spec.retention.within: ", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Retention = &v1alpha1.Retention{Within: "d"} }},
		{"a reserved label", "spec.labels.trigger: ", func(s *v1alpha1.EtcdBackupSpec, _ secrets) { s.Labels = map[string]string{"trigger": "x"} }},
		{"one URL twice", "the URL is that of repository main", func(s *v1alpha1.EtcdBackupSpec, _ secrets) {
			s.Repositories = append(s.Repositories, s.Repositories[0])
			s.Repositories[1].Name = "other"
		}},
	} {
		b := scheduled("payments", "etcd")
		d := declaration{secrets: secrets{"store": storeKeys(), "sign": {"sign.key": signKey}, "odd": {"tls.crt": []byte(hidden), "tls.key": []byte(hidden)}}}
		test.change(&b.Spec, d.secrets)
		_, err := d.buildSpec(b)
		switch {
		case err == nil:
			t.Errorf("%s: no fault, want %q", test.name, test.want)
		case !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), hidden):
			t.Errorf("%s: %q, want %q and no secret", test.name, err, test.want)
		}
	}
}

func TestLoopbackIsAllowedOnRequest(t *testing.T) {
	b := scheduled("payments", "etcd")
	b.Spec.Source.Endpoints = []string{"http://127.0.0.1:2379", "http://localhost:2379"}
	b.Spec.Repositories[0].URL = "s3://bucket/p?endpoint=http://127.0.0.1:9000"
	d := declaration{secrets: secrets{"store": storeKeys()}, loopback: true}
	s, err := d.buildSpec(b)
	if err != nil || s.Etcd.Reach != reach.Anywhere || s.Repositories[0].Reach != reach.Anywhere {
		t.Errorf("%v: %+v", err, s)
	}
}

// TestClusterNames checks the names that an EtcdBackup of the namespace payments may choose.
func TestClusterNames(t *testing.T) {
	for _, name := range []string{"", "etcd", "payments", "payments.etcd", "payments.etcd.2", "payments-eu"} {
		b := scheduled("payments", "etcd")
		b.Spec.Cluster = name
		d := declaration{secrets: secrets{"store": storeKeys()}}
		_, err := d.buildSpec(b)
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	b := scheduled("payments", "etcd")
	b.Spec.Repositories = append(b.Spec.Repositories, v1alpha1.Repository{Name: "away", URL: "s3://away", CredentialsSecret: b.Spec.Repositories[0].CredentialsSecret})
	d := declaration{secrets: secrets{"store": storeKeys()}}
	s, err := d.buildSpec(b)
	if err != nil || len(s.Repositories) != 2 {
		t.Fatal(err, s.Repositories)
	}
	for _, bound := range []reach.Reach{s.Etcd.Reach, s.Repositories[0].Reach, s.Repositories[1].Reach} {
		if bound != reach.OtherHosts {
			t.Errorf("connections may lead to %q", bound)
		}
	}
}

// TestAnEmptySecretIsAFault checks that a Secret without credentials does not mean those of the operator.
func TestAnEmptySecretIsAFault(t *testing.T) {
	for _, data := range []map[string][]byte{{}, nil, {"note": []byte("none")}} {
		d := declaration{secrets: secrets{"store": data}}
		s, err := d.buildSpec(scheduled("payments", "etcd"))
		if err == nil {
			t.Errorf("%v: the credentials are %v", data, s.Repositories[0].Credentials)
		}
	}
}

func TestArchive(t *testing.T) {
	for _, test := range []struct {
		name, spool string
		archive     *v1alpha1.Archive
		want        spec.Archive
	}{
		{"none", "/spool", nil, spec.Archive{}},
		{"the default", "", &v1alpha1.Archive{}, spec.Archive{Flush: 2 * time.Second}},
		{"a longer time", "", &v1alpha1.Archive{Flush: "1m"}, spec.Archive{Flush: time.Minute}},
		{"a spool", "/spool", &v1alpha1.Archive{Flush: "10s"}, spec.Archive{Flush: 10 * time.Second, Spool: "/spool/payments", SpoolMax: 2 << 30}},
	} {
		b := scheduled("payments", "etcd")
		b.Spec.Archive = test.archive
		d := declaration{secrets: secrets{"store": storeKeys()}, spool: test.spool}
		s, err := d.buildSpec(b)
		if err != nil || s.Archive != test.want {
			t.Errorf("%s: %v: %+v, want %+v", test.name, err, s.Archive, test.want)
		}
	}
}

// TestDrill checks that a Spec has the schedule of its drills and no key, and that it changes with settings that only the Job has.
func TestDrill(t *testing.T) {
	digests := map[string]bool{}
	for _, identity := range []string{"", "one", "other"} {
		b := scheduled("payments", "etcd")
		b.Spec.Schedule.TimeZone = "Europe/Berlin"
		b.Spec.Drill = &v1alpha1.Drill{Schedule: v1alpha1.Schedule{Cron: "0 3 * * 0"}, Assert: []string{"key=order"}}
		if identity != "" {
			b.Spec.Drill.IdentitySecret = &v1alpha1.IdentitySecret{Name: identity}
		}
		d := declaration{secrets: secrets{"store": storeKeys()}}
		s, err := d.buildSpec(b)
		if err != nil {
			t.Fatal(err)
		}
		digests[s.Digest] = true
		got := s.Drill
		if got.Schedule.String() != "0 3 * * 0" || got.Schedule.Zone().String() != "UTC" || got.Repository != "main" ||
			!slices.Equal(got.Assertions, b.Spec.Drill.Assert) || got.Memory != 768<<20 {
			t.Errorf("%+v", got)
		}
		if slices.Contains(secretNames(b.Spec), identity) {
			t.Errorf("the operator reads the Secret %s", identity)
		}
	}
	if len(digests) != 3 {
		t.Errorf("three settings have %d digests", len(digests))
	}
}
