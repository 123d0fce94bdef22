package kubernetes

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// testDisks deletes two volumes of three, and restores what the third holds, as docs/kubernetes.md describes it. Everything that is certain
// comes back, in the order in which it was written, and the rest was reported.
func (s *site) testDisks(t *testing.T) {
	t.Parallel()
	const namespace = "mill"
	s.startEtcd(t, namespace, "3.6")
	s.apply(t, namespace, `schedule: {cron: "@yearly"}`)
	s.wantProtected(t, namespace)
	journal := s.journal(t, namespace, "order", 10)
	var last int64
	for i := range len(journal) {
		last = s.put(t, namespace, "counter", strconv.Itoa(i))
	}
	s.Kubectl(t, "", "-n", namespace, "delete", "edb", "etcd", "--timeout", patience.String()) // the bucket stays

	s.Kubectl(t, "", "-n", namespace, "scale", "statefulset/etcd", "--replicas=0")
	s.Eventually(t, "", "-n", namespace, "get", "pods", "-l", "app=etcd", "-o", "name")
	s.Kubectl(t, "", "-n", namespace, "delete", "pvc", "data-etcd-1", "data-etcd-2", "--timeout", patience.String())
	report := s.salvage(t, namespace)
	id, certain := report.text(t, `backup +(\S+)`), report.number(t, `certain up to revision (\d+)`)
	left := last - certain
	if left > 0 {
		left = report.number(t, `(\d+) requests? at the end of the logs?`)
	}
	if certain+left < last {
		t.Errorf("%d is certain and %d requests are probable, and revision %d was acknowledged:\n%s", certain, left, last, report)
	}

	s.Kubectl(t, "", "-n", namespace, "create", "secret", "generic", "backups-identity", "--from-file=key.txt="+s.identity)
	order := restoreOf(namespace, "disk", "target: {backup: "+id+"}\n  confirm: etcd\n  identitySecret: {name: backups-identity}")
	s.Kubectl(t, s.fromRepository(namespace, order), "apply", "-f", "-")
	counter := certain - (last - int64(len(journal))) - 1
	journal["counter"] = fmt.Sprint(counter)
	s.wantRestored(t, namespace, "disk", journal)
	notes := s.Kubectl(t, "", "-n", namespace, "get", "edr", "disk", "-o", "jsonpath={.status.plan.notes}")
	if !strings.Contains(notes, fmt.Sprintf("salvaged from the disks of 1 of 3 members: certain up to revision %d", certain)) {
		t.Errorf("the notes of the plan are %s", notes)
	}
	s.leave(t, namespace)
}

// jobOfDisks matches the commands of docs/kubernetes.md that make a backup of a disk.
var jobOfDisks = regexp.MustCompile("(?s)### From surviving disks.*?```sh\n(.*?)```")

// salvage makes a backup of the first member's disk, and returns the report of the Job.
func (s *site) salvage(t *testing.T, namespace string) report {
	t.Helper()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	found := jobOfDisks.FindStringSubmatch(string(page))
	if found == nil {
		t.Fatal("docs/kubernetes.md has no commands for surviving disks")
	}
	own := strings.NewReplacer(s.urls.of("payments"), s.urls.of(namespace), "payments", namespace)
	s.follow(t, start{}, own.Replace(s.replacer().Replace(found[1])))
	return report(s.Kubectl(t, "", "-n", namespace, "logs", "job/salvage"))
}

// report is what dr salvage prints.
type report string

// text returns what the first group of a pattern matches.
func (r report) text(t *testing.T, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(string(r))
	if found == nil {
		t.Fatalf("no %q in\n%s", pattern, r)
	}
	return found[1]
}

// number returns the number that the first group of a pattern matches.
func (r report) number(t *testing.T, pattern string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(r.text(t, pattern), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
