package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/apiserver"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// legacy is a Kubernetes API with the manifests of deploy/coreos, an etcd cluster to back up, and a store. No custom resource is defined.
type legacy struct {
	api    *apiserver.APIServer
	etcd   *servers.Cluster
	store  *objectstores.S3Server
	bucket string
}

// newLegacy starts all of it.
func newLegacy(t *testing.T) *legacy {
	t.Helper()
	withServers(t)
	store := objectstores.S3Plain(t)
	l := &legacy{
		api:  apiserver.Start(t, servers.Start(t, servers.Options{Version: "3.6"})),
		etcd: servers.Start(t, servers.Options{Version: "3.6"}), store: store, bucket: store.Bucket(t),
	}
	for _, operator := range []string{"etcd-backup-operator", "etcd-restore-operator"} {
		l.api.Kubectl(t, "", "create", "-f", "../../deploy/coreos/example/"+operator+"/deployment.yaml")
	}
	l.api.Kubectl(t, "", "create", "secret", "generic", "aws", "--from-literal=config=[default]\nregion = "+store.Region+"\n",
		"--from-literal=credentials=[default]\naws_access_key_id = "+store.AccessKey+"\naws_secret_access_key = "+store.SecretKey+"\n")
	return l
}

// start starts the operator with the rights of one of the manifests alone, and with more flags.
func (l *legacy) start(t *testing.T, account string, flags ...string) {
	t.Helper()
	args := []string{
		"operator", "--coreos", "--namespace", "default", "--election-namespace", "default", "--election-name", "etcd-dr-coreos",
		"--kubeconfig", l.api.As(t, "default", account), "--allow-loopback", "--patience", "2s",
	}
	command.Listen(t, objectstores.WrongEnv(), append(args, flags...)...)
}

// create creates an object of their group that stores below a key of the bucket, with more fields of its spec.
func (l *legacy) create(t *testing.T, kind, name, key, fields string) {
	t.Helper()
	l.api.Kubectl(t, fmt.Sprintf(`
apiVersion: etcd.database.coreos.com/v1beta2
kind: %s
metadata: {name: %s, finalizers: [%s]}
spec:
  s3: {path: %s/%s, awsSecret: aws, endpoint: %q, forcePathStyle: true}
%s`, kind, name, map[string]string{"EtcdBackup": "backup-operator-periodic"}[kind], l.bucket, key, l.store.Endpoint, fields), "create", "-f", "-")
}

// createBackup creates an EtcdBackup of theirs.
func (l *legacy) createBackup(t *testing.T, name, key, fields string) {
	t.Helper()
	l.create(t, "EtcdBackup", name, key, fmt.Sprintf("  storageType: S3\n  etcdEndpoints: [%q]\n  %s", l.etcd.Endpoints()[0], fields))
}

// theirStatus is the status of an EtcdBackup of theirs.
type theirStatus struct {
	Succeeded       bool
	Reason          string
	EtcdVersion     string
	EtcdRevision    int64
	LastSuccessDate string
}

// status returns the status of one of their EtcdBackups, which kubectl finds by the short name of its kind.
func (l *legacy) status(t *testing.T, name string) theirStatus {
	t.Helper()
	var read struct {
		APIVersion string
		Status     theirStatus
	}
	err := json.Unmarshal([]byte(l.api.Kubectl(t, "", "get", "etcdbackup", name, "-o", "json")), &read)
	if err != nil || read.APIVersion != "etcd.database.coreos.com/v1beta2" {
		t.Fatalf("%s: %v", read.APIVersion, err)
	}
	return read.Status
}

