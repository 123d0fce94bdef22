package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// segments returns the number of segments in the store.
func (o *operated) segments(t *testing.T) (n int) {
	t.Helper()
	for _, object := range o.objects(t) {
		if strings.Contains(*object.Key, "/log/") && strings.HasSuffix(*object.Key, ".seg") {
			n++
		}
	}
	return n
}

// TestOperatorArchives archives a log, signed, and kills the API server for half a minute: segments are stored meanwhile, and afterwards the
// status shows a window with every write.
func TestOperatorArchives(t *testing.T) {
	o := newOperated(t)
	spool := t.TempDir()
	o.start(t, "--spool-dir", spool)
	key := newSigner(t)
	o.api.Kubectl(t, o.sign(t, key, o.object("etcd", "  schedule: {cron: \"@every 10s\"}\n  archive: {flush: 1s}"), key.public), "apply", "-f", "-")
	client, writes := o.etcd.Client(t), 0
	write := func() {
		writes++
		put(t, client, "order", fmt.Sprint(writes))
		time.Sleep(500 * time.Millisecond)
	}
	eventually(t, "the status shows a window", func() bool { write(); return o.status(t, "etcd").Window.To.Revision > 1 })
	eventually(t, "the status shows a recovery point and a job", func() bool {
		s := o.status(t, "etcd")
		return time.Since(s.RecoveryPoint) < 3*time.Minute && len(s.Recent) > 0 && s.Recent[0].Job == "backup"
	})
	_, err := os.Stat(filepath.Join(spool, "payments", "payments.etcd"))
	if err != nil {
		t.Errorf("the spool: %v", err)
	}
	table := o.api.Kubectl(t, "", "-n", "payments", "get", "edb")
	for _, column := range []string{"CLUSTER", "LAST", "AGE", "PROOF", "RPO", "WINDOW", "NEXT", "PROTECTED"} {
		if !strings.Contains(table, column) {
			t.Errorf("kubectl get edb has no column %s:\n%s", column, table)
		}
	}
	o.api.Kill(t)
	before, end := o.segments(t), time.Now().Add(30*time.Second)
	eventually(t, "the log is stored for half a minute without the API server", func() bool {
		write()
		return time.Now().After(end) && o.segments(t) >= before+10
	})
	newest := live(t, client, 0)
	o.api.Restart(t)
	eventually(t, "the status shows every write", func() bool { return o.status(t, "etcd").Window.To.Revision >= newest.Revision })
	list := o.trusting(t, key)
	if len(list.Windows) != 1 || len(list.Gaps) != 0 {
		t.Errorf("the windows are %+v, the gaps %+v, want one window and no gap", list.Windows, list.Gaps)
	}
	o.api.Kubectl(t, "", "-n", "payments", "delete", "edb", "etcd")
	eventually(t, "the spool is removed with the EtcdBackup, and so is the folder of its namespace", func() bool {
		left, err := os.ReadDir(spool)
		return err == nil && len(left) == 0
	})
	o.service.Stop(t)
}

// TestOperatorFindsAStatefulSet names a StatefulSet whose pods do not run: the faults and the error of the backup show what the operator
// derived from it.
func TestOperatorFindsAStatefulSet(t *testing.T) {
	o := newOperated(t)
	o.start(t)
	object := strings.Replace(o.object("etcd", `  schedule: {cron: "@daily"}`), fmt.Sprintf("endpoints: [%q]", o.etcd.Endpoints()[0]), "statefulSet: {name: etcd}", 1)
	o.api.Kubectl(t, object, "apply", "-f", "-")
	accepted := func(want string) func() bool {
		return func() bool { return strings.HasPrefix(o.status(t, "etcd").condition("Accepted"), want) }
	}
	eventually(t, "the StatefulSet is missed", accepted("False Invalid: spec.source.statefulSet: there is no StatefulSet etcd in this namespace"))
	set := func(replicas int) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: etcd, namespace: payments}
spec:
  replicas: %d
  ordinals: {start: 3}
  serviceName: etcd-headless
  selector: {matchLabels: {app: etcd}}
  template:
    metadata: {labels: {app: etcd}}
    spec:
      containers: [{name: etcd, image: etcd, ports: [{name: peer, containerPort: 2380}, {name: client, containerPort: 12379}]}]
`, replicas)
	}
	o.api.Kubectl(t, set(0), "apply", "-f", "-")
	eventually(t, "the replicas are missed", accepted("False Invalid: spec.source.statefulSet: StatefulSet etcd: it has no replicas"))
	o.api.Kubectl(t, set(2), "apply", "-f", "-")
	eventually(t, "the settings are accepted", accepted("True Accepted"))
	eventually(t, "the status shows that the pods do not answer", func() bool {
		recent := o.status(t, "etcd").Recent
		return len(recent) > 0 && strings.Contains(recent[0].Message, "http://etcd-3.etcd-headless.payments.svc:12379") &&
			strings.Contains(recent[0].Message, "http://etcd-4.etcd-headless.payments.svc:12379")
	})
	o.service.Stop(t)
}
