package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

var errTest = errors.New("broken by the test")

// TestMain seals something first: the encoder that all share would otherwise belong to the first bubble that needs it.
func TestMain(m *testing.M) {
	_, err := seal.Bytes(nil, seal.Recipients{})
	if err != nil {
		panic(err)
	}
	m.Run()
}

// site is a running service in a bubble of time, with its handler. It begins on 2000-01-01, 00:00 UTC.
type site struct {
	t       testing.TB
	store   *storagetest.Faults
	cluster *repository.Cluster // prod's part of main
	service *scheduler.Service
	handler http.Handler
	ids     []catalog.ID // oldest first
}

// inSite runs test, in fake time, while a service looks after prod, in the repositories main and offsite, and after test, in gone, which is
// away. prod has two backups, of 22:00 and 23:00 on the day before, each with a proof, the second one by a drill; and a log
// from the first one until midnight.
func inSite(t *testing.T, change func(*server.Service), test func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, change)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.service.Run(ctx, config(t), nil) })
		defer running.Wait()
		defer stop()
		synctest.Wait()
		test(t, s)
	})
}

func config(t testing.TB) spec.Config {
	t.Helper()
	daily, err := spec.ParseSchedule("0 12 * * *", time.UTC, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	main, gone := spec.Repository{Name: "main", URL: "mem://main"}, spec.Repository{Name: "gone", URL: "mem://gone"}
	return spec.Config{Concurrency: 1, Lease: time.Minute, Specs: []spec.Spec{
		{
			Cluster: "prod", Digest: "1", Repositories: []spec.Repository{main, {Name: "offsite", URL: "mem://offsite"}},
			Schedule: daily, Retention: retention.Policy{Last: 1}, Timeout: time.Hour, Backup: spec.Backup{Require: spec.Any},
		},
		{Cluster: "test", Digest: "2", Repositories: []spec.Repository{gone}, Schedule: daily, Timeout: time.Hour},
	}}
}

func newSite(t testing.TB, change func(*server.Service)) *site {
	t.Helper()
	s := &site{t: t, store: storagetest.Faulty(mem.New())}
	offsite := mem.New()
	s.service = &scheduler.Service{
		Open: func(_ context.Context, r spec.Repository) (storage.Bucket, error) {
			switch r.Name {
			case "main":
				return s.store, nil
			case "offsite":
				return offsite, nil
			}
			return nil, errTest
		},
		Backup: func(context.Context, scheduler.BackupRequest, storage.Report) (backup.Result, error) {
			return backup.Result{}, errTest
		},
	}
	s.fill()
	served := server.Service{By: "host, dr v1", Scheduler: s.service, Status: func() document.ServeStatus {
		return document.ServeStatus{Config: document.ServeConfig{File: "dr.yaml", Since: time.Now()}, Clusters: convert.Clusters(s.service.Status())}
	}}
	if change != nil {
		change(&served)
	}
	s.handler = server.Serve(served, server.Access{})
	return s
}

func (s *site) fill() {
	var err error
	s.cluster, err = repository.Open(s.store, "prod")
	if err != nil {
		s.t.Fatal(err)
	}
	now := time.Now()
	for i, ago := range []time.Duration{2 * time.Hour, time.Hour} {
		b := s.back(now.Add(-ago), int64(10+10*i))
		s.ids = append(s.ids, b.ID)
		p := catalog.Proof{
			Backup: b.ID, Level: catalog.Hashed, Verdict: catalog.Passed, Finding: "no fault found", Time: now.Add(-ago).Add(time.Minute), By: "host, dr v1",
		}
		if i == 1 {
			p.Level, p.Drill = catalog.Booted, &catalog.Drill{Target: "backup " + string(b.ID), RTO: 3}
		}
		err := s.cluster.Append(s.t.Context(), p)
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.archive(now)
}

// back stores a small backup.
func (s *site) back(started time.Time, revision int64) catalog.Backup {
	s.t.Helper()
	sum := sha256.Sum256([]byte("plain"))
	b, err := stored.CreateFrom(s.t.Context(), s.cluster, catalog.NewID(started, revision), seal.Recipients{}.Seal(), strings.NewReader("sealed"),
		func() (catalog.Manifest, error) {
			member := catalog.Member{ID: "8e9e05c52164694d", Name: "m1", PeerURLs: []string{"https://10.0.0.1:2380"}}
			return catalog.Manifest{
				Started: started, Finished: started.Add(time.Second), Revision: revision, RaftIndex: uint64(revision), RaftTerm: 2,
				ClusterID: "cdf818194e3a8c32", Member: member, Members: []catalog.Member{member}, EtcdVersion: "3.7.3",
				Plain: catalog.Blob{Name: "snapshot.db", Size: 5, SHA256: hex.EncodeToString(sum[:])},
			}, nil
		})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// archive stores one segment, of the positions 11 to 30, which are the revisions too.
func (s *site) archive(until time.Time) {
	s.t.Helper()
	h := segment.Header{
		Cluster: "prod", Lineage: strings.Repeat("a", 32), Seq: 1, First: 11, Last: 30, Source: segment.WAL, ClusterID: "cdf818194e3a8c32",
		Member: "8e9e05c52164694d", ServerVersion: "3.7.3", Writer: "w", Written: until, DRVersion: "v1",
		Marks: []segment.Mark{
			{Position: 20, Revision: 20, Interval: segment.Interval{NotBefore: until.Add(-time.Hour), NotAfter: until.Add(-time.Hour)}},
			{Position: 30, Revision: 30, Interval: segment.Interval{NotBefore: until, NotAfter: until}},
		},
		End: segment.End{Position: 30, Term: 2, Digest: strings.Repeat("e", 64)},
	}
	var records []segment.Record
	for position := uint64(11); position <= 30; position++ {
		records = append(records, segment.Record{Kind: segment.Request, Position: position, Term: 2, Data: []byte("x")})
	}
	encoded, err := segment.Encode(h, records, seal.Recipients{})
	if err == nil {
		err = s.cluster.Log().StoreSegment(s.t.Context(), encoded)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// request asks for something on this host, as curl would.
func request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "127.0.0.1:2391", "127.0.0.1:40000"
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func (s *site) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// read asks for a document, which must be answered with a status.
func read[T any](s *site, path string, status int) (d T) {
	s.t.Helper()
	w := s.do(request(http.MethodGet, path, ""))
	if w.Code != status || w.Header().Get("Content-Type") != "application/json" {
		s.t.Fatalf("%s: %d, %v: %s", path, w.Code, w.Header(), w.Body)
	}
	err := json.Unmarshal(w.Body.Bytes(), &d)
	if err != nil {
		s.t.Fatalf("%s: %v: %s", path, err, w.Body)
	}
	return d
}