// snapshots returns the names of the objects in the bucket outside of the repositories.
func (l *legacy) snapshots(t *testing.T) (names []string) {
	t.Helper()
	pages := s3.NewListObjectsV2Paginator(l.store.Client(t), &s3.ListObjectsV2Input{Bucket: &l.bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Contents {
			if !strings.HasPrefix(*o.Key, "etcd-dr/") && !strings.HasPrefix(*o.Key, "dr-backups/") {
				names = append(names, *o.Key)
			}
		}
	}
	return names
}

// TestCoreosBackups carries out EtcdBackups of coreos' operators: one that is taken once, and one with an interval, whose plain snapshots have
// names that sort wrongly (v99 after v100), beside those of a path that begins alike.
func TestCoreosBackups(t *testing.T) {
	l := newLegacy(t)
	l.start(t, "etcd-backup-operator", "--coreos-plain-snapshots")
	revision := l.write(t, 98)
	l.createBackup(t, "once", "etcd.backup", "")
	eventually(t, "the backup has succeeded", func() bool { return l.status(t, "once").Succeeded })
	status := l.status(t, "once")
	if status.EtcdRevision != revision || !strings.HasPrefix(status.EtcdVersion, "3.6.") || status.LastSuccessDate == "" || status.Reason != "" {
		t.Errorf("the status is %+v, want revision %d", status, revision)
	}
	plain := l.snapshots(t)
	if !slices.Equal(plain, []string{"etcd.backup"}) {
		t.Errorf("the plain snapshots are %v", plain)
	}

	const neighbour, older = "etcd2_v1_2020-01-01-00:00:00", "etcd_v97_2020-01-01-00:00:00" // of another path; of coreos' own operator
	for _, key := range []string{neighbour, older} {
		putObject(t, l.store, l.bucket, key, []byte("a"))
	}
	l.createBackup(t, "periodic", "etcd", "backupPolicy: {backupIntervalInSecond: 2, maxBackups: 3}")
	taken := map[string]bool{} // the times of all snapshots that were seen
	for next := revision; next <= 102; next++ {
		eventually(t, fmt.Sprintf("a snapshot of revision %d is stored", next), func() bool {
			names := l.snapshots(t)
			maps.Copy(taken, timesOf(names))
			return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, fmt.Sprintf("etcd_v%d_", next)) })
		})
		l.write(t, next+1)
	}
	var got []string
	eventually(t, "the snapshots are pruned", func() bool {
		got = l.snapshots(t) // a later one may have another snapshot more
		return len(got) == 6
	})
	kept := slices.Sorted(maps.Keys(timesOf(got)))
	for at := range taken {
		if len(kept) != 3 || at > kept[0] && !slices.Contains(kept, at) {
			t.Errorf("of the snapshots of %v, those of %v are kept: %v", slices.Sorted(maps.Keys(taken)), kept, got)
		}
	}
	for _, foreign := range []string{"etcd.backup", neighbour, older} {
		if !slices.Contains(got, foreign) {
			t.Errorf("%s, which the interval has not stored, is gone: %v", foreign, got)
		}
	}

	l.createBackup(t, "more", "etcd", "") // of the path that has an interval
	eventually(t, "a single backup has succeeded", func() bool { return l.status(t, "more").Succeeded && slices.Contains(l.snapshots(t), "etcd") })

	l.createBackup(t, "bad", "bad", "backupPolicy: {maxBackups: -1}")
	eventually(t, "it is refused", func() bool {
		reason := l.api.Kubectl(t, "", "get", "etcdbackup", "bad", "-o", "jsonpath={.status.Reason}") // capital, as in their backup_types.go
		return strings.Contains(reason, "has a negative number")
	})
	l.api.Kubectl(t, "", "delete", "etcdbackup", "once", "periodic", "more", "bad", "--timeout", patience.String()) // their finalizer does not hold them up
}

// timesOf returns the times in the names of the snapshots of an interval, without those of 2020.
func timesOf(names []string) map[string]bool {
	times := map[string]bool{}
	for _, name := range names {
		m := regexp.MustCompile(`^etcd_v[0-9]+_(.*)$`).FindStringSubmatch(name)
		if m != nil && !strings.HasPrefix(m[1], "2020-") {
			times[m[1]] = true
		}
	}
	return times
}

