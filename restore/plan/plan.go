// Package plan decides how a restore reaches its target, without any I/O: from a catalog, a target and a layout to a Plan.
//
//	catalog ─► Needs ─► folded segments, read by the caller ─► Catalog.Unfold ──┐
//	target, layout, time ──────────────────────────────────────────────────────►├─► New ─► Plan ─► restore.Run
//	plans that were blocked, with their obstacles ─────────────────────────────►┴─► Around
//
// The same input gives the same plan, so that several hosts that restore one member each form one cluster. Package restore reads,
// asks and builds what a Plan says.
package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrLayout: the members, names, URLs or directories that were asked for do not fit together.
	ErrLayout = errors.New("cannot plan")
	// ErrRefused: it could be done, and would destroy or mislead.
	ErrRefused = errors.New("refused")
)

// PlanFormat is the number of the plan's format that this version writes and reads.
const Format = 1

// Target is what the user wants back. The zero value is the latest point that is known, by the log or the newest backup.
type Target struct {
	Backup catalog.ID // this backup, and nothing of the log
	File   string     // a plain snapshot.db instead of a backup
	// SkipHashCheck takes a File without the digest at its end, such as a copy of member/snap/db.
	SkipHashCheck bool
	FileDigest    string // of File, as FileDigest returns it; "": not checked

	Revision int64     // the state right after the request that made it; 0: not asked for
	Time     time.Time // the last state that is surely not later; zero: not asked for
	Position uint64    // the state right after this position of Lineage; 0: not asked for
	Lineage  string    // this history; "": the newest that has the target
	Best     bool      // the nearest point before, if the target cannot be reached
	Plain    Plain     // what becomes of backups and segments that are not encrypted

	Disks *Disks // data dirs of members that do not run any more: instead of backups and the log, or behind their end; nil: none
}

// Plan is one cut of one cluster and where its members go. Each host of a cluster restores the same Plan, apart from
// Into, so that all get the same data, members, token and revisions: only then do they form one cluster.
type Plan struct {
	Format int    `json:"format"`
	ID     string `json:"id"` // digest of everything but Into

	Cluster       string          `json:"cluster,omitempty"` // in the repository
	Backup        *catalog.Backup `json:"backup,omitempty"`
	Log           *Log            `json:"log,omitempty"`        // what is replayed onto the backup
	Reach         *Reach          `json:"reach,omitempty"`      // what the target means
	Estimate      float64         `json:"estimate,omitempty"`   // seconds that it takes, about
	File          string          `json:"file,omitempty"`       // instead of cluster, backup and log
	FileDigest    string          `json:"fileDigest,omitempty"` // of File; "": not checked
	SkipHashCheck bool            `json:"skipHashCheck,omitempty"`
	Salvage       *Salvage        `json:"salvage,omitempty"` // from disks: the base, or what is replayed behind the log, or both

	Old     Old      `json:"old"`
	Members []Member `json:"members"`
	Token   string   `json:"token"` // initial-cluster-token
	Bump    Bump     `json:"bump"`

	KeepAlarms   bool `json:"keepAlarms,omitempty"`
	AllowCorrupt bool `json:"allowCorrupt,omitempty"`
	OldIsDead    bool `json:"oldIsDead,omitempty"` // do not ask the old members' URLs

	Notes []string `json:"notes,omitempty"` // what a person should know before running it

	Into Into `json:"into"`
}

// Member is one member of the restored cluster.
type Member struct {
	Name     string   `json:"name"`
	PeerURLs []string `json:"peerURLs"`
}

// Into says which members' data dirs this host gets, and where.
type Into struct {
	OutputDir string `json:"outputDir,omitempty"` // one folder a member, all of them
	Name      string `json:"name,omitempty"`      // or one member alone,
	DataDir   string `json:"dataDir,omitempty"`   // and its data dir
	WALDir    string `json:"walDir,omitempty"`    // and etcd's --wal-dir; "": in the data dir
}

// NewPlan plans without any I/O or clock: the same input gives the same plan. Errors match ErrLayout, ErrRefused or
// the catalog's, and name the cure.
func New(c catalog.Catalog, t Target, l Layout, now time.Time) (Plan, error) {
	p := Plan{
		Format: Format, File: t.File, FileDigest: t.FileDigest, SkipHashCheck: t.SkipHashCheck,
		KeepAlarms: l.KeepAlarms, AllowCorrupt: l.AllowCorrupt, OldIsDead: l.OldIsDead,
	}
	if err := p.refuseRunning(t.Disks); err != nil {
		return Plan{}, err
	}
	if t.isLatest() {
		err := CheckNewest(c)
		if err != nil {
			return Plan{}, err
		}
	}
	if t.File == "" {
		route, err := findRoute(c, t)
		if err != nil {
			return Plan{}, err
		}
		p.setRoute(c, route, now)
	}
	if err := p.setMembers(c, l); err != nil {
		return Plan{}, err
	}
	p.setAsked(c)
	if err := p.setBump(c, t, l); err != nil {
		return Plan{}, err
	}
	if err := p.refuseCorrupt(); err != nil {
		return Plan{}, err
	}
	if err := p.validateCut(); err != nil {
		return Plan{}, err
	}
	if err := p.setToken(c, l); err != nil {
		return Plan{}, err
	}
	p.ID = p.digest()
	return p.Place(l.Into)
}

