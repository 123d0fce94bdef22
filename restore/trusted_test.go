package restore_test

import (
	"errors"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// The author of a plan may have trusted every signer: a host that runs it with trusted keys of its own restores nothing
// unsigned.
func TestRunOfAPlanThatIsNotTrusted(t *testing.T) {
	s := store(t, plainDatabase(t), nil)
	p := s.plan(t, plan.Layout{Into: all(t)})
	_, public, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := sign.ParseTrust(public)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := file.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := repository.OpenWith(bucket, clusterName, records.Policy{Trust: trust})
	if err != nil {
		t.Fatal(err)
	}
	_, err = restore.Run(t.Context(), p, child.Opened{Cluster: c, Keys: s.keys}, nil)
	if !errors.Is(err, sign.ErrUntrusted) {
		t.Errorf("error %v", err)
	}
}
