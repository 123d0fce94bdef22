package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

var errStore = errors.New("the store is on strike")

// stacks returns the goroutines that a Run could leave: those of its connections, its stream and its seal.
func stacks() (running []string) {
	marks := []string{"transport.(*http2Client)", "storage/seal.", "backup/cluster.", "zstd.(*Encoder)", "dr/backup."}
	buf := make([]byte, 8<<20)
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(stack, mark) }) {
			running = append(running, stack)
		}
	}
	return running
}

// waitEnded returns the goroutines that do not end soon.
func waitEnded() (left []string) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		left = stacks()
		if len(left) == 0 {
			return nil
		}
	}
	return left
}

// wantEnded fails if a Run's goroutines do not end soon. No other test may run in parallel.
func wantEnded(t *testing.T) {
	t.Helper()
	left := waitEnded()
	if len(left) > 0 {
		t.Errorf("%d goroutines are left, the first:\n%s", len(left), left[0])
	}
}

// needsQuiet fails if a goroutine exists that wantEnded would attribute to this test. Those of the connections that the test before
// has closed may take a moment to end.
func needsQuiet(t *testing.T) {
	t.Helper()
	left := waitEnded()
	if len(left) > 0 {
		t.Fatalf("another test's goroutines still run:\n%s", left[0])
	}
}

// TestRunOnABrokenStore checks that a store that fails in any call, before or after its effect, lists no incomplete
// backup.
func TestRunOnABrokenStore(t *testing.T) {
	needsQuiet(t)
	fake := &fakeMember{clusterID: 9, memberID: 1}
	url := fake.serve(t)
	r, keys := request(t)
	breaks := map[string]func(*storagetest.Fault){
		"before":         func(f *storagetest.Fault) { f.Fail(errStore) },
		"after":          func(f *storagetest.Fault) { f.FailLate(errStore) },
		"at once":        func(f *storagetest.Fault) { f.Cut(0, errStore) },
		"in the middle":  func(f *storagetest.Fault) { f.Cut(1000, errStore) },
		"at an end":      func(f *storagetest.Fault) { f.Cut(100, io.ErrUnexpectedEOF) },
		"with all after": func(f *storagetest.Fault) { f.Always().Fail(errStore) },
	}
	for name, arm := range breaks {
		for _, verb := range []storagetest.Verb{storagetest.VerbPut, storagetest.VerbList, storagetest.VerbOpen, storagetest.VerbStat} {
			t.Run(fmt.Sprint(verb, " ", name), func(t *testing.T) {
				failed := 0
				for call, met := 1, true; met; call++ {
					bucket := mem.New()
					to := open(t, bucket)
					before := mustRun(t, at(url), to, r, &listener{}).ID
					faults := storagetest.Faulty(bucket)
					arm(faults.On(verb).Nth(call))
					result, err := backup.Run(t.Context(), at(url), only(open(t, faults)), r)
					met = faults.Calls(verb) >= call
					if err != nil {
						failed++
						wantFailed(t, to, err, before, name == "after")
						continue
					}
					got := listed(t, to)
					if len(got) != 2 || got[0] != result.ID {
						t.Errorf("call %d: listed %v, want %s and %s", call, got, result.ID, before)
						continue
					}
					fetched(t, to, result.Backup, keys)
				}
				if verb != storagetest.VerbStat && failed == 0 && (name == "before" || name == "after") {
					t.Error("none of the faults was met")
				}
			})
		}
	}
	wantEnded(t)
	n := fake.open.Load()
	if n != 0 {
		t.Errorf("the member still sends %d streams", n)
	}
}

// wantFailed fails unless err is the store's. After a lost answer the backup may be stored; then it is complete.
func wantFailed(t *testing.T, to *repository.Cluster, err error, before catalog.ID, answerLost bool) {
	t.Helper()
	if !errors.Is(err, errStore) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
	if !answerLost {
		wantNothing(t, to, before)
		return
	}
	got := listed(t, to)
	if len(got) > 2 {
		t.Errorf("listed %v", got)
	}
}

