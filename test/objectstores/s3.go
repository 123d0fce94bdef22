package objectstores

import (
	"crypto/rand"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// S3Server is a running store that speaks S3, with the credentials of one user. A copy with other credentials stands for
// another user, one with another Endpoint for another route to the same store.
type S3Server struct {
	Endpoint     string // http or https URL, without a path
	CAFile       string // PEM of the authority to trust; empty over plain http
	Region       string
	AccessKey    string
	SecretKey    string
	SessionToken string // of temporary credentials; else empty

	user func(t testing.TB, bucket string, rights Rights) *S3Server
}

// Bucket creates an empty bucket with a random name.
func (s *S3Server) Bucket(t testing.TB, options ...BucketOption) string {
	t.Helper()
	client := s.Client(t)
	name := aws.String(randomName())
	input := &s3.CreateBucketInput{Bucket: name}
	for _, option := range options {
		if option == Locks {
			input.ObjectLockEnabledForBucket = aws.Bool(true)
		}
	}
	_, err := client.CreateBucket(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range options {
		if option != Versioned {
			continue
		}
		_, err := client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
			Bucket:                  name,
			VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return *name
}

// As returns the same server for a new user with some rights in one bucket and none elsewhere.
func (s *S3Server) As(t testing.TB, bucket string, rights Rights) *S3Server {
	t.Helper()
	user := s.user(t, bucket, rights)
	user.Endpoint, user.CAFile = s.Endpoint, s.CAFile
	return user
}

// Through returns the same server behind a proxy. Signatures stay valid: the client signs the Host that it sends, which is the proxy's, and the proxy passes it on unchanged.
func (s *S3Server) Through(p *Proxy) *S3Server {
	through := *s
	through.Endpoint = replaceHost(s.Endpoint, p.Address)
	return &through
}

// Forward returns a handler that passes requests on to the server, with the Host that is signed.
func (s *S3Server) Forward() (http.Handler, error) {
	upstream, err := url.Parse(s.Endpoint)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(upstream)
		r.Out.Host = r.In.Host
	}}, nil
}

// URL returns the repository's URL at prefix in a bucket.
func (s *S3Server) URL(bucket, prefix string) string {
	query := url.Values{"endpoint": {s.Endpoint}, "region": {s.Region}, "path-style": {"true"}}
	if s.CAFile != "" {
		query.Set("ca", s.CAFile)
	}
	return repositoryURL("s3", bucket, prefix, query)
}

// Env returns the variables by which the SDK's default chain finds the credentials. It clears the machine's own
// variables.
func (s *S3Server) Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + s.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
		"AWS_SESSION_TOKEN=" + s.SessionToken,
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"AWS_PROFILE=", "AWS_REGION=", "AWS_DEFAULT_REGION=", "AWS_CA_BUNDLE=",
		"AWS_ENDPOINT_URL=", "AWS_ENDPOINT_URL_S3=", "AWS_ROLE_ARN=", "AWS_WEB_IDENTITY_TOKEN_FILE=",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI=", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=",
	}
}

// Client returns the SDK's own client, to inspect the store. It does not retry.
func (s *S3Server) Client(t testing.TB) *s3.Client {
	t.Helper()
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.Endpoint),
		Region:       s.Region,
		UsePathStyle: true,
		Credentials:  s.credentials(),
		HTTPClient:   clientFor(t),
		Retryer:      aws.NopRetryer{},
	})
}

func (s *S3Server) credentials() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, s.SessionToken)
}

func repositoryURL(scheme, bucket, prefix string, query url.Values) string {
	u := url.URL{Scheme: scheme, Host: bucket, RawQuery: query.Encode()}
	if prefix != "" {
		u.Path = "/" + prefix
	}
	return u.String()
}

func replaceHost(endpoint, address string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		panic(err) // every endpoint was made here
	}
	u.Host = address
	return u.String()
}

// randomName returns a name that is valid for a bucket in every store.
func randomName() string {
	return "dr-" + strings.ToLower(rand.Text())[:20]
}
