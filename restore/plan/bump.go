package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Bump is the revision from which the restored key space continues; everything before it is then compacted. A client that caches by
// revision, as every Kubernetes API server, controller and kubelet does, notices the lost history only if the new revisions are above
// every one that it has seen, in any history of the cluster.
type Bump struct {
	// To is the revision from which the key space continues. 0: By after the last restored one, or right after that one if By is 0 too.
	To int64 `json:"to,omitempty"`
	By int64 `json:"by,omitempty"` // instead of To, if only the run can know the last restored revision
	// Known is the newest revision that clients may have seen, in any history: the newest in the repository, on the disks and of a
	// live cluster. 0: none is known.
	Known  int64  `json:"known,omitempty"`
	Auto   bool   `json:"auto,omitempty"` // bump only if the restored key space is Kubernetes', which is decided after the replay
	Reason string `json:"reason"`         // of the choice
}

// String returns where the revisions of the restored cluster continue, and why.
func (b Bump) String() string {
	text := "continue where they ended"
	switch {
	case b.To > 0:
		text = fmt.Sprintf("continue from %d", b.To)
	case b.By > 0:
		text = fmt.Sprintf("continue %d after the last one that is restored", b.By)
	}
	if b.Auto {
		text += " if the restored data has Kubernetes' /registry/, else where they ended"
	}
	return text + ": " + b.Reason
}

const (
	// kubernetesBump is more than any cluster writes between its last known revision and its end: ten days at a thousand
	// writes a second.
	kubernetesBump = 1_000_000_000
	// maxBump limits the known revision, and the bump above it. Their sum is at most half of the largest int64.
	maxBump = 1<<61 - 1
)

// chooseBump returns the bump that l asks for. known is the newest revision in the repository and on the disks.
func chooseBump(c catalog.Catalog, l Layout, p Plan, known int64) (Bump, error) {
	known = max(l.Known, known)
	if l.Bump != "0" && known > maxBump {
		return Bump{}, fmt.Errorf("%w: revision %d is known, and there is no room above it: --bump-revision 0 continues where revisions ended",
			fault.Refused, known)
	}
	if l.Bump == "" || l.Bump == "auto" {
		return autoBump(c, p.File, known), nil
	}
	by, err := strconv.ParseInt(l.Bump, 10, 62)
	switch {
	case errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(l.Bump, "-"):
		return Bump{}, fmt.Errorf("%w: --bump-revision %s is too large: use at most %d", ErrLayout, l.Bump, maxBump)
	case err != nil || by < 0:
		return Bump{}, fmt.Errorf("%w: --bump-revision %q: use auto, 0 or a number of revisions", ErrLayout, l.Bump)
	}
	b := Bump{By: by, Known: known, Reason: "as requested"}
	restored := p.restoredRevision()
	switch {
	case by == 0 && known > 0:
		b.Reason = fmt.Sprintf("as requested; a client that caches by revision and has seen more, up to %d, does not notice", known)
	case by > 0 && restored > 0:
		b.To, b.By = restored+by, 0
		return b, b.refuse(b.To, restored)
	}
	return b, nil
}

// autoBump returns a bump above known if the cluster is Kubernetes', also if it is restored to a point before Kubernetes used it:
// its API servers have seen newer revisions. If c does not show that the cluster is Kubernetes', the run decides.
func autoBump(c catalog.Catalog, file string, known int64) Bump {
	b := Bump{To: known + kubernetesBump, Known: known}
	switch {
	case slices.ContainsFunc(c.All(), func(b catalog.Backup) bool { return b.Kubernetes }):
		b.Reason = "the key space belongs to Kubernetes: API servers, controllers and kubelets must notice that their caches are stale"
		return b
	case file != "":
		b.To, b.By = 0, kubernetesBump
	}
	b.Auto, b.Reason = true, "other clients that cache by revision need --bump-revision N"
	return b
}

// restoredRevision returns the revision that the plan restores; 0 if only the run will know it.
func (p Plan) restoredRevision() int64 {
	switch {
	case p.File != "" || p.Reach == nil:
		return 0
	case p.Log == nil && p.Salvage == nil && p.Backup.Revision == p.Backup.RevisionMax:
		return p.Backup.Revision
	}
	return p.Reach.Revision
}

// ContinueFrom returns the revision from which a key space that ends at latest continues. The error matches fault.Refused if clients may
// have seen that revision already.
func (b Bump) ContinueFrom(latest int64, kubernetes bool) (int64, error) {
	switch {
	case b.Auto && !kubernetes || b.To == 0 && b.By == 0:
		return latest, nil
	case b.To > 0:
		return b.To, b.refuse(b.To, latest)
	case b.Auto:
		latest = max(latest, b.Known)
	}
	if latest > math.MaxInt64-b.By {
		return 0, fmt.Errorf("%w: no revision is %d above %d: use a smaller --bump-revision", ErrLayout, b.By, latest)
	}
	return latest + b.By, b.refuse(latest+b.By, latest)
}

// refuse returns an error unless to is above the revision after the newest that clients may have seen. A client's watch continues from
// that next revision, and notices the restore only if the bump has compacted it.
func (b Bump) refuse(to, latest int64) error {
	known := max(b.Known, latest)
	if to > known+1 {
		return nil
	}
	return fmt.Errorf("%w: revisions would continue from %d, and clients may have seen revision %d: use --bump-revision %d, or auto",
		fault.Refused, to, known, known-latest+kubernetesBump)
}

// newestKnown returns the newest revision that the catalog and the disks of t show; 0 if they show none.
func newestKnown(c catalog.Catalog, t Target, base *catalog.Backup) int64 {
	known := newestRevision(c)
	if t.Disks == nil {
		return known
	}
	return max(known, t.Disks.mostRevision(base))
}

// newestRevision returns the newest revision that any history in c may have reached; 0 if c names none.
func newestRevision(c catalog.Catalog) (newest int64) {
	for _, b := range c.All() {
		newest = max(newest, b.HighestRevision())
		if b.Origin != nil && b.Origin.Salvage != nil {
			newest = max(newest, b.Origin.Salvage.Most)
		}
	}
	for _, l := range c.Lineages {
		for _, s := range l.Segments {
			newest = max(newest, newestOf(s))
		}
		for _, s := range l.Stretches() {
			most := s.MostRevision(c.Bases(s)) // counts the requests after the last mark
			if most < math.MaxInt64 {
				newest = max(newest, most)
			}
		}
	}
	return newest
}

func newestOf(s catalog.Segment) (newest int64) {
	if s.Source == segment.Watch {
		newest = int64(s.Last)
	}
	for _, m := range s.Marks {
		newest = max(newest, m.Revision)
	}
	for _, h := range s.Hashes {
		newest = max(newest, h.Revision)
	}
	return newest
}

// mostRevision returns an upper bound for the last revision of the disks' cluster: from the furthest database, or a backup that is
// further, each position adds one revision at most. 0 if they show none.
func (d *Disks) mostRevision(base *catalog.Backup) int64 {
	var furthest disk.Database
	for _, db := range d.databases() {
		if db.Index >= furthest.Index {
			furthest = db
		}
	}
	if base != nil && base.RaftIndex > furthest.Index {
		furthest = disk.Database{Index: base.RaftIndex, Revision: base.HighestRevision()}
	}
	return furthest.Revision + int64(max(d.end(), furthest.Index)-furthest.Index)
}
