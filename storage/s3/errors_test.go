package s3_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/s3"
	"github.com/etcd-dr/etcd-dr/storage/transport"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// verbs calls every method of a bucket and returns the errors by the method's name.
func verbs(ctx context.Context, b *s3.Bucket) map[string]error {
	errs := map[string]error{}
	_, errs["put"] = b.Put(ctx, "key", strings.NewReader("content"), storage.PutOptions{})
	_, errs["put large"] = b.Put(ctx, "key", bytes.NewReader(content(1, part)), storage.PutOptions{})
	_, errs["put if absent"] = b.Put(ctx, "key", strings.NewReader("content"), storage.PutOptions{IfAbsent: true})
	_, _, errs["open"] = b.Open(ctx, "key", storage.OpenOptions{})
	_, errs["stat"] = b.Stat(ctx, "key")
	errs["delete"] = b.Delete(ctx, "key", storage.DeleteOptions{})
	for _, err := range b.List(ctx, storage.ListOptions{}) {
		errs["list"] = err
	}
	for _, err := range b.Versions(ctx, storage.ListOptions{}) {
		errs["versions"] = err
	}
	for _, err := range b.Leftovers(ctx, "") {
		errs["leftovers"] = err
	}
	return errs
}

func wantCure(t *testing.T, what string, err error, cure string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	text := err.Error()
	if !strings.Contains(text, cure) || strings.Contains(text, "\n") || len(text) > 600 {
		t.Errorf("%s: %q does not say %q in a line", what, text, cure)
	}
	for _, of := range []string{"owner-of-the-test-store", "AWS4-HMAC", "X-Amz-"} {
		if strings.Contains(err.Error(), of) {
			t.Errorf("%s: %v tells too much", what, err)
		}
	}
}

// TestMissingBucket checks that no method takes a missing bucket for a missing object or an empty listing.
func TestMissingBucket(t *testing.T) {
	for name, server := range both(t) {
		b := open(t, config(t, server, "dr-no-such-bucket"))
		for verb, err := range verbs(t.Context(), b) {
			if !errors.Is(err, storage.ErrNoBucket) || errors.Is(err, storage.ErrNotExist) {
				t.Errorf("%s: %s: %v", name, verb, err)
			}
			wantCure(t, verb, err, "create it")
		}
	}
}

func TestWrongCredentials(t *testing.T) {
	for name, server := range both(t) {
		bucket := server.Bucket(t)
		for what, change := range map[string]func(*objectstores.S3Server){
			"secret": func(s *objectstores.S3Server) { s.SecretKey = "not-the-right-one" },
			"key":    func(s *objectstores.S3Server) { s.AccessKey = "nobody" },
			"none":   func(s *objectstores.S3Server) { s.AccessKey, s.SecretKey = "", "" },
		} {
			wrong := *server
			change(&wrong)
			for verb, err := range verbs(t.Context(), open(t, config(t, &wrong, bucket))) {
				if !errors.Is(err, storage.ErrDenied) {
					t.Errorf("%s: wrong %s: %s: %v", name, what, verb, err)
				}
				wantCure(t, verb, err, "AWS_ACCESS_KEY_ID")
			}
		}
	}
}

// TestNoRight checks that a caller without the right to write or delete gets an error that names the right, and can do
// the rest.
func TestNoRight(t *testing.T) {
	for name, server := range both(t) {
		t.Run(name, func(t *testing.T) {
			bucket := server.Bucket(t)
			put(t, open(t, config(t, server, bucket)), "key", []byte("content"))

			reader := open(t, config(t, server.As(t, bucket, objectstores.ReadOnly), bucket))
			for _, n := range []int{10, part + 1} {
				_, err := reader.Put(t.Context(), "new", bytes.NewReader(content(1, n)), storage.PutOptions{})
				wantError(t, "Put", err, storage.ErrDenied)
				wantCure(t, "Put", err, "s3:PutObject")
			}
			wantNothing(t, reader, "new")
			wantContent(t, reader, "key", []byte("content"))

			writer := open(t, config(t, server.As(t, bucket, objectstores.NoDelete), bucket))
			put(t, writer, "new", []byte("new"))
			err := writer.Delete(t.Context(), "key", storage.DeleteOptions{})
			wantError(t, "Delete", err, storage.ErrDenied)
			wantCure(t, "Delete", err, "s3:DeleteObject")
			wantContent(t, writer, "key", []byte("content"))

			stranger := open(t, config(t, server.As(t, bucket, objectstores.Nothing), bucket))
			for verb, err := range verbs(t.Context(), stranger) {
				if !errors.Is(err, storage.ErrDenied) {
					t.Errorf("%s without any right: %v", verb, err)
				}
			}
		})
	}
}

// TestWrongRegion includes requests whose answer has no body to explain the error.
func TestWrongRegion(t *testing.T) {
	server := objectstores.S3(t)
	c := config(t, server, server.Bucket(t))
	c.Region = "eu-central-1"
	for verb, err := range verbs(t.Context(), open(t, c)) {
		wantCure(t, verb, err, "wrong region: the bucket's is another one, not eu-central-1")
	}
}

