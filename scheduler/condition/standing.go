package condition

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Standing is the content of a repository for one cluster, as it was last read.
type Standing struct {
	Repository string    `json:"repository"`        // its name in the configuration, or its URL
	At         time.Time `json:"at,omitzero"`       // when it was last read; absent: never
	Problem    string    `json:"problem,omitempty"` // why it cannot be read now; the other fields are then as of At

	Backups int       `json:"backups"`         // how many are kept, damaged ones included
	Damaged int       `json:"damaged"`         // how many of those that were read cannot be used
	Bytes   int64     `json:"bytes"`           // the stored size of all backups
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest began
	Good    *Good     `json:"good,omitempty"`  // the newest good backup; absent: there is none
	Doubt   string    `json:"doubt,omitempty"` // why a backup that was read is not good
	// Diverged describes how the members differed at the last comparison, by a backup or by the agent that cut the newest segment
	// of the log; absent if they were equal.
	Diverged string     `json:"diverged,omitempty"`
	Future   catalog.ID `json:"future,omitempty"` // the newest backup, if its time lies in the future
	// FutureLog is when the newest segment of the log was written, if that time lies in the future.
	FutureLog time.Time `json:"futureLog,omitzero"`
	Due       time.Time `json:"due,omitzero"` // when the backup after Good is or was due; absent without a schedule

	// Changed describes why the newest backups seem to belong to another history, although no restore by dr began one; absent if they do
	// not.
	Changed string `json:"changed,omitempty"`

	UsualSize int64 `json:"usualSize,omitempty"` // median size of the databases before Good's; absent: too few
	Keys      int64 `json:"keys,omitempty"`      // number of keys, as a verify or a drill last counted them
	UsualKeys int64 `json:"usualKeys,omitempty"` // median of the counts before; absent: too few

	Verified  time.Time      `json:"verified,omitzero"`  // when a backup last passed more than "stored"
	Decrypted time.Time      `json:"decrypted,omitzero"` // when a key was last proven to open a backup
	Drilled   time.Time      `json:"drilled,omitzero"`   // when a drill last passed
	Drill     *catalog.Proof `json:"drill,omitempty"`    // proof of the newest drill, with any verdict
	// FailedDrill is the newest failed drill, unless a later one has shown that its fault is gone; absent: there is none.
	FailedDrill *catalog.Proof `json:"failedDrill,omitempty"`

	Window     *catalog.Window `json:"window,omitempty"`     // the newest; absent: there is none
	Gaps       int             `json:"gaps"`                 // number of gaps in the log
	Gap        string          `json:"gap,omitempty"`        // the newest gap with no good backup after it; absent: there is none
	LogDamaged int             `json:"logDamaged,omitempty"` // how many of the log's indexes, tombstones and folders cannot be used
	LogDoubt   string          `json:"logDoubt,omitempty"`   // why the first of them cannot be used
}

// Last is a backup that the repositories contain.
type Last struct {
	ID       catalog.ID `json:"id"`
	Started  time.Time  `json:"started"`  // of its manifest
	Revision int64      `json:"revision"` // an upper bound of the key space's revision
}

// Good is a good backup.
type Good struct {
	Last
	Size      int64         `json:"size"`      // bytes of the database
	Stored    int64         `json:"stored"`    // bytes in the repository
	Encrypted bool          `json:"encrypted"` // only a key opens it
	Proven    catalog.Level `json:"proven"`    // the highest level passed
	ProvenAt  time.Time     `json:"provenAt"`  // when it passed that level
}

// SurveyOptions returns the options for reading a repository for a Standing: the newest few backups, and the newest proofs until they
// contain the needed facts; drills adds the newest drill. Damage in older backups is not found: set Newest to 0 to read all.
func SurveyOptions(drills bool, now time.Time) repository.SurveyOptions {
	return repository.SurveyOptions{Newest: newest, Enough: func(latest []catalog.Proof) bool {
		var s Standing
		s.proven(latest, now)
		drilled := s.FailedDrill != nil || countDrills(latest) >= plentyDrills
		return !s.Verified.IsZero() && (!s.Decrypted.IsZero() || len(latest) >= plenty) && (drilled || !drills)
	}}
}

