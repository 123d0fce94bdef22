package foreign

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
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

// place returns the place of a storage type, which the field that selects it names.
func (s coreosStores) place(storageType string) (place, error) {
	switch storageType {
	case "S3":
		return place{kind: s3, path: s.S3.Path, secret: s.S3.AWSSecret, endpoint: s.S3.Endpoint, pathStyle: s.S3.ForcePathStyle, field: "spec.s3.path"}, nil
	case "GCS":
		return place{kind: gcs, path: s.GCS.Path, secret: s.GCS.GCPSecret, field: "spec.gcs.path"}, nil
	case "ABS":
		return place{kind: azure, path: s.ABS.Path, secret: s.ABS.ABSSecret, field: "spec.abs.path"}, nil
	case "OSS":
		return place{kind: oss, path: s.OSS.Path, secret: s.OSS.OSSSecret, endpoint: s.OSS.Endpoint, field: "spec.oss.path"}, nil
	}
	return place{}, errors.New("the storage type must be S3, GCS, ABS or OSS, in capitals")
}

// maxSeconds bounds an interval and a timeout: ten years.
const maxSeconds = 10 * 365 * 24 * 3600

// coreosBackup translates an EtcdBackup. With an interval it becomes a schedule, else it is taken once, in both forms.
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
	repository, err := o.repository(at)
	if err != nil {
		return nil, err
	}
	spec := v1alpha1.EtcdBackupSpec{Source: &v1alpha1.Source{}, Repositories: []v1alpha1.Repository{repository}}
	for _, endpoint := range theirs.EtcdEndpoints {
		full := o.inNamespace(endpoint)
		if !slices.Contains(spec.Source.Endpoints, full) {
			spec.Source.Endpoints = append(spec.Source.Endpoints, full)
		}
	}
	spec.Source.TLSSecret = secretOf(theirs.ClientTLSSecret)
	interval := time.Duration(policy.BackupIntervalInSecond) * time.Second
	if interval > 0 {
		spec.Schedule = &v1alpha1.Schedule{Cron: "@every " + span(interval)}
		o.note("The first backup is taken at once. Theirs was taken after the first %s, also after each start of the operator.", span(interval))
	}
	switch {
	case policy.MaxBackups > 0 && interval > 0:
		spec.Retention = &v1alpha1.Retention{Last: policy.MaxBackups}
		o.note("spec.backupPolicy.maxBackups keeps the newest %d by their times. Their operator sorted names, and could delete the newest.", policy.MaxBackups)
	case policy.MaxBackups > 0:
		o.note("spec.backupPolicy.maxBackups has no effect without an interval, as with their operator.")
	}
	if policy.TimeoutInSecond > 0 {
		spec.Timeout = v1alpha1.Duration(span(time.Duration(policy.TimeoutInSecond) * time.Second))
	} else {
		o.note("A backup may take 6 hours (timeout). Their limit was one minute.")
	}
	o.stored(at, repository)
	o.protect(&spec)
	return o.ours("EtcdBackup", spec), nil
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
	return o.restore(at, theirs.EtcdCluster.Name)
}
