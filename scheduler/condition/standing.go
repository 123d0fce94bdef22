package condition

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Standing is what a repository held of a cluster when it last told.
type Standing struct {
	Repository string    `json:"repository"`
	At         time.Time `json:"at,omitzero"`       // when it was last looked at and told; absent: it never did
	Problem    string    `json:"problem,omitempty"` // why it did not tell; the rest is then as of before

	Backups int       `json:"backups"`         // that are kept, damaged ones too
	Damaged int       `json:"damaged"`         // of those that were read
	Bytes   int64     `json:"bytes"`           // of all, as stored
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest began
	Good    *Good     `json:"good,omitempty"`  // the newest good one
	Doubt   string    `json:"doubt,omitempty"` // what is known against one of those that were read, the newest of them
	// Diverged is how the members had diverged when a backup was taken or the newest segment of the log was cut, in words; absent if
	// no newer backup compared them and found them equal.
	Diverged string     `json:"diverged,omitempty"`
	Future   catalog.ID `json:"future,omitempty"` // the newest, if it says that it was taken in the future
	Due      time.Time  `json:"due,omitzero"`     // when the one after Good is or was due; absent without a schedule

	Changed string `json:"changed,omitempty"` // the newest backups are of another history, and no restore by dr began it; in words

	UsualSize int64 `json:"usualSize,omitempty"` // the median of the databases before Good's; absent: there are too few
	Keys      int64 `json:"keys,omitempty"`      // when they were last counted, by a verify or a drill
	UsualKeys int64 `json:"usualKeys,omitempty"` // the median of those before; absent: there are too few

	Verified  time.Time      `json:"verified,omitzero"`  // when any backup last passed more than stored
	Decrypted time.Time      `json:"decrypted,omitzero"` // when a key was last shown to open one
	Drilled   time.Time      `json:"drilled,omitzero"`   // when a drill last passed
	Drill     *catalog.Proof `json:"drill,omitempty"`    // the newest, however it went
	// FailedDrill is the newest that failed and that no later one covers (repository.Proof.CoveredBy).
	FailedDrill *catalog.Proof `json:"failedDrill,omitempty"`

	Window *catalog.Window `json:"window,omitempty"` // the newest
	Gaps   int             `json:"gaps"`
	Gap    string          `json:"gap,omitempty"` // the newest that no good backup has come after, in words
	// LogDamaged is how many indexes and tombstones of the log, and folders of it, cannot be used; LogDoubt is why the first of them.
	LogDamaged int    `json:"logDamaged,omitempty"`
	LogDoubt   string `json:"logDoubt,omitempty"`
}

// Last is a backup that is known to be in the repositories.
type Last struct {
	ID       catalog.ID `json:"id"`
	Started  time.Time  `json:"started"`
	Revision int64      `json:"revision"` // the key space's is not beyond it
}

// Good is a backup that nothing is known against.
type Good struct {
	Last
	Size      int64         `json:"size"`   // bytes of the database
	Stored    int64         `json:"stored"` // bytes in the repository
	Encrypted bool          `json:"encrypted"`
	Proven    catalog.Level `json:"proven"`
	ProvenAt  time.Time     `json:"provenAt"`
}

// ClockAllowance is by how much the clocks of those who take backups may differ. One from further in the future was taken
// by a clock that is wrong, or forged.
const ClockAllowance = 10 * time.Minute

// Survey is what to read of a repository to know how a cluster stands: the newest few backups, and the newest proofs until
// they say what is asked of them. drills asks for the newest drill too. Damage in older backups is not seen: a Newest of 0
// reads them all.
func Survey(drills bool, now time.Time) repository.SurveyOptions {
	return repository.SurveyOptions{Newest: newest, Enough: func(latest []catalog.Proof) bool {
		var s Standing
		s.proven(latest, now)
		drilled := s.FailedDrill != nil || countDrills(latest) >= plentyDrills
		return !s.Verified.IsZero() && (!s.Decrypted.IsZero() || len(latest) >= plenty) && (drilled || !drills)
	}}
}

const (
	newest = 6  // the newest backup, and as many before it as a median takes
	plenty = 32 // proofs, to say that none of them was by a key
	few    = 3  // fewer than that have no median

	plentyDrills = 8 // a failed drill that so many later ones did not repeat is forgotten
)

func countDrills(proofs []catalog.Proof) (n int) {
	for _, p := range proofs {
		if p.Drill != nil {
			n++
		}
	}
	return n
}

// NewStanding is how the cluster of s stands in the repository called in, as of now, if next is its schedule.
func NewStanding(in string, s repository.Survey, next func(time.Time) time.Time, now time.Time) Standing {
	d := Standing{
		Repository: in, At: now.UTC(), Backups: s.Kept, Damaged: len(s.Damaged) + len(s.Untrusted), Bytes: s.Bytes, Oldest: s.Oldest,
	}
	for _, damage := range slices.Concat(s.Damaged, s.Untrusted) {
		d.Doubt = cmp.Or(d.Doubt, damage.Err.Error())
	}
	d.backups(s.Backups, now)
	d.changed(s, now)
	d.Diverged = diverged(s.Catalog)
	d.proven(s.Latest, now)
	d.counted(s)
	d.log(s.Catalog)
	if d.Good != nil {
		d.Due = next(d.Good.Started).UTC()
	}
	return d
}

