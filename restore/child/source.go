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
	// Credentials holds Options.Credentials, which the JSON of Options omits; nil: the credentials in the environment are used.
	Credentials map[string][]byte `json:"credentials,omitempty"`
	Cluster     string            `json:"cluster,omitempty"`
	Trust       []string          `json:"trust,omitempty"` // public keys, one of which must have signed the data that is read
	Identities  []string          `json:"identities,omitempty"`
	Passphrases []string          `json:"passphrases,omitempty"`
}

// Repository is where a cluster's data is stored, how to access it, and whose signatures are trusted.
type Repository struct {
	URL     string
	Options stores.Options
	Cluster string
	Trust   sign.Trust
}

// Opened holds an open repository and the keys of its backups. Cluster is nil if the Source has no repository.
type Opened struct {
	Cluster *repository.Cluster
	Keys    seal.Keys
}

// NewSource returns the Source of r, whose backups can be opened with keys.
func NewSource(r Repository, keys seal.Keys) Source {
	s := Source{
		Repository: r.URL, Options: r.Options, Credentials: r.Options.Credentials.Secrets(), Cluster: r.Cluster, Trust: r.Trust.Keys(),
	}
	s.Identities, s.Passphrases = keys.Secrets()
	return s
}

// Open opens the repository. The child calls it.
func (s Source) Open(ctx context.Context) (Opened, error) {
	keys, err := s.keys()
	if err != nil || s.Repository == "" {
		return Opened{Keys: keys}, err
	}
	trust, err := sign.ParseTrust(s.Trust...)
	if err != nil {
		return Opened{}, err
	}
	o := s.Options
	if s.Credentials != nil {
		o.Credentials, err = credentials.Parse(s.Credentials)
		if err != nil {
			return Opened{}, err
		}
	}
	bucket, err := stores.Open(ctx, s.Repository, o)
	if err != nil {
		return Opened{}, err
	}
	c, err := repository.OpenWith(bucket, s.Cluster, records.Policy{Trust: trust})
	return Opened{c, keys}, err
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