// TestRunCancelled checks that a cancelled Run returns no error with a complete backup, or an error without one.
func TestRunCancelled(t *testing.T) {
	needsQuiet(t)
	fakes, urls := three(t)
	enough := errors.New("enough")
	cancelled := 0
	for _, spool := range []string{"", t.TempDir()} {
		for event, met := 0, true; met; event++ {
			to := open(t, mem.New())
			r, _ := request(t)
			r.CompareMembers, r.Spool.Dir = true, spool
			ctx, cancel := context.WithCancelCause(t.Context())
			met = false
			l := &listener{hear: func(n int, _ storage.Event) {
				if n == event {
					met = true
					cancel(enough)
				}
			}}
			result, err := backup.Run(ctx, at(urls...), only(to), reporting(r, l.report))
			if err == nil {
				wantNothing(t, to, result.ID)
			} else {
				cancelled++
				wantNothing(t, to)
				if !errors.Is(err, enough) && !errors.Is(err, context.Canceled) { // a store sees only the latter
					t.Errorf("ended at event %d: %v", event, err)
				}
			}
			cancel(nil)
			wantEnded(t)
		}
		wantEmpty(t, spool)
	}
	if cancelled < 10 {
		t.Errorf("only %d Runs were cancelled", cancelled)
	}
	for i, fake := range fakes {
		n := fake.open.Load()
		if n != 0 {
			t.Errorf("member %d still sends %d streams", i, n)
		}
	}
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if dir == "" {
		return
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) > 0 {
		t.Errorf("in %s are %v, %v", dir, files, err)
	}
}

// TestRunOnABadStream checks that wrong data from the member is never stored.
func TestRunOnABadStream(t *testing.T) {
	needsQuiet(t)
	data := database(1 << 18)
	for _, test := range []struct {
		name string
		send func(pb.Maintenance_SnapshotServer) error
		want error
		word string
	}{
		{"nothing", func(pb.Maintenance_SnapshotServer) error { return nil }, cluster.ErrDigest, "0 bytes"},
		{"no digest", func(s pb.Maintenance_SnapshotServer) error { return send(s, data[:1<<18]) },
			cluster.ErrDigest, "before its digest"},
		{"half", func(s pb.Maintenance_SnapshotServer) error { return send(s, data[:1<<17]) },
			cluster.ErrDigest, "before its digest"},
		{"a wrong digest", func(s pb.Maintenance_SnapshotServer) error {
			wrong := bytes.Clone(data)
			wrong[len(wrong)-1] ^= 1
			return send(s, wrong)
		}, cluster.ErrDigest, ""},
		{"a wrong byte", func(s pb.Maintenance_SnapshotServer) error {
			wrong := bytes.Clone(data)
			wrong[100] ^= 1
			return send(s, wrong)
		}, cluster.ErrDigest, ""},
		{"an error", func(s pb.Maintenance_SnapshotServer) error {
			err := send(s, data[:1<<17])
			if err != nil {
				return err
			}
			return status.Error(codes.Internal, "the disk is on fire")
		}, nil, "the disk is on fire"},
		{"an error behind it all", func(s pb.Maintenance_SnapshotServer) error {
			err := send(s, data)
			if err != nil {
				return err
			}
			return status.Error(codes.Internal, "the disk is on fire")
		}, nil, "the disk is on fire"},
	} {
		fake := &fakeMember{clusterID: 9, memberID: 1, snapshot: test.send}
		url := fake.serve(t)
		for _, spool := range []string{"", t.TempDir()} {
			t.Run(test.name+" "+filepath.Base(spool), func(t *testing.T) {
				for name, bucket := range map[string]storage.Bucket{"mem": mem.New(), "file": fileBucket(t)} {
					to := open(t, bucket)
					r, _ := request(t)
					r.Spool.Dir = spool
					_, err := backup.Run(t.Context(), at(url), only(to), r)
					if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.word) {
						t.Errorf("%s: error %v, want %v, %q", name, err, test.want, test.word)
					}
					wantNothing(t, to)
				}
				wantEmpty(t, spool)
			})
		}
	}
	wantEnded(t)
}

// TestRunOnASlowStore checks that a slow store does not hold the member: after --max-stream the stream is ended, and
// the error names the remedy.
func TestRunOnASlowStore(t *testing.T) {
	t.Parallel()
	big := database(4 << 20) // more than the buffers on the way hold
	t.Run("without a spool", func(t *testing.T) {
		t.Parallel()
		fake := &fakeMember{clusterID: 9, memberID: 1, database: big}
		slow := storagetest.Faulty(mem.New())
		slow.On(storagetest.VerbPut).Delay(2 * time.Second)
		to := open(t, slow)
		r, _ := request(t)
		r.MaxStream = time.Second
		_, err := backup.Run(t.Context(), at(fake.serve(t)), only(to), r)
		if err == nil || !strings.Contains(err.Error(), "--spool") || !strings.Contains(err.Error(), "--max-stream") {
			t.Errorf("error %v", err)
		}
		wantNothing(t, to)
	})
	t.Run("with a spool", func(t *testing.T) {
		t.Parallel()
		fake := &fakeMember{clusterID: 9, memberID: 1, database: big}
		dir := t.TempDir()
		looked := false
		// The store takes nothing before the member's stream has ended.
		to := open(t, &watched{Bucket: mem.New(), before: func(key string) {
			for fake.open.Load() > 0 {
				time.Sleep(10 * time.Millisecond)
			}
			if strings.HasSuffix(key, ".age") {
				looked = true
				wantSealedSpool(t, dir)
			}
		}})
		r, keys := request(t)
		r.Spool.Dir = dir
		result := mustRun(t, at(fake.serve(t)), to, r, &listener{})
		if !looked {
			t.Error("nothing was uploaded")
		}
		if !bytes.Equal(fetched(t, to, result.Backup, keys), fake.database) {
			t.Error("the snapshot came out of the spool as another one")
		}
		if result.Finished.Sub(result.Started) < 0 {
			t.Errorf("finished at %s, started at %s", result.Finished, result.Started)
		}
		wantEmpty(t, dir)
	})
}

