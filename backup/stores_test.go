package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// places are buckets called a, b and c, each for the same cluster.
type places []storage.Bucket

func (p places) stores(t *testing.T) (to []backup.Store) {
	t.Helper()
	for i, b := range p {
		to = append(to, backup.Store{Repository: nameOf(i), Cluster: open(t, b)})
	}
	return to
}

// nameOf returns a name longer than a letter, so that it occurs in a message only on purpose.
func nameOf(i int) string { return "mem://" + string(rune('a'+i)) }

func memories(n int) (p places) {
	for range n {
		p = append(p, mem.New())
	}
	return p
}

// objects returns the objects in a bucket with their bytes, except the marker, which differs between repositories.
func objects(t *testing.T, b storage.Bucket) map[string]string {
	t.Helper()
	all := map[string]string{}
	for o, err := range b.List(t.Context(), storage.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(o.Key, "/repository.json") {
			continue
		}
		r, _, err := b.Open(t.Context(), o.Key, storage.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		all[o.Key] = string(data)
	}
	return all
}

// wantOutcomes fails unless exactly these stores, by number, lack the backup.
func wantOutcomes(t *testing.T, what string, r backup.Result, n int, without ...int) {
	t.Helper()
	if len(r.Stores) != n {
		t.Fatalf("%s: outcomes %+v", what, r.Stores)
	}
	for i, o := range r.Stores {
		if o.Repository != nameOf(i) || (o.Err != nil) != slices.Contains(without, i) {
			t.Errorf("%s: outcome %+v, without it are %v", what, o, without)
		}
	}
}

func TestRunIntoSeveral(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1, database: database(1 << 20)}
	url := fake.serve(t)
	for _, require := range []backup.Require{"", backup.All, backup.Any} {
		for _, spool := range []string{"", t.TempDir()} {
			in := append(memories(2), fileBucket(t))
			r, keys := request(t)
			r.Require, r.Spool.Dir = require, spool
			l := &listener{}
			result, err := backup.Run(t.Context(), at(url), in.stores(t), reporting(r, l.report))
			if err != nil {
				t.Fatal(err)
			}
			wantOutcomes(t, string(require), result, 3)
			l.wantWarnings(t)
			first := objects(t, in[0])
			for _, b := range in {
				diff := cmp.Diff(first, objects(t, b))
				if diff != "" || len(first) != 2 {
					t.Errorf("%d objects in the first, another has others:\n%s", len(first), diff)
				}
				got := fetched(t, open(t, b), result.Backup, keys)
				if string(got) != string(fake.database) {
					t.Errorf("%d bytes come back", len(got))
				}
			}
		}
	}
	n := fake.open.Load()
	if n != 0 {
		t.Errorf("%d streams are open", n)
	}
}

// Deletions in one repository count in another that has its marker. A backup in both succeeds, and warns.
func TestRunWarnsOfTheSameID(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1, database: database(1 << 20)}
	url := fake.serve(t)
	in := memories(3)
	r, _ := request(t)
	l := &listener{}
	_, err := backup.Run(t.Context(), at(url), in.stores(t), reporting(r, l.report))
	if err != nil {
		t.Fatal(err)
	}
	l.wantWarnings(t)
	marker, _, err := in[0].Open(t.Context(), "prod/repository.json", storage.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer marker.Close()
	_, err = in[2].Put(t.Context(), "prod/repository.json", marker, storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	result, err := backup.Run(t.Context(), at(url), in.stores(t), reporting(r, l.report))
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, "one id", result, 3)
	l.wantWarnings(t, "repositories mem://a and mem://c have the same id")
}

func TestRunIntoNone(t *testing.T) {
	r, _ := request(t)
	_, err := backup.Run(t.Context(), at("http://127.0.0.1:1"), nil, r)
	if !errors.Is(err, fault.Refused) {
		t.Errorf("error %v", err)
	}
}

