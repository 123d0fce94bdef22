package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
)

// role is a set of permissions. An operator may also read.
type role int

const (
	reader   role = iota + 1 // may read
	operator                 // may trigger jobs, suspend and pin
)

var roles = map[string]role{"read": reader, "operate": operator}

func (r role) String() string {
	for name, one := range roles {
		if one == r {
			return name
		}
	}
	return "none"
}

// unitPrefix precedes the name of a role in the organizational unit of a client's certificate.
const unitPrefix = "etcd-dr:"

// Access decides which clients may use the API. The zero Access accepts every client that uses a loopback name, as an operator.
type Access struct {
	tokens       *reloaded[[]token]
	certificates bool // verified client certificates are a login
	revoked      *reloaded[revoked]
}

// NewAccess returns an Access that accepts the tokens in a file ("": none) and, with certificates, verified client certificates with
// a role. The file is read again when it changes.
//
// Each of its lines is a role (read or operate), a name and the token's SHA-256: "read grafana sha256:2c26b46b…". So the file
// contains no secret.
func NewAccess(tokensFile string, certificates bool, report storage.Report) (Access, error) {
	a := Access{certificates: certificates}
	if tokensFile == "" {
		return a, nil
	}
	var err error
	a.tokens, err = reload([]string{tokensFile}, func(contents [][]byte) ([]token, error) { return parseTokens(contents[0]) }, report)
	return a, err
}

// open reports whether clients need no login.
func (a Access) open() bool { return a.tokens == nil && !a.certificates }

// visitor is the sender of a request.
type visitor struct {
	name string
	role role
}

// token is an accepted token, as its digest.
type token struct {
	visitor
	sum [sha256.Size]byte
}

var errTokens = errors.New("bad tokens file")

// parseTokens reads a file of tokens. Its errors quote no line, because a line may contain a token.
func parseTokens(text []byte) (tokens []token, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 3 || roles[words[0]] == 0 {
			return nil, fmt.Errorf("%w: line %d: write a role (read, operate), a name and sha256:…", errTokens, n)
		}
		sum, isSum := strings.CutPrefix(words[2], "sha256:")
		digest, err := hex.DecodeString(sum)
		if !isSum || err != nil || len(digest) != sha256.Size {
			return nil, fmt.Errorf("%w: line %d: write sha256: and the token's SHA-256 in hex, not the token", errTokens, n)
		}
		tokens = append(tokens, token{visitor{words[1], roles[words[0]]}, [sha256.Size]byte(digest)})
	}
	err = lines.Err()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTokens, err)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%w: it contains no token", errTokens)
	}
	return tokens, nil
}

// visitor returns the sender of r. A token takes precedence over a certificate.
func (a Access) visitor(r *http.Request) (visitor, error) {
	if a.open() {
		return visitor{"a user of this host", operator}, nil
	}
	secret, ok := secretOf(r)
	if ok && a.tokens != nil {
		return a.byToken(secret)
	}
	if a.certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return a.byCertificate(r)
	}
	return visitor{}, a.loginNeeded("a login is required")
}

func (a Access) loginNeeded(message string) error {
	cure := "send a token, as Authorization: Bearer TOKEN or as the password of any user"
	switch {
	case a.tokens == nil:
		cure = "connect with a client certificate"
	case a.certificates:
		cure += ", or connect with a client certificate"
	}
	return &failure{http.StatusUnauthorized, message, cure}
}

// secretOf returns the token in r. A browser sends it as a password, because browsers can prompt for a password.
func secretOf(r *http.Request) (string, bool) {
	_, password, ok := r.BasicAuth()
	if ok {
		return password, true
	}
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return secret, ok && strings.EqualFold(scheme, "Bearer")
}

// byToken returns the visitor with a token. It compares all digests in constant time, so that its duration reveals nothing about them.
func (a Access) byToken(secret string) (found visitor, err error) {
	sum := sha256.Sum256([]byte(secret))
	for _, t := range a.tokens.get() {
		if subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
			found = t.visitor
		}
	}
	if found.role == 0 {
		return visitor{}, a.loginNeeded("the token is unknown")
	}
	return found, nil
}

func (a Access) byCertificate(r *http.Request) (visitor, error) {
	chain := r.TLS.VerifiedChains[0]
	if a.revoked != nil && a.revoked.get().any(chain) {
		return visitor{}, &failure{http.StatusUnauthorized, "the certificate is revoked", "connect with one that is not"}
	}
	subject := chain[0].Subject
	v := visitor{name: subject.CommonName}
	for name, role := range roles {
		if slices.Contains(subject.OrganizationalUnit, unitPrefix+name) {
			v.role = max(v.role, role)
		}
	}
	if v.role == 0 {
		return visitor{}, &failure{
			http.StatusForbidden, "the certificate gives no role", "give it the organizational unit etcd-dr:read or etcd-dr:operate",
		}
	}
	return v, nil
}

type visitorKey struct{}

func withVisitor(r *http.Request, v visitor) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), visitorKey{}, v))
}

func visitorOf(r *http.Request) visitor {
	v, _ := r.Context().Value(visitorKey{}).(visitor)
	return v
}