// watched calls before with each key before it is put.
type watched struct {
	storage.Bucket
	before func(key string)
}

func (w *watched) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	w.before(key)
	return w.Bucket.Put(ctx, key, r, o)
}

// wantSealedSpool checks the unlinked file below dir that this process has open.
func wantSealedSpool(t *testing.T, dir string) {
	t.Helper()
	wantEmpty(t, dir)
	if runtime.GOOS != "linux" {
		return // other systems do not show a process its open files
	}
	const open = "/proc/self/fd"
	entries, err := os.ReadDir(open)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(open, entry.Name()))
		if err != nil || !strings.HasPrefix(target, dir+"/") {
			continue
		}
		found++
		content, err := os.ReadFile(filepath.Join(open, entry.Name()))
		if err != nil || !bytes.HasPrefix(content, []byte(ageHeader)) {
			t.Errorf("the spool is not sealed: %q, %v", content[:min(len(content), 40)], err)
		}
	}
	if found != 1 {
		t.Errorf("%d spools are open, want 1", found)
	}
}

// TestRunOnASlowMember checks the error with a spool, where the stream does not wait for the store.
func TestRunOnASlowMember(t *testing.T) {
	t.Parallel()
	hang := func(s pb.Maintenance_SnapshotServer) error {
		err := send(s, database(4096)[:1000])
		if err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}
	fake := &fakeMember{clusterID: 9, memberID: 1, snapshot: hang}
	url := fake.serve(t)
	for _, spool := range []string{"", t.TempDir()} {
		to := open(t, mem.New())
		r, _ := request(t)
		r.Spool.Dir, r.MaxStream = spool, 300*time.Millisecond
		_, err := backup.Run(t.Context(), at(url), only(to), r)
		if err == nil || !strings.Contains(err.Error(), "--max-stream") {
			t.Fatalf("error %v", err)
		}
		named := strings.Contains(err.Error(), "--spool")
		if named != (spool == "") {
			t.Errorf("with spool %q the cure is: %v", spool, err)
		}
		wantNothing(t, to)
		wantEmpty(t, spool)
	}
}

// TestRunDoesNotWaitForTheMember checks that a failed store ends the stream at once, not at the member's next message
// or the end of its time.
func TestRunDoesNotWaitForTheMember(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1, snapshot: func(s pb.Maintenance_SnapshotServer) error {
		err := send(s, database(4096)[:1000])
		if err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}}
	faults := storagetest.Faulty(mem.New())
	faults.On(storagetest.VerbPut).Fail(errStore)
	cfg, to := at(fake.serve(t)), open(t, faults)
	r, _ := request(t)
	ended := make(chan error, 1)
	go func() {
		_, err := backup.Run(context.WithoutCancel(t.Context()), cfg, only(to), r)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, errStore) {
			t.Errorf("error %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it still waits after 20 s")
	}
}

func TestRunWithoutARoomForTheSpool(t *testing.T) {
	t.Parallel()
	fake := &fakeMember{clusterID: 9, memberID: 1}
	to := open(t, mem.New())
	r, _ := request(t)
	r.Spool.Dir = filepath.Join(t.TempDir(), "absent")
	_, err := backup.Run(t.Context(), at(fake.serve(t)), only(to), r)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), r.Spool.Dir) {
		t.Errorf("error %v", err)
	}
	wantNothing(t, to)
}

func TestRunOnADeadCluster(t *testing.T) {
	t.Parallel()
	to := open(t, mem.New())
	r, _ := request(t)
	_, err := backup.Run(t.Context(), at("http://127.0.0.1:1"), only(to), r)
	if !errors.Is(err, cluster.ErrSilent) {
		t.Errorf("error %v", err)
	}
	fake := &fakeMember{clusterID: 9, memberID: 1, status: func(call int64) error {
		if call == 1 {
			return nil
		}
		return status.Error(codes.Unavailable, "gone")
	}}
	url := fake.serve(t)
	_, err = backup.Run(t.Context(), at(url), only(to), r)
	if err == nil || !strings.Contains(err.Error(), url) {
		t.Errorf("a member that went away: %v", err)
	}
	wantNothing(t, to)
}
