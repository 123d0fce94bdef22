// Package azure stores objects in a container of Azure Blob Storage. Open returns a storage.Bucket.
//
// An object is a block blob. Put sends a body larger than Parts.Whole as blocks, which are invisible until it commits
// them. Two properties of blocks shape the package. Azure has no request that removes them; see leftovers.go. And a
// commit by one writer discards the blocks of all other writers of the same key: of two concurrent Puts the loser
// fails, and they never mix.
//
// Locks are version-level immutability policies, which must be enabled on the container. Accounts with a hierarchical
// namespace list keys in another order; List returns an error when it detects that.
package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/transport"
)

// Config locates a container and sets how requests are made.
type Config struct {
	Account   string // the storage account; "": the one named by the credentials
	Container string
	Endpoint  string // URL of the account's blob service; "": https://<account>.blob.core.windows.net
	// Credentials are used alone. The zero Credentials are those of the environment: see credentials.go.
	Credentials credentials.Credentials
	Transport   http.RoundTripper // nil: transport.WithRoots with the system's roots
	Identity    http.RoundTripper // for the tokens of the environment's credentials; nil: Transport
	Parts       storage.Parts     // zero fields: 8 MiB, whole up to 1 MiB, 4 workers, 50,000 blocks
	PageSize    int               // objects in a page of a listing, at most 5,000; 0: 5,000
}

// Bucket is one container.
type Bucket struct {
	name      string // the container's
	container *container.Client
	parts     storage.Parts
	pageSize  *int32

	mu     sync.Mutex
	traits *traits // guarded by mu; nil until the first answer
	// refused is the time at which the store denied the caller the container's properties; zero if it did not. Guarded by
	// mu.
	refused time.Time
}

var (
	_ storage.Bucket    = (*Bucket)(nil)
	_ storage.Sweeper   = (*Bucket)(nil)
	_ storage.Versioned = (*Bucket)(nil)
)

// Open finds the credentials and returns the Bucket. It sends no request: a missing container or wrong credentials
// cause an error in the first method call.
func Open(_ context.Context, c Config) (*Bucket, error) {
	if c.Container == "" {
		return nil, errors.New("azure: no container: the URL is azblob://CONTAINER")
	}
	if c.Transport == nil {
		c.Transport = transport.WithRoots(nil)
	}
	if c.Identity == nil {
		c.Identity = c.Transport
	}
	client, err := connect(c)
	if err != nil {
		return nil, fmt.Errorf("azure container %s: %w", c.Container, err)
	}
	b := &Bucket{name: c.Container, container: client, parts: c.Parts}
	b.parts.Size = or(b.parts.Size, 8<<20)
	b.parts.Whole = min(or(b.parts.Whole, 1<<20), b.parts.Size)
	b.parts.Workers = or(b.parts.Workers, 4)
	b.parts.Max = min(or(b.parts.Max, maxBlocks), maxBlocks)
	if c.PageSize > 0 {
		size := int32(min(c.PageSize, 5000))
		b.pageSize = &size
	}
	return b, nil
}

func or(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// clientOptions returns the options of every client. It allows few retries with short pauses, because storage.WithRetry
// handles long outages, and none for errors that a repetition would not change.
func clientOptions(t http.RoundTripper) azcore.ClientOptions {
	return azcore.ClientOptions{
		// A redirect would send the credentials to another host.
		Transport: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		Retry: policy.RetryOptions{
			MaxRetries:    3,
			RetryDelay:    200 * time.Millisecond,
			MaxRetryDelay: 5 * time.Second,
			ShouldRetry:   worthRetrying,
		},
	}
}

func worthRetrying(resp *http.Response, err error) bool {
	if err != nil {
		_, hopeless := connectionCure(err)
		return !hopeless && !errors.Is(err, storage.ErrDenied)
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// containerURL returns the URL of the container.
func containerURL(c Config) (string, error) {
	if c.Endpoint == "" && c.Account == "" {
		return "", errUnknownAccount
	}
	if c.Endpoint == "" {
		c.Endpoint = "https://" + c.Account + ".blob.core.windows.net"
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", errors.New("the endpoint is not a URL like https://<account>.blob.core.windows.net")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("the endpoint contains more than scheme, host and path: remove the rest, and put credentials into the environment")
	}
	return strings.TrimSuffix(u.String(), "/") + "/" + url.PathEscape(c.Container), nil
}

// validKey also refuses backslashes: Azure treats them as slashes, so that two keys would name one blob.
func validKey(key string) error {
	if strings.Contains(key, `\`) {
		return fmt.Errorf("%w: %q has a backslash, which Azure treats as a slash", storage.ErrKey, key)
	}
	return storage.ValidKey(key)
}

// blobAt returns a client for the blob under key, or for the version of it that an Object.Version names.
func (b *Bucket) blobAt(key, version string) (*blob.Client, *blob.AccessConditions, error) {
	client := b.container.NewBlobClient(key)
	kind, id, _ := strings.Cut(version, ":")
	switch {
	case version == "":
		return client, nil, nil
	case kind == byVersion:
		client, err := client.WithVersionID(id)
		return client, nil, err
	case kind == byETag:
		return client, ifMatch(id), nil
	}
	return nil, nil, fmt.Errorf("%w: %q is not a version of an object in this store", storage.ErrNotExist, version)
}

// The prefixes of Object.Version: Azure's version id if the account keeps versions, else the ETag.
const (
	byVersion = "version"
	byETag    = "etag"
)

// version returns an Object.Version. ETags have quotes in headers and none in listings.
func version(id *string, etag *azcore.ETag) string {
	if id != nil && *id != "" {
		return byVersion + ":" + *id
	}
	return byETag + ":" + strings.Trim(string(deref(etag)), `"`)
}

func ifMatch(etag string) *blob.AccessConditions {
	quoted := azcore.ETag(`"` + etag + `"`)
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &quoted}}
}

// deref returns the value to which p points, or the zero value if p is nil. The SDK's answers consist of pointers.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// traits are the properties of the container.
type traits struct {
	locks     bool // each blob can have its own lock
	clearable bool // every new blob can be deleted or replaced
}

// loadTraits requests the container's properties once. A service SAS has no right to read them: then all traits are
// false, and loadTraits requests them again after askAgainAfter, since the right may be granted later.
func (b *Bucket) loadTraits(ctx context.Context) (traits, error) {
	known, ok := b.cachedTraits()
	if ok {
		return known, nil
	}
	p, err := b.container.GetProperties(ctx, nil)
	err = explain(err)
	if err != nil && !errors.Is(err, storage.ErrDenied) {
		return traits{}, err
	}
	found := traits{}
	if err == nil {
		found.locks = deref(p.IsImmutableStorageWithVersioningEnabled)
		found.clearable = found.locks || !deref(p.HasImmutabilityPolicy) && !deref(p.HasLegalHold)
	}
	b.rememberTraits(found, err == nil)
	return found, nil
}

// askAgainAfter is how long a refusal is remembered.
const askAgainAfter = time.Minute

func (b *Bucket) cachedTraits() (traits, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.traits == nil || !b.refused.IsZero() && time.Since(b.refused) > askAgainAfter {
		return traits{}, false
	}
	return *b.traits, true
}

func (b *Bucket) rememberTraits(found traits, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.traits, b.refused = &found, time.Time{}
	if !answered {
		b.refused = time.Now()
	}
}
