package foreign

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// coreos is the group of coreos/etcd-operator.
const coreos = "etcd.database.coreos.com"

// coreosBackupSpec is the spec of an EtcdBackup (backup_types.go).
type coreosBackupSpec struct {
	EtcdEndpoints   []string `json:"etcdEndpoints"`
	StorageType     string   `json:"storageType"`
	ClientTLSSecret string   `json:"clientTLSSecret"`
	BackupPolicy    struct {
		TimeoutInSecond        int64 `json:"timeoutInSecond"`
		BackupIntervalInSecond int64 `json:"backupIntervalInSecond"`
		MaxBackups             int   `json:"maxBackups"`
	} `json:"backupPolicy"`
	coreosStores
}

// coreosStores are the stores of an EtcdBackup and an EtcdRestore, of which one is set.
type coreosStores struct {
	S3 struct {
		Path           string `json:"path"`
		AWSSecret      string `json:"awsSecret"`
		Endpoint       string `json:"endpoint"`
		ForcePathStyle bool   `json:"forcePathStyle"`
	} `json:"s3"`
	ABS struct {
		Path      string `json:"path"`
		ABSSecret string `json:"absSecret"`
	} `json:"abs"`
	GCS struct {
		Path      string `json:"path"`
		GCPSecret string `json:"gcpSecret"`
	} `json:"gcs"`
	OSS struct {
		Path      string `json:"path"`
		OSSSecret string `json:"ossSecret"`
		Endpoint  string `json:"endpoint"`
	} `json:"oss"`
}

// coreosRestoreSpec is the spec of an EtcdRestore (restore_types.go).
type coreosRestoreSpec struct {
	BackupStorageType string `json:"backupStorageType"`
	EtcdCluster       struct {
		Name string `json:"name"`
	} `json:"etcdCluster"`
	coreosStores
}

// place returns where snapshots are stored. storageType is the value of spec.storageType or spec.backupStorageType.
func (s coreosStores) place(storageType string) (place, error) {
	var at place
	switch storageType {
	case "S3":
		at = place{kind: s3, path: s.S3.Path, secret: s.S3.AWSSecret, endpoint: s.S3.Endpoint, field: "spec.s3.path"}
		if s.S3.ForcePathStyle || s.S3.Endpoint != "" {
			at.pathStyle = strconv.FormatBool(s.S3.ForcePathStyle)
		}
	case "GCS":
		at = place{kind: gcs, path: s.GCS.Path, secret: s.GCS.GCPSecret, field: "spec.gcs.path"}
	case "ABS":
		at = place{kind: azure, path: s.ABS.Path, secret: s.ABS.ABSSecret, field: "spec.abs.path"}
	case "OSS":
		at = place{kind: oss, path: s.OSS.Path, secret: s.OSS.OSSSecret, endpoint: s.OSS.Endpoint, field: "spec.oss.path"}
	default:
		return place{}, errors.New("the storage type must be S3, GCS, ABS or OSS, in capitals")
	}
	at.beginsWith, at.snapshot = true, at.path
	return at, nil
}

// maxSeconds bounds an interval and a timeout: ten years.
const maxSeconds = 10 * 365 * 24 * 3600

// coreosBackup translates an EtcdBackup. With an interval it gets a schedule, else it is taken once, as theirs was.
func coreosBackup(o *object) ([]Object, error) {
	var theirs coreosBackupSpec
	err := o.read(&theirs)
	if err != nil {
		return nil, err
	}
	policy := theirs.BackupPolicy
	switch {
	case len(theirs.EtcdEndpoints) == 0:
		return nil, errors.New("spec.etcdEndpoints is empty: name at least one client URL of etcd")
	case policy.BackupIntervalInSecond < 0 || policy.MaxBackups < 0:
		return nil, errors.New("spec.backupPolicy has a negative number: correct it")
	case max(policy.BackupIntervalInSecond, policy.TimeoutInSecond) > maxSeconds:
		return nil, fmt.Errorf("spec.backupPolicy: an interval or a timeout may have at most %d seconds: correct it", maxSeconds)
	}
	at, err := theirs.place(theirs.StorageType)
	if err != nil {
		return nil, err
	}
	spec := v1alpha1.EtcdBackupSpec{Source: &v1alpha1.Source{TLSSecret: secretOf(theirs.ClientTLSSecret)}}
	spec.Source.Endpoints, err = o.clientURLs("spec.etcdEndpoints", theirs.EtcdEndpoints)
	if err != nil {
		return nil, err
	}
	if policy.BackupIntervalInSecond > 0 {
		interval := span(time.Duration(policy.BackupIntervalInSecond) * time.Second)
		spec.Schedule = &v1alpha1.Schedule{Cron: "@every " + interval}
		o.note("The first backup is taken at once. Their operator waited %s before the first, and again after each of its own starts.", interval)
	}
	switch {
	case policy.MaxBackups > 0 && spec.Schedule != nil:
		spec.Retention = &v1alpha1.Retention{Last: policy.MaxBackups}
		o.note("spec.backupPolicy.maxBackups keeps the newest %d, by their times. Their operator sorted by name, and could delete the newest.", policy.MaxBackups)
	case policy.MaxBackups > 0:
		o.note("spec.backupPolicy.maxBackups has no effect without an interval, as with their operator.")
	}
	if policy.TimeoutInSecond > 0 {
		spec.Timeout = v1alpha1.Duration(span(time.Duration(policy.TimeoutInSecond) * time.Second))
	}
	return o.backup(at, spec)
}

// periodic matches the end of the name of a snapshot that was taken by an interval, with its revision and its time (backup_manager.go).
var periodic = regexp.MustCompile(`_v([0-9]{1,18})_([0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9]{2}:[0-9]{2}:[0-9]{2})$`)

const periodicTime = "2006-01-02-15:04:05"

// PeriodicName returns the key of a backup as a plain snapshot of an interval, whose names begin with a key.
func PeriodicName(key string, id catalog.ID) string {
	return fmt.Sprintf("%s_v%d_%s", key, id.Revision(), id.Started().Format(periodicTime))
}

// ofInterval returns a place without the end of the name of a snapshot that was taken by an interval. It has the id with which dr has stored that.
func (at place) ofInterval() place {
	suffix := periodic.FindStringSubmatch(at.path)
	if suffix == nil {
		return at
	}
	at.path = strings.TrimSuffix(at.path, suffix[0])
	revision, err := strconv.ParseInt(suffix[1], 10, 64)
	taken, errTime := time.Parse(periodicTime, suffix[2])
	if err == nil && errTime == nil {
		at.id = catalog.NewID(taken, revision)
	}
	return at
}

// coreosRestore translates an EtcdRestore.
func coreosRestore(o *object) ([]Object, error) {
	var theirs coreosRestoreSpec
	err := o.read(&theirs)
	if err != nil {
		return nil, err
	}
	at, err := theirs.place(theirs.BackupStorageType)
	if err != nil {
		return nil, err
	}
	name := theirs.EtcdCluster.Name // the backup may have another number of members
	o.note("StatefulSet %s must exist, and no other operator may run it: dr replaces the data of its members, and does not create a cluster.", name)
	return o.restore(at.ofInterval(), v1alpha1.RestoreInto{StatefulSet: v1alpha1.StatefulSetName{Name: name}, Members: o.batch.clusters[o.key(name)].members})
}
