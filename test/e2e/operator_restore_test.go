package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/test/golden"
)

const (
	fromBackup = `from: {etcdBackup: {name: etcd}}`
	intoSet    = `into: {statefulSet: {name: etcd}}`
)

// refusedRestores are EtcdRestores that the API server refuses: each the spec, after the one that it changes if there is one.
var refusedRestores = [][]string{
	{`{}`},
	{withTarget(`{}`, "")},
	{withTarget(`{latest: {}, backup: 20261121T092433Z-0000000000001267}`, "")},
	{withTarget(`{latest: {depth: 1}}`, "")},
	{withTarget(`{time: yesterday}`, "")},
	{withTarget(`{revision: 0}`, "")},
	{withTarget(`{beforeRevision: 1}`, "")},
	{withTarget(`{backup: 20261121T092433Z-0000000000001267, lineage: 0a1b}`, "")},
	{withTarget(`{backup: 20261121T092433Z-0000000000001267}`, "best: true")},
	{withTarget(`{latest: {}}`, "confirm: other")},
	{withTarget(`{latest: {}}`, "allowPlain: true")},
	{withTarget(`{latest: {}}`, "dryRun: true, rollback: true")},
	{withTarget(`{latest: {}}`, "dryRun: false")},
	{withTarget(`{latest: {}}`, "bumpRevision: some")},
	{withTarget(`{latest: {}}`, "timeLimit: soon")},
	{withTarget(`{latest: {}}`, "keepOlder: 1h")},
	{withFrom(`{}`)},
	{withFrom(`{etcdBackup: {name: etcd}, cluster: payments.etcd}`)},
	{withFrom(`{etcdBackup: {name: etcd}, cluster: payments.etcd, repository: {name: main, url: "s3://b", credentialsSecret: {name: s}}}`)},
	{withFrom(`{repository: {name: main, url: "s3://b", credentialsSecret: {name: s}}}`)},
	{withFrom(`{cluster: payments.etcd, repository: {name: main, url: "s3://b"}}`)},
	{withFrom(`{cluster: payments.etcd, repository: {name: main, url: "file:///b", credentialsSecret: {name: s}}}`)},
	{withFrom(`{cluster: payments.etcd, repository: {name: main, url: "s3://b", credentialsSecret: {name: s}, lock: {for: 1d}}}`)},
	{withInto(`{}`)},
	{withInto(`{statefulSet: {name: etcd}, members: [{name: etcd-0}]}`)},
	{withInto(`{statefulSet: {name: etcd}, members: [{name: etcd-0, peerURLs: ["etcd-0:2380"]}]}`)},
	{withInto(`{statefulSet: {name: etcd}, members: [{name: a, peerURLs: ["http://a:2380"]}, {name: a, peerURLs: ["http://b:2380"]}]}`)},
	{withInto(`{statefulSet: {name: etcd}, dataDir: data}`)},
	{withTarget(`{latest: {}}`, ""), withTarget(`{revision: 7}`, "")},
	{withTarget(`{latest: {}}`, ""), withTarget(`{latest: {}}`, "confirm: etcd")},
	{withTarget(`{latest: {}}`, "dryRun: true"), withTarget(`{latest: {}}`, "")},
}

// withTarget returns a spec with that target and more fields.
func withTarget(target, fields string) string {
	return fmt.Sprintf("{%s, target: %s, %s, %s}", fromBackup, target, intoSet, fields)
}

func withFrom(from string) string {
	return fmt.Sprintf("{from: %s, target: {latest: {}}, %s}", from, intoSet)
}

func withInto(into string) string {
	return fmt.Sprintf("{%s, target: {latest: {}}, into: %s}", fromBackup, into)
}

// TestOperatorRefusesRestores applies EtcdRestores that the API server refuses, with the field and the remedy, and changes that it allows.
func TestOperatorRefusesRestores(t *testing.T) {
	o := newOperated(t)
	golden.Want(t, "testdata/restore_refusals.txt", []byte(o.refusals(t, "EtcdRestore", refusedRestores)))
	for _, fields := range []string{"", "suspend: true", "rollback: true", "access: {tlsSecret: {name: client}}", "access: {authSecret: {name: root}}"} {
		o.restore(t, "changes", withTarget(`{latest: {}}`, fields))
	}
}

// restore applies an EtcdRestore.
func (o *operated) restore(t *testing.T, name, spec string) {
	t.Helper()
	o.api.Kubectl(t, fmt.Sprintf("{apiVersion: etcd-dr.io/v1alpha1, kind: EtcdRestore, metadata: {name: %s, namespace: payments}, spec: %s}", name, spec), "apply", "-f", "-")
}

