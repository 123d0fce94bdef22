// Package plan decides how a restore reaches its target. From a catalog, a target and a layout it makes a Plan, without any I/O.
//
//	catalog ─► Needs ─► folded segments, read by the caller ─► Catalog.Unfold ──┐
//	target, layout, time ──────────────────────────────────────────────────────►├─► New ─► Plan ─► restore.Run
//	plans that were blocked, with their obstacles ─────────────────────────────►┴─► Around
//
// The comment of Needs explains folded segments. The same input gives the same plan. So several hosts can restore one member each, and
// these members form one cluster. Package restore carries out a Plan.
package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrLayout: the request cannot be carried out, as when members, names, URLs or directories do not fit together, or a plan's file is
	// not usable.
	ErrLayout = fault.New(fault.Usage, "cannot plan")
)

// Format is the plan format that this version writes and reads.
const Format = 1

// Target is the state to restore. The zero value is the newest point of the log or, without a log, the newest backup.
type Target struct {
	Backup catalog.ID // this backup, without the log
	File   string     // a plain snapshot.db instead of a backup
	// SkipHashCheck accepts a File without the digest at its end, such as a copy of member/snap/db.
	SkipHashCheck bool
	FileDigest    string // of File, as restore.FileDigest returns it; "": not checked

	Revision int64     // the state right after the request that made this revision; 0: any
	Time     time.Time // the last state that is certainly not later than this; zero: any
	Position uint64    // the state right after this position of Lineage; 0: any
	Lineage  string    // in this history; "": in the newest that contains the target
	Best     bool      // restore the nearest earlier point if the target cannot be reached
	Plain    Plain     // how to treat backups and segments that are not encrypted

	Disks *Disks // data dirs of stopped members, in place of backups and the log, or after the end of the log; nil: none
}

// Plan is the restore of one cluster to one point, as data. All hosts of a cluster restore the same Plan, apart from Into. Hosts
// whose plans differ in data, members, token or revisions form no cluster.
type Plan struct {
	// A new field also belongs into commonPart (token.go) if all members must share it, and into content (replaced.go) if two plans
	// that differ in it alone are equivalent.

	Format int    `json:"format"`
	ID     string `json:"id"` // digest of everything but Into: equal on all hosts

	Cluster       string          `json:"cluster,omitempty"`       // name in the repository
	Backup        *catalog.Backup `json:"backup,omitempty"`        // that is restored
	Log           *Log            `json:"log,omitempty"`           // the log that is replayed onto the backup; nil if none is
	Reach         *Reach          `json:"reach,omitempty"`         // the restored state
	Estimate      float64         `json:"estimate,omitempty"`      // duration of the restore in seconds, roughly
	File          string          `json:"file,omitempty"`          // the file that is restored instead of a backup and the log
	FileDigest    string          `json:"fileDigest,omitempty"`    // of File: the digest at its end, or of all its bytes; "": not checked
	SkipHashCheck bool            `json:"skipHashCheck,omitempty"` // File may have no digest at its end
	Salvage       *Salvage        `json:"salvage,omitempty"`       // from disks of stopped members: the base, or requests after the log, or both

	Old     Old      `json:"old"`     // the cluster that is replaced
	Members []Member `json:"members"` // of the new cluster
	Token   string   `json:"token"`   // the new cluster's initial-cluster-token
	Bump    Bump     `json:"bump"`    // where revisions continue

	// KeepAlarms, AllowCorrupt and OldIsDead are the flags --keep-alarms, --allow-corrupt and --old-is-dead.
	KeepAlarms   bool `json:"keepAlarms,omitempty"`
	AllowCorrupt bool `json:"allowCorrupt,omitempty"`
	OldIsDead    bool `json:"oldIsDead,omitempty"`

	Notes []string `json:"notes,omitempty"` // facts that the operator should know before the run

	Into Into `json:"into"` // the members whose data dirs this host gets, and their place
}

