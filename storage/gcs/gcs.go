// Package gcs stores objects in Google Cloud Storage through its JSON API. Open returns a storage.Bucket.
package gcs

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/auth"
	google "cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/httptransport"
	cloud "cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	raw "google.golang.org/api/storage/v1"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/transport"
)

const (
	defaultChunk    = 8 << 20
	chunkStep       = 256 << 10 // the protocol's: every chunk but the last is a multiple of it
	defaultPatience = 4 * time.Minute
	attempts        = 3 // at one request; an upload is retried until Config.Patience ends
)

// Config locates a bucket and sets how requests are made. Only Bucket is required.
type Config struct {
	Bucket string
	// Endpoint is the URL of another store that speaks the protocol, scheme and host alone; "" is Google's. It receives
	// the token of the credentials: with http, everyone on the network can read the token.
	Endpoint string
	// If Credentials are given, no others are tried. The zero Credentials are the application default credentials: the file that
	// GOOGLE_APPLICATION_CREDENTIALS names, gcloud's, or those of the machine or pod.
	Credentials credentials.Credentials
	// Transport makes the connections, below the layer that adds the credentials. nil: transport.WithRoots with the
	// system's roots.
	Transport http.RoundTripper
	// ChunkSize is the number of bytes per request of an upload, rounded up to a multiple of 256 KiB; 0 is 8 MiB. An
	// upload uses memory for two chunks.
	ChunkSize int
	// PageSize is the number of objects in a page of a listing, at most 1,000; 0 is the store's default.
	PageSize int
	// Patience is how long an upload retries a chunk that the store does not accept; 0 is 4 minutes.
	Patience time.Duration
}

// Bucket is a bucket of Google Cloud Storage. An object's Version is its generation. A bucket with object versioning
// keeps replaced and deleted objects, and a lock needs a bucket with object retention enabled.
//
// A killed Put leaves nothing: the store drops an unfinished upload.
type Bucket struct {
	name   string
	config Config
	client *cloud.Client
	raw    *raw.Service
	found  atomic.Bool // a request has shown that the bucket exists
}

var (
	_ storage.Bucket    = (*Bucket)(nil)
	_ storage.Versioned = (*Bucket)(nil)
)

// Open returns a Bucket. It returns storage.ErrDenied if there are no credentials. It sends no request to the bucket.
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
	b.raw, err = raw.NewService(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("open gs://%s: %w", c.Bucket, err)
	}
	b.client, err = cloud.NewClient(ctx, append(options, cloud.WithJSONReads())...)
	if err != nil {
		return nil, fmt.Errorf("open gs://%s: %w", c.Bucket, err)
	}
	b.client.SetRetry(
		cloud.WithMaxAttempts(attempts), cloud.WithPolicy(cloud.RetryIdempotent), cloud.WithBackoff(pauses),
	)
	return b, nil
}

// pauses is the backoff between the attempts at one request.
var pauses = gax.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2}

// endpoint returns the base URL of the JSON API. It uses only scheme and host, because uploads have another path than
// all other requests.
func (c Config) endpoint() (string, error) {
	if c.Bucket == "" {
		return "", fmt.Errorf("%w: no bucket name: use gs://bucket/prefix", storage.ErrNoBucket)
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

// authenticated returns a client that adds the credentials to requests and sends them through Transport.
func (c Config) authenticated() (*http.Client, error) {
	base := c.Transport
	if base == nil {
		base = transport.WithRoots(nil)
	}
	found, err := c.issuer(base)
	if err != nil {
		return nil, err
	}
	found.TokenProvider = tokens{found.TokenProvider}
	return httptransport.NewClient(&httptransport.Options{
		BaseRoundTripper: base, Credentials: found, Headers: http.Header{}, DisableTelemetry: true,
	})
}

// issuer returns the issuer of access tokens. With Credentials it uses the connections of base: their JSON names the URL of the
// exchange.
func (c Config) issuer(base http.RoundTripper) (*auth.Credentials, error) {
	options := &google.DetectOptions{Scopes: []string{cloud.ScopeReadWrite}}
	given, ok := c.Credentials.GCS()
	switch {
	case !ok:
		found, err := google.DetectDefault(options)
		if err != nil {
			return nil, fmt.Errorf("%w: no usable credentials (%s): use --credentials, set GOOGLE_APPLICATION_CREDENTIALS to the "+
				"file of a service account, or run where the machine or pod has one", storage.ErrDenied, oneLine(err.Error()))
		}
		return found, nil
	case given.Token != "":
		return auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: fixedToken(given.Token)}), nil
	}
	options.Client = &http.Client{Transport: base}
	found, err := google.NewCredentialsFromJSON(google.CredType(given.Type), given.JSON, options)
	if err != nil { // err may contain a part of the key
		return nil, fmt.Errorf("%w: the JSON is incomplete: create the key of the service account again", credentials.ErrCredentials)
	}
	return found, nil
}

// fixedToken is an access token that is never renewed.
type fixedToken string

// Token returns the token.
func (t fixedToken) Token(context.Context) (*auth.Token, error) {
	return &auth.Token{Value: string(t), Type: "Bearer"}, nil
}

func (b *Bucket) bucket() *cloud.BucketHandle { return b.client.Bucket(b.name) }

// object returns a handle for a version of key; generation 0 means the live one.
func (b *Bucket) object(key string, generation int64) *cloud.ObjectHandle {
	handle := b.bucket().Object(key)
	if generation != 0 {
		handle = handle.Generation(generation)
	}
	return handle
}