// backups finds the newest good one, and what those before it had.
func (d *Standing) backups(all []catalog.Backup, now time.Time) {
	var sizes []int64
	for _, b := range all {
		if b.Started.After(now.Add(ClockAllowance)) {
			d.Future = cmp.Or(d.Future, b.ID)
			continue
		}
		if err := b.Usable(); err != nil {
			d.Doubt = cmp.Or(d.Doubt, string(b.ID)+": "+err.Error())
			continue
		}
		if d.Good == nil {
			d.Good = good(b)
		} else if len(sizes) < newest-1 {
			sizes = append(sizes, b.Plain.Size)
		}
	}
	d.UsualSize = median(sizes)
}

// changed compares the histories, of which Past has what the newest backups do not show.
func (d *Standing) changed(s repository.Survey, now time.Time) {
	past := slices.DeleteFunc(slices.Concat(s.Backups, s.Past), func(b catalog.Backup) bool { return b.Started.After(now.Add(ClockAllowance)) })
	change, ok := catalog.NewChange(s.Cluster, past)
	if ok {
		d.Changed = change.String()
	}
}

// diverged returns what the newest comparison of the members found: that of a backup, or of the agent that cut the log's newest
// segment.
func diverged(c catalog.Catalog) string {
	log := newestSegment(c)
	for _, b := range c.Backups { // newest first
		if log.Diverged != "" && log.Written.After(b.Started) {
			break
		}
		if b.Diverged != "" {
			return fmt.Sprintf("backup %s: %s", b.ID, b.Diverged)
		}
		if b.Compared {
			return ""
		}
	}
	if log.Diverged == "" {
		return ""
	}
	return fmt.Sprintf("the log's segment of %s: %s", clock(log.Written), log.Diverged)
}

// newestSegment returns the segment of any history that was written last, the zero Segment if there is none.
func newestSegment(c catalog.Catalog) (newest catalog.Segment) {
	for _, l := range c.Lineages {
		for _, s := range l.Segments {
			if s.Written.After(newest.Written) {
				newest = s
			}
		}
	}
	return newest
}

func good(b catalog.Backup) *Good {
	level, at := b.Best()
	return &Good{
		Last: Last{b.ID, b.Started, b.HighestRevision()}, Size: b.Plain.Size, Stored: b.Stored.Size,
		Encrypted: b.Seal.Encryption != "", Proven: level, ProvenAt: at,
	}
}

// proven looks at the proofs, newest first. One from the future would hide all that are found until then, and counts for nothing.
func (d *Standing) proven(latest []catalog.Proof, now time.Time) {
	var later []catalog.Proof // drills
	for _, p := range latest {
		if p.Time.After(now.Add(ClockAllowance)) {
			continue
		}
		passed := p.Verdict == catalog.Passed
		if passed && p.Level != catalog.Stored {
			first(&d.Verified, p.Time)
		}
		if p.Key != "" {
			first(&d.Decrypted, p.Time)
		}
		if p.Drill == nil {
			continue
		}
		if passed {
			first(&d.Drilled, p.Time)
		}
		if d.Drill == nil {
			d.Drill = &p
		}
		if d.FailedDrill == nil && p.Verdict == catalog.Failed && !slices.ContainsFunc(later, p.CoveredBy) {
			d.FailedDrill = &p
		}
		later = append(later, p)
	}
}

func first(at *time.Time, t time.Time) {
	if at.IsZero() {
		*at = t
	}
}

// counted compares the numbers of keys that were ever counted, one a backup, the newest backup first.
func (d *Standing) counted(s repository.Survey) {
	byBackup := map[catalog.ID]int64{}
	for _, p := range slices.Backward(s.Latest) {
		if p.Verdict == catalog.Passed && p.Keys > 0 && (p.Drill == nil || p.Drill.Requests == 0) {
			byBackup[p.Backup] = p.Keys
		}
	}
	var counts []int64
	for _, id := range newestIDs(byBackup) {
		counts = append(counts, byBackup[id])
	}
	if len(counts) > 0 {
		d.Keys, d.UsualKeys = counts[0], median(counts[1:min(newest, len(counts))])
	}
}

func newestIDs(of map[catalog.ID]int64) (ids []catalog.ID) {
	for id := range of {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b catalog.ID) int { return cmp.Compare(b, a) })
	return ids
}

// median is the lower one of an even number, 0 of too few.
func median(of []int64) int64 {
	if len(of) < few {
		return 0
	}
	slices.Sort(of)
	return of[(len(of)-1)/2]
}

func (d *Standing) log(c catalog.Catalog) {
	if windows := c.Windows(); len(windows) > 0 {
		d.Window = &windows[len(windows)-1]
	}
	gaps := c.Gaps()
	d.Gaps = len(gaps)
	for _, g := range gaps {
		if d.Good == nil || g.Since.After(d.Good.Started) || g.Until.After(d.Good.Started) {
			d.Gap = cmp.Or(g.Reason, "since "+g.Since.UTC().Format(time.RFC3339))
		}
	}
	for _, l := range c.Lineages {
		for _, f := range l.Faults {
			if f.Seq == 0 { // a segment that cannot be used is a gap
				d.LogDamaged++
				d.LogDoubt = cmp.Or(d.LogDoubt, f.Err.Error())
			}
		}
	}
}
