package document_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// drilled is a proof with a value in every field of a drill.
func drilled(v repository.Verdict) repository.Proof {
	p := proof()
	p.Verdict = v
	p.Drill = &repository.Drill{
		Target: "position 5090, drawn from 5002 to 6000", Seed: 7, Lineage: lineage, Position: 5090,
		NotBefore: at.Add(time.Minute), NotAfter: at.Add(2 * time.Minute), Requests: 90, Replay: "key space proven at revision 4790",
		RTO: 1.25, Steps: []repository.Step{{Stage: "fetch", Seconds: 0.5}},
		Assertions: []repository.Assertion{{Text: "prefix=/registry/pods/:100", Held: false, Found: 99}}, Blames: repository.BlameAssertion,
	}
	return p
}

// The worst counts, and what could not be drilled is never green.
func TestDrillVerdict(t *testing.T) {
	const passed, failed, notRun = repository.Passed, repository.Failed, repository.NotRun
	for _, test := range []struct {
		verdicts []repository.Verdict
		err      error
		want     repository.Verdict
	}{
		{nil, nil, notRun},
		{[]repository.Verdict{passed, passed}, nil, passed},
		{[]repository.Verdict{passed}, errors.New("the store is away"), notRun},
		{[]repository.Verdict{passed}, fmt.Errorf("the newest is %w", repository.ErrDamaged), failed},
		{[]repository.Verdict{passed, notRun}, nil, notRun},
		{[]repository.Verdict{failed, notRun, passed}, nil, failed},
		{[]repository.Verdict{notRun, failed}, nil, failed},
	} {
		var proofs []repository.Proof
		for _, v := range test.verdicts {
			proofs = append(proofs, drilled(v))
		}
		if d := document.NewDrill("prod", 7, proofs, test.err); d.Verdict != test.want || len(d.Proofs) != len(proofs) || d.Proofs == nil {
			t.Errorf("%q, %v: %+v", test.verdicts, test.err, d)
		}
	}
}
