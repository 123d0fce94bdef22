package scratch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/scratch"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/test/embedded"
)

// TestMain is also the main function of a child: etcd ends the process on fatal errors.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == child.Argument {
		err := child.Serve(context.Background(), boot, os.Stdin, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // under -race a child would wait a second before it ends
	os.Exit(m.Run())
}

func boot(ctx context.Context, input []byte, report storage.Report) (any, error) {
	var dir string
	err := json.Unmarshal(input, &dir)
	if err != nil {
		return nil, err
	}
	report.Say(storage.Event{Stage: "boot"})
	s, err := scratch.Boot(ctx, dir)
	if err != nil {
		return nil, err
	}
	s.Close()
	return "booted", nil
}

func TestBootTwice(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // it boots again the data dir that it wrote
		s, err := scratch.Boot(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		revision, keys, err := s.Count(t.Context())
		if err != nil || revision != 1 || keys != 0 {
			t.Errorf("%d keys at revision %d, %v", keys, revision, err)
		}
		h, err := s.HashKV(1)
		if err != nil || h.Revision != 1 || h.CompactRevision != -1 {
			t.Errorf("hash %+v, %v", h, err)
		}
		h, err = s.HashKV(99)
		if err == nil {
			t.Errorf("hash of the future: %+v", h)
		}
		s.Close()
	}
}

// CountAt counts the keys of an older revision, as after a lease expires on the booted server.
func TestCountAtARevision(t *testing.T) {
	made := embedded.Start(t, func(c *embed.Config) {
		c.Name = scratch.Member
		peer, err := url.Parse(scratch.PeerURL)
		if err != nil {
			t.Fatal(err)
		}
		c.AdvertisePeerUrls = []url.URL{*peer}
		c.InitialCluster = c.InitialClusterFromName(c.Name)
	})
	client := made.Client(t)
	for _, key := range []string{"a", "b", "c"} {
		_, err := client.Put(t.Context(), key, "v")
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.Delete(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	made.Close()
	s, err := scratch.Boot(t.Context(), made.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	revision, now, err := s.Count(t.Context())
	if err != nil || revision != 5 || now != 2 {
		t.Errorf("%d keys at revision %d, %v", now, revision, err)
	}
	before, err := s.CountAt(t.Context(), 4)
	if err != nil || before != 3 {
		t.Errorf("%d keys at revision 4, %v", before, err)
	}
}

func TestTwoAtOnceDoNotMeet(t *testing.T) {
	for range 2 {
		s, err := scratch.Boot(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
}

func TestBootCancelled(t *testing.T) {
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	s, err := scratch.Boot(ctx, t.TempDir())
	if err == nil { // the server was ready at once
		s.Close()
	} else if !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}

func TestBootWhereNothingCanBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	err := os.WriteFile(file, nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = scratch.Boot(t.Context(), file)
	if err == nil || !strings.Contains(err.Error(), "scratch server") {
		t.Errorf("error %v", err)
	}
}

// etcd logs and ends the process on a log that it cannot read. The message must not be lost: it is verify's finding.
func TestABrokenLogIsNamed(t *testing.T) {
	dir := t.TempDir()
	s, err := scratch.Boot(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %q, %v", logs, err)
	}
	// The new name makes its first segment missing.
	err = os.Rename(logs[0], filepath.Join(filepath.Dir(logs[0]),
		"0000000000000007-0000000000000099.wal"))
	if err != nil {
		t.Fatal(err)
	}
	err = child.Call{Verb: "boot", Job: dir}.Run(t.Context())
	died, ok := errors.AsType[*child.DiedError](err)
	if !ok || died.Stage != "boot" || died.Killed || !strings.Contains(died.Words, "WAL") {
		t.Errorf("error %+v (%v)", died, err)
	}
}
