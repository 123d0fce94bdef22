package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/vbauerster/mpb/v8"

	"github.com/etcd-dr/etcd-dr/storage"
)

// events are those of one run: stages with and without bytes, and a warning.
var events = []storage.Event{
	{Stage: "ask", Message: "asking"},
	{Stage: "fetch", Message: "fetching"},
	{Stage: "fetch", Done: 1, Total: 10},
	{Stage: "fetch", Level: storage.Warning, Message: "look twice"},
	{Stage: "fetch", Done: 10, Total: 10},
	{Stage: "check", Message: "checking"},
	{Stage: "commit"},
}

func TestBarsEnd(t *testing.T) {
	var out bytes.Buffer
	b := &bars{container: mpb.New(mpb.WithOutput(&out), mpb.WithAutoRefresh())}
	for _, e := range events {
		b.report(e)
	}
	b.end() // waits for what draws
	if !strings.Contains(out.String(), "Warning: look twice") {
		t.Errorf("the warning is not in %q", out.String())
	}
}

func TestLinesLogChanges(t *testing.T) {
	var stderr bytes.Buffer
	a := &app{world: world{stdout: io.Discard, stderr: &stderr}}
	report, done := a.progress()
	for _, e := range events {
		report(e)
	}
	done()
	var said []string
	for line := range strings.Lines(stderr.String()) {
		var l struct{ Level, Msg, Stage string }
		err := json.Unmarshal([]byte(line), &l)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		said = append(said, l.Level+" "+l.Stage+" "+l.Msg)
	}
	want := "INFO ask asking,INFO fetch fetching,WARN fetch look twice,INFO check checking,INFO commit commit"
	got := strings.Join(said, ",")
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
