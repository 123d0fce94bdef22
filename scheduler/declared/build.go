package declared

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/etcd-dr/etcd-dr/restore/assertion"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// The limits of a Cluster's fields.
const (
	minObserve   = 10 * time.Second // with a shorter interval the service would read without a pause
	minFlush     = 100 * time.Millisecond
	minSpool     = 8 * spec.SegmentSize // bytes; the agent's buffer in memory must fit into the spool
	defaultSpool = 2 << 30              // bytes
	minMemory    = 64 << 20             // bytes: with less, an etcd server spends its time on garbage collection
	maxNice      = 19
)

// Build returns the Spec of the named cluster, and the faults of its declaration. If there are faults, the Spec must not
// be used. A Spec without a schedule, triggers and drills runs jobs only on request. Build does not check the repositories
// themselves: BuildRepositories returns their faults.
func Build(name string, c Cluster, all Repositories) (spec.Spec, []Fault) {
	b := &builder{}
	err := catalog.ValidCluster(name)
	if err != nil {
		b.fault(err)
	}
	s := spec.Spec{
		Cluster: name, Digest: digest(name, c, all), Etcd: c.Etcd, Repositories: b.repositories(name, c.Repositories, all),
		Timeout: c.Backup.Timeout, Schedule: b.schedule(name, c.Schedule, "schedule"), Triggers: c.Triggers,
		Retention: b.retention(c.Retention, c.Schedule.Zone), Observe: c.Observe, Conditions: c.Conditions, Suspend: c.Suspend,
	}
	b.etcd(c.Etcd)
	s.Backup = b.backup(c)
	b.limits(s)
	b.triggers(c.Triggers)
	b.conditions(c)
	s.Archive = b.archive(c.Archive, s.Backup.To)
	s.Drill = b.drill(c, s)
	return s, b.faults
}

