// Package s3 keeps a storage.Bucket in Amazon S3, or in a store that speaks its protocol.
package s3

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/transport"
)

// Checksums says whether the store is given a checksum of its own with each request, on top of the signature.
type Checksums string

// The choices. The oldest stores that speak S3 refuse checksums, or keep their framing as content.
const (
	ChecksumsAuto      Checksums = "auto" // CRC32C with Amazon, when required where an endpoint is given
	ChecksumsRequired  Checksums = "when-required"
	ChecksumsSupported Checksums = "when-supported" // CRC32C, which Amazon and the newer stores keep and check
)

// Config says where a bucket is. Credentials are those of the SDK's default chain: the environment, the shared files, web
// identity, the container's or the instance's role.
type Config struct {
	Bucket    string
	Region    string    // "": what the environment or the shared files say; us-east-1 with an Endpoint
	Endpoint  string    // "": Amazon; else http:// or https:// and a host
	PathStyle bool      // https://host/bucket/key in place of https://bucket.host/key
	Checksums Checksums // "": ChecksumsAuto
	SSE       string    // how the store encrypts (x-amz-server-side-encryption); "": as the bucket says
	KMSKey    string    // the key of KMS for that; "": the account's default
	// StorageClass is that of large objects; "": the store's default. Small ones, which are many and are rewritten or read
	// often, stay in the default: other classes count each as 128 KiB for a month or more.
	StorageClass string
	Transport    http.RoundTripper // nil: one that trusts AWS_CA_BUNDLE, or else the system's roots
	Parts        storage.Parts     // zero fields: 8 MiB, whole up to 1 MiB, 4 workers, 10,000 parts. S3 wants 5 MiB to 5 GiB
	PageSize     int32             // keys in a page of a listing; 0: 1,000, which is the most
	// Retry is how each request, and so each part of an upload, is repeated when it may help; zero fields: 6 tries with
	// pauses from 0.2 s to 5 s, which bear an outage of some seconds. storage.WithRetry is for longer ones.
	Retry storage.RetryPolicy
}

// Bucket is a bucket of S3. Its zero value cannot be used: Open makes one.
type Bucket struct {
	client    *s3.Client
	name      string
	region    string
	checksums bool
	stored    stored
	parts     storage.Parts
	page      int32
	locks     atomic.Bool // the bucket has Object Lock, which it cannot lose
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

// Open returns the bucket that c names. It asks the store for nothing: a bucket that is not there, or must not be used,
// shows at the first call of a method.
func Open(ctx context.Context, c Config) (*Bucket, error) {
	b, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open bucket %q: %w", c.Bucket, err)
	}
	return b, nil
}

func open(ctx context.Context, c Config) (*Bucket, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	aws, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, fmt.Errorf("the configuration of the AWS SDK (environment, ~/.aws): %w", oneLine(err))
	}
	doer := client(c.Transport, aws)
	b := &Bucket{name: c.Bucket, parts: filled(c.Parts), page: cmp.Or(c.PageSize, maxPage), stored: c.stored()}
	b.client = s3.NewFromConfig(aws, func(o *s3.Options) {
		o.HTTPClient = doer
		c.apply(o)
		b.region, b.checksums = o.Region, c.useChecksums(o.BaseEndpoint != nil)
		setChecksums(o, b.checksums)
	})
	if b.region == "" {
		return nil, errors.New("no region: give the bucket's (region=eu-central-1), or set AWS_REGION")
	}
	return b, nil
}

// stored is how the store keeps what is put.
type stored struct {
	sse   types.ServerSideEncryption
	key   *string // of KMS
	class types.StorageClass
}

// smallestInClass is how many bytes an object has at least that is put into another class than the default.
const smallestInClass = 128 << 10

func (c Config) stored() stored {
	s := stored{sse: types.ServerSideEncryption(c.SSE), class: types.StorageClass(c.StorageClass)}
	if c.KMSKey != "" {
		s.key = &c.KMSKey
	}
	return s
}

// classOf returns the class of an object of that size.
func (s stored) classOf(size int) types.StorageClass {
	if size < smallestInClass {
		return ""
	}
	return s.class
}

func (c Config) check() error {
	if c.Bucket == "" {
		return errors.New("no name of a bucket is given")
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

// apply overrules what the environment says.
func (c Config) apply(o *s3.Options) {
	if c.Endpoint != "" {
		o.BaseEndpoint = &c.Endpoint
	}
	if c.Region != "" {
		o.Region = c.Region
	}
	if o.Region == "" && o.BaseEndpoint != nil {
		o.Region = "us-east-1" // what stores without regions call theirs
	}
	o.UsePathStyle = c.PathStyle
	o.Credentials = named{o.Credentials}
	o.DisableLogOutputChecksumValidationSkipped = true
	// The SDK's own quota of retries is used up by a long outage, and then every request fails at its first hitch. The codes
	// say that another request was at the same key; versitygw says the last one when it removes an empty directory meanwhile.
	o.Retryer = retry.AddWithErrorCodes(retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = cmp.Or(c.Retry.Attempts, 6)
		o.Backoff = pauses{cmp.Or(c.Retry.Base, 200*time.Millisecond), cmp.Or(c.Retry.Max, 5*time.Second)}
		o.RateLimiter = ratelimit.None
	}), "ConditionalRequestConflict", "OperationAborted", "ExistingObjectIsDirectory")
}

func (c Config) useChecksums(endpoint bool) bool {
	return c.Checksums == ChecksumsSupported || c.Checksums != ChecksumsRequired && !endpoint
}

// setChecksums says outright what otherwise depends on how the client was made.
func setChecksums(o *s3.Options, on bool) {
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	if on {
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenSupported
	}
}

func filled(p storage.Parts) storage.Parts {
	size := cmp.Or(p.Size, 8<<20)
	return storage.Parts{
		Size:    size,
		Whole:   min(size, cmp.Or(p.Whole, 1<<20)),
		Workers: cmp.Or(p.Workers, 4),
		Max:     cmp.Or(p.Max, maxParts),
	}
}

// client sends the requests of the bucket. It is not given to the SDK's loader, which with AWS_CA_BUNDLE set refuses any
// client but its own; the certificates in that file are taken from the SDK's.
func client(rt http.RoundTripper, loaded aws.Config) *http.Client {
	if rt == nil {
		var roots *x509.CertPool
		if sdk, ok := loaded.HTTPClient.(*awshttp.BuildableClient); ok {
			if tls := sdk.GetTransport().TLSClientConfig; tls != nil {
				roots = tls.RootCAs
			}
		}
		rt = transport.WithRoots(roots)
	}
	return &http.Client{
		Transport: rt,
		// A redirect would repeat a signed request where the signature does not hold; the answer itself says more.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// pauses double from base to longest, and are random between half and all of that, so that workers do not return in step.
type pauses struct{ base, longest time.Duration }

func (p pauses) BackoffDelay(attempt int, _ error) (time.Duration, error) {
	pause := p.base
	for i := 1; i < attempt && pause < p.longest; i++ {
		pause *= 2
	}
	pause = min(pause, p.longest)
	return pause/2 + rand.N(pause/2+1), nil
}

// named marks the errors of a credentials provider: in those of a request they would look like any other.
type named struct{ aws.CredentialsProvider }

func (n named) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if n.CredentialsProvider == nil {
		return aws.Credentials{}, &credentialsError{errors.New("there are none")}
	}
	c, err := n.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		err = &credentialsError{err}
	}
	return c, err
}

type credentialsError struct{ error }

func (e *credentialsError) Unwrap() error { return e.error }
