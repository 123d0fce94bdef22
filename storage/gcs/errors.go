package gcs

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

	"cloud.google.com/go/auth"
	"google.golang.org/api/googleapi"

	"github.com/etcd-dr/etcd-dr/storage"
)

// The permissions that requests need.
const (
	toRead   = "storage.objects.get"
	toList   = "storage.objects.list"
	toCreate = "storage.objects.create (and storage.objects.delete, to replace an object)"
	toDelete = "storage.objects.delete"
)

// failure is an error of Google's client, with its text on one line. The client's own texts span several lines, and may
// contain the URL of an upload session, with which anyone can write.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// explain returns the error for a failed request, with the remedy. permission is the permission that the
// request needs.
func explain(ctx context.Context, err error, permission string) error {
	cause := ctx.Err()
	if cause != nil {
		return cause // once ctx has ended, any other error follows from that
	}
	var answer *googleapi.Error
	if errors.As(err, &answer) {
		return explainAnswer(answer, permission)
	}
	var token *tokenError
	if errors.As(err, &token) {
		return explainToken(token.err)
	}
	return explainConnection(err)
}

func explainAnswer(answer *googleapi.Error, permission string) error {
	message := serverMessage(answer)
	switch {
	case isLock(answer):
		return fmt.Errorf("%w: %s", storage.ErrLocked, message)
	case answer.Code == http.StatusUnauthorized:
		return fmt.Errorf("%w: the store rejects the credentials (%s): check --credentials or credentialsDir or, "+
			"without them, the file that GOOGLE_APPLICATION_CREDENTIALS names, or the service account of the machine or pod", storage.ErrCredentials, message)
	case answer.Code == http.StatusForbidden:
		return fmt.Errorf("%w: %s: the account needs the permission %s on the bucket (roles/storage.objectAdmin has it)",
			storage.ErrDenied, message, permission)
	}
	return &failure{fmt.Sprintf("the store answers %d: %s", answer.Code, message), answer}
}

// isLock distinguishes a lock from a missing permission, which has the same status.
func isLock(answer *googleapi.Error) bool {
	return answer.Code == http.StatusForbidden && slices.ContainsFunc(answer.Errors, func(e googleapi.ErrorItem) bool {
		return e.Reason == "retentionPolicyNotMet" || e.Reason == "objectUnderActiveHold"
	})
}

func serverMessage(answer *googleapi.Error) string {
	if answer.Message != "" {
		return oneLine(answer.Message)
	}
	return http.StatusText(answer.Code)
}

// tokenError is the error of a request for a token; it does not come from the store.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// tokens marks the errors of its provider as tokenErrors.
type tokens struct{ from auth.TokenProvider }

func (t tokens) Token(ctx context.Context) (*auth.Token, error) {
	token, err := t.from.Token(ctx)
	if err != nil {
		return nil, &tokenError{err}
	}
	return token, nil
}

// explainToken distinguishes a refusal from an issuer that is unreachable or failing. For some kinds of credentials, only
// the error's text contains the status.
func explainToken(err error) error {
	text := oneLine(err.Error())
	var (
		connection *url.Error
		answer     *auth.Error
	)
	if errors.As(err, &connection) || strings.Contains(text, "status code 5") ||
		errors.As(err, &answer) && answer.Response != nil && answer.Response.StatusCode >= 500 {
		return &failure{"no token at the moment: " + text, err}
	}
	return fmt.Errorf("%w: no token for the credentials (%s): they may have been revoked, or belong to a deleted account",
		storage.ErrCredentials, text)
}

func explainConnection(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	text := oneLine(err.Error())
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		dial    *net.OpError
	)
	switch {
	case errors.As(err, &unknown):
		text += ": if you run the store yourself, add ca=FILE with its CA certificate to the URL"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		text += ": renew the store's certificate, or set this machine's clock"
	case errors.As(err, &name):
		text += ": use the name in the certificate as the endpoint"
	case errors.As(err, &dial) && dial.Op == "dial":
		text += ": check the endpoint and the network"
	}
	return &failure{"no answer from the store: " + text, err}
}

// status returns the HTTP status of the answer in err, or 0 if there was no answer.
func status(err error) int {
	var answer *googleapi.Error
	if errors.As(err, &answer) {
		return answer.Code
	}
	return 0
}

// oneLine returns text on one line, cut after 300 bytes.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	const most = 300
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
