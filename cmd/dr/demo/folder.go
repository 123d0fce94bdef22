package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

func (d *demoRun) path(name string) string { return filepath.Join(d.dir, name) }

func (d *demoRun) repositoryURL() string {
	if d.Repository != "" {
		return d.Repository
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(d.path("repository"))}
	return u.String()
}

// options returns the options for opening the repository.
func (d *demoRun) options() (o stores.Options, err error) {
	o.Parallel = stores.DefaultParallel
	if d.Repository != "" && d.Credentials != "" {
		o.Credentials, err = credentials.Read(d.Credentials)
	}
	return o, err
}

// openRepository opens the repository for a cluster name that does not exist in it yet.
func (d *demoRun) openRepository(ctx context.Context) (err error) {
	name := "demo"
	if d.Repository != "" {
		name += "-" + strings.ToLower(rand.Text()[:8])
	}
	options, err := d.options()
	if err != nil {
		return err
	}
	d.bucket, err = stores.Create(ctx, d.repositoryURL(), options)
	if err != nil {
		return err
	}
	d.repository, err = repository.Open(d.bucket, name)
	return err
}

// keys holds the secrets of the demo.
type keys struct {
	rootPassword string
	recipients   seal.Recipients
	secret       seal.Keys
}

// newKeys creates the secrets, and writes them to files in dir for a user who keeps it.
func newKeys(dir string) (k keys, err error) {
	identity, recipient, err := seal.Generate()
	if err != nil {
		return keys{}, err
	}
	k.recipients, err = seal.ParseRecipients(strings.NewReader(recipient))
	if err != nil {
		return keys{}, err
	}
	k.secret, err = seal.ParseKeys(strings.NewReader(identity))
	if err != nil {
		return keys{}, err
	}
	k.rootPassword = rand.Text()
	identity = fmt.Sprintf("# public key: %s\n%s\n", recipient, identity)
	return k, errors.Join(
		os.WriteFile(filepath.Join(dir, "key.txt"), []byte(identity), 0o600),
		os.WriteFile(filepath.Join(dir, "password"), []byte(k.rootPassword+"\n"), 0o600),
	)
}
