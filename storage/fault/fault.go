// Package fault is the vocabulary of errors of the whole tree: a few kinds, which decide the exit code and the HTTP status,
// and an error value with an object, a cause and a remedy.
//
// A Kind is an error, so a caller wraps it with %w and matches it with errors.Is. A package defines a Sentinel of its own
// only where a caller branches on it; each Sentinel matches its Kind too.
package fault

import (
	"context"
	"errors"
	"io/fs"
)

// Kind is the class of an error.
type Kind string

// The kinds.
const (
	Usage       Kind = "usage"       // a flag, a file or a request cannot be used as written
	Refused     Kind = "refused"     // refused for safety; nothing was changed
	Damaged     Kind = "damaged"     // a check failed: stored data, members or a drill are not as expected
	NotFound    Kind = "not found"   // missing from the repository or the configuration
	Denied      Kind = "denied"      // the store or the server rejects the caller
	Busy        Kind = "busy"        // the current state does not allow it; later it may
	Unreachable Kind = "unreachable" // the store, the network or the member does not respond, or cannot return an object that it has
	Interrupted Kind = "interrupted" // the caller ended the work
	Internal    Kind = "internal"    // every other error
)

// byPrecedence orders the kinds for an error that matches several. Refused is first: it promises that nothing was changed.
// A finding precedes the circumstances in which it was made. Only Internal is missing: KindOf returns it for every other error.
var byPrecedence = []Kind{Refused, Damaged, NotFound, Usage, Denied, Busy, Unreachable, Interrupted}

// Error returns the name of k.
func (k Kind) Error() string { return string(k) }

// Is reports whether target is k or the standard library's error for it: context.Canceled or fs.ErrPermission.
func (k Kind) Is(target error) bool {
	switch target {
	case context.Canceled:
		return k == Interrupted
	case fs.ErrPermission:
		return k == Denied
	}
	return k == target
}

// KindOf returns the kind of err: "" for nil, and Internal for an error that matches no kind. If err matches several, a
// refusal and a finding precede the others.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	for _, kind := range byPrecedence {
		if errors.Is(err, kind) {
			return kind
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.Is(err, context.DeadlineExceeded):
		return Unreachable
	}
	return Internal
}

// Sentinel is an error that callers match with errors.Is. Equal sentinels are the same error, also in another process.
type Sentinel struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
}

// New returns the Sentinel with that kind and text.
func New(kind Kind, text string) error { return Sentinel{kind, text} }

// Error returns the text of s.
func (s Sentinel) Error() string { return s.Text }

// Unwrap returns the kind of s.
func (s Sentinel) Unwrap() error { return s.Kind }

// Error is an error with a kind. It matches its kind and its cause.
type Error struct {
	Kind   Kind
	Object string // what the error concerns; "": the cause names it
	Cause  error  // the problem; nil: the kind
	Remedy string // what the reader can do; "": the cause names it
}

// Mark returns err with a kind. Its text stays the same.
func Mark(kind Kind, err error) error { return &Error{Kind: kind, Cause: err} }

// Error returns "object: problem: remedy", without the parts that are empty.
func (e *Error) Error() string {
	text := string(e.Kind)
	if e.Cause != nil {
		text = e.Cause.Error()
	}
	if e.Object != "" {
		text = e.Object + ": " + text
	}
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}

// Unwrap returns the kind, and the cause if there is one.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// RemedyOf returns the remedy of the outermost Error in err that has one, and "" otherwise.
func RemedyOf(err error) (remedy string) {
	walk(err, func(err error) bool {
		switch e := err.(type) {
		case *Error:
			remedy = e.Remedy
		case *unpacked:
			remedy = e.Remedy
		}
		return remedy == ""
	})
	return remedy
}

// walk calls visit with err and every error that it wraps, the outer ones first, until visit returns false.
func walk(err error, visit func(error) bool) bool {
	if err == nil {
		return true
	}
	if !visit(err) {
		return false
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, wrapped := range e.Unwrap() {
			if !walk(wrapped, visit) {
				return false
			}
		}
	}
	return true
}
