package s3

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/etcd-dr/etcd-dr/storage"
)

// The rights that requests need, by their IAM names.
const (
	rightGet      = "s3:GetObject"
	rightPut      = "s3:PutObject"
	rightDelete   = "s3:DeleteObject"
	rightList     = "s3:ListBucket"
	rightUploads  = "s3:ListBucketMultipartUploads and s3:ListMultipartUploadParts"
	rightAbort    = "s3:AbortMultipartUpload"
	rightLock     = "s3:GetBucketObjectLockConfiguration"
	rightVersions = "s3:ListBucketVersions"
	whereFrom     = "they come from --credentials or credentialsDir; without it from AWS_ACCESS_KEY_ID, ~/.aws, web identity, or the role of the container or instance"
	regionHeader  = "X-Amz-Bucket-Region"
	noSuchUpload  = "NoSuchUpload"
	noSuchBucket  = "NoSuchBucket"
	noSuchKey     = "NoSuchKey"
)

// Error codes with one meaning, from the stores that use them.
var (
	badCredentials = []string{
		"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
		"InvalidClientTokenId", "NotSignedUp", "InvalidSecurity",
		"XAdminUserNotFound", // versitygw's for an unknown access key, with HTTP 404
	}
	badRegion = []string{
		"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
		"MovedPermanently",
	}
	// Stores that keep objects as files cannot store both a and a/b, and limit the length of names.
	badKey = []string{
		"ObjectParentIsFile", "ExistingObjectIsDirectory", "ExistingObjectIsFile", "ParentIsObject",
		"XMinioParentIsObject", "XMinioObjectExistsAsDirectory", "KeyTooLongError", "KeyTooLong", "XMinioInvalidObjectName",
	}
)

// failure returns a one-line error that names the problem and its remedy, and wraps one of storage's errors if one
// applies. The failed request needs right.
func (b *Bucket) failure(err error, right string) error {
	var creds *credentialsError
	var answer smithy.APIError
	interrupted, ok := errors.AsType[*interruptedRequest](err)
	switch {
	case ok:
		return &storage.InterruptedError{Err: interrupted.ended, Last: b.failure(interrupted.last, right)}
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &creds):
		return fmt.Errorf("%w: no credentials (%s): %w", storage.ErrCredentials, whereFrom, oneLine(creds.error))
	case errors.As(err, &answer):
		return b.explainAnswer(err, answer, right)
	}
	return explainTransport(err)
}

// explainAnswer returns the error for an answer that the store sent.
func (b *Bucket) explainAnswer(err error, answer smithy.APIError, right string) error {
	code, status := answer.ErrorCode(), status(err)
	said := strings.Join(strings.Fields(fmt.Sprintf("%s %s (HTTP %d)", code, answer.ErrorMessage(), status)), " ")
	region := header(err, regionHeader)
	switch {
	case code == noSuchBucket:
		return fmt.Errorf("%w: %q: create it, or correct the name", storage.ErrNoBucket, b.name)
	case slices.Contains(badRegion, code) || status == http.StatusMovedPermanently ||
		status == http.StatusBadRequest && region != "" && region != b.region:
		if region == "" {
			region = "another one"
		}
		return fmt.Errorf("%w: wrong region: the bucket's is %s, not %s: correct it (region=…): %s",
			storage.ErrCredentials, region, b.region, said)
	case slices.Contains(badCredentials, code):
		return fmt.Errorf("%w: the credentials are wrong or expired (%s): %s", storage.ErrCredentials, whereFrom, said)
	case code == "RequestTimeTooSkewed":
		return fmt.Errorf("%w: the clocks of this host and the store differ too much: set the clock of this host: %s",
			storage.ErrCredentials, said)
	case code == "InvalidObjectState":
		return fmt.Errorf("%w: the object is in an archive class: have the store restore it first: %s",
			storage.ErrUnreadable, said)
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return fmt.Errorf("%w: it needs the right %s on bucket %q, or other credentials (%s): %s",
			storage.ErrDenied, right, b.name, whereFrom, said)
	case status == http.StatusNotImplemented:
		return fmt.Errorf("%w: %s", storage.ErrUnsupported, said)
	case slices.Contains(badKey, code):
		return fmt.Errorf("%w: it cannot store this key next to the existing ones: %s", storage.ErrUnsupported, said)
	case status == http.StatusNotFound && right == rightList: // the store can list every bucket that exists
		return fmt.Errorf("a proxy or another server answers in place of the store: check endpoint and path-style: %s", said)
	case status == http.StatusNotFound && code != noSuchUpload:
		return fmt.Errorf("%w: %s", storage.ErrNotExist, said)
	}
	return errors.New(said)
}

