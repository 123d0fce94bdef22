package document

import (
	"errors"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Drill is dr drill.
type Drill struct {
	Cluster string             `json:"cluster"`
	Seed    uint64             `json:"seed"`    // draws the random point
	Verdict repository.Verdict `json:"verdict"` // the worst; not run also if a proof could not be kept
	Proofs  []repository.Proof `json:"proofs"`  // one a point; each is appended to its backup
}

// NewDrill is what a drill found as a document. err is what the drill returned beside the proofs: what could not even be
// begun counts too.
func NewDrill(cluster string, seed uint64, proofs []repository.Proof, err error) Drill {
	d := Drill{Cluster: cluster, Seed: seed, Verdict: repository.Passed, Proofs: []repository.Proof{}}
	d.Proofs = append(d.Proofs, proofs...)
	has := func(v repository.Verdict) bool {
		return slices.ContainsFunc(proofs, func(p repository.Proof) bool { return p.Verdict == v })
	}
	switch {
	case has(repository.Failed) || errors.Is(err, repository.ErrDamaged):
		d.Verdict = repository.Failed
	case has(repository.NotRun) || err != nil || len(proofs) == 0:
		d.Verdict = repository.NotRun
	}
	return d
}
