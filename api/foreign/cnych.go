package foreign

import (
	"errors"
	"strings"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// cnych is the group of cnych/etcd-operator.
const cnych = "etcd.ydzs.io"

// cnychBackupSpec is the spec of an EtcdBackup (etcdbackup_types.go).
type cnychBackupSpec struct {
	EtcdURL     string `json:"etcdUrl"`
	StorageType string `json:"storageType"`
	cnychStores
}

// cnychStores are the stores of an EtcdBackup and an EtcdRestore, of which one is set.
type cnychStores struct {
	S3  cnychStore `json:"s3"`
	OSS cnychStore `json:"oss"`
}

type cnychStore struct {
	Path     string `json:"path"`
	Endpoint string `json:"endpoint"`
	Secret   string `json:"secret"`
}

// cnychRestoreSpec is the spec of an EtcdRestore in the forks that have one (etcdrestore_types.go).
type cnychRestoreSpec struct {
	BackupStorageType string `json:"backupStorageType"`
	EtcdCluster       struct {
		Name string `json:"name"`
	} `json:"etcdCluster"`
	cnychStores
}

// place returns the place of a storage type. The path is a template of Go, whose fields are those of the object. Their client is MinIO's: its
// Secret has no region, and the default is us-east-1.
func (s cnychStores) place(storageType string, of Metadata) (place, error) {
	var at place
	switch storageType {
	case "s3":
		at = place{kind: s3, path: s.S3.Path, secret: s.S3.Secret, endpoint: s.S3.Endpoint, pathStyle: true, region: "us-east-1", field: "spec.s3.path"}
	case "oss":
		at = place{kind: oss, path: s.OSS.Path, secret: s.OSS.Secret, endpoint: s.OSS.Endpoint, field: "spec.oss.path"}
	default:
		return place{}, errors.New("the storage type must be s3 or oss, in small letters")
	}
	return at.folderOf(of), nil
}

// folderOf returns the place with the path up to the element that is different in each backup.
func (at place) folderOf(of Metadata) place {
	var kept []string
	for element := range strings.SplitSeq(at.path, "/") {
		element = strings.ReplaceAll(element, " ", "")
		element = strings.NewReplacer("{{.Namespace}}", of.Namespace, "{{.Name}}", of.Name).Replace(element)
		if strings.Contains(element, "{{") {
			break
		}
		kept = append(kept, element)
	}
	at.path = strings.Join(kept, "/")
	return at
}

// cnychBackup translates an EtcdBackup, which is taken once.
func cnychBackup(o *object) ([]Object, error) {
	var theirs cnychBackupSpec
	err := o.read(&theirs)
	if err != nil {
		return nil, err
	}
	if theirs.EtcdURL == "" {
		return nil, errors.New("spec.etcdUrl is empty: name a client URL of etcd")
	}
	at, err := theirs.place(theirs.StorageType, o.Metadata)
	if err != nil {
		return nil, err
	}
	repository, err := o.repository(at)
	if err != nil {
		return nil, err
	}
	spec := v1alpha1.EtcdBackupSpec{
		Source:       &v1alpha1.Source{Endpoints: []string{o.inNamespace(theirs.EtcdURL)}},
		Repositories: []v1alpha1.Repository{repository},
	}
	o.note("A backup may take 6 hours (timeout). Their limit was one minute.")
	o.stored(at, repository)
	o.protect(&spec)
	return o.ours("EtcdBackup", spec), nil
}

// cnychRestore translates an EtcdRestore.
func cnychRestore(o *object) ([]Object, error) {
	var theirs cnychRestoreSpec
	err := o.read(&theirs)
	if err != nil {
		return nil, err
	}
	at, err := theirs.place(theirs.BackupStorageType, o.Metadata)
	if err != nil {
		return nil, err
	}
	return o.restore(at, theirs.EtcdCluster.Name)
}

// cnychCluster notes the way off their operator: the cluster is a StatefulSet already.
func cnychCluster(o *object) ([]Object, error) {
	o.note("The members are run by the StatefulSet %s, which their operator made. To continue without the operator, delete its Deployment, and then "+
		"the EtcdCluster alone: kubectl -n %s delete etcdclusters.%s %s --cascade=orphan. The StatefulSet and its Service stay, and dr restores into it.",
		o.Metadata.Name, o.Metadata.Namespace, cnych, o.Metadata.Name)
	return nil, nil
}
