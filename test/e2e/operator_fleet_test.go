package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// TestOperatorFleet backs up some etcds by several EtcdBackups each.
func TestOperatorFleet(t *testing.T) { testFleet(t, 3, 5) }

// TestSoakOperatorFleet does the same with 100 EtcdBackups of 20 etcds.
func TestSoakOperatorFleet(t *testing.T) {
	soak.Only(t, "takes minutes")
	testFleet(t, 20, 5)
}

// The operator's limits.
const (
	fleetMemory = 200 << 20 // bytes, at the peak
	fleetWrites = 12        // to the API server, for each EtcdBackup and minute
	fleetCPU    = 0.1       // of a core, while no job is due; on a quiet machine it is below 0.01
)

// testFleet kills the API server while backups are taken. Afterwards the status of each EtcdBackup names the newest backup in the
// store, and the operator has kept its limits.
func testFleet(t *testing.T, etcds, each int) {
	t.Helper()
	audit := filepath.Join(t.TempDir(), "audit.json")
	o := newOperated(t, "--audit-policy-file", "../cluster/audit.yaml", "--audit-log-path", audit)
	var endpoints []string
	for range etcds {
		e := servers.Start(t, servers.Options{Version: "3.6"})
		put(t, e.Client(t), "order", "1")
		endpoints = append(endpoints, e.Endpoints()[0])
	}
	o.start(t)
	began := time.Now()
	o.api.Kubectl(t, o.fleet(endpoints, each, "@every 30s"), "apply", "-f", "-")
	o.wantNewest(t, etcds*each, began)
	o.api.Kill(t)
	time.Sleep(10 * time.Second)
	o.api.Restart(t)
	o.wantNewest(t, etcds*each, time.Now())
	o.wantFewWrites(t, audit)

	o.api.Kubectl(t, o.fleet(endpoints, each, "@daily"), "apply", "-f", "-")
	time.Sleep(20 * time.Second) // surveys after the change
	before, at := o.cpu(t), time.Now()
	time.Sleep(20 * time.Second)
	share := float64(o.cpu(t)-before) / float64(time.Since(at))
	memory := o.peak(t)
	t.Logf("%d EtcdBackups: %.2f %% of a core while no job is due, %d MiB at the peak", etcds*each, 100*share, memory>>20)
	if share > fleetCPU {
		t.Errorf("the idle operator takes %.1f %% of a core", 100*share)
	}
	if memory > fleetMemory {
		t.Errorf("the operator has taken %d MiB", memory>>20)
	}
	o.service.Stop(t)
}

// fleet returns EtcdBackups of each of the endpoints: e0, e1 and so on.
func (o *operated) fleet(endpoints []string, each int, cron string) string {
	var b strings.Builder
	for i := range len(endpoints) * each {
		object := o.object(fmt.Sprint("e", i), fmt.Sprintf("  schedule: {cron: %q}\n  retention: {last: 3}", cron))
		object = strings.Replace(object, o.etcd.Endpoints()[0], endpoints[i%len(endpoints)], 1)
		b.WriteString(strings.Replace(object, "payments.etcd", fmt.Sprint("payments.e", i), 1) + "---\n")
	}
	return b.String()
}

// wantNewest waits until the status of each of n EtcdBackups has named the newest backup in the store, from after a time.
func (o *operated) wantNewest(t *testing.T, n int, after time.Time) {
	t.Helper()
	reached := map[string]bool{}
	eventually(t, "each status names the newest backup in the store", func() bool {
		named, stored := o.named(t), o.newest(t)
		for name, id := range named {
			if id == stored["payments."+name] && id != "" && id.Started().After(after.Truncate(time.Second)) {
				reached[name] = true
			}
		}
		return len(reached) == n
	})
}

// named returns the last backup in the status of each EtcdBackup.
func (o *operated) named(t *testing.T) map[string]catalog.ID {
	t.Helper()
	var all struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct{ Last struct{ ID catalog.ID } }
		}
	}
	err := json.Unmarshal([]byte(o.api.Kubectl(t, "", "-n", "payments", "get", "edb", "-o", "json")), &all)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]catalog.ID{}
	for _, item := range all.Items {
		named[item.Metadata.Name] = item.Status.Last.ID
	}
	return named
}

// newest returns the newest backup of each cluster in the store: its manifest is there.
func (o *operated) newest(t *testing.T) map[string]catalog.ID {
	t.Helper()
	found := map[string]catalog.ID{}
	pages := s3.NewListObjectsV2Paginator(o.store.Client(t), &s3.ListObjectsV2Input{Bucket: &o.bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range page.Contents {
			parts := strings.Split(*object.Key, "/") // etcd, the cluster, backups, the ID, the name
			if len(parts) == 5 && parts[2] == "backups" && parts[4] == catalog.ManifestName {
				found[parts[1]] = max(found[parts[1]], catalog.ID(parts[3]))
			}
		}
	}
	return found
}

// wantFewWrites checks the operator's writes for each EtcdBackup, its events included, by the audit log.
func (o *operated) wantFewWrites(t *testing.T, audit string) {
	t.Helper()
	log, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	writes, most := map[string][]change{}, 0
	for line := range bytes.Lines(log) {
		var e struct {
			Verb           string
			StageTimestamp time.Time
			ObjectRef      struct{ Resource, Name string }
		}
		if json.Unmarshal(line, &e) != nil || e.Verb == "get" || e.Verb == "list" || e.Verb == "watch" || e.ObjectRef.Resource == "leases" {
			continue // the last line may be torn by the kill
		}
		if e.ObjectRef.Name == "" {
			continue // an event that an API server refused whose RBAC rules were not read yet: of any object
		}
		name, _, _ := strings.Cut(e.ObjectRef.Name, ".") // an event's name begins with its object's
		writes[name] = append(writes[name], change{e.StageTimestamp, e.Verb + " " + e.ObjectRef.Resource})
	}
	for name, all := range writes {
		busiest := busiestMinute(all)
		most = max(most, len(busiest))
		if len(busiest) > fleetWrites {
			t.Errorf("%q: %d writes in a minute: %v", name, len(busiest), busiest)
		}
	}
	t.Logf("at most %d writes for one of %d objects in a minute", most, len(writes))
	if len(writes) == 0 {
		t.Error("the audit log contains no write")
	}
}

// change is a request that changes an object.
type change struct {
	at   time.Time
	what string
}

// busiestMinute returns the writes of the minute with the most of them. all are in the order of their times.
func busiestMinute(all []change) (busiest []change) {
	for i, first := range all {
		n := 0
		for _, w := range all[i:] {
			if w.at.Sub(first.at) < time.Minute {
				n++
			}
		}
		if n > len(busiest) {
			busiest = all[i : i+n]
		}
	}
	return busiest
}

// cpu returns the CPU time that the operator has used.
func (o *operated) cpu(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.service.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	fields := strings.Fields(string(after)) // from the third on: utime is the 14th, stime the 15th
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		t.Fatal(err)
	}
	system, err := strconv.Atoi(fields[12])
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// peak returns the most memory that the operator has had resident, in bytes.
func (o *operated) peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.service.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}
