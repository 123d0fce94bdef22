// Package gcs keeps a storage.Bucket in Google Cloud Storage, through its JSON API.
package gcs

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/httptransport"
	cloud "cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	raw "google.golang.org/api/storage/v1"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/transport"
)

const (
	defaultChunk    = 8 << 20
	chunkStep       = 256 << 10 // the protocol's: every chunk but the last is a multiple of it
	defaultPatience = 4 * time.Minute
	attempts        = 3 // of one small request
)

// Config says which bucket, and how to talk to it. Only Bucket is needed.
type Config struct {
	Bucket string
	// Endpoint is the URL of another store that speaks the protocol, scheme and host alone; "" is Google's. It is sent the
	// token of the credentials: with http whoever listens has it, too.
	Endpoint string
	// Transport makes the connections, below what adds the credentials; nil is transport.WithRoots of the system's.
	Transport http.RoundTripper
	// ChunkSize is how many bytes an upload sends at a time, rounded up to a multiple of 256 KiB; 0 is 8 MiB. An upload
	// holds two chunks in memory.
	ChunkSize int
	// PageSize is how many objects a listing asks for at a time, at most 1,000; 0 is as many as the store gives.
	PageSize int
	// Patience is for how long an upload goes on trying to send a chunk that the store does not take; 0 is 4 minutes.
	Patience time.Duration
}

// Bucket is a bucket of Google Cloud Storage. The Version of an object is its generation. A bucket with object
// versioning keeps what is replaced or deleted, and a locked object needs a bucket with object retention enabled.
//
// Nothing is left of a killed Put: the store forgets an upload that was not finished.
type Bucket struct {
	name   string
	config Config
	client *cloud.Client
	raw    *raw.Service
	found  atomic.Bool // the bucket was there
}

var (
	_ storage.Bucket    = (*Bucket)(nil)
	_ storage.Versioned = (*Bucket)(nil)
)

// Open makes a Bucket with the application default credentials: the file that GOOGLE_APPLICATION_CREDENTIALS names,
// gcloud's, or those of the machine or pod. It fails with storage.ErrDenied if there are none; the bucket itself is
// first asked for by the first call.
func Open(ctx context.Context, c Config) (*Bucket, error) {
	endpoint, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	c.ChunkSize = (c.ChunkSize + chunkStep - 1) / chunkStep * chunkStep
	if c.ChunkSize <= 0 {
		c.ChunkSize = defaultChunk
	}
	if c.Patience == 0 {
		c.Patience = defaultPatience
	}
	client, err := c.authenticated()
	if err != nil {
		return nil, fmt.Errorf("open gs://%s: %w", c.Bucket, err)
	}
	b := &Bucket{name: c.Bucket, config: c}
	options := []option.ClientOption{option.WithHTTPClient(client), option.WithEndpoint(endpoint)}
	if b.raw, err = raw.NewService(ctx, options...); err != nil {
		return nil, fmt.Errorf("open gs://%s: %w", c.Bucket, err)
	}
	if b.client, err = cloud.NewClient(ctx, append(options, cloud.WithJSONReads())...); err != nil {
		return nil, fmt.Errorf("open gs://%s: %w", c.Bucket, err)
	}
	b.client.SetRetry(
		cloud.WithMaxAttempts(attempts), cloud.WithPolicy(cloud.RetryIdempotent), cloud.WithBackoff(pauses),
	)
	return b, nil
}

// pauses are those between the attempts at one request.
var pauses = gax.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2}

// endpoint is the base of the JSON API. The host alone counts, for uploads have another path than the rest.
func (c Config) endpoint() (string, error) {
	if c.Bucket == "" {
		return "", fmt.Errorf("%w: no bucket is named", storage.ErrNoBucket)
	}
	if c.Endpoint == "" {
		return "https://storage.googleapis.com/storage/v1/", nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("open gs://%s: the endpoint must be a scheme and a host, such as https://host:port", c.Bucket)
	}
	return u.Scheme + "://" + u.Host + "/storage/v1/", nil
}

// authenticated is a client that adds the credentials to what Transport sends.
func (c Config) authenticated() (*http.Client, error) {
	base := c.Transport
	if base == nil {
		base = transport.WithRoots(nil)
	}
	found, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{cloud.ScopeReadWrite}})
	if err != nil {
		return nil, fmt.Errorf("%w: no usable credentials (%s): set GOOGLE_APPLICATION_CREDENTIALS to the file of a service "+
			"account, or run where the machine or pod has one", storage.ErrDenied, oneLine(err.Error()))
	}
	found.TokenProvider = tokens{found.TokenProvider}
	return httptransport.NewClient(&httptransport.Options{
		BaseRoundTripper: base, Credentials: found, Headers: http.Header{}, DisableTelemetry: true,
	})
}

func (b *Bucket) bucket() *cloud.BucketHandle { return b.client.Bucket(b.name) }

// object is a version of key, the live one for 0.
func (b *Bucket) object(key string, generation int64) *cloud.ObjectHandle {
	handle := b.bucket().Object(key)
	if generation != 0 {
		handle = handle.Generation(generation)
	}
	return handle
}
