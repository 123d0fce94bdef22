package verify

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/restore/assertion"
	"github.com/etcd-dr/etcd-dr/restore/scratch"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrAssertion reports restored data that is intact but does not fulfil an assertion.
var ErrAssertion = fault.New(fault.Damaged, "an assertion does not hold")

// bounds returns the range of keys of a, in the form of etcd's client.
func bounds(a assertion.Assertion) (key, end []byte) {
	switch {
	case !a.Prefix:
		return []byte(a.Key), nil
	case a.Key == "":
		return []byte{0}, []byte{0}
	}
	return []byte(a.Key), []byte(clientv3.GetPrefixRangeEnd(a.Key))
}

// evaluate checks all assertions and returns a result for each.
func evaluate(ctx context.Context, server *scratch.Server, all []assertion.Assertion) (results []catalog.Assertion, err error) {
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

// unmet returns an error that names the assertions that do not hold; nil if all hold.
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
