package handoff_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

var errKey = fault.New(fault.Usage, "no given key opens it")

// obstructed returns the report of a plan that has met an obstacle.
func obstructed(err error) handoff.Report {
	r := handoff.ReportOf(err)
	r.Obstacle = &plan.Obstacle{Base: true, WrongKey: true}
	return r
}

// A report arrives as it was sent, and becomes the progress that the restore knows.
func TestReportBecomesProgress(t *testing.T) {
	p := plan.Plan{ID: "p"}
	built := &handoff.Built{ClusterID: "cafe", Revision: 7, Keys: 3, Seconds: 1.5}
	for name, c := range map[string]struct {
		report handoff.Report
		want   handoff.Progress
		kind   fault.Kind // of the error; "": none
	}{
		"done":    {handoff.Report{Done: true}, handoff.Progress{Done: true}, ""},
		"staged":  {handoff.Report{Done: true, Built: built, Vacant: true}, handoff.Progress{Done: true, Built: built, Vacant: true}, ""},
		"running": {handoff.Report{Waiting: "etcd runs"}, handoff.Progress{Waiting: "etcd runs"}, ""},
		"stale":   {handoff.Report{Stale: true}, handoff.Progress{Stale: true}, ""},
		"refused": {handoff.ReportOf(fmt.Errorf("%w: move it aside", fault.Refused)), handoff.Progress{}, fault.Refused},
		"interrupted": {
			handoff.ReportOf(context.Canceled), handoff.Progress{}, fault.Interrupted,
		},
		"an obstacle": {obstructed(errKey), handoff.Progress{Waiting: errKey.Error(), Met: &handoff.Met{
			Plan: p, Obstacle: plan.Obstacle{Base: true, WrongKey: true}, Error: fault.Pack(errKey),
		}}, ""},
		"the disk": {handoff.Report{Done: true, View: &handoff.View{
			State: "staged", Running: true, Owner: &handoff.Owner{UID: 1, GID: 2, Mode: "0700"}, Data: handoff.Space{Free: 1, Total: 2},
		}}, handoff.Progress{Done: true}, ""},
	} {
		r, err := handoff.DecodeReport(c.report.Encode())
		if err != nil || !reflect.DeepEqual(r, c.report) {
			t.Errorf("%s: %+v arrives as %+v, %v", name, c.report, r, err)
		}
		got, err := r.Progress(p)
		if !reflect.DeepEqual(got, c.want) || fault.KindOf(err) != c.kind || fault.KindOf(r.Err()) != c.kind {
			t.Errorf("%s: %+v, %v, want %+v, %s", name, got, err, c.want, c.kind)
		}
	}
}

// A report has at most the size that a kubelet keeps, whatever is in it. Its outcome, the kind of the error and the end of the text stay.
func TestLongReportsAreShortened(t *testing.T) {
	for name, text := range map[string]string{
		"plain": strings.Repeat("x", 5000), "escaped": strings.Repeat(`<"\`, 5000), "wide": strings.Repeat("é…𝄞", 5000),
		"invalid": strings.Repeat("\xff", 9000), "control": strings.Repeat("\x00\u202e\u2028", 5000),
	} {
		err := error(&fault.Error{Kind: fault.Denied, Cause: errors.New(text), Remedy: "grant it"})
		for range 20 {
			err = fmt.Errorf("%w: %w", fault.New(fault.Damaged, text[:len(text)/3]), err)
		}
		for _, r := range []handoff.Report{handoff.ReportOf(err), {Waiting: text}, obstructed(err)} {
			encoded := r.Encode()
			got, err := handoff.DecodeReport(encoded)
			if len(encoded) > handoff.MaxReport || len(encoded) < handoff.MaxReport/8 || err != nil {
				t.Errorf("%s: %d bytes: %+v, %v", name, len(encoded), got, err)
				continue
			}
			if r.Error != nil && (fault.KindOf(got.Error.Err()) != fault.Damaged || !strings.HasSuffix(got.Error.Message, "grant it")) {
				t.Errorf("%s: %v", name, got.Error)
			}
		}
	}
}

func TestReportsThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "null", "{}", "[]", `{"done":tr`, `{"done":true} {"done":true}`, `{"done":true,"stale":true}`, `{"done":true,"error":{"message":"x"}}`,
		`{"done":true,"obstacle":{"base":true}}`, "Error: stream ended",
	} {
		r, err := handoff.DecodeReport([]byte(text))
		if fault.KindOf(err) != fault.Internal {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
}

// FuzzDecodeReport checks that any text is refused, or has one outcome and can be encoded.
func FuzzDecodeReport(f *testing.F) {
	for _, r := range []handoff.Report{
		{Done: true}, {Waiting: "etcd runs"}, {Stale: true}, obstructed(errKey),
		{Done: true, Vacant: true, Built: &handoff.Built{ClusterID: "cafe"}, View: &handoff.View{Owner: &handoff.Owner{}, Log: &handoff.Space{}}},
	} {
		f.Add(r.Encode())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := handoff.DecodeReport(text)
		if err != nil {
			return
		}
		progress, failed := r.Progress(plan.Plan{})
		if progress.Done == (failed != nil || progress.Waiting != "" || progress.Stale || progress.Met != nil) {
			t.Errorf("%q: %+v, %v", text, progress, failed)
		}
		encoded := r.Encode()
		if len(encoded) > handoff.MaxReport || !json.Valid(encoded) || !utf8.Valid(encoded) {
			t.Errorf("%q becomes %q", text, encoded)
		}
	})
}

// endless is a manager on whose disks every plan meets an obstacle.
type endless struct{ *fakeWorld }

func (e endless) Do(context.Context, handoff.Record, handoff.Task) ([]handoff.Progress, error) {
	p, err := obstructed(errKey).Progress(plan.Plan{})
	return []handoff.Progress{p}, err
}

// A restore does not avoid obstacles for ever. It ends with the error of the last one.
func TestTooManyObstacles(t *testing.T) {
	w := &fakeWorld{t: t}
	act := handoff.Restore{
		Manager: endless{w}, Claim: w, Verify: w.verify,
		Plan: func(context.Context, handoff.Handoff, []handoff.Met) (plan.Plan, error) { return plan.Plan{}, nil },
	}
	now := time.Unix(0, 0)
	r := handoff.New("0123456789abcdef", handoff.Orders{}, now)
	for n := 0; r.Step != handoff.Discard; n++ {
		if n > 100 {
			t.Fatalf("it does not end: %+v", r)
		}
		r = act.Act(t.Context(), r, handoff.Orders{}, func() time.Time { return now })
	}
	if r.Reason != errKey.Error() || len(r.Met) != 8 {
		t.Errorf("%d obstacles, reason %q", len(r.Met), r.Reason)
	}
}
