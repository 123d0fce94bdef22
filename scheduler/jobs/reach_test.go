package jobs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/jobs"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestJobsStayWithinReach runs jobs whose settings lead to this host: nothing is dialled.
func TestJobsStayWithinReach(t *testing.T) {
	port := servers.FreeURLs(t, 1)[0][len("http://127.0.0.1:"):]
	s := jobs.NewService(jobs.Identity{Host: "h"}, nil, func(storage.Event) {})
	given, err := credentials.Parse(map[string][]byte{"access-token": []byte("t")})
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Open(t.Context(), spec.Repository{URL: "gs://bucket?endpoint=http://localhost:" + port, Credentials: given, Reach: reach.OtherHosts})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Stat(t.Context(), "key")
	if !errors.Is(err, reach.ErrOwn) {
		t.Errorf("a repository: %v", err)
	}
	of := spec.Spec{Cluster: "prod", Etcd: spec.Etcd{
		Endpoints: []string{"http://localhost:" + port}, DialTimeout: time.Second, CommandTimeout: time.Second, Reach: reach.OtherHosts,
	}}
	_, err = s.Revision(t.Context(), of)
	if err == nil || !strings.Contains(err.Error(), reach.ErrOwn.Error()) {
		t.Errorf("a cluster: %v", err)
	}
}
