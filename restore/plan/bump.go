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
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Bump says from which revision the restored key space continues; everything before it is then compacted. A client that
// caches by revision, as every Kubernetes API server, controller and kubelet does, only notices that history was cut off
// if the new revisions lie above every one that it has seen, of whatever history of the cluster.
type Bump struct {
	// To is the revision from which the key space continues. 0: By after the last one that is restored or, if that is 0
	// too, right there.
	To int64 `json:"to,omitempty"`
	By int64 `json:"by,omitempty"`
	// Known is the newest revision that clients may have seen, in any history: as far as the repository, the disks and a
	// live cluster show it. 0: nothing shows one.
	Known int64 `json:"known,omitempty"`
	// Auto: only if the restored key space is Kubernetes', which is decided after the replay.
	Auto   bool   `json:"auto,omitempty"`
	Reason string `json:"reason"`
}

const (
	// kubernetesBump is more than any cluster writes between its last known revision and its end: ten days at a thousand
	// writes a second.
	kubernetesBump = 1_000_000_000
	// maxBump leaves room for as many revisions before and after it.
	maxBump = 1<<61 - 1
)

func (p *Plan) setBump(c catalog.Catalog, t Target, l Layout) error {
	known := max(l.Known, newestRevision(c), p.mostOf(t.Disks))
	if l.Bump != "0" && known > maxBump {
		return fmt.Errorf("%w: revision %d is known, and there is no room above it: --bump-revision 0 continues where revisions ended",
			ErrRefused, known)
	}
	if l.Bump == "" || l.Bump == "auto" {
		p.Bump = p.autoBump(c, known)
		return nil
	}
	by, err := strconv.ParseInt(l.Bump, 10, 62)
	switch {
	case errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(l.Bump, "-"):
		return fmt.Errorf("%w: --bump-revision %s is too large: use at most %d", ErrLayout, l.Bump, maxBump)
	case err != nil || by < 0:
		return fmt.Errorf("%w: --bump-revision %q: use auto, 0 or a number of revisions", ErrLayout, l.Bump)
	}
	p.Bump = Bump{By: by, Known: known, Reason: "as asked for"}
	restored := p.restoredRevision()
	switch {
	case by == 0 && known > 0:
		p.Bump.Reason = fmt.Sprintf("as asked for; a client that caches by revision and has seen more, up to %d, does not notice", known)
	case by > 0 && restored > 0:
		p.Bump.To, p.Bump.By = restored+by, 0
		return p.Bump.refuse(p.Bump.To, restored)
	}
	return nil
}

// autoBump also lifts the revisions of a Kubernetes cluster that is restored to before Kubernetes was there: its API servers
// have seen newer ones all the same.
func (p *Plan) autoBump(c catalog.Catalog, known int64) Bump {
	b := Bump{To: known + kubernetesBump, Known: known}
	switch {
	case slices.ContainsFunc(c.Backups, func(b catalog.Backup) bool { return b.Kubernetes }):
		b.Reason = "the key space is Kubernetes': API servers, controllers and kubelets must see that their caches are void"
		return b
	case p.File != "":
		b.To, b.By = 0, kubernetesBump
	}
	b.Auto, b.Reason = true, "other clients that cache by revision need --bump-revision N"
	return b
}

// restoredRevision returns the revision that the plan restores, 0 if only the run will know it.
func (p *Plan) restoredRevision() int64 {
	switch {
	case p.File != "" || p.Reach == nil:
		return 0
	case p.Log == nil && p.Salvage == nil && p.Backup.Revision == p.Backup.RevisionMax:
		return p.Backup.Revision
	}
	return p.Reach.Revision
}

// ContinueFrom returns the revision from which a key space that ends at latest continues. ErrRefused: clients may have seen
// it already.
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
		return 0, fmt.Errorf("%w: no revision is %d above %d", ErrLayout, b.By, latest)
	}
	return latest + b.By, b.refuse(latest+b.By, latest)
}

// refuse refuses to continue from a revision if a client's next one would not be compacted.
func (b Bump) refuse(to, latest int64) error {
	known := max(b.Known, latest)
	if to > known+1 {
		return nil
	}
	return fmt.Errorf("%w: revisions would continue from %d, and clients may have seen revision %d: use --bump-revision %d, or auto",
		ErrRefused, to, known, known-latest+kubernetesBump)
}

// newestRevision returns the newest revision of the key space that c names, of whatever history; 0 if it names none.
func newestRevision(c catalog.Catalog) (newest int64) {
	for _, b := range c.Backups {
		newest = max(newest, b.HighestRevision())
	}
	for _, l := range c.Lineages {
		for _, s := range l.Segments {
			newest = max(newest, newestOf(s))
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

// mostOf returns an upper bound for the last revision of the disks' cluster, as far as the disks go: each position makes one
// revision at most. 0 if they do not show any.
func (p *Plan) mostOf(d *Disks) (most int64) {
	if d == nil {
		return 0
	}
	var furthest disk.Database
	for _, db := range d.databases() {
		if db.Index >= furthest.Index {
			furthest = db
		}
	}
	if p.Backup != nil && p.Backup.RaftIndex > furthest.Index {
		furthest = disk.Database{Index: p.Backup.RaftIndex, Revision: p.Backup.HighestRevision()}
	}
	return furthest.Revision + int64(max(d.end(), furthest.Index)-furthest.Index)
}
