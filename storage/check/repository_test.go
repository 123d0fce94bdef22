package check_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

var (
	plain  = seal.Seal{Compression: "zstd"}
	hidden = seal.Seal{Compression: "zstd", Encryption: "age", Recipients: []string{"age1qqqqqqqqqqqq"}}
)

// back puts a backup of a cluster into b, with content that cannot be restored.
func back(t *testing.T, b storage.Bucket, cluster string, s seal.Seal, key sign.Key) catalog.ID {
	t.Helper()
	c, err := repository.OpenWith(b, cluster, records.Policy{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	id := catalog.NewID(time.Now(), 7)
	_, err = stored.CreateFrom(t.Context(), c, id, s, strings.NewReader("sealed"), func() (catalog.Manifest, error) {
		return catalog.Manifest{
			Started: time.Now().UTC(), Finished: time.Now().UTC(), Revision: 7,
			Plain: catalog.Blob{Name: "snapshot.db", Size: 20512, SHA256: strings.Repeat("ab", 32)},
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func pair(t *testing.T) (sign.Key, sign.Trust) {
	t.Helper()
	secret, public, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := sign.ParseTrust(public)
	if err != nil {
		t.Fatal(err)
	}
	return key, trust
}

// of returns the line of a cluster, or the zero Line.
func of(lines []check.Line, cluster, name string) check.Line {
	for _, l := range lines {
		if l.Of == cluster && l.Name == name {
			return l
		}
	}
	return check.Line{}
}

func wantLine(t *testing.T, l check.Line, v check.Verdict, words ...string) {
	t.Helper()
	if l.Verdict != v {
		t.Errorf("%q of %q is %q, want %q: %s", l.Name, l.Of, l.Verdict, v, l.Seen)
	}
	wantSaid(t, l, words...)
}

func TestNewestBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		key, trust := pair(t)
		_, others := pair(t)
		back(t, b, "prod", plain, sign.Key{})
		back(t, b, "test", plain, sign.Key{})
		time.Sleep(3 * time.Hour)
		id := back(t, b, "prod", hidden, key)
		time.Sleep(2 * time.Hour)

		o := check.Options{Large: large}
		lines := check.Run(t.Context(), b, o, nil)
		wantLine(t, of(lines, "prod", "newest backup"), check.OK, string(id), "taken 2h0m", "revision 7")
		wantLine(t, of(lines, "prod", "encryption"), check.OK, "on", "1 recipients")
		wantLine(t, of(lines, "prod", "signature"), check.OK, "--trust")
		wantLine(t, of(lines, "test", "newest backup"), check.OK, "taken 5h0m")
		wantLine(t, of(lines, "test", "encryption"), check.Note, "OFF", "--recipient")
		wantLine(t, of(lines, "test", "signature"), check.Note, "unsigned", "--sign-key")

		o.Clusters, o.Trust = []string{"prod", "none"}, trust
		lines = check.Run(t.Context(), b, o, nil)
		wantLine(t, of(lines, "prod", "signature"), check.OK, "trusted key")
		wantLine(t, of(lines, "none", "newest backup"), check.Note, "none", "dr backup")
		l := of(lines, "test", "encryption")
		if l.Name != "" {
			t.Errorf("a cluster that was not named has %+v", l)
		}
		o.Trust = others
		wantLine(t, of(check.Run(t.Context(), b, o, nil), "prod", "signature"), check.Wanting, "not signed by a trusted key")
	})
}

func TestDamagedBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		id := back(t, b, "prod", plain, sign.Key{})
		put(t, b, "prod/backups/"+string(id)+"/manifest.json")
		lines := check.Run(t.Context(), b, check.Options{Large: large}, nil)
		wantLine(t, of(lines, "prod", "newest backup"), check.Wanting, "damaged", "dr verify")
	})
}

// refusing does not return the objects whose names have the suffix.
type refusing struct {
	storage.Bucket
	suffix string
}

func (r refusing) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	if strings.HasSuffix(key, r.suffix) {
		return nil, storage.Object{}, fmt.Errorf("open %q: %w", key, storage.ErrDenied)
	}
	return r.Bucket.Open(ctx, key, o)
}

// TestUnreadableObject checks that any unreadable object of a cluster is reported, not only the newest manifest.
func TestUnreadableObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		id := back(t, b, "prod", hidden, sign.Key{})
		back(t, b, "other", hidden, sign.Key{})
		proof := "prod/backups/" + string(id) + "/proof-20261121T120000.000Z.json"
		put(t, b, proof)
		lines := check.Run(t.Context(), refusing{b, proof}, check.Options{Large: large}, nil)
		l := of(lines, "prod", "objects can be read")
		if l.Verdict != check.Wanting {
			t.Errorf("%+v", l)
		}
		wantSaid(t, l, proof, "1 objects cannot be read", "chown -R")
		l = of(lines, "other", "newest backup")
		if l.Verdict != check.OK {
			t.Errorf("the other cluster: %+v", l)
		}
	})
}