// digest returns a digest of everything that a Spec is made from, in hex.
func digest(name string, c Cluster, all Repositories) string {
	written := []any{name, c}
	for _, repository := range c.Repositories {
		written = append(written, repository, all.declared[repository])
	}
	data, err := json.Marshal(written)
	if err != nil {
		panic(err) // impossible: the declarations contain only values that JSON can represent
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (b *builder) etcd(e spec.Etcd) {
	switch {
	case len(e.Endpoints) == 0:
		b.fault(errors.New("no endpoints: name one or more members"), "etcd", "endpoints")
	case strings.Contains(e.User, ":"):
		b.fault(errors.New("user must not contain a colon: set the password with passwordFile or passwordEnv"), "etcd", "user")
	case e.User != "" && e.Password == "":
		b.fault(errors.New("user without a password: set passwordFile or passwordEnv"), "etcd", "user")
	case e.DialTimeout <= 0 || e.CommandTimeout <= 0:
		b.fault(errors.New("dialTimeout and commandTimeout must be above 0"), "etcd")
	}
}

func (b *builder) backup(c Cluster) spec.Backup {
	d := c.Backup
	r := spec.Backup{
		From: d.From, NoHash: d.NoHash, HashMax: d.HashMax, CompareMembers: d.CompareMembers, MaxStream: d.MaxStream, Spool: d.Spool,
		Plain: d.Plain, Labels: c.Labels, Require: c.Require, Grace: d.Grace, To: b.recipients(c),
	}
	if r.Require != spec.All && r.Require != spec.Any {
		b.fault(errors.New("require must be all or any"), "require")
	}
	if !slices.Contains(append([]string{"leader", "follower", "any"}, c.Etcd.Endpoints...), r.From) {
		b.fault(errors.New("from must be leader, follower, any, or one of the endpoints"), "backup", "from")
	}
	if r.MaxStream <= 0 || r.Grace <= 0 || d.Timeout <= 0 {
		b.fault(errors.New("maxStream, grace and timeout must be above 0"), "backup")
	}
	for _, label := range []string{spec.LabelSlot, spec.LabelTrigger, spec.LabelArchive} {
		_, taken := r.Labels[label]
		if taken {
			b.fault(fmt.Errorf("label %s is reserved for the cause of a backup: use another name", label), "labels", label)
		}
	}
	if r.Plain && r.To.Seal().Encryption != "" {
		b.fault(errors.New("plain contradicts recipients and a passphrase: remove plain, or remove them"), "backup", "plain")
	}
	return r
}

// limits adds a fault if the rate limit of a repository would slow down the member's snapshot stream.
func (b *builder) limits(s spec.Spec) {
	for _, r := range s.Repositories {
		if r.Limit > 0 && s.Backup.Spool == "" {
			b.fault(fmt.Errorf("the limit of repository %s would slow the member's snapshot down: set backup.spool", r.Name), "repositories")
		}
	}
}

func (b *builder) recipients(c Cluster) (to seal.Recipients) {
	var err error
	if len(c.Recipients) > 0 {
		to, err = seal.ParseRecipients(strings.NewReader(strings.Join(c.Recipients, "\n")))
		if err != nil {
			b.fault(err, "recipients")
		}
	}
	if c.Passphrase == "" {
		return to
	}
	with, err := seal.PassphraseRecipient(c.Passphrase)
	if err == nil {
		to, err = to.And(with)
	}
	if err != nil {
		b.fault(err, "passphrase")
	}
	return to
}

// schedule returns the schedule declared at path; never, if it has no cron. seed determines the jitter.
func (b *builder) schedule(seed string, d Schedule, path ...string) spec.Schedule {
	if d.Cron == "" {
		return spec.Schedule{}
	}
	s, err := spec.ParseSchedule(d.Cron, b.zone(d.Zone, path...), d.Jitter, seed)
	if err != nil {
		b.fault(err, slices.Concat(path, []string{"cron"})...)
	}
	return s
}

// zone returns the named time zone. Local is refused: it differs between hosts.
func (b *builder) zone(name string, path ...string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "" {
		b.fault(fmt.Errorf("unknown time zone %q: use UTC or a name like Europe/Berlin", name), slices.Concat(path, []string{"zone"})...)
		return time.UTC
	}
	return zone
}

func (b *builder) retention(d Retention, zone string) retention.Policy {
	p := d.Policy
	if p == (retention.Policy{}) {
		return p
	}
	p.Zone = b.zone(cmp.Or(d.Zone, zone), "retention")
	err := p.Validate()
	if err != nil {
		b.fault(err, "retention")
	}
	return p
}

func (b *builder) triggers(t spec.Triggers) {
	if t.Revisions < 0 || t.Every < time.Second {
		b.fault(errors.New("revisions must not be negative, and every must be at least 1s"), "triggers")
	}
}

func (b *builder) conditions(c Cluster) {
	if c.Observe != 0 && c.Observe < minObserve {
		b.fault(fmt.Errorf("observe must be at least %s, or 0 for never", minObserve), "observe")
	}
	if c.Conditions.Failures < 0 {
		b.fault(errors.New("failures must be at least 1"), "conditions", "failures")
	}
	for _, name := range c.Conditions.Accept {
		if !slices.Contains(condition.Names, name) {
			b.fault(fmt.Errorf("unknown condition %q: see docs/conditions.md", name), "conditions", "accept")
		}
	}
}

// archive returns the settings of the log archive. Without a flush they are zero, even if a spool is set: a cluster can switch
// off an archive that the defaults declare.
func (b *builder) archive(a spec.Archive, to seal.Recipients) spec.Archive {
	if a.Flush == 0 {
		return spec.Archive{}
	}
	if a.Spool != "" && a.SpoolMax == 0 {
		a.SpoolMax = defaultSpool
	}
	switch {
	case a.Flush < minFlush:
		b.fault(fmt.Errorf("flush must be at least %s, or 0s to archive no log", minFlush), "archive", "flush")
	case a.Spool == "" && a.SpoolMax != 0:
		b.fault(errors.New("spoolMax without a spool: set spool to a folder"), "archive", "spoolMax")
	case a.Spool != "" && a.SpoolMax < minSpool:
		b.fault(fmt.Errorf("spoolMax must be at least %s", humanize.IBytes(minSpool)), "archive", "spoolMax")
	case to.Passphrase():
		b.fault(errors.New("the log cannot be encrypted with a passphrase, which costs a second of CPU for each segment: use recipients"), "archive")
	}
	return a
}

// drill returns the settings of the drills. They are zero unless the cluster declares a field: drills never run by default.
func (b *builder) drill(c Cluster, s spec.Spec) spec.Drill {
	d := c.Drill
	if reflect.DeepEqual(d, Drill{}) || len(s.Repositories) == 0 {
		return spec.Drill{}
	}
	d.Schedule.Zone = cmp.Or(d.Schedule.Zone, c.Schedule.Zone)
	r := spec.Drill{
		Schedule: b.schedule(s.Cluster+"/drill", d.Schedule, "drill", "schedule"), Repository: cmp.Or(d.Repository, s.Repositories[0].Name),
		Assertions: d.Assert, Keys: b.drillKeys(d), AllowPlain: d.AllowPlain, Dir: d.ScratchDir, Memory: d.Memory, Nice: d.Nice,
	}
	if !slices.ContainsFunc(s.Repositories, func(in spec.Repository) bool { return in.Name == r.Repository }) {
		b.fault(fmt.Errorf("repository %q is not in the cluster's repositories: name one of them, or add it", r.Repository), "drill", "repository")
	}
	for _, text := range d.Assert {
		_, err := assertion.Parse(text)
		if err != nil {
			b.fault(err, "drill", "assert")
		}
	}
	if d.Memory != 0 && d.Memory < minMemory {
		b.fault(errors.New("memoryLimit must be at least 64MiB"), "drill", "memoryLimit")
	}
	if d.Nice < 0 || d.Nice > maxNice {
		b.fault(fmt.Errorf("nice must be from 0 to %d", maxNice), "drill", "nice")
	}
	return r
}

// drillKeys returns the keys with which drills open the backups.
func (b *builder) drillKeys(d Drill) (keys seal.Keys) {
	for _, text := range d.Identities {
		more, err := seal.ParseKeys(strings.NewReader(text))
		if err != nil {
			b.fault(err, "drill", "identities")
		}
		keys = keys.And(more)
	}
	if d.Passphrase == "" {
		return keys
	}
	with, err := seal.Passphrase(d.Passphrase)
	if err != nil {
		b.fault(err, "drill", "passphrase")
	}
	return keys.And(with)
}