const (
	newest = 6  // backups that are read: the newest, and those before it for a median
	plenty = 32 // proofs: if none of so many was made with a key, no earlier one is read to find one
	few    = 3  // the fewest values that have a median

	plentyDrills = 8 // drills: if none of so many is a failed one without cover, no earlier one is read to find one
)

func countDrills(proofs []catalog.Proof) (n int) {
	for _, p := range proofs {
		if p.Drill != nil {
			n++
		}
	}
	return n
}

// NewStanding returns the standing of s's cluster in the repository called in, at the time now. next returns the first
// slot of its schedule after a time, or the zero Time.
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
	d.log(s.Catalog, now)
	if d.Good != nil {
		d.Due = next(d.Good.Started).UTC()
	}
	return d
}

// backups sets the facts about the newest good backup, and those before it.
func (d *Standing) backups(all []catalog.Backup, now time.Time) {
	var sizes []int64
	for _, b := range all {
		if catalog.IsFuture(b.Started, now) {
			d.Future = cmp.Or(d.Future, b.ID)
			continue
		}
		err := b.CheckUsable()
		if err != nil {
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

// changed sets Changed by the histories of the backups. s.Past contains backups of histories that the newest backups do not
// show.
func (d *Standing) changed(s repository.Survey, now time.Time) {
	past := slices.DeleteFunc(slices.Concat(s.Backups, s.Past), func(b catalog.Backup) bool { return catalog.IsFuture(b.Started, now) })
	change, ok := catalog.NewChange(s.Cluster, past)
	if ok {
		d.Changed = change.String()
	}
}

// diverged returns the result of the newest comparison of the members, by a backup or by the agent that cut the newest segment.
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

// newestSegment returns the segment that was written last, of any history, or the zero Segment.
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

// proven sets the facts about latest, which is sorted newest first. It ignores proofs from the future, which would hide all
// proofs until their time.
func (d *Standing) proven(latest []catalog.Proof, now time.Time) {
	var later []catalog.Proof // of drills after p
	for _, p := range latest {
		if catalog.IsFuture(p.Time, now) {
			continue
		}
		passed := p.Verdict == catalog.Passed
		if passed && p.Level != catalog.Stored {
			setOnce(&d.Verified, p.Time)
		}
		if p.Key != "" {
			setOnce(&d.Decrypted, p.Time)
		}
		if p.Drill == nil {
			continue
		}
		if passed {
			setOnce(&d.Drilled, p.Time)
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

// setOnce sets at to t, unless it is set already.
func setOnce(at *time.Time, t time.Time) {
	if at.IsZero() {
		*at = t
	}
}

// counted sets the numbers of keys in the newest backup that was counted, and in those before it.
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

func newestIDs(byID map[catalog.ID]int64) (ids []catalog.ID) {
	for id := range byID {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b catalog.ID) int { return cmp.Compare(b, a) })
	return ids
}

// median returns the lower median, or 0 if there are too few values.
func median(values []int64) int64 {
	if len(values) < few {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// log sets the facts about the log. A gap that seems to end in the future stays open: no backup can come after it yet.
func (d *Standing) log(c catalog.Catalog, now time.Time) {
	written := newestSegment(c).Written
	if catalog.IsFuture(written, now) {
		d.FutureLog = written
	}
	windows := c.Windows()
	if len(windows) > 0 {
		d.Window = &windows[len(windows)-1]
	}
	gaps := c.Gaps()
	d.Gaps = len(gaps)
	for _, g := range gaps {
		windowAfter := d.Window != nil && d.Window.Doubt == "" && d.Window.From.Time.After(g.Since)
		backupAfter := d.Good != nil && !g.Since.After(d.Good.Started) && !g.Until.After(d.Good.Started)
		if !windowAfter && !backupAfter {
			d.Gap = cmp.Or(g.Reason, "since "+g.Since.UTC().Format(time.RFC3339))
		}
	}
	for _, l := range c.Lineages {
		for _, f := range l.Faults {
			if f.Seq == 0 { // the fault of a segment has a Seq, and is counted as a gap
				d.LogDamaged++
				d.LogDoubt = cmp.Or(d.LogDoubt, f.Err.Error())
			}
		}
	}
}
