package document

import (
	"errors"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Window is a recovery window of a cluster: any point between From and To can be restored.
type Window struct {
	Cluster string `json:"cluster"`
	catalog.Window
}

// Gap is a part of the log that no segment contains, or the place where one history ends and another begins.
type Gap struct {
	Kind    catalog.GapKind `json:"kind"`
	Cluster string          `json:"cluster"`
	Lineage string          `json:"lineage"`
	// NextLineage is the history after the gap, equal to Lineage for a gap within it; absent if nothing follows.
	NextLineage string `json:"nextLineage,omitempty"`
	// From and To are positions, both inclusive; absent if unknown.
	From      uint64    `json:"from,omitempty"`
	To        uint64    `json:"to,omitempty"`
	Positions uint64    `json:"positions"`      // how many; 0 if unknown
	Since     time.Time `json:"since"`          // when it begins
	Until     time.Time `json:"until,omitzero"` // when it ends; absent if nothing follows
	Seconds   float64   `json:"seconds"`        // its duration, 0 if nothing follows
	Reason    string    `json:"reason"`         // one sentence
}

// ArchiveVerify is the result of dr archive verify.
type ArchiveVerify struct {
	Cluster string `json:"cluster"`
	// Verdict is "passed" if nothing is missing or damaged and all gaps are of kind "restored", else "failed".
	Verdict string `json:"verdict"`
	// Depth is how much was read: "headers", "stored" (every byte, against its digest), "opened" (decrypted, and every request decoded as
	// in a restore).
	Depth    string    `json:"depth"`
	Since    time.Time `json:"since,omitzero"` // --since: gaps that ended earlier are omitted; absent: all are included
	Found    int       `json:"found"`          // undamaged segments
	Requests int64     `json:"requests"`       // in these segments
	Bytes    int64     `json:"bytes"`          // the stored size of these segments
	Missing  []Fault   `json:"missing"`        // segments that are not in the repository
	Damaged  []Fault   `json:"damaged"`        // segments, indexes and tombstones that cannot be used
	Gaps     []Gap     `json:"gaps"`           // oldest first
	Windows  []Window  `json:"windows"`        // oldest first
}

// Fault is a segment, or a run of them, that cannot be used.
type Fault struct {
	Key     string `json:"key"` // of the first object
	Lineage string `json:"lineage"`
	Seq     uint64 `json:"seq"`  // number of the first segment; 0: Key is an index or a tombstone
	Upto    uint64 `json:"upto"` // number of the last segment
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
