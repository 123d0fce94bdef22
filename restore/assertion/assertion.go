// Package assertion parses the expectations of an operator about restored data.
package assertion

import (
	"fmt"
	"strconv"
	"strings"
)

// Assertion is an expectation of the restored data: a key exists, or at least Least keys begin with a prefix.
type Assertion struct {
	Text   string `json:"text"`             // the text that was parsed
	Key    string `json:"key"`              // the key, or the prefix
	Prefix bool   `json:"prefix,omitempty"` // true: Key is a prefix
	Least  int64  `json:"least"`            // smallest number of keys that must exist; 1 for a key
}

// Parse parses key=KEY, which expects the key, or prefix=PREFIX:N, which expects at least N keys that begin with
// PREFIX. The prefix ends at the last colon; all keys begin with the empty prefix.
func Parse(text string) (Assertion, error) {
	key, ok := strings.CutPrefix(text, "key=")
	if ok && key != "" {
		return Assertion{Text: text, Key: key, Least: 1}, nil
	}
	prefix, ok := strings.CutPrefix(text, "prefix=")
	colon := strings.LastIndexByte(prefix, ':')
	if !ok || colon < 0 {
		return Assertion{}, fmt.Errorf("%q: use key=/registry/namespaces/default or prefix=/registry/pods/:100", text)
	}
	least, err := strconv.ParseInt(prefix[colon+1:], 10, 64)
	if err != nil || least < 1 {
		return Assertion{}, fmt.Errorf("%q: the number of keys after the last colon must be at least 1", text)
	}
	return Assertion{Text: text, Key: prefix[:colon], Prefix: true, Least: least}, nil
}