// TestRunIntoSeveralOneBroken breaks one of three stores at any call. With All no store lists the backup unless every
// store has the data. With Any the others have the backup, and the result names the broken one.
func TestRunIntoSeveralOneBroken(t *testing.T) {
	needsQuiet(t)
	fake := &fakeMember{clusterID: 9, memberID: 1}
	url := fake.serve(t)
	breaks := map[string]func(*storagetest.Fault){
		"before": func(f *storagetest.Fault) { f.Fail(errStore) },
		"after":  func(f *storagetest.Fault) { f.FailLate(errStore) },
		"within": func(f *storagetest.Fault) { f.Cut(100, errStore) },
		"always": func(f *storagetest.Fault) { f.Always().Fail(errStore) },
	}
	for name, arm := range breaks {
		for _, verb := range []storagetest.Verb{storagetest.VerbPut, storagetest.VerbList, storagetest.VerbOpen} {
			for _, require := range []backup.Require{backup.All, backup.Any} {
				t.Run(fmt.Sprint(verb, " ", name, " ", require), func(t *testing.T) {
					for call, met := 1, true; met; call++ {
						broken := call % 3
						in := memories(3)
						faults := storagetest.Faulty(in[broken])
						arm(faults.On(verb).Nth(call))
						seen := slices.Clone(in)
						seen[broken] = faults
						r, _ := request(t)
						r.Require = require
						l := &listener{}
						result, err := backup.Run(t.Context(), at(url), seen.stores(t), reporting(r, l.report))
						met = faults.Calls(verb) >= call
						what := fmt.Sprintf("call %d of %s", call, nameOf(broken))
						if require == backup.All {
							wantAllOrNone(t, what, in, broken, name == "after", result, err)
						} else {
							wantOthers(t, what, in, broken, name == "after", result, err, l)
						}
					}
				})
			}
		}
	}
	wantEnded(t)
}

func wantAllOrNone(t *testing.T, what string, in places, broken int, answerLost bool, result backup.Result, err error) {
	t.Helper()
	switch {
	case errors.Is(err, backup.ErrPartial): // every store had the data, and a manifest failed
		wantOutcomes(t, what, result, len(in), broken)
		for i, o := range result.Stores {
			has := len(listed(t, open(t, in[i]))) == 1
			if has != (o.Err == nil) && !(i == broken && answerLost) {
				t.Errorf("%s: %s lists it %t, its outcome is %v", what, o.Repository, has, o.Err)
			}
		}
	case err != nil:
		for i, b := range in {
			if i != broken || !answerLost {
				wantNothing(t, open(t, b))
			}
		}
		if result.ID != "" {
			t.Errorf("%s: result %+v with %v", what, result, err)
		}
	default:
		wantOutcomes(t, what, result, len(in))
		return
	}
	if !errors.Is(err, errStore) || !strings.Contains(err.Error(), nameOf(broken)) {
		t.Errorf("%s: error %v, want it to name the repository", what, err)
	}
}

func wantOthers(
	t *testing.T, what string, in places, broken int, answerLost bool, result backup.Result, err error, l *listener,
) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	for i, o := range result.Stores {
		if i != broken && (o.Err != nil || len(listed(t, open(t, in[i]))) != 1) {
			t.Errorf("%s: outcome %+v", what, o)
		}
	}
	why := result.Stores[broken].Err
	if why != nil {
		if !errors.Is(why, errStore) {
			t.Errorf("%s: outcome %v", what, why)
		}
		l.wantWarnings(t, nameOf(broken))
		if !answerLost {
			wantNothing(t, open(t, in[broken]))
		}
	}
}

func TestRunWithAnyAndNoneLeft(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1}
	url := fake.serve(t)
	for nth := 1; nth <= 2; nth++ { // data and manifest
		in := memories(2)
		var seen places
		for i, b := range in {
			f := storagetest.Faulty(b)
			f.On(storagetest.VerbPut).Nth(nth).Fail(fmt.Errorf("%w on %d", errStore, i))
			seen = append(seen, f)
		}
		r, _ := request(t)
		r.Require = backup.Any
		_, err := backup.Run(t.Context(), at(url), seen.stores(t), r)
		if !errors.Is(err, errStore) || !strings.Contains(err.Error(), nameOf(0)) || !strings.Contains(err.Error(), nameOf(1)) {
			t.Errorf("put %d: %v", nth, err)
		}
		for _, b := range in {
			wantNothing(t, open(t, b))
		}
	}
}

// TestRunIntoSeveralNamesAlike checks that all stores use the first name that is free everywhere, if one store has
// taken the first name and another one those of the next seconds.
func TestRunIntoSeveralNamesAlike(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1}
	in := memories(3)
	begun := time.Now()
	for second := range 6 {
		id := catalog.NewID(begun.Add(time.Duration(second)*time.Second), 7)
		key := "prod/backups/" + string(id) + "/snapshot.db.zst"
		_, err := in[second%2].Put(t.Context(), key, strings.NewReader("x"), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	r, _ := request(t)
	result, err := backup.Run(t.Context(), at(fake.serve(t)), in.stores(t), r)
	if err != nil {
		t.Fatal(err)
	}
	if result.ID.Started().Before(begun.Add(5 * time.Second).Truncate(time.Second)) {
		t.Errorf("begun %s, named %s", begun, result.ID)
	}
	for _, b := range in {
		got := listed(t, open(t, b))
		if !slices.Equal(got, []catalog.ID{result.ID}) {
			t.Errorf("listed %v, want %s", got, result.ID)
		}
	}
}

// gated stops a Put when it has read its whole source.
type gated struct {
	storage.Bucket
	reached chan struct{}
	goOn    chan struct{}
	once    sync.Once
}

func (g *gated) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := g.Bucket.Put(ctx, key, r, o)
	g.once.Do(func() {
		close(g.reached)
		<-g.goOn
	})
	return obj, err
}