// restoration is the part of an EtcdRestore's status that the tests compare.
type restoration struct {
	Cluster, Phase, Message, MembersDone string
	Plan                                 struct {
		ID, Backup, Continues, Token, InitialCluster string
		Revision                                     int64
		Notes, Acts, Findings                        []string
	}
	Members    []struct{ Name, Disk string }
	Conditions []struct{ Type, Status, Reason string }
}

func (o *operated) restoreStatus(t *testing.T, name string) restoration {
	t.Helper()
	var read struct{ Status restoration }
	err := json.Unmarshal([]byte(o.api.Kubectl(t, "", "-n", "payments", "get", "edr", name, "-o", "json")), &read)
	if err != nil {
		t.Fatal(err)
	}
	return read.Status
}

// statefulSet is an etcd of three members. No controller runs it.
const statefulSet = `
apiVersion: v1
kind: Service
metadata: {name: etcd, namespace: payments}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: etcd}, ports: [{name: client, port: 2379}, {name: peer, port: 2380}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: etcd, namespace: payments}
spec:
  replicas: 3
  serviceName: etcd
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: etcd}}
  template:
    metadata: {labels: {app: etcd}}
    spec:
      containers:
        - name: etcd
          image: etcd
          env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
          command:
            - etcd
            - --name=$(NAME)
            - --data-dir=/data/etcd
            - --initial-advertise-peer-urls=http://$(NAME).etcd.payments.svc:2380
            - --advertise-client-urls=http://$(NAME).etcd.payments.svc:2379
          volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// TestOperatorPlansRestores makes dry runs of restores of a backup. Nothing in the namespace changes.
func TestOperatorPlansRestores(t *testing.T) {
	o := newOperated(t)
	o.api.Kubectl(t, "", "apply", "-f", "../../deploy/kubernetes/restores.yaml")
	put(t, o.etcd.Client(t), "order", "1")
	o.start(t)
	o.api.Kubectl(t, o.object("etcd", ""), "apply", "-f", "-")
	eventually(t, "the backup is taken", func() bool { return o.status(t, "etcd").Phase == "Completed" })
	backup := o.status(t, "etcd").Last.ID
	o.restore(t, "early", withTarget(`{latest: {}}`, "dryRun: true, clone: true"))
	ended(t, o, "early", "Refused", "StatefulSet payments/etcd does not exist")
	o.api.Kubectl(t, statefulSet, "apply", "-f", "-")
	before := o.api.Kubectl(t, "", "-n", "payments", "get", "statefulsets,services,persistentvolumeclaims,configmaps,jobs,pods", "-o", "name")

	o.restore(t, "beside", withTarget(`{latest: {}}`, "dryRun: true"))
	ended(t, o, "beside", "Refused", "a member of the cluster that was backed up answers at "+o.etcd.Endpoints()[0])
	o.restore(t, "copy", withTarget(`{latest: {}}`, "dryRun: true, clone: true"))
	ended(t, o, "copy", "Planned", "")
	o.etcd.Kill(t, 0)
	o.restore(t, "newest", withTarget(`{latest: {}}`, "dryRun: true"))
	s := ended(t, o, "newest", "Planned", "")
	if s.Plan.Backup != backup || s.Plan.Revision != 2 || s.Cluster != "payments.etcd" || len(s.Members) != 3 || s.Members[2].Disk == "" ||
		!strings.Contains(s.Plan.InitialCluster, "etcd-2=http://etcd-2.etcd.payments.svc:2380") || len(s.Plan.Acts) == 0 {
		t.Errorf("got %+v", s)
	}
	o.restore(t, "future", withTarget(`{revision: 77}`, "dryRun: true"))
	ended(t, o, "future", "Refused", "restore that, or set best: true")
	o.restore(t, "nearest", withTarget(`{revision: 77}`, "dryRun: true, best: true"))
	ended(t, o, "nearest", "Planned", "")
	o.wantMetrics(t, `etcd_dr_restores{cluster="payments.etcd",phase="Planned"} 3`, `etcd_dr_restores{cluster="payments.etcd",phase="Refused"} 3`)
	after := o.api.Kubectl(t, "", "-n", "payments", "get", "statefulsets,services,persistentvolumeclaims,configmaps,jobs,pods", "-o", "name")
	if before != after {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	o.service.Stop(t)
}

// ended waits until a restore has ended, and returns its status. It fails the test unless the phase and a part of the message are as
// expected.
func ended(t *testing.T, o *operated, name, phase, message string) restoration {
	t.Helper()
	var s restoration
	eventually(t, name+" has ended", func() bool {
		s = o.restoreStatus(t, name)
		return s.Phase == "Planned" || s.Phase == "Refused" || s.Phase == "Succeeded" || s.Phase == "Failed"
	})
	if s.Phase != phase || !strings.Contains(s.Message, message) {
		t.Errorf("%s ended in %s: %s, want %s: %s", name, s.Phase, s.Message, phase, message)
	}
	return s
}
