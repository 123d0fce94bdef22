package azure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// failed returns err with the operation and the key. err may still be the SDK's.
func (b *Bucket) failed(verb, key string, err error) error {
	return redacted(fmt.Errorf("%s %q in azure container %s: %w", verb, key, b.name, explain(err)))
}

// redacted returns err without the URLs of requests, which contain the signature of a SAS.
func redacted(err error) error {
	text := err.Error()
	for u := range requests(err) {
		text = strings.ReplaceAll(text, u.Error(), u.Err.Error())
		text = strings.ReplaceAll(text, u.URL, "the store")
	}
	if text == err.Error() {
		return err
	}
	return &explained{text: text, cause: err}
}

// requests yields the errors of net/http in err's tree.
func requests(err error) iter.Seq[*url.Error] {
	return func(yield func(*url.Error) bool) {
		u, ok := err.(*url.Error)
		if ok && !yield(u) {
			return
		}
		var below []error
		switch w := err.(type) {
		case interface{ Unwrap() error }:
			below = []error{w.Unwrap()}
		case interface{ Unwrap() []error }:
			below = w.Unwrap()
		}
		for _, e := range below {
			for u := range requests(e) {
				if !yield(u) {
					return
				}
			}
		}
	}
}

// explained is an error of the SDK on one line. The SDK's own text is a dump of request and answer, and net/http's
// contains the URL, with the signature of a SAS.
type explained struct {
	text     string
	sentinel error // nil if none fits
	cause    error // for errors.Is and errors.As
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() []error {
	if e.sentinel == nil {
		return []error{e.cause}
	}
	return []error{e.sentinel, e.cause}
}

// explanation returns an explained error; sentinel may be nil.
func explanation(sentinel, cause error, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if sentinel != nil {
		text = sentinel.Error() + ": " + text
	}
	return &explained{text, sentinel, cause}
}

// explain converts an error of the SDK to one of storage's with a remedy. It returns other errors unchanged.
func explain(err error) error {
	var done *explained
	if err == nil || errors.As(err, &done) {
		return err
	}
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		return explainAnswer(answer)
	}
	cure, _ := connectionCure(err)
	if cure != "" {
		return explanation(nil, withoutURL(err), "%v: %s", withoutURL(err), cure)
	}
	return withoutURL(err)
}

// withoutURL returns err without the URL that net/http puts before its errors.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// connectionCure returns the remedy for a failed connection, and reports whether another try is hopeless.
func connectionCure(err error) (cure string, hopeless bool) {
	var expired x509.CertificateInvalidError
	var unverified *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	var dns *net.DNSError
	switch {
	case errors.As(err, &expired) && expired.Reason == x509.Expired:
		return "renew the endpoint's certificate, or correct this machine's clock", true
	case errors.As(err, &unverified):
		return "name the file with the authority's certificate (ca=FILE), and use the host name in the certificate as the endpoint", true
	case errors.As(err, &plain), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the endpoint does not speak TLS: check its scheme and port", true
	case errors.As(err, &dns) && dns.IsNotFound:
		return "check the name of the storage account and the endpoint", true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, reach.ErrOwn):
		return "", true
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return "check the endpoint, the network and the firewall of the storage account", false
	}
	return "", false
}

// explainAnswer converts an error that the store sent.
func explainAnswer(a *azcore.ResponseError) error {
	code := a.ErrorCode
	if code == "" {
		code = http.StatusText(a.StatusCode)
	}
	said := fmt.Sprintf("%s (HTTP %d)", code, a.StatusCode)
	switch bloberror.Code(a.ErrorCode) {
	case bloberror.ContainerNotFound, bloberror.ContainerBeingDeleted, bloberror.ContainerDisabled:
		return explanation(storage.ErrNoBucket, a, "%s: create the container, or correct its name or the account's", said)
	case bloberror.BlobNotFound:
		return explanation(storage.ErrNotExist, a, "%s", said)
	case bloberror.BlobAlreadyExists:
		return explanation(storage.ErrExist, a, "%s", said)
	case bloberror.BlobImmutableDueToPolicy:
		return explanation(storage.ErrLocked, a, "%s: a policy or a legal hold of the container", said)
	case bloberror.BlobArchived, bloberror.BlobBeingRehydrated:
		return explanation(storage.ErrUnreadable, a, "%s: it is in the archive tier: have it rehydrated first", said)
	case bloberror.BlobUsesCustomerSpecifiedEncryption:
		return explanation(storage.ErrUnreadable, a, "%s: it is encrypted with a key that only its writer has", said)
	case bloberror.InvalidRange:
		return explanation(storage.ErrRange, a, "%s", said)
	case bloberror.InvalidBlockList:
		return explanation(nil, a, "%s: another writer has stored this key in the meantime: repeat the command", said)
	case bloberror.InvalidBlobOrBlock:
		return explanation(nil, a, "%s: this key has unfinished blocks of another program: use another key, "+
			"or wait a week until Azure has dropped them", said)
	case bloberror.SnapshotsPresent:
		return explanation(nil, a, "%s: this blob has snapshots: delete them first", said)
	}
	refused := a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden
	if refused || bloberror.Code(a.ErrorCode) == bloberror.InvalidAuthenticationInfo {
		return explanation(deniedKind(a), a, "%s: %s", said, deniedCure(bloberror.Code(a.ErrorCode)))
	}
	return explanation(nil, a, "the store answers %s", said)
}

// deniedKind distinguishes a missing right from a caller whom the store does not accept at all.
func deniedKind(a *azcore.ResponseError) error {
	switch bloberror.Code(a.ErrorCode) {
	case bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo, bloberror.NoAuthenticationInformation,
		bloberror.AuthorizationFailure, bloberror.AuthorizationSourceIPMismatch:
		return storage.ErrCredentials
	}
	if a.StatusCode == http.StatusUnauthorized {
		return storage.ErrCredentials
	}
	return storage.ErrDenied
}

func deniedCure(code bloberror.Code) string {
	switch code {
	case bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo, bloberror.NoAuthenticationInformation:
		return "the key, SAS or token is wrong or has expired, or this machine's clock is wrong; credentials come from " +
			whereCredentials
	case bloberror.AuthorizationFailure, bloberror.AuthorizationSourceIPMismatch:
		return "the credentials lack the right, or the account's firewall blocks this machine"
	}
	return "the credentials lack the right: the role Storage Blob Data Contributor, or a SAS with read, add, create, " +
		"write, delete and list"
}

// is reports whether the store has answered with one of these codes.
func is(err error, codes ...bloberror.Code) bool { return bloberror.HasCode(err, codes...) }
