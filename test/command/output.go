package command

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/api/document"
)

// Output is the result of a run of dr.
type Output struct {
	Args           []string
	Stdout, Stderr string
	Code           int    // -1: ended by a signal
	Stage          string // of the last event, with -o json
}

func (o Output) String() string {
	return fmt.Sprintf("dr %s: exit code %d\n%s%s", strings.Join(o.Args, " "), o.Code, o.Stdout, o.Stderr)
}

// Decode decodes the result of a verb with events, or the document of one without. Nothing may follow either, except the
// error line of a dr that failed. A dr that failed without a result leaves result unchanged.
func (o Output) Decode(t testing.TB, result any) {
	t.Helper()
	err := o.decode(result)
	if err != nil {
		t.Fatalf("%v\n%s", err, o)
	}
}

func (o Output) decode(result any) error {
	text := strings.TrimSuffix(o.Stdout, "\n")
	lastLine := text[strings.LastIndexByte(text, '\n')+1:]
	if o.Code != 0 && strings.HasPrefix(lastLine, `{"error":`) {
		text = strings.TrimSuffix(strings.TrimSuffix(text, lastLine), "\n")
	}
	results := strings.Count("\n"+text, "\n"+`{"result":`)
	events := strings.HasPrefix(text, `{"event":`) || strings.HasPrefix(text, `{"item":`)
	if text == "" && o.Code != 0 {
		return nil // there is only the error
	}
	if results == 0 && !events {
		return json.Unmarshal([]byte(text), result) // it refuses anything after the document
	}
	lastLine = text[strings.LastIndexByte(text, '\n')+1:]
	if results == 0 && o.Code != 0 {
		return nil // it failed before there was a result
	}
	if results != 1 || !strings.HasPrefix(lastLine, `{"result":`) {
		return fmt.Errorf("want one result, on the last line; there are %d", results)
	}
	line := struct{ Result any }{result}
	return json.Unmarshal([]byte(lastLine), &line)
}

// Succeeded fails the test unless dr succeeded, and decodes its result unless result is nil.
func (o Output) Succeeded(t testing.TB, result any) {
	t.Helper()
	if o.Code != 0 {
		t.Fatalf("%s", o)
	}
	o.NoTrace(t)
	if result != nil {
		o.Decode(t, result)
	}
}

// Ended fails the test unless dr ended with the exit code and stderr contains all words.
func (o Output) Ended(t testing.TB, code int, words ...string) {
	t.Helper()
	if o.Code != code {
		t.Errorf("want exit code %d\n%s", code, o)
		return
	}
	for _, word := range words {
		if !strings.Contains(o.Stderr, word) {
			t.Errorf("stderr does not contain %q\n%s", word, o)
		}
	}
}

// Failed is Ended for a dr with -o json. It also fails the test unless stderr is one line, without a stack trace, and
// the last line on stdout has the same error.
func (o Output) Failed(t testing.TB, code int, words ...string) {
	t.Helper()
	o.NoTrace(t)
	o.Ended(t, code, words...)
	message, ok := strings.CutPrefix(o.Stderr, "dr: ")
	if !ok || strings.Index(message, "\n") != len(message)-1 {
		t.Errorf("want one line on stderr\n%s", o)
		return
	}
	lines := strings.Split(strings.TrimSpace(o.Stdout), "\n")
	var last document.Line
	err := json.Unmarshal([]byte(lines[len(lines)-1]), &last)
	if err != nil || last.Error == nil ||
		last.Error.Message != strings.TrimSpace(message) || last.Error.ExitCode != code {
		t.Errorf("the last line on stdout is not the error\n%s", o)
	}
}

// NoTrace fails the test if dr has printed a stack trace.
func (o Output) NoTrace(t testing.TB) {
	t.Helper()
	for _, sign := range []string{"goroutine ", "\npanic:", "\nfatal error:", "[recovered]"} {
		if strings.Contains("\n"+o.Stdout+"\n"+o.Stderr, sign) {
			t.Errorf("a stack trace came out\n%s", o)
			return
		}
	}
}
