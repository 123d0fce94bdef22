package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/apiserver"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// storeKinds are the kinds of testdata/namespace.yaml; controllers create other objects from them.
var storeKinds = "configmaps,serviceaccounts,roles,secrets,services,deployments,statefulsets,cronjobs,jobs"

// TestNamespaceComesBack restores a deleted namespace with one command, which dr find prints: everything that users had
// created is there, and no finished Job runs again.
func TestNamespaceComesBack(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{Version: "3.6", TLS: true})
	s := apiserver.Start(t, c)
	s.StartControllers(t)
	j := newJob(t)
	a := j.archiving(t, c, 0)
	j.firstWindow(t, c.Client(t), a)
	makeStore(t, s)
	before := storeNow(t, s)
	s.Kubectl(t, "", "delete", "namespace", "store", "--timeout", "120s")
	put(t, c.Client(t), "last", "")
	agent.CatchUp(t, a)

	found := command.Must(t, j.env, "find", "--namespace", "store")
	first, rest, _ := strings.Cut(found, "\n")
	if !strings.Contains(first, "keys vanished in revisions") || !strings.Contains(rest, "was marked for deletion") {
		t.Fatalf("find:\n%s", found)
	}
	applied := s.Kubectl(t, command.Must(t, j.env, extractArgs(t, found)...), "apply", "-f", "-")
	n := strings.Count(applied, "configmap/")
	if n != storeMaps {
		t.Errorf("%d ConfigMaps were applied, want %d", n, storeMaps)
	}
	diff := cmp.Diff(before, storeNow(t, s))
	if diff != "" {
		t.Errorf("the namespace is not what it was:\n%s", diff)
	}
	eventually(t, "the Deployment has its pods again", func() bool { return hasPods(t, s) })
	jobs := s.Kubectl(t, "", "get", "jobs", "-n", "store", "-o", "name")
	if jobs != "" {
		t.Errorf("Jobs run again: %s", jobs)
	}

	// A revision within the deletion is refused.
	late := strings.Fields(first)[5]
	out := command.Run(t, j.env, "extract", "--to-revision", late, "--namespace", "store")
	if out.Code == 0 || out.Stdout != "" {
		t.Errorf("extract at revision %s: exit code %d\n%s", late, out.Code, head(strings.Split(out.Stdout, "\n")))
	}
}

const storeMaps = 380

// makeStore creates a namespace of about 400 objects, with a Job that has finished.
func makeStore(t *testing.T, s *apiserver.APIServer) {
	t.Helper()
	s.Kubectl(t, "", "create", "-f", "testdata/namespace.yaml")
	var maps strings.Builder
	for i := range storeMaps {
		fmt.Fprintf(&maps, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings-%03d, namespace: store}\ndata: {n: %q}\n", i, fmt.Sprint(i))
	}
	s.Kubectl(t, maps.String(), "create", "-f", "-")
	eventually(t, "the Job has a pod", func() bool { return podOf(t, s, "migration") != "" })
	s.Kubectl(t, "", "patch", podOf(t, s, "migration"), "-n", "store", "--subresource", "status", "--type", "merge",
		"-p", `{"status":{"phase":"Succeeded"}}`)
	s.Kubectl(t, "", "wait", "--for", "condition=complete", "job/migration", "-n", "store", "--timeout", "60s")
	eventually(t, "the Deployment has its pods", func() bool { return hasPods(t, s) })
}

func hasPods(t *testing.T, s *apiserver.APIServer) bool {
	t.Helper()
	return len(strings.Fields(s.Kubectl(t, "", "get", "pods", "-n", "store", "-l", "app=web", "-o", "name"))) == 3
}

func podOf(t *testing.T, s *apiserver.APIServer, job string) string {
	t.Helper()
	return strings.TrimSpace(s.Kubectl(t, "", "get", "pods", "-n", "store", "-l", "job-name="+job, "-o", "name"))
}

// storeNow returns the objects in the namespace that users created, by kind and name, from the API server without the
// fields that it sets itself. It omits the finished Job and the objects that every namespace gets.
func storeNow(t *testing.T, s *apiserver.APIServer) map[string]any {
	t.Helper()
	now := map[string]any{}
	list, _ := s.Get(t, storeKinds, "-n", "store")["items"].([]any)
	for _, item := range list {
		object, _ := item.(map[string]any)
		metadata, _ := object["metadata"].(map[string]any)
		name := fmt.Sprint(object["kind"], "/", metadata["name"])
		if metadata["ownerReferences"] != nil || name == "ServiceAccount/default" || name == "ConfigMap/kube-root-ca.crt" || name == "Job/migration" {
			continue
		}
		now[name] = []any{object["spec"], object["data"], object["rules"], metadata["labels"]}
	}
	now["labels"] = s.Get(t, "namespace", "store")["metadata"].(map[string]any)["labels"]
	return now
}

// extractArgs returns the arguments of the dr extract command that find has printed.
func extractArgs(t *testing.T, found string) []string {
	t.Helper()
	for line := range strings.Lines(found) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " | kubectl apply")
		args, ok := strings.CutPrefix(line, "dr extract ")
		if ok {
			return append([]string{"extract"}, strings.Fields(args)...)
		}
	}
	t.Fatalf("no command in:\n%s", found)
	return nil
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(process.Pause(start)) {
		if time.Since(start) > patience {
			t.Fatalf("waited for: %s", what)
		}
	}
}
