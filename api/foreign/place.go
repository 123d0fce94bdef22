package foreign

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// place is where another operator stores a snapshot.
type place struct {
	kind       kind
	path       string     // bucket/key
	field      string     // of the spec that has the path
	secret     string     // name; "": the store's default credentials
	endpoint   string     // "": the provider's
	pathStyle  string     // "true", "false"; "": the default of the store
	region     string     // "": that of the Secret
	snapshot   string     // the path of one snapshot, in a restore
	id         catalog.ID // of the backup that dr has stored as that snapshot too; "": unknown
	beginsWith bool       // the names of the snapshots begin with the path; else it is their folder, or one snapshot
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

// ossEndpoint matches an endpoint of a region of OSS. Its S3 API has another one
// (https://help.aliyun.com/en/oss/developer-reference/use-aws-sdks-to-access-oss).
var ossEndpoint = regexp.MustCompile(`^(?:https?://)?oss-([a-z]+-[a-z0-9-]+?)(-internal)?\.aliyuncs\.com/?$`)

// folders are the candidates for the first element of a repository's prefix. The retention of coreos' operator deletes every object whose name
// begins with its path. No path is the beginning of both folders, so one of them is safe.
var folders = [2]string{"etcd-dr", "dr-backups"}

// bucket returns the bucket of a place, and the key in it.
func (at place) bucket() (bucket, key string) {
	bucket, key, _ = strings.Cut(strings.Trim(strings.TrimPrefix(at.path, "s3://"), "/"), "/")
	return bucket, key
}

// repository returns the repository that takes the backups of a place.
func (o *object) repository(at place) (v1alpha1.Repository, error) {
	bucket, key := at.bucket()
	if bucket == "" || strings.ContainsAny(bucket, "<>{}") || at.beginsWith && key == "" {
		return v1alpha1.Repository{}, fmt.Errorf("%s is %q: write the bucket and the path in it, such as backups/etcd", at.field, at.path)
	}
	if at.secret != "" {
		err := checkName("the Secret of "+at.field, at.secret)
		if err != nil {
			return v1alpha1.Repository{}, err
		}
	}
	a := address.Address{Scheme: string(at.kind), Bucket: bucket, Prefix: prefixFor(key)}
	err := o.reach(at, &a)
	if err == nil {
		_, err = address.Parse(a.String())
	}
	if err != nil {
		return v1alpha1.Repository{}, fmt.Errorf("%s: %w", at.field, err)
	}
	return v1alpha1.Repository{Name: "main", URL: a.String(), CredentialsSecret: secretOf(at.secret)}, nil
}

// cluster returns the name of the cluster whose backups are stored at a place, for a namespace: the bucket and the key for people, and a digest
// of both. It does not depend on the endpoint, which a backup and its restore may write in two ways.
func (at place) cluster(namespace string) string {
	bucket, key := at.bucket()
	name := namespace + "." + strings.Trim(notInCluster.ReplaceAllString(bucket+"."+key, "-"), ".-")
	sum := sha256.Sum256([]byte(bucket + "/" + key))
	digest := "-" + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxCluster-len(digest))] + digest
}

// notInCluster matches what the name of a cluster cannot contain, and maxCluster is its longest length in bytes: catalog.ValidCluster.
var notInCluster = regexp.MustCompile(`[^A-Za-z0-9._-]`)

const maxCluster = 100

// prefixFor returns the prefix of a repository, which does not begin with key, their path in the bucket.
func prefixFor(key string) string {
	if key == "" {
		return folders[0]
	}
	prefix := folders[0] + "/" + key
	if strings.HasPrefix(prefix, key) {
		prefix = folders[1] + "/" + key
	}
	return prefix
}

// reach sets how to reach the store.
func (o *object) reach(at place, a *address.Address) error {
	switch {
	case at.kind == oss || at.kind == s3 && ossEndpoint.MatchString(at.endpoint):
		return o.reachOSS(at, a)
	case at.kind != s3:
		return nil
	}
	a.PathStyle, a.Region = at.pathStyle, at.region
	if at.endpoint != "" {
		u, err := parseEndpoint("endpoint", at.endpoint, "https")
		if err != nil {
			return err
		}
		a.Endpoint = o.inNamespace(u)
	}
	if at.secret != "" && a.Region == "" {
		o.note("The region is the one in the Secret %s (the file config, or AWS_REGION): if it has none, add region=NAME to the url.", at.secret)
	}
	return nil
}

