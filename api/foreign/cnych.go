package foreign

import (
	"cmp"
	"errors"
	"regexp"
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
	Path      string `json:"path"`
	Endpoint  string `json:"endpoint"`
	Secret    string `json:"secret"`
	S3Secret  string `json:"s3Secret"` // in samples of its earlier versions
	OSSSecret string `json:"ossSecret"`
}

func (s cnychStore) secret() string { return cmp.Or(s.Secret, s.S3Secret, s.OSSSecret) }

// cnychRestoreSpec is the spec of an EtcdRestore in the forks that have one (etcdrestore_types.go). Their sample has the store inside etcdCluster.
type cnychRestoreSpec struct {
	EtcdCluster struct {
		Name string `json:"name"`
		cnychSource
	} `json:"etcdCluster"`
	cnychSource
}

// cnychSource is the place of the snapshot in an EtcdRestore.
type cnychSource struct {
	BackupStorageType string `json:"backupStorageType"`
	cnychStores
}

// place returns the place of a storage type. Their client is MinIO's: it names the bucket in the path of each request, except to Amazon, and its
// Secret has no region.
func (s cnychStores) place(storageType string) (place, error) {
	at := place{kind: s3, path: s.S3.Path, secret: s.S3.secret(), endpoint: s.S3.Endpoint, field: "spec.s3.path"}
	switch {
	case storageType == "oss":
		at = place{kind: oss, path: s.OSS.Path, secret: s.OSS.secret(), endpoint: s.OSS.Endpoint, field: "spec.oss.path"}
	case storageType != "s3":
		return place{}, errors.New("the storage type must be s3 or oss, in small letters")
	case at.endpoint != "" && !strings.Contains(at.endpoint, "amazonaws.com"):
		at.pathStyle, at.region = "true", "us-east-1"
	}
	at.snapshot = at.path
	return at, nil
}

// folderOf cuts the path before the first element that differs from backup to backup. The path is a template of Go: folderOf fills in .Namespace
// and .Name, and cuts at any other field.
func (at place) folderOf(of Metadata) place {
	var kept []string
	for element := range strings.SplitSeq(at.path, "/") {
		element = templateField.ReplaceAllStringFunc(element, func(name string) string {
			switch templateField.FindStringSubmatch(name)[1] {
			case "Namespace":
				return of.Namespace
			case "Name":
				return of.Name
			}
			return name
		})
		if strings.Contains(element, "{{") {
			break
		}
		kept = append(kept, element)
	}
	at.path = strings.Join(kept, "/")
	return at
}

// templateField matches a field in a template.
var templateField = regexp.MustCompile(`{{\s*\.(\w+)\s*}}`)

// cnychBackup translates an EtcdBackup, which is taken once.
func cnychBackup(o *object) ([]Object, error) {
	var theirs cnychBackupSpec
	err := o.read(&theirs)
	if err != nil {
		return nil, err
	}
	at, err := theirs.place(theirs.StorageType)
	if err != nil {
		return nil, err
	}
	urls, err := o.clientURLs("spec.etcdUrl", []string{theirs.EtcdURL})
	if err != nil {
		return nil, err
	}
	return o.backup(at.folderOf(o.Metadata), v1alpha1.EtcdBackupSpec{Source: &v1alpha1.Source{Endpoints: urls}})
}

// dataDir is the data dir in a pod of theirs (controllers/resource.go).
const dataDir = "/var/run/etcd/default.etcd"

// cnychRestore translates an EtcdRestore.
func cnychRestore(o *object) ([]Object, error) {
	var theirs cnychRestoreSpec
	err := o.read(&theirs)
	if err != nil {
		return nil, err
	}
	source := theirs.cnychSource
	if source == (cnychSource{}) {
		source = theirs.EtcdCluster.cnychSource
	}
	at, err := source.place(source.BackupStorageType)
	if err != nil {
		return nil, err
	}
	name := theirs.EtcdCluster.Name
	into := v1alpha1.RestoreInto{StatefulSet: v1alpha1.StatefulSetName{Name: name}, DataDir: dataDir}
	into.Members = o.batch.clusters[o.key(name)].members
	if into.Members == nil {
		o.note("A script starts the members. If dr does not know it, pass the EtcdCluster too, or set into.members.")
	}
	o.note("StatefulSet %s must exist: dr replaces the data of its members, and does not create a cluster.", name)
	if !o.batch.options.Gone {
		o.note("While EtcdCluster %s owns the StatefulSet, keep their operator running: dr sets the size to 0, and later back.", name)
	}
	return o.restore(at, into)
}

// cnychClusterSpec is the spec of an EtcdCluster (etcdcluster_types.go).
type cnychClusterSpec struct {
	Size  int    `json:"size"`
	Image string `json:"image"`
}

// cnychCluster notes the way off their operator: the cluster is a StatefulSet already. If that is gone, it becomes one with the same names.
func cnychCluster(o *object) ([]Object, error) {
	var theirs cnychClusterSpec
	err := o.read(&theirs)
	if err == nil {
		err = checkMembers(theirs.Size)
	}
	if err == nil && theirs.Image == "" && o.batch.options.Gone {
		err = errors.New("spec.image is missing: name an image of etcd 3.4 or later")
	}
	if err != nil {
		return nil, err
	}
	c := cluster{object: o, spec: coreosClusterSpec{Size: theirs.Size}, layout: layout{
		labels: map[string]string{"etcd.ydzs.io/cluster": o.Metadata.Name}, image: theirs.Image, claim: "datadir", dataDir: dataDir,
	}}
	c.spec.Pod.ClusterDomain = "cluster.local"
	o.batch.clusters[o.key(o.Metadata.Name)] = clusterFacts{members: c.members()}
	name, namespace := o.Metadata.Name, o.Metadata.Namespace
	if !o.batch.options.Gone {
		o.note("Keep it as long as their operator runs: StatefulSet %s runs the members, and dr restores into it. To continue without the operator, delete its "+
			"Deployment, wait until its pod is gone, and then delete only the EtcdCluster: kubectl -n %s delete etcdclusters.%s %s --cascade=orphan. "+
			"The StatefulSet and its Service stay. If they are gone, dr convert --gone prints new ones.", name, namespace, cnych, name)
		return nil, nil
	}
	o.note("The StatefulSet has 0 replicas: with %d it would begin a new, empty cluster. Their operator must not run. Create these objects with kubectl create, "+
		"which leaves a StatefulSet alone that exists, and restore into it with an EtcdRestore, which starts %d members.", c.spec.Size, c.spec.Size)
	o.note("Each member gets a volume of 1 GiB (volumeClaimTemplates), or the claim datadir-%s-0 and so on that is left: choose a size and a class.", name)
	o.note("etcd is started without their script, so the image must have /usr/local/bin/etcd, as etcd's own images have.")
	return []Object{c.headless(), c.statefulSet()}, nil
}
