package controller

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// clusterOf returns the name under which the repositories hold the backups of b.
func clusterOf(b *v1alpha1.EtcdBackup) string {
	return cmp.Or(b.Spec.Cluster, b.Namespace+"."+b.Name)
}

// isOneTime reports whether b takes one backup only.
func isOneTime(b *v1alpha1.EtcdBackup) bool { return b.Spec.Schedule == nil && b.Spec.Triggers == nil }

// declaration collects the faults of an EtcdBackup while it becomes a declaration. It is pure.
type declaration struct {
	secrets     secrets
	statefulSet *appsv1.StatefulSet // that the source names; nil: there is none
	loopback    bool                // connections to the operator's own host and link are allowed
	spool       string              // folder with a folder for each namespace; "": none
	ambient     []string            // ambient prefixes
	faults      []error
}

// buildSpec returns the Spec that b describes. The error lists all faults with their fields, and contains no secret.
func (d *declaration) buildSpec(b *v1alpha1.EtcdBackup) (spec.Spec, error) {
	s := b.Spec
	repositories := map[string]declared.Repository{}
	cluster := declared.Defaults()
	d.etcd(s.Source, &cluster.Etcd)
	d.schedule(s.Schedule, "spec.schedule", &cluster.Schedule)
	d.triggers(s.Triggers, &cluster.Triggers)
	cluster.Retention = d.retention(s.Retention)
	cluster.Archive = d.archive(s.Archive, b.Namespace)
	cluster.Drill = d.drill(s.Drill)
	cluster.Recipients = d.recipients(s)
	cluster.Backup.Plain = s.Unencrypted
	cluster.Backup.Timeout = cmp.Or(d.duration(s.Timeout, "spec.timeout"), cluster.Backup.Timeout)
	cluster.Suspend, cluster.Labels = s.Suspend, s.Labels
	err := checkName(b)
	if err != nil {
		d.fault("spec.cluster", err)
	}
	for _, r := range s.Repositories {
		repositories[r.Name] = d.repository(r, b)
		cluster.Repositories = append(cluster.Repositories, r.Name)
		if r.Limit != nil {
			cluster.Backup.Spool = d.spool
		}
	}
	all, faults := declared.BuildRepositories(repositories)
	for _, f := range faults {
		d.fault(fieldOf(append([]string{"repositories"}, f.Path...)), f.Err)
	}
	if len(d.faults) > 0 { // most would show again in the Spec
		return spec.Spec{}, errors.Join(d.faults...)
	}
	built, faults := declared.Build(clusterOf(b), cluster, all)
	for _, f := range faults {
		d.fault(fieldOf(f.Path), f.Err)
	}
	d.bound(&built)
	built.Tenant = b.Namespace
	built.Digest += drillDigest(s.Drill)
	return built, errors.Join(d.faults...)
}

// checkName returns an error if spec.cluster begins with another namespace and a dot, as the default names of that namespace's
// EtcdBackups do: b could take such a name before its owner exists. No namespace contains a dot.
func checkName(b *v1alpha1.EtcdBackup) error {
	namespace, _, dotted := strings.Cut(b.Spec.Cluster, ".")
	if !dotted || namespace == b.Namespace {
		return nil
	}
	return fmt.Errorf("names that begin with %s. are those of the namespace %s: begin with %s. or use a name without a dot", namespace, namespace, b.Namespace)
}

// refusedAs returns the name under which the service lists b while its settings are invalid: its cluster's, unless that may be another's.
func refusedAs(b *v1alpha1.EtcdBackup) string {
	if checkName(b) != nil {
		return b.Namespace + "." + b.Name
	}
	return clusterOf(b)
}

// bound bounds the addresses to which connections of s may lead. reachable checks only the hosts in the settings: a DNS name, a redirect
// or a member's own URL may lead to other addresses.
func (d *declaration) bound(s *spec.Spec) {
	if d.loopback {
		return
	}
	s.Etcd.Reach = reach.OtherHosts
	for i := range s.Repositories {
		s.Repositories[i].Reach = reach.OtherHosts
	}
}

func (d *declaration) fault(field string, err error) {
	d.faults = append(d.faults, fmt.Errorf("%s: %w", strings.TrimSuffix(field, "."), err))
}

// fieldOf returns the field of an EtcdBackup that corresponds to the path of a fault.
func fieldOf(path []string) string {
	if len(path) == 0 {
		return "spec"
	}
	switch {
	case path[0] == "etcd":
		path = append([]string{"source"}, path[1:]...)
	case path[0] == "backup":
		path = path[1:]
	case path[0] == "schedule" && path[len(path)-1] == "zone":
		return "spec.schedule.timeZone"
	case path[0] == "drill":
		return "spec." + strings.Join(append(path[:len(path)-1:len(path)-1], drillField(path[len(path)-1])), ".")
	case path[0] == "repositories" && len(path) > 1: // a name, and a field or none
		field := strings.Join(path[2:], ".")
		return "spec.repositories[" + path[1] + "]." + cmp.Or(secretFields[field], field)
	}
	return strings.Join(append([]string{"spec"}, path...), ".")
}

