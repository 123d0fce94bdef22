package convert_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/find"
	"github.com/etcd-dr/etcd-dr/restore/find/kubernetes"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/storage/copying"
)

var at = time.Date(2026, 11, 21, 9, 24, 33, 0, time.UTC)

// filled returns a T with a value other than zero in every exported field, down to the elements of its slices.
func filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem())
	return v
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		fillStruct(v)
	}
}

func fillStruct(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(at))
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() {
			fill(v.Field(i))
		}
	}
}

// unset returns the paths of the fields of a document that are zero.
func unset(path string, v reflect.Value) (paths []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return unset(path, v.Elem())
		}
	case reflect.Slice:
		if v.Len() > 0 {
			return unset(path+"[0]", v.Index(0))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			break
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.IsExported() {
				paths = append(paths, unset(path+"."+field.Name, v.Field(i))...)
			}
		}
		return paths
	}
	if v.IsZero() {
		return []string{path}
	}
	return nil
}

func TestNoFieldIsForgotten(t *testing.T) {
	for name, d := range map[string]any{
		"agent":   convert.Agent(filled[archive.Status]()),
		"cluster": convert.Cluster(filled[scheduler.Status]()),
		"restore": convert.Restore(filled[restore.Result]()),
		"change":  convert.Change(inKubernetes()),
		"unseen":  convert.Unseen(filled[find.Unseen]()),
		"diff":    convert.Diff(filled[find.Compared]()),
		"copied":  convert.Copied("prod", copied()),
	} {
		for _, path := range unset(name, reflect.ValueOf(d)) {
			if !expectedUnset[path] {
				t.Errorf("%s is not set", path)
			}
		}
	}
}

func copied() copying.Result {
	r := filled[copying.Result]()
	r.Faults[0].Err = errors.New("damaged")
	return r
}

// expectedUnset are fields that exclude others that are set.
var expectedUnset = map[string]bool{
	"change.Key.KeyBase64":       true, // the key is text
	"change.Key.Kubernetes.Kind": true, // only the CustomResourceDefinition of its group knows it
}

func inKubernetes() find.Change {
	c := filled[find.Change]()
	c.Key = "/registry/cert-manager.io/certificates/prod/web"
	return c
}

// A restore's result has tags of its own, for the pipe from the child. Both sides describe the same JSON.
func TestRestoreHasTheFieldsOfTheChildsResult(t *testing.T) {
	result := filled[restore.Result]()
	same(t, result, convert.Restore(result))
	inspection := filled[restore.Inspection]()
	same(t, inspection, document.Inspection(inspection))
}

func same(t *testing.T, a, b any) {
	t.Helper()
	var texts [2]string
	for i, v := range []any{a, b} {
		data, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(data)
	}
	diff := cmp.Diff(texts[0], texts[1])
	if diff != "" {
		t.Errorf("(-%T +%T):\n%s", a, b, diff)
	}
}

func TestWordsAreTheLibraries(t *testing.T) {
	for library, d := range map[string]string{
		string(scheduler.Starting): string(document.StateStarting), string(scheduler.Idle): string(document.StateIdle),
		string(scheduler.Queued): string(document.StateQueued), string(scheduler.Running): string(document.StateRunning),
		string(scheduler.Standby): string(document.StateStandby), string(scheduler.Failing): string(document.StateFailing),
		string(scheduler.Suspended): string(document.StateSuspended),
		string(scheduler.JobBackup): string(document.JobBackup), string(scheduler.JobPrune): string(document.JobPrune),
		string(scheduler.JobDrill): string(document.JobDrill), string(scheduler.JobCopy): string(document.JobCopy),
		string(scheduler.Succeeded): string(document.Succeeded), string(scheduler.Failed): string(document.Failed),
		string(scheduler.NotRun): string(document.NotRun),
		string(archive.Working):  string(document.AgentWorking), string(archive.Waiting): string(document.AgentWaiting),
	} {
		if library != d {
			t.Errorf("the document has %q for %q", d, library)
		}
	}
	if document.AgentStarting != document.AgentState(archive.Starting) || document.AgentStandby != document.AgentState(archive.Standby) {
		t.Error("the document has other words for an agent that starts or stands by")
	}
}

func TestClusterWithoutJobsHasEmptyLists(t *testing.T) {
	d := convert.Clusters([]scheduler.Status{{Cluster: "prod"}})[0]
	if d.Jobs == nil || d.Counts == nil || d.Archive != nil || d.Suspension != nil {
		t.Errorf("%+v", d)
	}
	if convert.Clusters(nil) == nil {
		t.Error("no clusters are null")
	}
}

func TestTaken(t *testing.T) {
	got := convert.BackupResult(backup.Result{Stores: []backup.Outcome{{Repository: "file:///a"}, {Repository: "s3://b", Err: errors.New("unreachable")}}})
	want := []document.BackupStore{{Repository: "file:///a", Stored: true}, {Repository: "s3://b", Message: "unreachable"}}
	diff := cmp.Diff(want, got.Stores)
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFind(t *testing.T) {
	gone := find.Gone{Change: find.Change{Key: "/a", Revision: 9, Deleted: true}, Vanished: 2, Way: &find.Way{Revision: 8, Reached: 7, Nearest: at}}
	d := convert.Find(find.Summary{Changes: 3, Last: &gone.Change, Gone: []find.Gone{gone}}, func(w find.Way) []string { return []string{"dr"} })
	if len(d.Gone) != 1 || d.Gone[0].LastGood != 8 || d.Gone[0].Change.Change != "delete" || len(d.Gone[0].Restore) != 1 ||
		*d.Gone[0].Nearest != (document.Point{Revision: 7, Time: at}) || d.Last.Revision != 9 {
		t.Errorf("%+v", d)
	}
	d = convert.Find(find.Summary{}, nil)
	if d.Gone == nil || d.Last != nil {
		t.Errorf("of nothing: %+v", d)
	}
}

func TestDifferent(t *testing.T) {
	entry := &find.Entry{Key: []byte("/a"), Size: 5}
	for want, d := range map[string]find.Difference{"added": {B: entry}, "removed": {A: entry}, "changed": {A: entry, B: entry}} {
		got := convert.Different(d)
		if got.Change != want || got.Key.Key != "/a" || (got.A == nil) != (d.A == nil) || (got.B == nil) != (d.B == nil) {
			t.Errorf("%s: %+v", want, got)
		}
	}
}

func TestExtracted(t *testing.T) {
	d, err := convert.Extracted(find.Entry{Key: []byte{0xff}, Lease: 255})
	if err != nil || d.Value == nil || d.Object != nil || string(d.KeyBase64) != "\xff" || d.Lease != "ff" {
		t.Errorf("%v: %+v", err, d)
	}
	d, err = convert.Extracted(find.Entry{Key: []byte("/registry/secrets/prod/a"), Value: []byte("k8s:enc:aescbc:v1:key1:x")})
	if !errors.Is(err, kubernetes.ErrEncrypted) || d.Unreadable == "" || d.Kubernetes == nil {
		t.Errorf("%v: %+v", err, d)
	}
}