// readFailure returns the failure of a GET. A 400 for a request that works for all other objects is the object's fault:
// it is encrypted with a key that the request lacks, or with a KMS key that is disabled.
func (b *Bucket) readFailure(err error) error {
	why := b.failure(err, rightGet)
	if status(err) != http.StatusBadRequest || errors.Is(why, storage.ErrDenied) || hasCode(err, "RequestTimeout") {
		return why
	}
	return fmt.Errorf("%w: %w", storage.ErrUnreadable, why)
}

// explainTransport returns the error for a request that got no answer.
func explainTransport(err error) error {
	var sent *url.Error
	if errors.As(err, &sent) {
		err = sent.Err // drop the SDK's words and the URL of the request
	}
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		host      x509.HostnameError
		dial      *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("the store's certificate is signed by an unknown authority: name its certificate file (ca=FILE): %w",
			oneLine(err))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the store's certificate has expired, or this host's clock is wrong: %w", oneLine(err))
	case errors.As(err, &invalid), errors.As(err, &host):
		return fmt.Errorf("the store's certificate is not valid for this endpoint: %w", oneLine(err))
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("the store is unreachable: check endpoint, region and network: %w", oneLine(err))
	}
	return oneLine(err)
}

// oneLine returns err with its text on one line.
func oneLine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if text == err.Error() {
		return err
	}
	return &oneLineError{text, err}
}

type oneLineError struct {
	text string
	error
}

func (f *oneLineError) Error() string { return f.text }
func (f *oneLineError) Unwrap() error { return f.error }

// status returns the HTTP status of the answer in err, or 0 if there was no answer.
func status(err error) int {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil && answer.Response.Response != nil {
		return answer.HTTPStatusCode()
	}
	return 0
}

func header(err error, name string) string {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil && answer.Response.Response != nil {
		return answer.Response.Header.Get(name)
	}
	return ""
}

func hasCode(err error, codes ...string) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && slices.Contains(codes, answer.ErrorCode())
}

// headFailure returns the failure of a HEAD. Its answer has no body to explain the error, so headFailure sends a LIST
// and explains that answer.
func (b *Bucket) headFailure(ctx context.Context, err error) error {
	switch status(err) {
	case http.StatusMovedPermanently, http.StatusBadRequest, http.StatusForbidden:
	default:
		return b.failure(err, rightGet)
	}
	why := b.listOne(ctx)
	if why == nil || hasCode(why, "AccessDenied") {
		return b.failure(err, rightGet)
	}
	return b.failure(why, rightList)
}

// listOne sends a LIST for its answer, which has a body that explains an error.
func (b *Bucket) listOne(ctx context.Context) error {
	_, err := b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.name, MaxKeys: aws.Int32(1)})
	return err
}

// isAmbiguous reports whether a failed request may have taken effect: its answer was lost, its answer is not a plain
// refusal, or the SDK repeated it after a lost answer and the repetition met the first try's result.
func isAmbiguous(err error) bool {
	creds := (*credentialsError)(nil)
	if errors.As(err, &creds) { // the request was not sent
		return false
	}
	switch s := status(err); s {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed:
		return true
	default:
		return s < 400 || s >= 500
	}
}