func TestWrongRegionOfAmazon(t *testing.T) {
	objectstores.Setenv(t, (&objectstores.S3Server{AccessKey: "key", SecretKey: "secret"}).Env())
	for status, code := range map[int]string{301: "PermanentRedirect", 400: "AuthorizationHeaderMalformed"} {
		fake := &fakeAnswer{
			match: func(*http.Request) bool { return true }, times: -1, status: status, code: code, message: "elsewhere",
			header: http.Header{"X-Amz-Bucket-Region": {"eu-west-3"}},
		}
		b := open(t, s3.Config{Bucket: "bucket", Region: "eu-central-1", Transport: fake})
		for verb, err := range verbs(t.Context(), b) {
			wantCure(t, verb, err, "the bucket's is eu-west-3, not eu-central-1")
		}
	}
}

func TestBadCertificate(t *testing.T) {
	self := objectstores.S3(t)
	self.CAFile = ""
	expired := objectstores.S3Expired(t)
	for cure, server := range map[string]*objectstores.S3Server{"ca=FILE": self, "expired": expired} {
		_, err := open(t, config(t, server, "bucket")).Stat(t.Context(), "key")
		wantCure(t, "Stat", err, cure)
		if errors.Is(err, storage.ErrNotExist) || errors.Is(err, storage.ErrDenied) {
			t.Errorf("%v is none of those", err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	objectstores.Setenv(t, (&objectstores.S3Server{AccessKey: "key", SecretKey: "secret"}).Env())
	rt, err := transport.New("")
	if err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range []string{"http://127.0.0.1:1", "http://no-such-host.invalid"} {
		b := open(t, s3.Config{
			Bucket: "bucket", Endpoint: endpoint, PathStyle: true, Transport: rt, Retry: storage.RetryPolicy{Attempts: 1},
		})
		_, err := b.Stat(t.Context(), "key")
		wantCure(t, endpoint, err, "is unreachable")
	}
}

// TestArchived checks that an object in an archive class exists but is unreadable, and that the error asks for no
// right.
func TestArchived(t *testing.T) {
	objectstores.Setenv(t, (&objectstores.S3Server{AccessKey: "key", SecretKey: "secret"}).Env())
	err := openAnswered(t, 403, "InvalidObjectState")
	wantError(t, "Open", err, storage.ErrUnreadable)
	wantCure(t, "Open", err, "restore it first")
}

func openAnswered(t *testing.T, status int, code string) error {
	t.Helper()
	fake := &fakeAnswer{match: is("get"), times: -1, status: status, code: code, message: "no"}
	b := open(t, s3.Config{Bucket: "bucket", Region: "eu-central-1", Transport: fake})
	_, _, err := b.Open(t.Context(), "key", storage.OpenOptions{})
	return err
}

// TestOneObjectOrAll checks that errors are attributed to one object, to the caller, or to a passing condition.
func TestOneObjectOrAll(t *testing.T) {
	objectstores.Setenv(t, (&objectstores.S3Server{AccessKey: "key", SecretKey: "secret"}).Env())
	for _, test := range []struct {
		status int
		code   string
		one    bool
	}{
		{400, "InvalidRequest", true}, // stored with SSE-C
		{400, "KMS.DisabledException", true},
		{403, "AccessDenied", true},
		{403, "InvalidObjectState", true},
		{400, "ExpiredToken", false},
		{400, "RequestTimeout", false},
		{403, "SignatureDoesNotMatch", false},
		{403, "RequestTimeTooSkewed", false},
		{503, "SlowDown", false},
	} {
		err := openAnswered(t, test.status, test.code)
		if storage.Unreadable(err) != test.one {
			t.Errorf("%d %s is about one object: %v, want %v: %v", test.status, test.code, !test.one, test.one, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	objectstores.Setenv(t, (&objectstores.S3Server{AccessKey: "key", SecretKey: "secret"}).Env())
	good := s3.Config{Bucket: "bucket", Region: "eu-central-1"}
	open(t, good)
	for name, change := range map[string]func(*s3.Config){
		"no bucket":       func(c *s3.Config) { c.Bucket = "" },
		"no region":       func(c *s3.Config) { c.Region = "" },
		"checksums":       func(c *s3.Config) { c.Checksums = "never" },
		"page":            func(c *s3.Config) { c.PageSize = 1001 },
		"negative page":   func(c *s3.Config) { c.PageSize = -1 },
		"no scheme":       func(c *s3.Config) { c.Endpoint = "host:9000" },
		"another scheme":  func(c *s3.Config) { c.Endpoint = "ftp://host" },
		"with a password": func(c *s3.Config) { c.Endpoint = "https://user:topsecret@host" },
	} {
		c := good
		change(&c)
		_, err := s3.Open(t.Context(), c)
		if err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A store without regions needs none.
	open(t, s3.Config{Bucket: "bucket", Endpoint: "https://host:9000"})
}

// headers is a transport that records the header of each operation and answers 403.
type headers map[string]http.Header

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, operation := range []string{"put", "create"} {
		if is(operation)(r) {
			h[operation] = r.Header
		}
	}
	denied := fakeAnswer{match: func(*http.Request) bool { return true }, times: -1, status: 403, code: "AccessDenied"}
	return denied.RoundTrip(r)
}

// TestEncryptionAndClass checks that each request carries the configured encryption, which some bucket policies demand,
// and that small objects stay in the default class.
func TestEncryptionAndClass(t *testing.T) {
	objectstores.Setenv(t, (&objectstores.S3Server{AccessKey: "key", SecretKey: "secret"}).Env())
	const sse, key, class = "X-Amz-Server-Side-Encryption", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", "X-Amz-Storage-Class"
	for _, test := range []struct {
		size      int
		operation string
		class     string
	}{{1000, "put", ""}, {200 << 10, "put", "STANDARD_IA"}, {2 << 20, "create", "STANDARD_IA"}} {
		sent := headers{}
		b := open(t, s3.Config{
			Bucket: "bucket", Region: "eu-central-1", Transport: sent, SSE: "aws:kms", KMSKey: "alias/backups", StorageClass: "STANDARD_IA",
		})
		_, err := b.Put(t.Context(), "key", bytes.NewReader(make([]byte, test.size)), storage.PutOptions{})
		wantError(t, "Put", err, storage.ErrDenied)
		got := sent[test.operation]
		if got.Get(sse) != "aws:kms" || got.Get(key) != "alias/backups" || got.Get(class) != test.class {
			t.Errorf("%d bytes: %s was sent with %v", test.size, test.operation, got)
		}
	}
	sent := headers{}
	b := open(t, s3.Config{Bucket: "bucket", Region: "eu-central-1", Transport: sent})
	_, err := b.Put(t.Context(), "key", bytes.NewReader(nil), storage.PutOptions{})
	wantError(t, "Put", err, storage.ErrDenied)
	got := sent["put"]
	if got.Get(sse)+got.Get(key)+got.Get(class) != "" {
		t.Errorf("without options it was sent with %v", got)
	}
}

// TestNotTheStore checks that a proxy's 404 does not make a repository look empty.
func TestNotTheStore(t *testing.T) {
	objectstores.Setenv(t, (&objectstores.S3Server{AccessKey: "key", SecretKey: "secret"}).Env())
	fake := &fakeAnswer{match: func(*http.Request) bool { return true }, times: -1, status: 404, code: "NotFound", message: "no such page"}
	b := open(t, s3.Config{Bucket: "bucket", Region: "eu-central-1", Transport: fake})
	for _, err := range b.List(t.Context(), storage.ListOptions{}) {
		wantCure(t, "List", err, "in place of the store")
		if errors.Is(err, storage.ErrNotExist) || errors.Is(err, storage.ErrNoBucket) {
			t.Errorf("List: %v is neither of those", err)
		}
	}
}

// TestUnknownAccessKeyOfVersitygw checks that versitygw's answer to an unknown access key is not taken for a proxy's.
func TestUnknownAccessKeyOfVersitygw(t *testing.T) {
	objectstores.Setenv(t, (&objectstores.S3Server{AccessKey: "key", SecretKey: "secret"}).Env())
	fake := &fakeAnswer{match: func(*http.Request) bool { return true }, times: -1, status: 404, code: "XAdminUserNotFound", message: "No user"}
	b := open(t, s3.Config{Bucket: "bucket", Region: "eu-central-1", Transport: fake})
	for verb, err := range verbs(t.Context(), b) {
		wantError(t, verb, err, storage.ErrCredentials)
		wantCure(t, verb, err, "the credentials are wrong or expired")
	}
	_, _, err := b.Open(t.Context(), "key", storage.OpenOptions{Version: "v:1"})
	wantError(t, "open of a version", err, storage.ErrCredentials)
	err = b.Delete(t.Context(), "key", storage.DeleteOptions{Version: "v:1"})
	wantError(t, "delete of a version", err, storage.ErrCredentials)
}

// TestInterruptedWhileFailing checks that a request whose context ends after a try has failed returns the reason: in the
// pause before the next try, and during a try that hangs.
func TestInterruptedWhileFailing(t *testing.T) {
	objectstores.Setenv(t, (&objectstores.S3Server{AccessKey: "key", SecretKey: "secret"}).Env())
	for name, times := range map[string]int{"in a pause": -1, "in a try": 2} {
		synctest.Test(t, func(t *testing.T) {
			fake := &fakeAnswer{base: hangingTransport{}, match: func(*http.Request) bool { return true }, times: times, status: 503, code: "SlowDown", message: "later"}
			b := open(t, s3.Config{Bucket: "bucket", Region: "eu-central-1", Transport: fake, Retry: storage.RetryPolicy{Attempts: 1000}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, err := range b.List(ctx, storage.ListOptions{}) {
				wantError(t, name, err, context.DeadlineExceeded)
				wantCure(t, name, err, "SlowDown later (HTTP 503)")
			}
		})
	}
}

// hangingTransport never answers.
type hangingTransport struct{}

func (hangingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}
