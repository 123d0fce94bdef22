package document

import (
	"errors"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Window is a recovery window: any point between From and To can be restored.
type Window struct {
	Cluster string `json:"cluster"`
	catalog.Window
}

// Gap is a part of the log that is in no segment, or where one history ends and another begins.
type Gap struct {
	Kind        catalog.GapKind `json:"kind"` // lost, recorded or restored
	Cluster     string          `json:"cluster"`
	Lineage     string          `json:"lineage"`
	NextLineage string          `json:"nextLineage,omitempty"` // Lineage itself for a gap within
	From        uint64          `json:"from,omitempty"`        // positions, both inclusive; absent if unknown
	To          uint64          `json:"to,omitempty"`
	Positions   uint64          `json:"positions"` // how many
	Since       time.Time       `json:"since"`
	Until       time.Time       `json:"until,omitzero"` // absent if nothing follows
	Seconds     float64         `json:"seconds"`        // its width in time, 0 if nothing follows
	Reason      string          `json:"reason"`
}

// ArchiveVerify is dr archive verify.
type ArchiveVerify struct {
	Cluster  string    `json:"cluster"`
	Verdict  string    `json:"verdict"`        // passed: nothing is missing or damaged, and the only gaps are beginnings of restored clusters; failed
	Depth    string    `json:"depth"`          // headers, stored (every byte's digest) or opened (decrypted and decoded)
	Since    time.Time `json:"since,omitzero"` // earlier gaps were left out; absent: all count
	Found    int       `json:"found"`          // undamaged segments
	Requests int64     `json:"requests"`
	Bytes    int64     `json:"bytes"`
	Missing  []Fault   `json:"missing"`
	Damaged  []Fault   `json:"damaged"`
	Gaps     []Gap     `json:"gaps"`
	Windows  []Window  `json:"windows"`
}

// Fault is a segment, or a run of them, that cannot be used.
type Fault struct {
	Key     string `json:"key"` // of the first
	Lineage string `json:"lineage"`
	Seq     uint64 `json:"seq"`
	Upto    uint64 `json:"upto"` // seq of the last
	Message string `json:"message"`
}

// NewArchiveVerify returns the verdict on the log in c, which was read to the given depth. Gaps that ended before since are left
// out; with the zero Time all count.
func NewArchiveVerify(c catalog.Catalog, depth string, since time.Time) ArchiveVerify {
	d := ArchiveVerify{
		Cluster: c.Cluster, Verdict: "passed", Depth: depth, Since: since,
		Missing: []Fault{}, Damaged: []Fault{}, Gaps: Gaps(c), Windows: Windows(c),
	}
	d.Gaps = slices.DeleteFunc(d.Gaps, func(g Gap) bool { return !g.Until.IsZero() && g.Until.Before(since) })
	for _, l := range c.Lineages {
		for _, s := range l.Segments {
			d.Found += s.Count()
			d.Requests += int64(s.Requests)
			d.Bytes += s.Size
		}
		for _, f := range l.Faults {
			fault := Fault{f.Key, l.ID, f.Seq, f.Upto, f.Err.Error()}
			if errors.Is(f.Err, catalog.ErrNotFound) {
				d.Missing = append(d.Missing, fault)
			} else {
				d.Damaged = append(d.Damaged, fault)
			}
		}
	}
	lost, recorded := d.Holes()
	if len(d.Missing)+len(d.Damaged)+lost+recorded > 0 {
		d.Verdict = "failed"
	}
	return d
}

// Holes returns the number of gaps that lost requests: because segments are missing or damaged (lost), and because the agent could
// not archive them (recorded). A gap at the beginning of a restored cluster lost none.
func (d ArchiveVerify) Holes() (lost, recorded int) {
	for _, g := range d.Gaps {
		switch g.Kind {
		case catalog.GapLost:
			lost++
		case catalog.GapRecorded:
			recorded++
		}
	}
	return lost, recorded
}

// Windows returns the recovery windows of c. It is never nil.
func Windows(c catalog.Catalog) []Window {
	windows := []Window{}
	for _, w := range c.Windows() {
		windows = append(windows, Window{c.Cluster, w})
	}
	return windows
}

// Gaps returns the gaps in the log of c. It is never nil.
func Gaps(c catalog.Catalog) []Gap {
	gaps := []Gap{}
	for _, g := range c.Gaps() {
		d := Gap{
			Kind: g.Kind, Cluster: c.Cluster, Lineage: g.Lineage, NextLineage: g.NextLineage, From: g.From, To: g.To,
			Since: g.Since, Until: g.Until, Reason: g.Reason,
		}
		if g.To >= g.From && g.From > 0 {
			d.Positions = g.To - g.From + 1
		}
		if g.Until.After(g.Since) {
			d.Seconds = g.Until.Sub(g.Since).Seconds()
		}
		gaps = append(gaps, d)
	}
	return gaps
}