func (p *Plan) setRoute(c catalog.Catalog, r route, now time.Time) {
	p.Notes = r.notes
	if r.salvage == nil {
		p.noteLoss(r, now)
	}
	if r.base.ID != "" {
		p.noteBackup(r.base)
		p.noteOrigin(c, r.base)
		r.base.Proofs, r.base.Pins = nil, nil // what is true of it later is no part of the cut
		p.Cluster, p.Backup = c.Cluster, &r.base
	}
	p.Log, p.Reach, p.Salvage = r.log, &r.reach, r.salvage
	p.setOld(c, r)
	if r.log != nil && UnseenBy(r.log.Source) != "" {
		p.note("the log is what a client could see: %s", UnseenBy(r.log.Source))
	}
	if r.log != nil {
		p.noteDisagreement(c, r.base, *r.log)
	}
	if p.Salvage != nil {
		p.noteSalvage()
	}
	p.Estimate = r.estimate().Round(100 * time.Millisecond).Seconds()
}

// noteLoss says what the target leaves out of what is known.
func (p *Plan) noteLoss(r route, now time.Time) {
	end, that := r.base.Started, "the backup is %s old"
	if r.log != nil {
		end, that = r.reach.NotAfter, "that was %s ago"
	}
	if lost := r.reach.Newest.Time.Sub(end); lost > 0 {
		p.note("the newest known point is revision %d at %s, %s later: what was written between is left out",
			r.reach.Newest.Revision, text(r.reach.Newest.Time), lost.Round(time.Second))
	}
	p.note("what was written after %s is lost ("+that+")", end.Format(time.RFC3339), now.Sub(end).Round(time.Second))
}

// Place is p with another Into: what each host of a cluster does with the plan it was given.
func (p Plan) Place(into Into) (Plan, error) {
	into.Name = p.nameOf(into)
	p.Into = into
	return p, p.Validate()
}

func (p *Plan) noteBackup(b catalog.Backup) {
	if b.NoQuorum {
		p.note("the backup was taken without a quorum: writes that its member had not got are missing")
	}
	if b.Diverged != "" {
		p.note("the members had diverged when it was taken: %s", b.Diverged)
	}
	if b.Auth {
		p.note("users are enabled in the backup: the restored cluster asks for the same passwords as before")
	}
	if b.KubernetesEncrypted {
		p.note("Kubernetes encrypts values in it: the API server needs the same EncryptionConfiguration and keys as before")
	}
	for _, alarm := range b.Alarms {
		if p.KeepAlarms {
			p.note("alarm %s stays raised", alarm)
		} else {
			p.note("alarm %s is cleared; what raised it (a full quota, say) may raise it again", alarm)
		}
	}
	if failed, bad := b.Failed(); bad {
		p.note("the last verify of this backup failed: %s", failed.Finding)
	}
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

func (p *Plan) refuseCorrupt() error {
	if p.Backup != nil && slices.Contains(p.Backup.Alarms, "CORRUPT") && !p.AllowCorrupt {
		return fmt.Errorf("%w: backup %s was taken from a cluster with the alarm CORRUPT: take an older one, or --allow-corrupt",
			ErrRefused, p.Backup.ID)
	}
	return nil
}

// digest covers everything but the place and itself.
func (p Plan) digest() string {
	p.ID, p.Into = "", Into{}
	data, _ := json.Marshal(p) // of plain fields: cannot fail
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Encode is the plan as --plan-out writes it.
func (p Plan) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(p, "", "  ")
	return append(data, '\n'), err
}

// DecodePlan reads what Encode wrote. A plan that was changed by hand, or by a bad cable, is refused: its hosts would
// not form one cluster. Errors match ErrLayout.
func Decode(data []byte) (Plan, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var p Plan
	if err := dec.Decode(&p); err != nil {
		return Plan{}, fmt.Errorf("%w: this is no plan of dr: %w", ErrLayout, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Plan{}, fmt.Errorf("%w: something follows the plan", ErrLayout)
	}
	if p.Format != Format {
		return Plan{}, fmt.Errorf("%w: plan format %d is unknown to this version of dr", ErrLayout, p.Format)
	}
	if p.ID != p.digest() {
		return Plan{}, fmt.Errorf("%w: the plan was changed after it was made: make it anew with --plan-out", ErrLayout)
	}
	return p, p.validateCut()
}
