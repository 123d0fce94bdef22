// Package azure keeps a storage.Bucket in a container of Azure Blob Storage.
//
// An object is a block blob. What is larger than Parts.Whole goes up as blocks, which nobody sees until they are
// committed. Two things about blocks shape the package: Azure has no request that removes them, and a commit of one
// writer throws away the blocks of all others under the same key. See leftovers.go for the first; the second makes
// the loser of two Puts fail, never mix.
//
// Locks are version-level immutability policies and need a container that has them enabled. Accounts with a
// hierarchical namespace list in another order than that of the keys, and are refused when that shows.
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
	"github.com/etcd-dr/etcd-dr/storage/transport"
)

// Config says which container, and how to talk to it. Credentials are not in it: see credentials.go.
type Config struct {
	Account   string // the storage account; "": the one that the environment names
	Container string
	Endpoint  string            // URL of the account's blob service; "": https://<account>.blob.core.windows.net
	Transport http.RoundTripper // nil: transport.WithRoots of the system's
	Parts     storage.Parts     // fields that are 0: 8 MiB, whole up to 1 MiB, 4 workers, 50,000 blocks
	PageSize  int               // objects in one answer of a listing, at most 5,000; 0: as many
}

// Bucket is one container.
type Bucket struct {
	name      string // of the container
	container *container.Client
	parts     storage.Parts
	pageSize  *int32

	mu     sync.Mutex
	traits *traits // nil until asked for
	// refused is when the container refused to tell; zero: it did not
	refused time.Time
}

var (
	_ storage.Bucket    = (*Bucket)(nil)
	_ storage.Sweeper   = (*Bucket)(nil)
	_ storage.Versioned = (*Bucket)(nil)
)

// Open finds the credentials and makes the Bucket. It sends nothing: that the container is there, and that the
// credentials are good for it, is said by the first call.
func Open(_ context.Context, c Config) (*Bucket, error) {
	if c.Container == "" {
		return nil, errors.New("azure: no container is named")
	}
	if c.Transport == nil {
		c.Transport = transport.WithRoots(nil)
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

// clientOptions are those of every client: few retries with short pauses, as storage.WithRetry has the patience, and
// none of what a repetition would not change.
func clientOptions(t http.RoundTripper) azcore.ClientOptions {
	return azcore.ClientOptions{
		// An answer that points elsewhere would take the credentials there.
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

// containerURL is where the container of that account is.
func containerURL(c Config) (string, error) {
	if c.Endpoint == "" && c.Account == "" {
		return "", errUnknownAccount
	}
	if c.Endpoint == "" {
		c.Endpoint = "https://" + c.Account + ".blob.core.windows.net"
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", errors.New("the endpoint is no URL like https://<account>.blob.core.windows.net")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("the endpoint holds more than scheme, host and path: credentials belong into the environment")
	}
	return strings.TrimSuffix(u.String(), "/") + "/" + url.PathEscape(c.Container), nil
}

// validKey also refuses a backslash: Azure takes it for a slash, and two keys would be one.
func validKey(key string) error {
	if strings.Contains(key, `\`) {
		return fmt.Errorf("%w: %q has a backslash, which Azure takes for a slash", storage.ErrKey, key)
	}
	return storage.ValidKey(key)
}

// blobAt is the blob under key, or the one version of it that an Object.Version names.
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
	return nil, nil, fmt.Errorf("%w: %q is no version of this store", storage.ErrNotExist, version)
}

// What an Object.Version begins with: Azure's version id where the account keeps versions, the ETag elsewhere.
const (
	byVersion = "version"
	byETag    = "etag"
)

// version names a version. ETags have quotes in headers and none in listings.
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

// deref is what p points to, or the zero value: the SDK's answers are made of pointers.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// traits are what is known of the container itself.
type traits struct {
	locks     bool // blobs can be locked one by one
	clearable bool // whatever is created can be deleted or replaced again
}

// ask asks the container once. A service SAS may not ask: then nothing is known, and nothing that needs the knowledge
// is done; it is asked again after a while, since a right may come later.
func (b *Bucket) ask(ctx context.Context) (traits, error) {
	known, ok := b.known()
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
	b.learn(found, err == nil)
	return found, nil
}

// askAgain is how long a refusal is remembered.
const askAgain = time.Minute

func (b *Bucket) known() (traits, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.traits == nil || !b.refused.IsZero() && time.Since(b.refused) > askAgain {
		return traits{}, false
	}
	return *b.traits, true
}

func (b *Bucket) learn(found traits, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.traits, b.refused = &found, time.Time{}
	if !answered {
		b.refused = time.Now()
	}
}