// secretFields are the fields of an EtcdBackup's repository that name a Secret, by the field of the declaration that its content sets.
var secretFields = map[string]string{"credentials": "credentialsSecret", "signKey": "signKeySecret"}

// etcd sets e's endpoints, certificates and user to those that s names.
func (d *declaration) etcd(s *v1alpha1.Source, e *spec.Etcd) {
	e.Endpoints = s.Endpoints
	if s.StatefulSet != nil {
		e.Endpoints = d.members(s)
	}
	for i, endpoint := range s.Endpoints {
		d.reachable(fmt.Sprintf("spec.source.endpoints[%d]", i), endpoint)
	}
	if s.TLSSecret != nil {
		e.PEM = d.tls("spec.source.tlsSecret", s.TLSSecret.Name)
	}
	if s.AuthSecret != nil {
		e.User, e.Password = d.user("spec.source.authSecret", *s.AuthSecret)
	}
}

// members returns the client URLs of the pods of the StatefulSet that s names.
func (d *declaration) members(s *v1alpha1.Source) []string {
	const field = "spec.source.statefulSet"
	name := s.StatefulSet.Name
	if d.statefulSet == nil {
		d.fault(field, fmt.Errorf("there is no StatefulSet %s in this namespace: correct the name, or name the members in endpoints", name))
		return nil
	}
	scheme := "http"
	if s.TLSSecret != nil {
		scheme = "https"
	}
	endpoints, err := endpointsOf(d.statefulSet, scheme)
	if err != nil {
		d.fault(field, fmt.Errorf("StatefulSet %s: %w", name, err))
	}
	return endpoints
}

// tlsKeys are the keys of Secrets with a CA, a client's certificate and its key: those of cert-manager, of coreos' operator, and of
// bitnami's chart.
var tlsKeys = [][3]string{
	{"ca.crt", "tls.crt", "tls.key"},
	{"etcd-client-ca.crt", "etcd-client.crt", "etcd-client.key"},
	{"ca.crt", "cert.pem", "key.pem"},
}

// tls returns the certificates in a Secret. A CA alone is enough: not every cluster asks for a client's certificate.
func (d *declaration) tls(field, name string) spec.PEM {
	data, ok := d.secret(field, name)
	if !ok {
		return spec.PEM{}
	}
	keys := tlsKeysOf(data)
	p := spec.PEM{CA: data[keys[0]], Cert: data[keys[1]], Key: data[keys[2]]}
	err := checkPEM(p, keys)
	if err != nil {
		d.fault(field, fmt.Errorf("secret %s: %w", name, err))
	}
	return p
}

// tlsKeysOf returns the first of tlsKeys under which data contains a certificate and its key; without one, the last under which it
// contains a CA.
func tlsKeysOf(data map[string][]byte) (found [3]string) {
	for _, keys := range tlsKeys {
		if len(data[keys[1]]) > 0 && len(data[keys[2]]) > 0 {
			return keys
		}
		if len(data[keys[0]]) > 0 {
			found = keys
		}
	}
	return found
}

// checkPEM returns an error if the certificates in p, which a Secret contains under keys, cannot be used. The error contains nothing
// of them.
func checkPEM(p spec.PEM, keys [3]string) error {
	paired := len(p.Cert) > 0 && len(p.Key) > 0
	switch {
	case !paired && (len(p.CA) == 0 || len(p.Cert)+len(p.Key) > 0):
		return errors.New("no certificates: it needs ca.crt, and tls.crt with tls.key if the members ask for a client certificate")
	case len(p.CA) > 0 && !x509.NewCertPool().AppendCertsFromPEM(p.CA):
		return fmt.Errorf("%s contains no certificate in PEM: store the CA of the members' certificates there", keys[0])
	case !paired:
		return nil
	}
	_, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil { // err may quote the Secret
		return fmt.Errorf("%s and %s are no pair of a certificate and its key in PEM: store both again", keys[1], keys[2])
	}
	return nil
}

// user returns the name and the password in a Secret.
func (d *declaration) user(field string, a v1alpha1.AuthSecret) (user, password string) {
	data, ok := d.secret(field, a.Name)
	if !ok {
		return "", ""
	}
	key := cmp.Or(a.PasswordKey, "password")
	if len(data[key]) == 0 {
		d.fault(field, fmt.Errorf("secret %s has no key %q: add it, or name the key in passwordKey", a.Name, key))
	}
	if a.UserKey != "" && len(data[a.UserKey]) == 0 {
		d.fault(field, fmt.Errorf("secret %s has no key %q: add it, or correct userKey", a.Name, a.UserKey))
	}
	user = strings.TrimSpace(string(data[cmp.Or(a.UserKey, "username")]))
	return cmp.Or(user, "root"), strings.TrimRight(string(data[key]), "\r\n") // kubectl's --from-file keeps the line end
}

