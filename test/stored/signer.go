package stored

import (
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// Signer is a signing key and its public key.
type Signer struct {
	Key    sign.Key
	Public string
}

// NewSigner returns a new pair of keys.
func NewSigner(tb testing.TB) Signer {
	tb.Helper()
	secret, public, err := sign.Generate()
	if err != nil {
		tb.Fatal(err)
	}
	key, err := sign.ParseKey(secret)
	if err != nil {
		tb.Fatal(err)
	}
	return Signer{key, public}
}

// OpenWith opens the cluster named c with a policy.
func OpenWith(tb testing.TB, b storage.Bucket, p records.Policy) *repository.Cluster {
	tb.Helper()
	c, err := repository.OpenWith(b, "c", p)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Trust returns a policy that trusts the public keys and does not sign.
func Trust(tb testing.TB, keys ...string) records.Policy {
	tb.Helper()
	t, err := sign.ParseTrust(keys...)
	if err != nil {
		tb.Fatal(err)
	}
	return records.Policy{Trust: t}
}
