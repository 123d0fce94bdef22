package child

import (
	"context"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// Source describes the repository and contains the keys that open its backups. It is sent to a child through a pipe, and never
// stored.
type Source struct {
	Repository string         `json:"repository,omitempty"` // URL
	Options    stores.Options `json:"options,omitzero"`
	// Credentials are those of Options; nil: those of the environment.
	Credentials map[string][]byte `json:"credentials,omitempty"`
	Cluster     string            `json:"cluster,omitempty"`
	Trust       []string          `json:"trust,omitempty"` // public keys, one of which must have signed the data that is read
	Identities  []string          `json:"identities,omitempty"`
	Passphrases []string          `json:"passphrases,omitempty"`
}

// NewSource returns the Source of a cluster's repository.
func NewSource(url string, o stores.Options, cluster string, trust sign.Trust, keys seal.Keys) Source {
	s := Source{Repository: url, Options: o, Credentials: o.Credentials.Secrets(), Cluster: cluster, Trust: trust.Keys()}
	s.Identities, s.Passphrases = keys.Secrets()
	return s
}

// Open returns the cluster and the keys. The child calls it. Without a repository the cluster is nil.
func (s Source) Open(ctx context.Context) (*repository.Cluster, seal.Keys, error) {
	keys, err := s.keys()
	if err != nil || s.Repository == "" {
		return nil, keys, err
	}
	trust, err := sign.ParseTrust(s.Trust...)
	if err != nil {
		return nil, seal.Keys{}, err
	}
	o := s.Options
	if s.Credentials != nil {
		o.Credentials, err = credentials.Parse(s.Credentials)
		if err != nil {
			return nil, seal.Keys{}, err
		}
	}
	bucket, err := stores.Open(ctx, s.Repository, o)
	if err != nil {
		return nil, seal.Keys{}, err
	}
	c, err := repository.OpenWith(bucket, s.Cluster, records.Policy{Trust: trust})
	return c, keys, err
}

func (s Source) keys() (keys seal.Keys, err error) {
	if len(s.Identities) > 0 {
		keys, err = seal.ParseKeys(strings.NewReader(strings.Join(s.Identities, "\n")))
		if err != nil {
			return seal.Keys{}, err
		}
	}
	for _, passphrase := range s.Passphrases {
		key, err := seal.Passphrase(passphrase)
		if err != nil {
			return seal.Keys{}, err
		}
		keys = keys.And(key)
	}
	return keys, nil
}
