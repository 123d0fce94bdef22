package document_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// drilled is a proof with a value in every field of a drill.
func drilled(v catalog.Verdict) catalog.Proof {
	p := proof()
	p.Verdict = v
	p.Drill = &catalog.Drill{
		Target: "position 5090, drawn from 5002 to 6000", Seed: 7, Lineage: lineage, Position: 5090,
		NotBefore: at.Add(time.Minute), NotAfter: at.Add(2 * time.Minute), Requests: 90, Replay: "key space proven at revision 4790",
		RTO: 1.25, Steps: []catalog.Step{{Stage: "fetch", Seconds: 0.5}},
		Assertions: []catalog.Assertion{{Text: "prefix=/registry/pods/:100", Held: false, Found: 99}}, Blames: catalog.BlameAssertion,
	}
	return p
}

// The worst verdict counts, and a point that could not be drilled never passes.
func TestDrillVerdict(t *testing.T) {
	const passed, failed, notRun = catalog.Passed, catalog.Failed, catalog.NotRun
	for _, test := range []struct {
		verdicts []catalog.Verdict
		err      error
		want     catalog.Verdict
	}{
		{nil, nil, notRun},
		{[]catalog.Verdict{passed, passed}, nil, passed},
		{[]catalog.Verdict{passed}, errors.New("the store is away"), notRun},
		{[]catalog.Verdict{passed}, fmt.Errorf("the newest is %w", catalog.ErrDamaged), failed},
		{[]catalog.Verdict{passed, notRun}, nil, notRun},
		{[]catalog.Verdict{failed, notRun, passed}, nil, failed},
		{[]catalog.Verdict{notRun, failed}, nil, failed},
	} {
		var proofs []catalog.Proof
		for _, v := range test.verdicts {
			proofs = append(proofs, drilled(v))
		}
		d := document.NewDrill("prod", 7, proofs, test.err)
		if d.Verdict != test.want || len(d.Proofs) != len(proofs) || d.Proofs == nil {
			t.Errorf("%q, %v: %+v", test.verdicts, test.err, d)
		}
	}
}
