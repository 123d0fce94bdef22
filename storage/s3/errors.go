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

// A right is what IAM calls it.
const (
	rightGet      = "s3:GetObject"
	rightPut      = "s3:PutObject"
	rightDelete   = "s3:DeleteObject"
	rightList     = "s3:ListBucket"
	rightUploads  = "s3:ListBucketMultipartUploads and s3:ListMultipartUploadParts"
	rightAbort    = "s3:AbortMultipartUpload"
	rightLock     = "s3:GetBucketObjectLockConfiguration"
	rightVersions = "s3:ListBucketVersions"
	whereFrom     = "they come from AWS_ACCESS_KEY_ID, ~/.aws, web identity, or the container's or the instance's role"
	regionHeader  = "X-Amz-Bucket-Region"
	noSuchUpload  = "NoSuchUpload"
	noSuchBucket  = "NoSuchBucket"
)

// Codes of errors that say the same, by the stores that use them.
var (
	badCredentials = []string{
		"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
		"InvalidClientTokenId", "NotSignedUp", "InvalidSecurity",
	}
	badRegion = []string{
		"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
		"MovedPermanently",
	}
	// Stores that keep objects as files, and so cannot have both a and a/b, or long names.
	badKey = []string{
		"ObjectParentIsFile", "ExistingObjectIsDirectory", "ExistingObjectIsFile", "ParentIsObject",
		"XMinioParentIsObject", "XMinioObjectExistsAsDirectory", "KeyTooLongError", "KeyTooLong", "XMinioInvalidObjectName",
	}
)

// failure says in one line what a request has met and what to do about it, as one of storage's errors where there is one.
// right is what the request needs to be allowed.
func (b *Bucket) failure(err error, right string) error {
	var creds *credentialsError
	var answer smithy.APIError
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &creds):
		return fmt.Errorf("%w: no credentials (%s): %w", storage.ErrCredentials, whereFrom, oneLine(creds.error))
	case errors.As(err, &answer):
		return b.answered(err, answer, right)
	}
	return unanswered(err)
}

// answered explains an error that the store has sent.
func (b *Bucket) answered(err error, answer smithy.APIError, right string) error {
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
		return fmt.Errorf("%w: wrong region: the bucket's is %s, not %s: give the right one (region=…): %s",
			storage.ErrCredentials, region, b.region, said)
	case slices.Contains(badCredentials, code):
		return fmt.Errorf("%w: the credentials are wrong or too old (%s): %s", storage.ErrCredentials, whereFrom, said)
	case code == "RequestTimeTooSkewed":
		return fmt.Errorf("%w: the clocks of this host and of the store differ by too much: set this one: %s",
			storage.ErrCredentials, said)
	case code == "InvalidObjectState":
		return fmt.Errorf("%w: the object is in an archive class: have the store restore it first: %s",
			storage.ErrUnreadable, said)
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return fmt.Errorf("%w: it wants the right %s on bucket %q, or other credentials (%s): %s",
			storage.ErrDenied, right, b.name, whereFrom, said)
	case slices.Contains(badKey, code):
		return fmt.Errorf("%w: it cannot hold this key beside its others: %s", storage.ErrUnsupported, said)
	case status == http.StatusNotFound && right == rightList: // a bucket that is there can always be listed
		return fmt.Errorf("it is not the store that answers there, but a proxy or another server: check endpoint and path-style: %s", said)
	case status == http.StatusNotFound && code != noSuchUpload:
		return fmt.Errorf("%w: %s", storage.ErrNotExist, said)
	}
	return errors.New(said)
}

// unread is failure of a GET. What is wrong with a request that is right for all other objects is wrong with the object: it
// is encrypted with a key that this request lacks, or with one of KMS that is disabled.
func (b *Bucket) unread(err error) error {
	why := b.failure(err, rightGet)
	if status(err) != http.StatusBadRequest || errors.Is(why, storage.ErrDenied) || hasCode(err, "RequestTimeout") {
		return why
	}
	return fmt.Errorf("%w: %w", storage.ErrUnreadable, why)
}

// unanswered explains an error on the way to the store.
func unanswered(err error) error {
	var sent *url.Error
	if errors.As(err, &sent) {
		err = sent.Err // without the words of the SDK and the address of the request
	}
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		host      x509.HostnameError
		dial      *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("the store's certificate is signed by nobody known here: name the authority's file (ca=FILE): %w",
			oneLine(err))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the store's certificate has expired, or this host's clock is wrong: %w", oneLine(err))
	case errors.As(err, &invalid), errors.As(err, &host):
		return fmt.Errorf("the store's certificate does not hold for this endpoint: %w", oneLine(err))
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("the store cannot be reached: look at endpoint, region and network: %w", oneLine(err))
	}
	return oneLine(err)
}

// oneLine is err with a text of one line.
func oneLine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if text == err.Error() {
		return err
	}
	return &flat{text, err}
}

type flat struct {
	text string
	error
}

func (f *flat) Error() string { return f.text }
func (f *flat) Unwrap() error { return f.error }

// status is the HTTP status of the answer in err, 0 without one.
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

// headFailure is failure for a HEAD, whose answer has no body that says why: a request that has one is asked in its place.
func (b *Bucket) headFailure(ctx context.Context, err error) error {
	switch status(err) {
	case http.StatusMovedPermanently, http.StatusBadRequest, http.StatusForbidden:
	default:
		return b.failure(err, rightGet)
	}
	_, why := b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.name, MaxKeys: aws.Int32(1)})
	if why == nil || hasCode(why, "AccessDenied") {
		return b.failure(err, rightGet)
	}
	return b.failure(why, rightList)
}

// isAmbiguous tells whether a request that has failed may have been done: its answer was lost or is no plain refusal, or
// the SDK has repeated it after a lost answer and it met what it had done itself.
func isAmbiguous(err error) bool {
	if creds := (*credentialsError)(nil); errors.As(err, &creds) { // it was not sent
		return false
	}
	switch s := status(err); s {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed:
		return true
	default:
		return s < 400 || s >= 500
	}
}