// TestCoreosOldSnapshot restores a snapshot that coreos' operator has stored: the reason of the EtcdRestore has the command that makes a backup of
// it. The flag for plain snapshots is not set, and none is stored.
func TestCoreosOldSnapshot(t *testing.T) {
	l := newLegacy(t)
	l.start(t, "etcd-restore-operator")
	l.createBackup(t, "once", "other.backup", "")
	eventually(t, "the backup has succeeded", func() bool { return l.status(t, "once").Succeeded })
	old, err := os.ReadFile(saved(t, l.etcd))
	if err != nil {
		t.Fatal(err)
	}
	putObject(t, l.store, l.bucket, "etcd.backup", old)
	plain := l.snapshots(t)
	if !slices.Equal(plain, []string{"etcd.backup"}) {
		t.Errorf("the plain snapshots are %v", plain)
	}

	l.api.Kubectl(t, emptySet, "create", "-f", "-")
	l.restore(t, "etcd")
	l.wantReason(t, "etcd", "if coreos' operator has stored this snapshot, run dr import ")
	reason := l.api.Kubectl(t, "", "get", "etcdrestore", "etcd", "-o", "jsonpath={.status.reason}")
	_, args, _ := strings.Cut(strings.ReplaceAll(reason, "'", ""), "run dr ")
	done := command.Result[document.Import](t, l.store.Env(), strings.Fields(args)...)
	if len(done.Sources) != 1 || done.Sources[0].State != document.ImportStored {
		t.Fatalf("%s: %+v", args, done.Sources)
	}
	eventually(t, "the restore of the import is ordered", func() bool {
		return l.api.Kubectl(t, "", "get", "etcdrestores.legacy.etcd-dr.io", "-o", "jsonpath={.items[*].spec.target.backup}") == done.Sources[0].Backup
	})
}

// emptySet is a StatefulSet without pods.
const emptySet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: etcd}
spec:
  replicas: 0
  serviceName: etcd
  selector: {matchLabels: {app: etcd}}
  template:
    metadata: {labels: {app: etcd}}
    spec: {containers: [{name: etcd, image: a}]}
`

// write writes to the cluster until it has a revision, and returns that.
func (l *legacy) write(t *testing.T, revision int64) int64 {
	t.Helper()
	client := l.etcd.Client(t)
	for {
		put, err := client.Put(t.Context(), "key", "value")
		if err != nil {
			t.Fatal(err)
		}
		if put.Header.Revision >= revision {
			return put.Header.Revision
		}
	}
}

// TestCoreosRestoreWaits creates EtcdRestores that wait: the cluster does not exist, its etcd is too old, or coreos' operator still runs, whose pod
// is found by its label or by its command.
func TestCoreosRestoreWaits(t *testing.T) {
	l := newLegacy(t)
	l.start(t, "etcd-restore-operator")
	l.restore(t, "gone")
	l.wantReason(t, "gone", "neither an EtcdCluster nor a StatefulSet gone")

	l.api.Kubectl(t, "apiVersion: etcd.database.coreos.com/v1beta2\nkind: EtcdCluster\nmetadata: {name: old}\nspec: {size: 3}", "create", "-f", "-")
	l.restore(t, "old")
	l.wantReason(t, "old", "EtcdCluster old has etcd 3.2.13, and dr needs 3.4 or later")
	sets := l.api.Kubectl(t, "", "get", "statefulsets", "-o", "name")
	if sets != "" {
		t.Errorf("a StatefulSet was created: %s", sets)
	}

	for _, arguments := range []string{"--labels=name=etcd-operator", "--command -- /usr/local/bin/etcd-operator -cluster-wide"} {
		l.api.Kubectl(t, "", append([]string{"run", "theirs", "--image=a"}, strings.Fields(arguments)...)...)
		l.wantReason(t, "gone", "pod theirs of coreos' operator runs")
		l.api.Kubectl(t, "", "delete", "pod", "theirs", "--force")
		l.wantReason(t, "gone", "neither an EtcdCluster")
	}
}

// restore creates an EtcdRestore into the cluster of its name.
func (l *legacy) restore(t *testing.T, name string) {
	t.Helper()
	l.create(t, "EtcdRestore", name, "etcd.backup", "  backupStorageType: S3\n  etcdCluster: {name: "+name+"}")
}

// wantReason waits for the reason in the status of an EtcdRestore.
func (l *legacy) wantReason(t *testing.T, name, reason string) {
	t.Helper()
	eventually(t, "EtcdRestore "+name+": "+reason, func() bool {
		return strings.Contains(l.api.Kubectl(t, "", "get", "etcdrestore", name, "-o", "jsonpath={.status.reason}"), reason)
	})
}
