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
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/azure"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/gcs"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/storage/transport"
)

// ErrURL means that a repository's URL is not usable as written.
var ErrURL = address.ErrURL

// patience is the retry policy for object stores, on top of the few tries of each request by their clients. It bridges
// a network outage of half a minute. It does not retry calls to a store that accepts connections but never answers: the
// first try takes longer than Total.
var patience = storage.RetryPolicy{Attempts: 6, Base: time.Second, Max: 15 * time.Second, Total: time.Minute}

// Options configure the access to a store. With the zero Options, the access is to the store as it is now, without a
// rate limit, with one request at a time for each object.
type Options struct {
	AsOf     time.Time `json:"asOf,omitzero"`      // the store as it was then, by its own clock, and read-only
	Limit    int64     `json:"limit,omitempty"`    // bytes a second in each direction; 0: no limit
	Parallel int       `json:"parallel,omitempty"` // concurrent requests for one large object
	// Credentials open an object store; the zero Credentials are those of the environment. A directory needs none. They
	// are not part of the JSON: a process that sends Options to another sends Credentials.Secrets too.
	Credentials credentials.Credentials `json:"-"`
	// CredentialsDir is the folder of Credentials; "": none. The bucket reads the folder again while it is in use, so that
	// a process that runs for months uses renewed credentials. It is not part of the JSON.
	CredentialsDir string `json:"-"`
	// CA contains PEM certificates of additional authorities that the store's certificate may be from; nil: none. It excludes the option ca
	// of the URL. Directories ignore it.
	CA []byte `json:"ca,omitempty"`
	// Reach bounds the addresses to which connections may lead, those of the store's redirects too. With reach.OtherHosts, a connection
	// to this host fails with reach.ErrOwn. It does not apply to directories, nor to the issuers of the environment's credentials, which
	// are often link-local.
	Reach reach.Reach `json:"reach,omitempty"`
	// Guard bounds how long the store may keep its callers waiting; zero: no bound. It cannot be combined with AsOf.
	Guard storage.GuardOptions `json:"guard,omitzero"`
}

// DefaultParallel is enough for most networks.
const DefaultParallel = 4

// rangeSize is the number of bytes that each concurrent request for one object reads.
const rangeSize = 8 << 20

// Open returns the bucket at text, a URL in one of the forms of package address. A missing directory causes ErrURL.
// Object stores get no request before the first method call. Calls are retried if that may help. Without
// Options.Credentials, the credentials come from the places where each store's own tools look for them. With AsOf, a
// store without versions causes storage.ErrUnsupported.
func Open(ctx context.Context, text string, o Options) (storage.Bucket, error) {
	return open(ctx, text, openDirectory, o)
}

// Create is Open for writers: it creates a missing directory. It does not create buckets and containers.
func Create(ctx context.Context, text string, o Options) (storage.Bucket, error) {
	return open(ctx, text, file.Create, o)
}

// Shown returns text without secrets, for output and errors.
func Shown(text string) string { return address.Shown(text) }

// open implements Open and Create. directory opens a directory.
func open(ctx context.Context, text string, directory func(string) (*file.Bucket, error), o Options) (storage.Bucket, error) {
	a, err := address.Parse(text)
	if err != nil {
		return nil, err
	}
	if a.Scheme == address.File || o.CredentialsDir == "" {
		return openAt(ctx, a, directory, o)
	}
	return follow(ctx, o.CredentialsDir, func(ctx context.Context, c credentials.Credentials) (storage.Bucket, error) {
		o := o
		o.Credentials = c
		return openAt(ctx, a, directory, o)
	})
}

