// Package stores opens a Bucket by its URL. It is the only package that links every store.
package stores

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/gcs"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/storage/stores/address"
	"github.com/etcd-dr/etcd-dr/storage/transport"
)

// ErrURL: a repository's URL cannot be used as written.
var ErrURL = address.ErrURL

// patience is that with object stores, on top of the few tries that their clients make at each request: enough for a
// network that is away for half a minute. A store that takes connections and never answers has used that up by then.
var patience = storage.RetryPolicy{Attempts: 6, Base: time.Second, Max: 15 * time.Second, Total: time.Minute}

// Options say how a store is read and written. The zero Options are the store as it is now, as fast as it goes, one request
// at a time for each object.
type Options struct {
	AsOf     time.Time `json:"asOf,omitzero"`      // the store as it was then, by its own clock, and read-only
	Limit    int64     `json:"limit,omitempty"`    // bytes a second in each direction; 0: no limit
	Parallel int       `json:"parallel,omitempty"` // requests at a time for one large object
	// Guard bounds how long the store may keep its callers waiting; its zero value does not. It does not go with AsOf.
	Guard storage.GuardOptions `json:"guard,omitzero"`
}

// DefaultParallel is enough for most networks.
const DefaultParallel = 4

// rangeSize is how much each of several requests for one object reads at a time.
const rangeSize = 8 << 20

// Open opens the bucket at text, in one of the forms that package address reads. An absent directory gives ErrURL. Object
// stores are first asked for anything by the first call; what may be repeated is, and credentials are those that each
// store's own tools would find. A store that keeps no versions gives storage.ErrUnsupported with AsOf.
func Open(ctx context.Context, text string, o Options) (storage.Bucket, error) {
	return open(ctx, text, openDirectory, o)
}

// Create is Open for whoever is going to write: an absent directory is made. Buckets and containers are not.
func Create(ctx context.Context, text string, o Options) (storage.Bucket, error) {
	return open(ctx, text, file.Create, o)
}

// Shown is text as it may stand in output and errors: never with a secret in it.
func Shown(text string) string { return address.Shown(text) }

// open opens a directory by its function.
func open(ctx context.Context, text string, directory func(string) (*file.Bucket, error), o Options) (storage.Bucket, error) {
	a, err := address.Parse(text)
	if err != nil {
		return nil, err
	}
	openBare := func(ctx context.Context) (storage.Bucket, error) { return bare(ctx, a, directory, o) }
	var b storage.Bucket
	if o.Guard.Limit > 0 {
		b = storage.NewGuard(openBare, o.Guard) // a directory may hang when it is opened
	} else {
		b, err = openBare(ctx)
	}
	if err == nil && !o.AsOf.IsZero() {
		b, err = storage.AsOf(b, o.AsOf)
	}
	if err != nil {
		return nil, err
	}
	if a.Scheme != address.File {
		b = storage.WithRetry(b, patience)
	}
	if o.Limit > 0 {
		b = storage.WithLimit(b, storage.Limits{Up: limiter(o.Limit), Down: limiter(o.Limit)})
	}
	if a.Scheme != address.File { // a disk does not get faster by being asked twice
		b = storage.WithParallel(b, o.Parallel, rangeSize)
	}
	return storage.WithPrefix(b, a.Prefix), nil
}

// limiter grants a tenth of a second's bytes at once.
func limiter(limit int64) *rate.Limiter { return rate.NewLimiter(rate.Limit(limit), int(limit/10)+1) }

func bare(ctx context.Context, a address.Address, directory func(string) (*file.Bucket, error), o Options) (storage.Bucket, error) {
	if a.Scheme == address.File && a.Create == "false" {
		return openRepository(ctx, a.Path)
	}
	if a.Scheme == address.File {
		return directory(a.Path)
	}
	return objects(ctx, a, o.Parallel)
}

func openDirectory(dir string) (*file.Bucket, error) {
	b, err := file.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no directory %s: look twice, or take the first backup there", ErrURL, dir)
	}
	return b, err
}

// openRepository opens a directory that must hold a repository: an empty one may be where its file system is not mounted.
func openRepository(ctx context.Context, dir string) (*file.Bucket, error) {
	b, err := file.Open(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		for o, listed := range b.List(ctx, storage.ListOptions{}) {
			if listed != nil || strings.Contains(o.Key, "/") { // what cannot be listed is there, and shows later
				return b, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: directory %s holds no repository, and its URL has create=false: mount its file system, or take the first "+
		"backup without that", storage.ErrNoBucket, dir)
}

// objects opens an object store, bare.
func objects(ctx context.Context, a address.Address, parallel int) (storage.Bucket, error) {
	// Without a CA each store makes its own transport: S3's trusts what AWS_CA_BUNDLE names, too.
	var connections http.RoundTripper
	if a.CA != "" {
		trusting, err := transport.New(a.CA)
		if err != nil {
			return nil, fmt.Errorf("%w: ca: %w", ErrURL, err)
		}
		connections = trusting
	}
	switch a.Scheme {
	case address.S3:
		return s3.Open(ctx, s3.Config{
			Bucket: a.Bucket, Region: a.Region, Endpoint: a.Endpoint, Transport: connections,
			Checksums: s3.Checksums(a.Checksums),
			SSE:       a.SSE, KMSKey: a.KMSKey, StorageClass: a.StorageClass,
			// Few stores but Amazon's have a name for each bucket.
			PathStyle: a.PathStyle == "true" || a.PathStyle == "" && a.Endpoint != "",
			Parts:     storage.Parts{Workers: parallel},
		})
	case address.GCS:
		return gcs.Open(ctx, gcs.Config{Bucket: a.Bucket, Endpoint: a.Endpoint, Transport: connections})
	default:
		return azure.Open(ctx, azure.Config{
			Container: a.Bucket, Account: a.Account, Endpoint: a.Endpoint, Transport: connections,
			Parts: storage.Parts{Workers: parallel},
		})
	}
}
