package foreign

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage/address"
)

// place is where another operator stores a snapshot.
type place struct {
	kind      kind
	path      string // bucket/key
	field     string // of the spec that has the path
	secret    string // name; "": the store's default credentials
	endpoint  string // "": the provider's
	pathStyle bool
	region    string // "": that of the Secret
}

// kind is a kind of store.
type kind string

const (
	s3    kind = address.S3
	gcs   kind = address.GCS
	azure kind = address.Azure
	oss   kind = "oss" // Alibaba's, which understands S3's requests
)

// defaultOSS is the endpoint of coreos' operator if an object names none (pkg/util/alibabacloudutil).
const defaultOSS = "http://oss-cn-hangzhou.aliyuncs.com"

// ossEndpoint matches an endpoint of OSS. Its S3 API has another one
// (https://help.aliyun.com/en/oss/developer-reference/use-aws-sdks-to-access-oss).
var ossEndpoint = regexp.MustCompile(`^(?:https?://)?oss-([a-z0-9-]+?)(-internal)?\.aliyuncs\.com/?$`)

// folder begins the prefix of each repository. It may not begin with their path: the retention of coreos' operator deletes what does.
const folder = "etcd-dr"

// repository returns the repository that takes the backups of a place.
func (o *object) repository(at place) (v1alpha1.Repository, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(at.path, "s3://"), "/"), "/")
	if bucket == "" || strings.ContainsAny(bucket, "<>{}") {
		return v1alpha1.Repository{}, fmt.Errorf("%s is %q: write the bucket and the path in it, such as backups/etcd", at.field, at.path)
	}
	a := address.Address{Scheme: string(at.kind), Bucket: bucket, Prefix: strings.TrimSuffix(folder+"/"+strings.Trim(key, "/"), "/")}
	switch {
	case at.kind == oss:
		a.Scheme = address.S3
		o.overS3(at, &a)
	case at.kind == s3:
		if at.endpoint != "" {
			a.Endpoint = o.inNamespace(withScheme(at.endpoint))
		}
		if at.pathStyle {
			a.PathStyle = "true"
		}
		a.Region = at.region
	}
	_, err := address.Parse(a.String())
	if err != nil {
		return v1alpha1.Repository{}, fmt.Errorf("%s: %w", at.field, err)
	}
	if at.kind == s3 && at.secret != "" && a.Region == "" {
		o.note("The region is the one in the Secret %s (the file config, or AWS_REGION): if it has none, add region=NAME to the url.", at.secret)
	}
	if at.secret == "" {
		o.note("No Secret is named: the operator of dr uses its own identity, if its administrator allows that for this url (--ambient-prefix).")
	}
	return v1alpha1.Repository{Name: "main", URL: a.String(), CredentialsSecret: secretOf(at.secret)}, nil
}

// overS3 sets how to reach OSS by S3's requests.
func (o *object) overS3(at place, a *address.Address) {
	endpoint := at.endpoint
	if endpoint == "" {
		endpoint = defaultOSS
	}
	a.Checksums, a.PathStyle = "when-required", "false"
	m := ossEndpoint.FindStringSubmatch(endpoint)
	if m == nil {
		a.Endpoint = withScheme(endpoint)
		o.note("%s must understand the requests of S3: add region=NAME to the url.", endpoint)
		return
	}
	a.Endpoint, a.Region = "https://s3.oss-"+m[1]+m[2]+".aliyuncs.com", m[1]
	o.note("OSS is reached by its S3 API, at %s.", a.Endpoint)
}

// withScheme returns the URL of an endpoint that may be a host alone.
func withScheme(endpoint string) string {
	if strings.Contains(endpoint, "://") {
		return endpoint
	}
	return "https://" + endpoint
}

func secretOf(name string) *v1alpha1.SecretName {
	if name == "" {
		return nil
	}
	return &v1alpha1.SecretName{Name: name}
}

// span returns a duration as the fields of our objects have it, such as 1h30m.
func span(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// stored notes what is stored where, and remembers the repository for restores.
func (o *object) stored(at place, r v1alpha1.Repository) {
	o.file.backups[o.Metadata.Namespace+" "+r.URL] = o.Metadata.Name
	o.note("The backups are stored below %s in the bucket. The snapshots of their operator stay at %s, and dr import stores them as backups too.", folder, at.path)
}

// protect sets who can open the backups.
func (o *object) protect(spec *v1alpha1.EtcdBackupSpec) {
	if len(o.file.options.Recipients) > 0 {
		spec.Recipients = o.file.options.Recipients
		return
	}
	spec.Unencrypted = true
	o.note("The backups are not encrypted, as theirs were not, and contain every secret of the cluster: dr keygen creates a key, and " +
		"dr convert --recipient encrypts with it.")
}

// restore returns the restore of the newest backup below a place into the StatefulSet with the name of a cluster.
func (o *object) restore(at place, name string) ([]Object, error) {
	if name == "" {
		return nil, errors.New("spec.etcdCluster.name is empty: name the cluster to restore")
	}
	repository, err := o.repository(at)
	if err != nil {
		return nil, err
	}
	spec := v1alpha1.EtcdRestoreSpec{
		Target:  v1alpha1.RestoreTarget{Latest: &v1alpha1.Latest{}},
		Into:    v1alpha1.RestoreInto{StatefulSet: v1alpha1.StatefulSetName{Name: name}},
		Confirm: name,
	}
	tlsSecret := o.file.tlsSecrets[o.Metadata.Namespace+" "+name]
	if tlsSecret != "" {
		spec.Access = &v1alpha1.Access{TLSSecret: secretOf(tlsSecret)}
	}
	backup, known := o.file.backups[o.Metadata.Namespace+" "+repository.URL]
	if known {
		spec.From.EtcdBackup = &v1alpha1.EtcdBackupName{Name: backup}
	} else {
		spec.From.Repository, spec.From.Cluster = &repository, o.Metadata.Namespace+"."+name
		o.note("from.cluster is the name under which dr stores the backups: NAMESPACE.NAME of the EtcdBackup that takes them.")
	}
	o.note("The newest backup is restored. To restore a snapshot of their operator, store it with dr import, and in place of latest set " +
		"target.backup to the id that it prints.")
	o.note("The StatefulSet %s must exist, and no other operator may run it: dr replaces the data of its members, and does not create a cluster.", name)
	o.note("If the backups are encrypted, add identitySecret, the Secret with the identity that opens them.")
	o.note("Old data is kept for 72 hours, and rollback: true goes back to it. Their operator deleted the cluster first.")
	return o.ours("EtcdRestore", spec), nil
}