// recipients returns the public keys that can open the backups.
func (d *declaration) recipients(s v1alpha1.EtcdBackupSpec) []string {
	if s.RecipientsSecret == nil {
		return s.Recipients
	}
	const field, key = "spec.recipientsSecret", "recipients"
	data, ok := d.secret(field, s.RecipientsSecret.Name)
	if ok && len(data[key]) == 0 {
		d.fault(field, fmt.Errorf("secret %s has no key %q: add the age public keys under it", s.RecipientsSecret.Name, key))
	}
	return []string{string(data[key])}
}

func (d *declaration) repository(r v1alpha1.Repository, of *v1alpha1.EtcdBackup) declared.Repository {
	field := "spec.repositories[" + r.Name + "]"
	place, err := address.Parse(strings.ReplaceAll(r.URL, declared.Placeholder, clusterOf(of)))
	var data map[string][]byte // nil: the operator's identity
	if r.CredentialsSecret != nil {
		data, _ = d.secret(field+".credentialsSecret", r.CredentialsSecret.Name)
	} else {
		d.identity(r, place, of.Namespace)
	}
	switch {
	case err != nil: // BuildRepositories or Build reports it
	case !slices.Contains([]string{address.S3, address.GCS, address.Azure}, place.Scheme):
		d.fault(field+".url", errors.New("only s3, gs and azblob are allowed: a directory would be the operator's own"))
	case place.CA != "":
		d.fault(field+".url", errors.New("the option ca names a file of the operator's own: remove it"))
	case place.Endpoint != "":
		d.reachable(field+".url", place.Endpoint)
	}
	set := declared.Repository{
		URL: r.URL, Credentials: data, Limit: d.limit(r.Limit, field+".limit"), Lock: d.lock(r.Lock, field+".lock"), Trust: r.Trust,
	}
	if r.CASecret != nil {
		set.CA = d.caCertificates(*r.CASecret, field+".caSecret")
	}
	if r.SignKeySecret != nil {
		set.SignKey = d.signKey(*r.SignKeySecret, field+".signKeySecret")
	}
	return set
}

// reachable adds a fault if the host of a URL is one that only the operator itself should reach.
func (d *declaration) reachable(field, text string) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		d.fault(field, errors.New("it is not a URL with a host: use https://host:port"))
		return
	}
	host := u.Hostname()
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	ip, err := netip.ParseAddr(name)
	own := name == "localhost" || strings.HasSuffix(name, ".localhost") || err == nil && reach.IsOwn(ip)
	if own && !d.loopback {
		d.fault(field, fmt.Errorf("%s is an address of the operator's own host: use one that other hosts reach", net.JoinHostPort(host, u.Port())))
	}
}

// secret returns the content of a Secret, and whether there is one.
func (d *declaration) secret(field, name string) (map[string][]byte, bool) {
	data := d.secrets[name]
	if data == nil {
		d.fault(field, fmt.Errorf("there is no Secret %s in this namespace: create it", name))
	}
	return data, data != nil
}

func (d *declaration) schedule(s *v1alpha1.Schedule, field string, set *declared.Schedule) {
	if s == nil {
		return
	}
	set.Cron, set.Zone, set.Jitter = s.Cron, cmp.Or(s.TimeZone, set.Zone), d.duration(s.Jitter, field+".jitter")
}

func (d *declaration) triggers(t *v1alpha1.Triggers, set *spec.Triggers) {
	if t == nil {
		return
	}
	set.Revisions, set.Every = t.Revisions, cmp.Or(d.duration(t.Every, "spec.triggers.every"), set.Every)
}

func (d *declaration) retention(r *v1alpha1.Retention) declared.Retention {
	if r == nil {
		return declared.Retention{}
	}
	p := retention.Policy{
		Last: r.Last, Hourly: r.Hourly, Daily: r.Daily, Weekly: r.Weekly, Monthly: r.Monthly, Yearly: r.Yearly,
		Within: d.duration(r.Within, "spec.retention.within"), Window: d.duration(r.Window, "spec.retention.window"),
	}
	if r.MaxSize != nil {
		p.MaxSize = r.MaxSize.Value()
	}
	return declared.Retention{Policy: p}
}

// archive returns how the log is archived. The spools of a namespace lie below a folder of its own, one for each cluster: segments that an
// EtcdBackup has left there never reach the repository of another namespace, even if the cluster's name does.
func (d *declaration) archive(a *v1alpha1.Archive, namespace string) spec.Archive {
	if a == nil {
		return spec.Archive{}
	}
	const field = "spec.archive.flush"
	flush := archive.DefaultFlush
	if a.Flush != "" {
		flush = d.duration(a.Flush, field)
	}
	if flush == 0 {
		d.fault(field, errors.New("0s archives nothing: use at least 1s, or remove archive"))
	}
	set := spec.Archive{Flush: flush}
	if d.spool != "" {
		set.Spool = filepath.Join(d.spool, namespace)
	}
	return set
}

// duration returns the duration in text; 0 if it is not set.
func (d *declaration) duration(text v1alpha1.Duration, field string) time.Duration {
	if text == "" {
		return 0
	}
	parsed, err := when.ParseSpan(string(text))
	if err != nil {
		d.fault(field, err)
	}
	return parsed
}