// reachOSS sets how to reach OSS by the requests of S3.
func (o *object) reachOSS(at place, a *address.Address) error {
	endpoint := at.endpoint
	if endpoint == "" {
		endpoint = defaultOSS
	}
	a.Scheme, a.Checksums, a.PathStyle = address.S3, "when-required", "false"
	m := ossEndpoint.FindStringSubmatch(endpoint)
	if m != nil {
		a.Endpoint, a.Region = "https://s3.oss-"+m[1]+m[2]+".aliyuncs.com", m[1]
		o.note("OSS is reached by its S3 API, at %s.", a.Endpoint)
		return nil
	}
	u, err := parseEndpoint("endpoint", endpoint, "https")
	if err != nil {
		return err
	}
	a.Endpoint = o.inNamespace(u)
	o.note("%s must understand the requests of S3: add region=NAME to the url.", a.Endpoint)
	return nil
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

// backup completes the spec of an EtcdBackup, and returns the object.
func (o *object) backup(at place, spec v1alpha1.EtcdBackupSpec) ([]Object, error) {
	repository, err := o.repository(at)
	if err != nil {
		return nil, err
	}
	_, o.stores = at.bucket()
	spec.Repositories = []v1alpha1.Repository{repository}
	if o.batch.options.ByPath {
		spec.Cluster = at.cluster(o.Metadata.Namespace)
	}
	scheduled := spec.Schedule != nil
	o.batch.backups = append(o.batch.backups, stored{o.Metadata.Namespace, o.Metadata.Name, at, scheduled})
	if spec.Timeout == "" {
		o.note("A backup may take 6 hours (timeout). Their limit was 1m.")
	}
	if at.secret == "" {
		o.note("No Secret is named: the operator of dr uses its own identity, if its administrator allows that for this url (--ambient-prefix).")
	}
	if !scheduled && o.isDone() {
		o.note("Their operator has taken this backup already. If you apply this object, it takes another.")
	}
	o.note("Backups are stored as a repository at url, and not as plain snapshots at %s: dr fetch makes a snapshot of a backup.", at.path)
	if !scheduled && at.beginsWith {
		o.note("If this object is deleted and created again, the backup before stays. Their operator replaced the snapshot.")
	}
	o.old = o.oldAt(at, repository.URL, cmp.Or(spec.Cluster, o.Metadata.Namespace+"."+o.Metadata.Name))
	if len(o.batch.options.Recipients) > 0 {
		spec.Recipients = o.batch.options.Recipients
		return o.ours("EtcdBackup", spec), nil
	}
	spec.Unencrypted = true
	o.note("The backups are not encrypted, as theirs were not, and contain every secret of the cluster: dr keygen creates a key, and " +
		"dr convert --recipient encrypts with it.")
	return o.ours("EtcdBackup", spec), nil
}

// oldAt returns the snapshots of their operator at a place, and how they become backups of a cluster in the repository at a URL.
func (o *object) oldAt(at place, url, cluster string) Old {
	from, err := address.Parse(url)
	if err != nil {
		panic(err) // the URL has been parsed before
	}
	bucket, key := at.bucket()
	from.Prefix = key
	command := fmt.Sprintf("dr import '%s' --repo '%s' --cluster %s", from, url, cluster)
	for _, r := range o.batch.options.Recipients {
		command += " --recipient " + r
	}
	return Old{File: address.Address{Scheme: from.Scheme, Bucket: bucket}.Object(key), Import: command}
}

// restore returns the restore of the newest backup that was stored at a place into the StatefulSet with the name of a cluster.
func (o *object) restore(at place, into v1alpha1.RestoreInto) ([]Object, error) {
	name := into.StatefulSet.Name
	err := checkName("spec.etcdCluster.name", name)
	if err != nil {
		return nil, err
	}
	if o.isDone() {
		o.note("Their operator has carried out this restore: nothing replaces it.")
		return nil, nil
	}
	repository, err := o.repository(at)
	if err != nil {
		return nil, err
	}
	if at.secret == "" {
		return nil, errors.New("no Secret with the store's credentials is named: add it, the Jobs of a restore need it")
	}
	spec := v1alpha1.EtcdRestoreSpec{Target: v1alpha1.RestoreTarget{Latest: &v1alpha1.Latest{}}, Into: into, Confirm: name, Suspend: true}
	tlsSecret := o.batch.clusters[o.key(name)].tlsSecret
	if tlsSecret != "" {
		spec.Access = &v1alpha1.Access{TLSSecret: secretOf(tlsSecret)}
	}
	o.note("Apply it once there is a backup: without one it is refused. While suspend is true, the restore builds the new data and stops no member. Remove suspend to "+
		"replace the data of StatefulSet %s.", name)
	from, cluster := o.batch.storedAt(o.Metadata.Namespace, at), o.Metadata.Namespace+"."+name
	switch {
	case o.batch.options.ByPath:
		cluster = at.cluster(o.Metadata.Namespace)
		spec.From.Repository, spec.From.Cluster = &repository, cluster
		if at.id != "" {
			spec.Target = v1alpha1.RestoreTarget{Backup: string(at.id)}
		}
	case len(from) > 0:
		cluster = o.Metadata.Namespace + "." + from[0].name
		spec.From.EtcdBackup = &v1alpha1.EtcdBackupName{Name: from[0].name}
	default:
		spec.From.Repository, spec.From.Cluster = &repository, cluster
		o.note("from is a guess: no EtcdBackup in the files stores at %s. Name the EtcdBackup that takes the backups (from.etcdBackup), or their cluster "+
			"and repository.", at.path)
	}
	for _, other := range from[min(1, len(from)):] {
		o.note("EtcdBackup %s also stores at %s: choose one in from.", other.name, at.path)
	}
	o.old = o.oldAt(place{path: at.snapshot}, repository.URL, cluster)
	o.note("The newest backup is restored. To restore the snapshot %s instead, store it as a backup, and replace target.latest by target.backup with its id.",
		at.snapshot)
	o.note("If the backups are encrypted, add identitySecret, the Secret with the identity that opens them.")
	o.note("Old data is kept for 72 hours, and rollback: true goes back to it. Their operator deleted the cluster first.")
	return o.ours("EtcdRestore", spec), nil
}

// storedAt returns the EtcdBackups of a namespace whose snapshots are at a place, those with a schedule first.
func (b *batch) storedAt(namespace string, at place) (found []stored) {
	for _, scheduled := range []bool{true, false} {
		for _, s := range b.backups {
			isThere := s.at.path == at.path || !s.at.beginsWith && strings.HasPrefix(at.path, s.at.path+"/")
			if s.namespace == namespace && s.scheduled == scheduled && s.at.kind == at.kind && s.at.endpoint == at.endpoint && isThere {
				found = append(found, s)
			}
		}
	}
	return found
}
