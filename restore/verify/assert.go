package verify

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/restore/scratch"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// ErrAssertion: what was restored is whole, and does not hold what was expected of it.
var ErrAssertion = errors.New("an assertion does not hold")


// Assertion is an expectation of the restored data: a key exists, or at least so many keys have a prefix.
type Assertion struct {
	Text   string `json:"text"`             // that was parsed
	Key    string `json:"key"`              // or prefix
	Prefix bool   `json:"prefix,omitempty"` // Key is a prefix
	Least  int64  `json:"least"`            // number of keys, at least 1
}

// ParseAssertion parses key=KEY, which expects the key, or prefix=PREFIX:N, which expects at least N keys that begin with
// PREFIX. The prefix ends at the last colon; all keys begin with the empty prefix.
func ParseAssertion(text string) (Assertion, error) {
	if key, ok := strings.CutPrefix(text, "key="); ok && key != "" {
		return Assertion{Text: text, Key: key, Least: 1}, nil
	}
	prefix, ok := strings.CutPrefix(text, "prefix=")
	colon := strings.LastIndexByte(prefix, ':')
	if !ok || colon < 0 {
		return Assertion{}, fmt.Errorf("%q: use key=/registry/namespaces/default or prefix=/registry/pods/:100", text)
	}
	least, err := strconv.ParseInt(prefix[colon+1:], 10, 64)
	if err != nil || least < 1 {
		return Assertion{}, fmt.Errorf("%q: behind the last colon stands how many keys there must be, at least 1", text)
	}
	return Assertion{Text: text, Key: prefix[:colon], Prefix: true, Least: least}, nil
}

// bounds returns the range of keys that a is about, as etcd's client takes it.
func bounds(a Assertion) (key, end []byte) {
	switch {
	case !a.Prefix:
		return []byte(a.Key), nil
	case a.Key == "":
		return []byte{0}, []byte{0}
	}
	return []byte(a.Key), []byte(clientv3.GetPrefixRangeEnd(a.Key))
}

// evaluate asks the server for all of them, so that a person hears of each that does not hold.
func evaluate(ctx context.Context, server *scratch.Server, all []Assertion) (results []catalog.Assertion, err error) {
	for _, a := range all {
		key, end := bounds(a)
		_, found, err := server.CountRange(ctx, key, end)
		if err != nil {
			return nil, fmt.Errorf("evaluate %s: %w", a.Text, err)
		}
		results = append(results, catalog.Assertion{Text: a.Text, Held: found >= a.Least, Found: found})
	}
	return results, nil
}

// unmet says what does not hold, nil if all do.
func unmet(results []catalog.Assertion) error {
	var words []string
	for _, a := range results {
		if !a.Held {
			words = append(words, fmt.Sprintf("%s, found %d", a.Text, a.Found))
		}
	}
	if len(words) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrAssertion, strings.Join(words, "; "))
}
