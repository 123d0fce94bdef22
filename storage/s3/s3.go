// Package s3 stores objects in Amazon S3 or in another S3-compatible store. Open returns a storage.Bucket.
package s3

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	static "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/transport"
)

// Checksums selects whether each request carries a checksum in addition to its signature.
type Checksums string

// The choices. Older S3-compatible stores reject checksums, or store the chunk framing as part of the content.
const (
	ChecksumsAuto      Checksums = "auto" // CRC32C with Amazon; only where required if an endpoint is given
	ChecksumsRequired  Checksums = "when-required"
	ChecksumsSupported Checksums = "when-supported" // CRC32C, which Amazon and the newer stores keep and check
)

// Config locates a bucket and sets how it is used.
type Config struct {
	Bucket    string
	Region    string    // "": the one in Credentials or, without them, in the environment or the shared config and credentials files; else us-east-1 with an Endpoint
	Endpoint  string    // "": Amazon; else http:// or https:// and a host
	PathStyle bool      // https://host/bucket/key in place of https://bucket.host/key
	Checksums Checksums // "": ChecksumsAuto
	SSE       string    // server-side encryption (x-amz-server-side-encryption); "": the bucket's default
	KMSKey    string    // the KMS key for SSE; "": the account's default
	// StorageClass is the class of large objects; "": the store's default. Small objects, which are many and often
	// rewritten or read, always get the default class: other classes charge for at least 128 KiB and at least a month.
	StorageClass string
	// Credentials are used alone, without any setting of the environment. The zero Credentials are those of the SDK's default
	// chain: the environment, the shared config and credentials files, web identity, the container's or the instance's role.
	Credentials credentials.Credentials
	Transport   http.RoundTripper // nil: trust the system's roots or, without Credentials, those of AWS_CA_BUNDLE
	Parts       storage.Parts     // zero fields: 8 MiB parts, objects up to 1 MiB in one request, 4 workers, 10,000 parts. S3 requires parts of 5 MiB to 5 GiB
	PageSize    int32             // keys per page of a listing, at most 1,000; 0: 1,000
	// Retry is the policy for retrying a single request, including each part of an upload. Zero fields: 6 tries with delays
	// from 0.2 s to 5 s, which ride out an outage of some seconds. storage.WithRetry is for longer ones.
	Retry storage.RetryPolicy
}

// Bucket is a bucket of S3. Open returns one; the zero value is not usable.
type Bucket struct {
	client        *s3.Client
	name          string
	region        string
	checksums     bool
	settings      storageSettings
	parts         storage.Parts
	page          int32
	hasObjectLock atomic.Bool // once true it stays true: Object Lock cannot be removed from a bucket
}

var (
	_ storage.Bucket    = (*Bucket)(nil)
	_ storage.Sweeper   = (*Bucket)(nil)
	_ storage.Versioned = (*Bucket)(nil)
)

const (
	maxParts = 10_000 // of one upload, by S3's rules
	maxPage  = 1000
)

// Open returns the bucket that c names. It sends no request: a missing or forbidden bucket causes an error in the first
// method call.
func Open(ctx context.Context, c Config) (*Bucket, error) {
	b, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open bucket %q: %w", c.Bucket, err)
	}
	return b, nil
}

func open(ctx context.Context, c Config) (*Bucket, error) {
	err := c.check()
	if err != nil {
		return nil, err
	}
	loaded, err := c.load(ctx)
	if err != nil {
		return nil, err
	}
	doer := newHTTPClient(c.Transport, loaded)
	b := &Bucket{name: c.Bucket, parts: withDefaults(c.Parts), page: cmp.Or(c.PageSize, maxPage), settings: c.storageSettings()}
	b.client = s3.NewFromConfig(loaded, func(o *s3.Options) {
		o.HTTPClient = doer
		o.APIOptions = append(o.APIOptions, keepLastTry)
		c.apply(o)
		b.region, b.checksums = o.Region, c.useChecksums(o.BaseEndpoint != nil)
		setChecksums(o, b.checksums)
	})
	switch {
	case b.region != "":
		return b, nil
	case !c.Credentials.None():
		return nil, errors.New("no region: set the bucket's region in the URL (region=eu-central-1), or add AWS_REGION to its credentials")
	}
	return nil, errors.New("no region: set the bucket's region in the URL (region=eu-central-1), or set AWS_REGION")
}

// load returns the SDK's configuration. With c.Credentials it contains nothing of the environment.
func (c Config) load(ctx context.Context) (aws.Config, error) {
	given, ok := c.Credentials.AWS()
	if ok {
		return aws.Config{
			Region: given.Region, Logger: logging.Nop{},
			Credentials: static.NewStaticCredentialsProvider(given.AccessKeyID, given.SecretAccessKey, given.SessionToken),
		}, nil
	}
	loaded, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
	if err != nil {
		return aws.Config{}, fmt.Errorf("load the configuration of the AWS SDK (environment, ~/.aws): %w", oneLine(err))
	}
	return loaded, nil
}