// New returns the plan for t in c. Errors match ErrLayout, fault.Refused or an error of package catalog, and
// name the remedy.
func New(c catalog.Catalog, t Target, l Layout, now time.Time) (Plan, error) {
	err := checkTarget(c, t, l)
	if err != nil {
		return Plan{}, err
	}
	r, err := findRoute(c, t)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{
		Format: Format, File: t.File, FileDigest: t.FileDigest, SkipHashCheck: t.SkipHashCheck,
		KeepAlarms: l.KeepAlarms, AllowCorrupt: l.AllowCorrupt, OldIsDead: l.OldIsDead,
	}
	p.follow(c, r)
	p.Old = oldCluster(c, r)
	p.Members, err = chooseMembers(l, t.File, p.Old.Members)
	if err != nil {
		return Plan{}, err
	}
	urls := urlsToAsk(c, p.Old.Members, p.Members)
	p.Old.ClientURLs = urls[:min(len(urls), maxAsked)]
	p.Bump, err = chooseBump(c, l, p, newestKnown(c, t, p.Backup))
	if err != nil {
		return Plan{}, err
	}
	err = p.checkNew()
	if err != nil {
		return Plan{}, err
	}
	p.Token, err = chooseToken(c, l, p)
	if err != nil {
		return Plan{}, err
	}
	p.Notes = slices.Concat(
		r.notes, lossNotes(r, now), backupNotes(r.base, l.KeepAlarms), originNotes(c, r.base), logNotes(c, r), salvageNotes(p),
		memberNotes(c, l, p), urlNotes(urls), tokenNotes(l, p),
	)
	p.ID = p.digest()
	return p.Place(l.Into)
}

// checkTarget refuses targets that are unsafe, whatever the route.
func checkTarget(c catalog.Catalog, t Target, l Layout) error {
	if t.Disks != nil && !l.OldIsDead {
		i := slices.IndexFunc(t.Disks.Found, isRunning)
		if i >= 0 {
			return RefuseRunning(t.Disks.Found[i].Dir)
		}
	}
	if t.isLatest() {
		return CheckAmbiguous(c)
	}
	return nil
}

// follow sets the base, the log and the disks of p to those of r. For a plain file it does nothing: r is zero.
func (p *Plan) follow(c catalog.Catalog, r route) {
	if p.File != "" {
		return
	}
	if r.base.ID != "" {
		r.base.Proofs, r.base.Pins = nil, nil // later proofs and pins must not change the plan's ID
		p.Cluster, p.Backup = c.Cluster, &r.base
	}
	p.Log, p.Reach, p.Salvage = r.log, &r.reach, r.salvage
	p.Estimate = r.estimate().Round(100 * time.Millisecond).Seconds()
}

// checkNew checks a new plan: all that validateCommon checks, and that a backup with the alarm CORRUPT is allowed.
func (p Plan) checkNew() error {
	if p.Backup != nil && slices.Contains(p.Backup.Alarms, "CORRUPT") && !p.AllowCorrupt {
		return fmt.Errorf("%w: backup %s was taken from a cluster with the alarm CORRUPT: take an older one, or pass --allow-corrupt",
			fault.Refused, p.Backup.ID)
	}
	return p.validateCommon()
}

// Place returns p with another Into: each host of a cluster calls it with its own.
func (p Plan) Place(into Into) (Plan, error) {
	if into.Name == "" && into.DataDir != "" && len(p.Members) == 1 {
		into.Name = p.Members[0].Name
	}
	p.Into = into
	return p, p.Validate()
}

// digest returns the digest of everything in p but its place and the ID itself.
func (p Plan) digest() string {
	p.ID, p.Into = "", Into{}
	data, _ := json.Marshal(p) // cannot fail: all fields are plain data
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Encode returns the plan as --plan-out writes it.
func (p Plan) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(p, "", "  ")
	return append(data, '\n'), err
}

// Decode decodes the output of Encode. It refuses a plan that was changed since: its hosts would not form one cluster. Errors
// match ErrLayout.
func Decode(data []byte) (Plan, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var p Plan
	err := dec.Decode(&p)
	if err != nil {
		return Plan{}, fmt.Errorf("%w: this is no plan of dr: %w", ErrLayout, err)
	}
	_, err = dec.Token()
	switch {
	case err != io.EOF:
		return Plan{}, fmt.Errorf("%w: data follows the plan: write a new one with --plan-out", ErrLayout)
	case p.Format != Format:
		return Plan{}, fmt.Errorf("%w: plan format %d is unknown to this version of dr", ErrLayout, p.Format)
	case p.ID != p.digest():
		return Plan{}, fmt.Errorf("%w: the plan was changed after it was made: make a new one with --plan-out", ErrLayout)
	}
	return p, p.validateCommon()
}

// BaseFile returns the file that is the base; "" if the base is a backup.
func (p Plan) BaseFile() string {
	if p.Salvage != nil && p.Salvage.Database != nil {
		return p.Salvage.Database.File
	}
	return p.File
}

// Replays reports whether requests are applied to the base.
func (p Plan) Replays() bool { return p.Log != nil || p.DiskLog() != nil }

// DiskLog returns the part of a disk's log that is replayed; nil if none is.
func (p Plan) DiskLog() *DiskLog {
	if p.Salvage == nil {
		return nil
	}
	return p.Salvage.Log
}
