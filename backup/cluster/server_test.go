package cluster_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

func TestServerHashKV(t *testing.T) {
	t.Parallel()
	url, _ := startEtcd(t, nil)
	client := clientOf(t, url, nil)
	server := connect(t, at(url)).Servers[0]
	var revision int64
	for range 10 {
		answer, err := client.Put(t.Context(), "key", "value")
		if err != nil {
			t.Fatal(err)
		}
		revision = answer.Header.Revision
	}
	_, err := client.Compact(t.Context(), 5, clientv3.WithCompactPhysical())
	if err != nil {
		t.Fatal(err)
	}
	// The client of this version can hash only the newest revision, which this is.
	want, err := client.HashKV(t.Context(), url, revision)
	if err != nil {
		t.Fatal(err)
	}
	got, err := server.HashKV(t.Context(), revision)
	if err != nil || got != (catalog.HashKV{Revision: revision, CompactRevision: 5, Hash: want.Hash}) {
		t.Errorf("got %+v, %v; want hash %d", got, err, want.Hash)
	}
	older, err := server.HashKV(t.Context(), revision-1)
	if err != nil || older.Revision != revision-1 || older.Hash == got.Hash {
		t.Errorf("an older revision: %+v, %v", older, err)
	}
	_, err = server.HashKV(t.Context(), revision+1)
	if !errors.Is(err, cluster.ErrFuture) {
		t.Errorf("a revision to come: %v", err)
	}
	wantWords(t, err, url)
	_, err = server.HashKV(t.Context(), 4)
	if !errors.Is(err, cluster.ErrCompacted) {
		t.Errorf("a compacted revision: %v", err)
	}
	wantWords(t, err, url)
}

func TestAlarms(t *testing.T) {
	t.Parallel()
	raised := []string{
		"etcdserver: no leader", "memberID:1 alarm:CORRUPT ", "memberID:2 alarm:NOSPACE ", "memberID:1 alarm:NOSPACE ",
	}
	cutOff := &fakeMember{
		clusterID: 9, memberID: 1, errors: raised, refusal: status.Error(codes.Unavailable, "etcdserver: request timed out"),
	}
	cfg := at("http://" + cutOff.serve(t))
	cfg.CommandTimeout /= 10 // no member will answer
	c := connect(t, cfg)
	if c.Quorum || c.Leader() != nil {
		t.Errorf("a member without a leader: %+v", c)
	}
	alarms, err := c.Alarms(t.Context())
	if !slices.Equal(alarms, []string{"CORRUPT", "NOSPACE"}) || err != nil {
		t.Errorf("without a quorum: %v, %v", alarms, err)
	}

	url, etcd := startEtcd(t, nil)
	c = connect(t, at(url))
	alarms, err = c.Alarms(t.Context())
	if len(alarms) > 0 || err != nil {
		t.Errorf("without an alarm: %v, %v", alarms, err)
	}
	for _, alarm := range []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
		raise := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 7, Alarm: alarm}
		_, err := etcd.Server.Alarm(t.Context(), raise)
		if err != nil {
			t.Fatal(err)
		}
	}
	alarms, err = c.Alarms(t.Context())
	if !slices.Equal(alarms, []string{"CORRUPT", "NOSPACE"}) || err != nil {
		t.Errorf("with two alarms: %v, %v", alarms, err)
	}
	etcd.Close()
	_, err = c.Alarms(t.Context())
	wantWords(t, err, "list alarms", url)
}

func TestServerThatIsGone(t *testing.T) {
	t.Parallel()
	url, etcd := startEtcd(t, nil)
	server := connect(t, at(url)).Servers[0]
	now, err := server.Now(t.Context())
	if err != nil || now.Header.MemberId != server.MemberID {
		t.Errorf("%v, %v", now, err)
	}
	etcd.Close()
	for name, ask := range map[string]func(context.Context) error{
		"Now":         func(ctx context.Context) error { _, err := server.Now(ctx); return err },
		"HashKV":      func(ctx context.Context) error { _, err := server.HashKV(ctx, 0); return err },
		"AuthEnabled": func(ctx context.Context) error { _, err := server.AuthEnabled(ctx); return err },
		"Snapshot":    func(ctx context.Context) error { _, err := server.Snapshot(ctx, 0); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 1e9)
		defer cancel()
		err := ask(ctx)
		if err == nil {
			t.Errorf("%s succeeds", name)
		} else {
			wantWords(t, err, url)
		}
	}
}
