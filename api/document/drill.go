package document

import (
	"errors"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Drill is the result of dr drill.
type Drill struct {
	Cluster string          `json:"cluster"`
	Seed    uint64          `json:"seed"`    // the seed of the random choice of the point
	Verdict catalog.Verdict `json:"verdict"` // the worst of the proofs, and of points that could not be attempted
	Proofs  []catalog.Proof `json:"proofs"`  // one for each point, of level "booted", with "drill"; each is stored with its backup
}

// NewDrill returns the document of a drill with its verdict. err is the error that the drill returned with the proofs: a point that
// could not be attempted affects the verdict too.
func NewDrill(cluster string, seed uint64, proofs []catalog.Proof, err error) Drill {
	d := Drill{Cluster: cluster, Seed: seed, Verdict: catalog.Passed, Proofs: []catalog.Proof{}}
	d.Proofs = append(d.Proofs, proofs...)
	has := func(v catalog.Verdict) bool {
		return slices.ContainsFunc(proofs, func(p catalog.Proof) bool { return p.Verdict == v })
	}
	switch {
	case has(catalog.Failed) || errors.Is(err, catalog.ErrDamaged):
		d.Verdict = catalog.Failed
	case has(catalog.NotRun) || err != nil || len(proofs) == 0:
		d.Verdict = catalog.NotRun
	}
	return d
}
