package demo

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// clusterName is the cluster's name in the repository.
const clusterName = "demo"

func (t *telling) path(name string) string { return filepath.Join(t.dir, name) }

func (t *telling) repositoryURL() string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(t.path("repository"))}
	return u.String()
}

func openRepository(url string) (*repository.Cluster, error) {
	bucket, err := stores.Create(url)
	if err != nil {
		return nil, err
	}
	return repository.Open(bucket, clusterName)
}

// keys open what the story locks.
type keys struct {
	rootPassword string
	recipients   seal.Recipients
	secret       seal.Keys
}

// newKeys leaves the secrets in files too, for whoever keeps the folder.
func newKeys(dir string) (k keys, err error) {
	identity, recipient, err := seal.Generate()
	if err != nil {
		return keys{}, err
	}
	if k.recipients, err = seal.ParseRecipients(strings.NewReader(recipient)); err != nil {
		return keys{}, err
	}
	if k.secret, err = seal.ParseKeys(strings.NewReader(identity)); err != nil {
		return keys{}, err
	}
	k.rootPassword = rand.Text()
	identity = fmt.Sprintf("# public key: %s\n%s\n", recipient, identity)
	return k, errors.Join(
		os.WriteFile(filepath.Join(dir, "key.txt"), []byte(identity), 0o600),
		os.WriteFile(filepath.Join(dir, "password"), []byte(k.rootPassword+"\n"), 0o600),
	)
}