// openAt opens the bucket at a, with o.Credentials.
func openAt(
	ctx context.Context, a address.Address, directory func(string) (*file.Bucket, error), o Options,
) (b storage.Bucket, err error) {
	openBare := func(ctx context.Context) (storage.Bucket, error) { return bare(ctx, a, directory, o) }
	if o.Guard.Limit > 0 {
		b = storage.NewGuard(openBare, o.Guard) // opening a directory may hang
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
	if a.Scheme != address.File { // concurrent reads do not make a disk faster
		b = storage.WithParallel(b, o.Parallel, rangeSize)
	}
	return storage.WithPrefix(b, a.Prefix), nil
}

// limiter returns a limiter whose burst is a tenth of a second's bytes.
func limiter(limit int64) *rate.Limiter { return rate.NewLimiter(rate.Limit(limit), int(limit/10)+1) }

// bare opens the bucket at a without decorators.
func bare(ctx context.Context, a address.Address, directory func(string) (*file.Bucket, error), o Options) (storage.Bucket, error) {
	if a.Scheme == address.File && a.Create == "false" {
		return openRepository(ctx, a.Path)
	}
	if a.Scheme == address.File {
		return directory(a.Path)
	}
	return openObjectStore(ctx, a, o)
}

func openDirectory(dir string) (*file.Bucket, error) {
	b, err := file.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no directory %s: correct the path, or take the first backup there", ErrURL, dir)
	}
	return b, err
}

// openRepository opens a directory that must contain a repository: an empty directory may be a mount point whose file
// system is missing.
func openRepository(ctx context.Context, dir string) (*file.Bucket, error) {
	b, err := file.Open(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		for o, listed := range b.List(ctx, storage.ListOptions{}) {
			if listed != nil || strings.Contains(o.Key, "/") { // an error means that something exists; the caller's next call gets it too
				return b, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: directory %s contains no repository, and its URL has create=false: mount its file system, or take the first "+
		"backup without that", storage.ErrNoBucket, dir)
}

// openObjectStore opens an object store without decorators.
func openObjectStore(ctx context.Context, a address.Address, o Options) (storage.Bucket, error) {
	err := o.Credentials.Check(a.Scheme)
	if err != nil {
		return nil, err
	}
	connections, err := connectionsTo(a, o)
	if err != nil {
		return nil, err
	}
	switch a.Scheme {
	case address.S3:
		return s3.Open(ctx, s3.Config{
			Bucket: a.Bucket, Region: a.Region, Endpoint: a.Endpoint, Transport: connections,
			Checksums: s3.Checksums(a.Checksums),
			SSE:       a.SSE, KMSKey: a.KMSKey, StorageClass: a.StorageClass,
			// Few stores except Amazon's have a host name for each bucket.
			PathStyle:   a.PathStyle == "true" || a.PathStyle == "" && a.Endpoint != "",
			Parts:       storage.Parts{Workers: o.Parallel},
			Credentials: o.Credentials,
		})
	case address.GCS:
		return gcs.Open(ctx, gcs.Config{Bucket: a.Bucket, Endpoint: a.Endpoint, Transport: connections, Credentials: o.Credentials})
	case address.Azure:
		return azure.Open(ctx, azure.Config{
			Container: a.Bucket, Account: a.Account, Endpoint: a.Endpoint, Transport: connections, Identity: identityOf(o),
			Parts: storage.Parts{Workers: o.Parallel}, Credentials: o.Credentials,
		})
	}
	return nil, fmt.Errorf("%w: no store has the scheme %s", ErrURL, a.Scheme)
}

// connectionsTo returns the transport for the store at a. Without a CA and a bound it is nil, and each store uses its own: S3's also trusts
// AWS_CA_BUNDLE.
func connectionsTo(a address.Address, o Options) (http.RoundTripper, error) {
	switch {
	case o.CA != nil && a.CA != "":
		return nil, fmt.Errorf("%w: certificates are given, and the option ca names a file with others: remove one of them", ErrURL)
	case o.CA != nil:
		t, err := transport.Trusting(o.Reach, o.CA)
		if err != nil {
			return nil, fmt.Errorf("%w: the CA of the store: %w", ErrURL, err)
		}
		return t, nil
	case a.CA == "" && o.Reach == reach.Anywhere:
		return nil, nil
	}
	t, err := transport.NewWithin(o.Reach, a.CA)
	if err != nil {
		return nil, fmt.Errorf("%w: ca: %w", ErrURL, err)
	}
	return t, nil
}

// identityOf returns the transport to the issuer of tokens for the credentials of the environment, which o.Reach does not bound. nil: that of
// the store.
func identityOf(o Options) http.RoundTripper {
	if o.Reach == reach.Anywhere || !o.Credentials.None() {
		return nil
	}
	return transport.WithRoots(nil)
}
