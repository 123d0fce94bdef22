package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// pod is the part of a drill's pod that the test plays kubelet for.
type pod struct {
	Metadata struct{ Name string }
	Spec     struct {
		Hostname   string
		Containers []struct {
			Image string
			Args  []string
		}
	}
	Status struct{ Phase string }
}

// waiting returns the pods of drills that no kubelet has run.
func (o *operated) waiting(t *testing.T) []pod {
	t.Helper()
	var list struct{ Items []pod }
	err := json.Unmarshal([]byte(o.api.Kubectl(t, "", "-n", "payments", "get", "pods", "-l", "app.kubernetes.io/name=etcd-dr-drill", "-o", "json")), &list)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p pod) bool { return p.Status.Phase != "Pending" })
}

// next waits for the pod of the next drill.
func (o *operated) next(t *testing.T) pod {
	t.Helper()
	eventually(t, "a drill has a pod", func() bool { return len(o.waiting(t)) > 0 })
	all := o.waiting(t)
	if len(all) != 1 || len(all[0].Spec.Containers) != 1 || all[0].Spec.Containers[0].Image != "etcd-dr.test:v1" {
		t.Fatalf("the pods are %+v, want one", all)
	}
	return all[0]
}

// run does what kubelet does: it runs dr with the arguments of a pod, under its host name, with its Secrets mounted, and writes the status.
func (o *operated) run(t *testing.T, p pod, identity string) {
	t.Helper()
	mounted := strings.NewReplacer(
		"/etc/etcd-dr/store", objectstores.Mount(t, o.store.Secret()), "/etc/etcd-dr/identity/identity", identity)
	script := []string{"--user", "--map-root-user", "--uts", "sh", "-c", `hostname "$0"; exec "$@"`, p.Spec.Hostname, command.Path()}
	for _, arg := range p.Spec.Containers[0].Args {
		script = append(script, mounted.Replace(arg))
	}
	cmd := exec.Command("unshare", script...)
	cmd.Env = append(os.Environ(), objectstores.WrongEnv()...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	status := `{"status": {"phase": "Succeeded"}}`
	if err != nil {
		status = fmt.Sprintf(`{"status": {"phase": "Failed", "containerStatuses": [{"name": "drill", "image": "", "imageID": "", "ready": false,`+
			`"restartCount": 0, "state": {"terminated": {"exitCode": %d, "reason": "Error"}}}]}}`, cmd.ProcessState.ExitCode())
	}
	o.api.Kubectl(t, "", "-n", "payments", "patch", "pod", p.Metadata.Name, "--subresource=status", "--type=merge", "-p", status)
}

// damage flips a byte of the newest backup in the store.
func (o *operated) damage(t *testing.T) (id catalog.ID) {
	t.Helper()
	id = o.list(t)[0].ID
	for _, object := range o.objects(t) {
		if !strings.Contains(*object.Key, string(id)+"/"+catalog.SnapshotName) {
			continue
		}
		client := o.store.Client(t)
		got, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &o.bucket, Key: object.Key})
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		content[len(content)/2] ^= 1
		_, err = client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &o.bucket, Key: object.Key, Body: strings.NewReader(string(content))})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	t.Fatalf("the store has no body of backup %s", id)
	return ""
}

// TestOperatorDrills drills as Jobs in a namespace under the standard "restricted". The operator is killed while the first one runs: the
// next operator creates no second Job, and shows the proof. After damage the next drill fails, and the status names the backup. Before the
// operator has the right to create Jobs, the status names the remedy.
func TestOperatorDrills(t *testing.T) {
	o := newOperated(t)
	o.api.StartControllers(t)
	o.api.Kubectl(t, "", "label", "namespace", "payments", "pod-security.kubernetes.io/enforce=restricted")
	identity := filepath.Join(t.TempDir(), "key.txt")
	recipient := command.Keygen(t, identity)
	fields := "  schedule: {cron: \"@daily\"}\n  drill: {schedule: {cron: \"@every 5s\"}, identitySecret: {name: identity}, assert: [key=order]}"
	text := strings.Replace(o.object("etcd", fields), "unencrypted: true", "recipients: ["+recipient+"]", 1)

	put(t, o.etcd.Client(t), "order", "1")
	o.start(t, "--job-image", "etcd-dr.test:v1")
	o.api.Kubectl(t, text, "apply", "-f", "-")
	eventually(t, "the status shows that the operator may not create Jobs", func() bool {
		proven := o.status(t, "etcd").condition("Proven")
		return strings.HasPrefix(proven, "False DrillNotRun") && strings.Contains(proven, "has no right to create Jobs in namespace payments")
	})
	o.api.Kubectl(t, "", "apply", "--server-side", "-f", "../../deploy/kubernetes/drills.yaml")
	first := o.next(t)
	o.service.Kill(t)
	o.start(t, "--job-image", "etcd-dr.test:v1", "--lease", "5s")
	eventually(t, "the next operator waits for the same Job", func() bool {
		s := o.status(t, "etcd")
		return len(s.Recent) > 0 && s.Recent[0].Job == "drill" && s.Recent[0].Verdict == ""
	})
	again := o.next(t)
	if again.Metadata.Name != first.Metadata.Name {
		t.Errorf("the pod %s replaces %s, which runs", again.Metadata.Name, first.Metadata.Name)
	}
	o.run(t, first, identity)
	eventually(t, "the status shows the proof", func() bool {
		s := o.status(t, "etcd")
		return s.Last.Proof == string(catalog.Booted) && s.NextDrill != "" && strings.HasPrefix(s.condition("Proven"), "True Verified")
	})
	proofs := o.list(t)[0].Proofs
	if len(proofs) == 0 || !strings.HasPrefix(proofs[0].By, first.Spec.Hostname+", ") {
		t.Errorf("the proofs in the store are %+v, want one of %s", proofs, first.Spec.Hostname)
	}

	id := o.damage(t)
	o.run(t, o.next(t), identity)
	eventually(t, "the status names the damage", func() bool {
		proven := o.status(t, "etcd").condition("Proven")
		return strings.HasPrefix(proven, "False DrillFailed") && strings.Contains(proven, string(id))
	})
	o.api.Kubectl(t, "", "-n", "payments", "delete", "edb", "etcd")
	eventually(t, "the Job goes with the EtcdBackup", func() bool {
		return strings.TrimSpace(o.api.Kubectl(t, "", "-n", "payments", "get", "jobs", "-o", "name")) == ""
	})
	o.service.Stop(t)
}