// storageSettings are the settings with which the store keeps new objects.
type storageSettings struct {
	sse   types.ServerSideEncryption
	key   *string // of KMS
	class types.StorageClass
}

// smallestInClass is the size in bytes from which an object gets the configured storage class.
const smallestInClass = 128 << 10

func (c Config) storageSettings() storageSettings {
	s := storageSettings{sse: types.ServerSideEncryption(c.SSE), class: types.StorageClass(c.StorageClass)}
	if c.KMSKey != "" {
		s.key = &c.KMSKey
	}
	return s
}

// classOf returns the class for an object of size bytes.
func (s storageSettings) classOf(size int) types.StorageClass {
	if size < smallestInClass {
		return ""
	}
	return s.class
}

func (c Config) check() error {
	if c.Bucket == "" {
		return errors.New("no bucket name: the URL is s3://BUCKET")
	}
	switch c.Checksums {
	case "", ChecksumsAuto, ChecksumsRequired, ChecksumsSupported:
	default:
		return fmt.Errorf("checksums %q: use %s, %s or %s", c.Checksums, ChecksumsAuto, ChecksumsRequired, ChecksumsSupported)
	}
	if c.PageSize < 0 || c.PageSize > maxPage {
		return fmt.Errorf("a page size of %d: use 1 to %d", c.PageSize, maxPage)
	}
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return errors.New("the endpoint is not of the form https://host:port")
	}
	return nil
}

// apply overrides the settings from the environment.
func (c Config) apply(o *s3.Options) {
	if c.Endpoint != "" {
		o.BaseEndpoint = &c.Endpoint
	}
	if c.Region != "" {
		o.Region = c.Region
	}
	if o.Region == "" && o.BaseEndpoint != nil {
		o.Region = "us-east-1" // the name that stores without regions use
	}
	o.UsePathStyle = c.PathStyle
	o.Credentials = markedCredentials{o.Credentials}
	o.DisableLogOutputChecksumValidationSkipped = true
	// A long outage would use up the SDK's own retry quota, and after that every request would fail at its first error.
	// The error codes below mean that another request was using the same key; versitygw returns the last one while it
	// removes an empty directory.
	o.Retryer = retry.AddWithErrorCodes(retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = cmp.Or(c.Retry.Attempts, 6)
		o.Backoff = backoff{storage.RetryPolicy{Base: cmp.Or(c.Retry.Base, 200*time.Millisecond), Max: cmp.Or(c.Retry.Max, 5*time.Second)}}
		o.RateLimiter = ratelimit.None
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(retriesOwnHost)}, o.Retryables...)
	}), "ConditionalRequestConflict", "OperationAborted", "ExistingObjectIsDirectory")
}

// retriesOwnHost decides that a connection which was refused by its address is not tried again.
func retriesOwnHost(err error) aws.Ternary {
	if errors.Is(err, reach.ErrOwn) {
		return aws.FalseTernary
	}
	return aws.UnknownTernary
}

func (c Config) useChecksums(endpoint bool) bool {
	return c.Checksums == ChecksumsSupported || c.Checksums != ChecksumsRequired && !endpoint
}

// setChecksums sets both options explicitly, so that they do not depend on how the SDK's configuration was made.
func setChecksums(o *s3.Options, on bool) {
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	if on {
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenSupported
	}
}

func withDefaults(p storage.Parts) storage.Parts {
	size := cmp.Or(p.Size, 8<<20)
	return storage.Parts{
		Size:    size,
		Whole:   min(size, cmp.Or(p.Whole, 1<<20)),
		Workers: cmp.Or(p.Workers, 4),
		Max:     cmp.Or(p.Max, maxParts),
	}
}

// newHTTPClient returns the client for the bucket's requests. It is not passed to the SDK's loader, which with AWS_CA_BUNDLE accepts
// only its own client. The certificates of that file are taken from the SDK's client.
func newHTTPClient(rt http.RoundTripper, loaded aws.Config) *http.Client {
	if rt == nil {
		var roots *x509.CertPool
		sdk, ok := loaded.HTTPClient.(*awshttp.BuildableClient)
		if ok {
			tls := sdk.GetTransport().TLSClientConfig
			if tls != nil {
				roots = tls.RootCAs
			}
		}
		rt = transport.WithRoots(roots)
	}
	return &http.Client{
		Transport: rt,
		// Following a redirect would resend the request with a signature that is invalid there. The redirect response itself
		// explains more.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// backoff implements the SDK's retry.BackoffDelayer.
type backoff struct{ storage.RetryPolicy }

func (b backoff) BackoffDelay(attempt int, _ error) (time.Duration, error) {
	return b.Pause(attempt), nil
}

// markedCredentials wraps the errors of a credentials provider in a credentialsError. Without that, they look like any
// other error of a request.
type markedCredentials struct{ aws.CredentialsProvider }

func (n markedCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if n.CredentialsProvider == nil {
		return aws.Credentials{}, &credentialsError{errors.New("none found")}
	}
	c, err := n.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		err = &credentialsError{err}
	}
	return c, err
}

type credentialsError struct{ error }

func (e *credentialsError) Unwrap() error { return e.error }
