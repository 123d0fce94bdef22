package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// TestMain lets the test binary serve as its own child process, which restore.Spawn starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == child.Argument && os.Args[2] == restore.ChildVerb {
		err := child.Serve(context.Background(), restore.Serve, os.Stdin, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestDemoRunsAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three members")
	}
	dir := tempDir(t)
	var out bytes.Buffer
	err := (Story{Out: &out, Version: "test"}).Tell(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	wantWords(t, out.String(),
		"\n1. Three etcd members start ", "\n5. Disaster: ", "\n8. Each of them is compared ",
		"m1, m2, m3", "2,750 keys", "key space proven at revision",
		"the same on all three: revision, key count, HashKV, values, leases, users, roles, passwords",
		"the write after the backup is lost, as it must be; a new write went through",
		"\n9. From now on the log is archived too ", "\n14. Each of them is compared ", "2,700 keys are gone",
		"every order is back as it was one revision before",
		"\nProven in ", "\n  dr backup ", "\n  dr restore ")
	if strings.Contains(out.String(), "failed") || strings.Contains(out.String(), "Kept in") {
		t.Errorf("the story says what is not so:\n%s", &out)
	}
	wantNothingLeft(t, dir)
	wantNoMembers(t)
}

func TestDemoMatchesItsText(t *testing.T) {
	if testing.Short() {
		t.Skip("another run")
	}
	dir := tempDir(t)
	var out bytes.Buffer
	err := (Story{Keep: true, Out: &out, Version: "test"}).Tell(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	kept := onlyFolder(t, dir)
	bucket, err := stores.Open(t.Context(), "file://"+kept+"/repository", stores.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := repository.Open(bucket, "demo")
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := c.Load(t.Context(), backups.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(catalog.Backups) != 2 {
		t.Errorf("the kept repository holds %d backups, want one of each part", len(catalog.Backups))
	}
	for _, b := range catalog.Backups {
		if b.Seal.Encryption != "age" || !b.Auth {
			t.Errorf("backup %s: encryption %q, users %t", b.ID, b.Seal.Encryption, b.Auth)
		}
	}
	wantWords(t, out.String(),
		"Kept in "+kept, "dr list --repo file://"+kept+"/repository --cluster demo",
		"--identity "+kept+"/key.txt", kept+"/restored")
	for _, name := range []string{"key.txt", "password", "restored-again/m1/member", "restored-again/m2/member", "restored-again/m3/member"} {
		_, err := os.Stat(filepath.Join(kept, name))
		if err != nil {
			t.Errorf("it says that it keeps %s: %v", name, err)
		}
	}
	wantNoMembers(t)
}

func TestStoryThatIsCutShortLeavesNothing(t *testing.T) {
	errCut := errors.New("cut short")
	for _, during := range []string{"1. ", "2. ", "4. ", "6. ", "7. "} {
		if testing.Short() && during != "1. " {
			continue
		}
		t.Run("act "+during[:1], func(t *testing.T) {
			dir := tempDir(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			out := &listener{word: during, heard: func() { cancel(errCut) }}
			err := Story{Out: out, Version: "test"}.Tell(ctx)
			if !errors.Is(err, errCut) || !strings.HasPrefix(err.Error(), "act "+during[:1]+" (") {
				t.Errorf("got error %v, want act %s to be cut short", err, during[:1])
			}
			wantNothingLeft(t, dir)
			wantNoMembers(t)
		})
	}
}

// TestStoryFailsWithAWrongMember checks that a member that was not restored is found (it would get all data from the others), and one that differs is named.
func TestStoryFailsWithAWrongMember(t *testing.T) {
	if testing.Short() {
		t.Skip("two more runs")
	}
	for name, test := range map[string]struct {
		spoil func(t *testing.T, restored string)
		want  string
	}{
		"missing": {
			func(t *testing.T, restored string) {
				err := os.RemoveAll(filepath.Join(restored, "m2"))
				if err != nil {
					t.Error(err)
				}
			},
			"act 7 (The three restored members start): look for the data of m2",
		},
		"different": {
			func(t *testing.T, restored string) { changeAValue(t, filepath.Join(restored, "m2/member/snap/db")) },
			"act 8 (Each of them is compared with the record): m2: HashKV: was ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			out := &listener{word: "7. "}
			out.heard = func() { test.spoil(t, filepath.Join(onlyFolder(t, dir), "restored")) }
			err := Story{Out: out, Version: "test"}.Tell(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got error %v, want %s…", err, test.want)
			}
			wantNothingLeft(t, dir)
		})
	}
}

// changeAValue changes one byte in every copy of an order that only the hash covers.
func changeAValue(t *testing.T, db string) {
	t.Helper()
	content, err := os.ReadFile(db)
	if err != nil {
		t.Error(err)
		return
	}
	changed := bytes.ReplaceAll(content, []byte("order 1234: "), []byte("order 1334: "))
	if bytes.Equal(changed, content) {
		t.Error("order 1234 is not in the database")
	}
	err = os.WriteFile(db, changed, 0o600)
	if err != nil {
		t.Error(err)
	}
}

// listener calls heard when word is first printed.
type listener struct {
	word  string
	heard func()
	once  sync.Once
}

func (l *listener) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte(l.word)) {
		l.once.Do(l.heard)
	}
	return len(p), nil
}

// tempDir sets and returns the directory for temporary files.
func tempDir(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return dir
}

func onlyFolder(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("got %v in %s (%v), want one folder", entries, dir, err)
	}
	return filepath.Join(dir, entries[0].Name())
}

func wantWords(t *testing.T, story string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(story, w) {
			t.Errorf("the story does not say %q:\n%s", w, story)
		}
	}
}

func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind in %s: %v (%v)", dir, left, err)
	}
}

// wantNoMembers waits for the end of goroutines of stopped members. It ignores connections between members: etcd closes them only
// after their read timeout of five seconds.
func wantNoMembers(t *testing.T) {
	t.Helper()
	var left []string
	members := []string{
		"go.etcd.io/etcd/server", "go.etcd.io/etcd/client/v3", "go.etcd.io/bbolt", "go.etcd.io/raft",
		"google.golang.org/grpc",
	}
	for range 50 {
		left = goroutinesOf(members)
		if len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left, the first:\n%s", len(left), left[0])
}

func goroutinesOf(packages []string) (left []string) {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		for _, p := range packages {
			if strings.Contains(stack, p) {
				left = append(left, stack)
				break
			}
		}
	}
	return left
}

var errList = errors.New("the store is away")

// unlisted is a bucket that cannot be listed.
type unlisted struct{ storage.Bucket }

func (unlisted) List(context.Context, storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) { yield(storage.Object{}, errList) }
}

// TestCleanUpReportsAllErrors checks that a folder that cannot be removed does not hide objects that stay in the user's repository.
func TestCleanUpReportsAllErrors(t *testing.T) {
	bucket := unlisted{mem.New()}
	cluster, err := repository.Open(bucket, "demo")
	if err != nil {
		t.Fatal(err)
	}
	run := &demoRun{Story: Story{Repository: "mem:"}, bucket: bucket, repository: cluster}
	run.dir = t.TempDir() + "/." // which os.RemoveAll refuses
	err = run.cleanUp()
	if !errors.Is(err, errList) || !strings.Contains(err.Error(), "remove the demo's folder") {
		t.Errorf("error %v", err)
	}
}