// TestRunIntoSeveralListsAtTheEnd checks that no manifest is written before the last store has all of the data.
func TestRunIntoSeveralListsAtTheEnd(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1}
	url := fake.serve(t)
	for _, require := range []backup.Require{backup.All, backup.Any} {
		in := memories(3)
		gate := &gated{Bucket: in[1], reached: make(chan struct{}), goOn: make(chan struct{})}
		r, _ := request(t)
		r.Require = require
		ended := make(chan error, 1)
		go func() {
			_, err := backup.Run(t.Context(), at(url), places{in[0], gate, in[2]}.stores(t), r)
			ended <- err
		}()
		<-gate.reached
		time.Sleep(50 * time.Millisecond) // long enough for a manifest that is written too early
		for _, b := range in {
			got := listed(t, open(t, b))
			if len(got) > 0 {
				t.Errorf("%s: listed %v", require, got)
			}
		}
		close(gate.goOn)
		err := <-ended
		if err != nil {
			t.Error(err)
		}
		for _, b := range in {
			got := listed(t, open(t, b))
			if len(got) != 1 {
				t.Errorf("%s: in the end listed %v", require, got)
			}
		}
	}
}

// TestRunIntoSeveralOfABadStream checks that no store is blamed for the member's error.
func TestRunIntoSeveralOfABadStream(t *testing.T) {
	t.Parallel()
	data := database(1 << 20)
	fake := &fakeMember{clusterID: 9, memberID: 1, snapshot: func(s pb.Maintenance_SnapshotServer) error {
		err := send(s, data[:1<<19])
		if err != nil {
			return err
		}
		return status.Error(codes.Internal, "the disk is on fire")
	}}
	url := fake.serve(t)
	for _, require := range []backup.Require{backup.All, backup.Any} {
		in := memories(2)
		r, _ := request(t)
		r.Require = require
		l := &listener{}
		_, err := backup.Run(t.Context(), at(url), in.stores(t), reporting(r, l.report))
		if err == nil || strings.Count(err.Error(), "the disk is on fire") != 1 || strings.Contains(err.Error(), "mem://") {
			t.Errorf("%s: %v", require, err)
		}
		l.wantWarnings(t)
		for _, b := range in {
			wantNothing(t, open(t, b))
		}
	}
}

// TestRunIntoSeveralCancelled checks that a cancelled Run leaves the backup in every store or in none.
func TestRunIntoSeveralCancelled(t *testing.T) {
	needsQuiet(t)
	fake := &fakeMember{clusterID: 9, memberID: 1, database: database(1 << 20)}
	url := fake.serve(t)
	for _, require := range []backup.Require{backup.All, backup.Any} {
		for event, met := 0, true; met; event++ {
			in := memories(2)
			r, _ := request(t)
			r.Require = require
			ctx, cancel := context.WithCancel(t.Context())
			met = false
			l := &listener{hear: func(n int, _ storage.Event) {
				if n == event {
					met = true
					cancel()
				}
			}}
			result, err := backup.Run(ctx, at(url), in.stores(t), reporting(r, l.report))
			cancel()
			for _, b := range in {
				if err == nil {
					wantNothing(t, open(t, b), result.ID)
				} else {
					wantNothing(t, open(t, b))
				}
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s, event %d: %v", require, event, err)
			}
			wantEnded(t)
		}
	}
}

// TestTwoRunsIntoSeveral runs two backups at once into the same stores. Every listed backup is complete and equal
// everywhere, and a run that reports success has stored one.
func TestTwoRunsIntoSeveral(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1}
	url := fake.serve(t)
	r, keys := request(t)
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		in := memories(2)
		results, errs := make([]backup.Result, 2), make([]error, 2)
		var runs sync.WaitGroup
		for i := range results {
			seen := places{slow{in[0]}, in[1]}
			runs.Go(func() { results[i], errs[i] = backup.Run(t.Context(), at(url), seen.stores(t), r) })
		}
		runs.Wait()
		var want []catalog.ID
		for i, err := range errs {
			switch {
			case err == nil:
				want = append(want, results[i].ID)
				fetched(t, open(t, in[0]), results[i].Backup, keys)
			case !errors.Is(err, storage.ErrExist):
				t.Error(err)
			}
		}
		slices.Sort(want)
		for _, b := range in {
			got := listed(t, open(t, b))
			if !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("listed %v, want %v", got, want)
			}
		}
		diff := cmp.Diff(objects(t, in[0]), objects(t, in[1]))
		if diff != "" || len(objects(t, in[0])) != 2*len(want) {
			t.Errorf("the stores differ:\n%s", diff)
		}
	}
}
