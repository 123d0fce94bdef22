// Package config reads dr.yaml: which clusters a service looks after, and how. It is strict: an unknown key is an error
// with its line, and so is everything else that can be known before the first backup is due.
package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/notify"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/stores/address"
)

// ErrConfig: the file cannot be used as written.
var ErrConfig = errors.New("bad configuration")

// Config is what a file says.
type Config struct {
	spec.Config
	Notify  notify.Config     // whom to tell of conditions
	Refused []Refused         // is not among the Specs
	files   map[string]string // that name the clusters
	read    stamps            // the file and those that it names, but for etcd's certificates; known with an error too
}

// Load reads the file at path and the secrets that it names, in files and by getenv (os.Getenv). Errors match ErrConfig,
// name everything that is wrong, with lines, and repeat no secret.
func Load(path string, getenv func(string) string) (Config, error) {
	l := loader{getenv: getenv, read: stamps{}}
	l.read.note(path)
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{read: l.read}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if l.file, l.source, err = parse(path, data); err != nil {
		return Config{read: l.read}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	l.sources = map[string]*source{}
	for cluster := range l.file.Clusters {
		l.sources[cluster] = l.source
	}
	c := Config{read: l.read, Refused: l.include(path)}
	c.Config, c.Notify = l.config(), l.notify()
	if err = l.source.err(); err != nil {
		return Config{read: l.read}, fmt.Errorf("%w: %w", ErrConfig, errors.Join(err, c.RefusedErr()))
	}
	return l.refuse(c)
}

// refuse takes out of c the clusters that cannot be used as written. That none is left is an error.
func (l *loader) refuse(c Config) (Config, error) {
	good := []spec.Spec{}
	c.files = map[string]string{}
	for _, spec := range c.Specs {
		src := l.sources[spec.Cluster]
		if err := src.refused(spec.Cluster); err != nil {
			c.Refused = append(c.Refused, Refused{spec.Cluster, src.name, err})
			continue
		}
		c.files[spec.Cluster] = src.name
		good = append(good, spec)
	}
	c.Specs, c.Faulty = good, map[string]string{}
	for _, r := range c.Refused {
		if r.Cluster != "" {
			c.Faulty[r.Cluster] = r.Err.Error()
		}
	}
	if len(good) == 0 {
		return Config{read: l.read}, c.RefusedErr()
	}
	return c, nil
}

// loader is one Load.
type loader struct {
	file    file
	source  *source            // of the file itself
	sources map[string]*source // of each cluster
	getenv  func(string) string
	read    stamps
	places  map[address.Address]string // the repository at each
}

func (l *loader) config() spec.Config {
	c := spec.Config{Concurrency: l.file.Concurrency, Lease: time.Duration(l.file.Lease)}
	if c.Concurrency < 1 {
		l.source.blame(errors.New("concurrency is at least 1"), "concurrency")
	}
	if c.Lease < spec.MinLease || c.Lease > lease.MaxLease {
		l.source.blame(fmt.Errorf("lease is from %s to %s", spec.MinLease, lease.MaxLease), "lease")
	}
	repositories := l.repositories()
	if len(l.file.Clusters) == 0 && len(l.file.Include) == 0 {
		l.source.blame(errors.New("no clusters: name at least one below it"), "clusters")
	}
	for _, name := range slices.Sorted(maps.Keys(l.file.Clusters)) {
		c.Specs = append(c.Specs, l.spec(name, l.file.Clusters[name], repositories))
	}
	return c
}

// opened is a repository with what its secrets say.
type opened struct {
	spec.Repository
	secrets []string
}

func (l *loader) repositories() map[string]opened {
	all := map[string]opened{}
	l.places = map[address.Address]string{}
	for _, name := range slices.Sorted(maps.Keys(l.file.Repositories)) {
		part := l.file.Repositories[name]
		in := l.in("repositories", name)
		place, err := placeOf(part.URL, anyCluster)
		if err != nil {
			in.blame(err, "url")
		} else if other, ok := l.places[place]; ok {
			in.blame(fmt.Errorf("it is repository %s under another name", other), "url")
		}
		l.places[place] = name
		all[name] = l.repository(name, part, in)
	}
	return all
}

// anyCluster stands for the name of a cluster where that is not known yet. No cluster is called so.
const anyCluster = "-cluster-"

// placeOf returns the place at url with the name of a cluster filled in.
func placeOf(url, cluster string) (address.Address, error) {
	filled := strings.ReplaceAll(url, placeholder, cluster)
	if strings.Contains(filled, "{{") {
		return address.Address{}, fmt.Errorf("of what stands in {{…}} only %s is known", placeholder)
	}
	place, err := address.Parse(filled)
	place.Create = "" // it is the same place
	return place, err
}

// filled returns r with the cluster's name in its URL, if it has a place for that. Another repository must not be there: two
// that are meant to be apart would be one.
func (i in) filled(r opened, cluster string) opened {
	if !strings.Contains(r.URL, placeholder) {
		return r
	}
	place, err := placeOf(r.URL, cluster)
	if err != nil {
		i.blame(fmt.Errorf("repository %s, with the cluster's name in its URL: %w", r.Name, err), "repositories")
		return r
	}
	other, taken := i.l.places[place]
	if taken && other != r.Name {
		i.blame(fmt.Errorf("repository %s is for this cluster at the place of repository %s", r.Name, other), "repositories")
	}
	i.l.places[place] = r.Name
	r.Pattern, r.URL = r.URL, strings.ReplaceAll(r.URL, placeholder, cluster)
	return r
}

// Limits of what a repository may say.
const (
	maxParallel     = 64
	defaultParallel = 4
	minLimit        = 64 << 10 // bytes a second: below it nothing would ever end
)

func (l *loader) repository(name string, part repositoryPart, in in) (r opened) {
	if part.Parallel == 0 {
		part.Parallel = defaultParallel
	}
	if part.Parallel < 1 || part.Parallel > maxParallel {
		in.blame(fmt.Errorf("parallel is from 1 to %d", maxParallel), "parallel")
	}
	if part.Limit != 0 && part.Limit < minLimit {
		in.blame(errors.New("limit is at least 64KiB/s"), "limit")
	}
	r.Repository = spec.Repository{Name: name, URL: part.URL, Parallel: part.Parallel, Limit: int64(part.Limit)}
	r.Retention = in.retention(part.Retention, "UTC")
	r.Policy.Lock = records.Lock{For: time.Duration(part.Lock.For), Compliance: part.Lock.Mode == "compliance"}
	if mode := part.Lock.Mode; mode != "" && (mode != "compliance" && mode != "governance" || part.Lock.For == 0) {
		in.blame(errors.New("a lock has a time (for: 30d) and may have a mode, governance or compliance"), "lock")
	}
	if part.SignKeyFile != "" {
		text := in.read(part.SignKeyFile, "signKeyFile")
		key, err := sign.ParseKey([]byte(text))
		if err != nil && text != "" {
			in.blame(fmt.Errorf("%s: %w", part.SignKeyFile, err), "signKeyFile")
		}
		r.Policy.Key = key
		r.secrets = append(r.secrets, text)
	}
	var texts []string
	for _, key := range part.Trust {
		l.read.note(key) // it may be the key itself: then there is no such file
		if text, err := os.ReadFile(key); err == nil {
			key = string(text)
		}
		texts = append(texts, key)
	}
	trust, err := sign.ParseTrust(texts...)
	if err != nil {
		in.blame(err, "trust")
	}
	r.Policy.Trust = trust
	if own := r.Policy.Key.Trust().Keys(); !trust.None() && (len(own) == 0 || !slices.Contains(trust.Keys(), own[0])) {
		in.blame(errors.New("trust without a signKeyFile that is trusted: what is written would count for nothing"), "trust")
	}
	r.secrets = append(r.secrets, texts...)
	return r
}

// in is a place in the file.
type in struct {
	l    *loader
	path []string
}

func (l *loader) in(path ...string) in { return in{l, path} }

// blame says what is wrong there.
func (i in) blame(err error, below ...string) {
	src := i.l.source
	if len(i.path) > 1 && i.path[0] == "clusters" {
		src = i.l.sources[i.path[1]]
	}
	src.blame(err, slices.Concat(i.path, below)...)
}

// read is the content of a file that the file names there, "" if that is wrong: it was blamed then.
func (i in) read(path string, below ...string) string {
	i.l.read.note(path)
	content, err := os.ReadFile(path)
	if err == nil && len(content) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	if err != nil {
		i.blame(err, below...)
	}
	return string(content)
}

// secret is what a file, or else a variable, says: its first line.
func (i in) secret(file, variable string, below ...string) string {
	name := below[len(below)-1]
	below = below[:len(below)-1]
	switch {
	case file != "" && variable != "":
		i.blame(fmt.Errorf("%sFile and %sEnv: use one", name, name), append(below, name+"File")...)
	case file != "":
		line, _, _ := strings.Cut(i.read(file, append(below, name+"File")...), "\n")
		return strings.TrimRight(line, "\r")
	case variable != "":
		value := i.l.getenv(variable)
		if value == "" {
			i.blame(fmt.Errorf("the variable %s is not set", variable), append(below, name+"Env")...)
		}
		return value
	}
	return ""
}

// spec is one cluster's.
func (l *loader) spec(name string, part clusterPart, repositories map[string]opened) spec.Spec {
	in := l.in("clusters", name)
	if err := catalog.ValidCluster(name); err != nil {
		in.blame(err)
	}
	s := spec.Spec{Cluster: name, Suspend: part.Suspend, Timeout: time.Duration(part.Backup.Timeout)}
	secrets := []string{}
	for _, r := range in.repositories(part, repositories) {
		s.Repositories = append(s.Repositories, r.Repository)
		secrets = append(secrets, r.secrets...)
	}
	var more []string
	s.Etcd, more = in.etcd(part.Etcd)
	secrets = append(secrets, more...)
	s.Backup, more = in.backup(part, s.Repositories)
	secrets = append(secrets, more...)
	s.Schedule = in.schedule(name, part.Schedule, "schedule")
	s.Triggers = in.triggers(part.Triggers)
	s.Retention = in.retention(part.Retention, part.Schedule.Zone)
	s.Observe, s.Conditions = in.observe(part), in.conditions(part.Conditions)
	s.Archive = in.archive(part.Archive, s.Backup.To)
	s.Drill, more = in.drill(name, part, s.Repositories)
	secrets = append(secrets, more...)
	if part.Schedule.Cron == "" && s.Triggers.None() && part.Drill.Schedule.Cron == "" {
		in.blame(errors.New("nothing says when: use schedule or triggers, or drill.schedule for drills alone"))
	}
	s.Digest = digest(name, part, s.Repositories, secrets)
	return s
}

// digest covers all that a Spec is made from.
func digest(name string, part clusterPart, repositories []spec.Repository, secrets []string) string {
	var written []any
	for _, r := range repositories {
		written = append(written, r.Name, r.URL, r.Parallel, r.Limit, r.Policy.Lock, fmt.Sprint(r.Retention))
	}
	data, err := json.Marshal([]any{name, part, written, secrets})
	if err != nil {
		panic(err) // numbers and texts
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (i in) repositories(part clusterPart, all map[string]opened) (used []opened) {
	if len(part.Repositories) == 0 {
		i.blame(errors.New("no repositories: name at least one"), "repositories")
	}
	for n, name := range part.Repositories {
		r, ok := all[name]
		switch {
		case !ok:
			i.blame(fmt.Errorf("repository %q is not among the repositories", name), "repositories")
		case slices.Contains(part.Repositories[:n], name):
			i.blame(fmt.Errorf("repository %q is there twice", name), "repositories")
		default:
			used = append(used, i.filled(r, i.path[1]))
		}
	}
	return used
}

func (i in) etcd(part etcdPart) (spec.Etcd, []string) {
	c := spec.Etcd{
		Endpoints: part.Endpoints, CACert: part.CACert, Cert: part.Cert, Key: part.Key, InsecureSkipVerify: part.InsecureSkipTLSVerify,
		User: part.User, DialTimeout: time.Duration(part.DialTimeout), CommandTimeout: time.Duration(part.CommandTimeout),
	}
	c.Password = i.secret(part.PasswordFile, part.PasswordEnv, "etcd", "password")
	switch {
	case len(c.Endpoints) == 0:
		i.blame(errors.New("no endpoints: name one or more members"), "etcd", "endpoints")
	case strings.Contains(c.User, ":"):
		i.blame(errors.New("user takes the name alone: use passwordFile or passwordEnv for the password"), "etcd", "user")
	case c.User != "" && part.PasswordFile == "" && part.PasswordEnv == "":
		i.blame(errors.New("a user without a password: use passwordFile or passwordEnv"), "etcd", "user")
	case c.DialTimeout <= 0 || c.CommandTimeout <= 0:
		i.blame(errors.New("dialTimeout and commandTimeout are above zero"), "etcd")
	default:
		if err := scheduler.ClusterConfig(c).Validate(); err != nil {
			i.blame(err, "etcd")
		}
	}
	return c, []string{c.Password}
}

func (i in) backup(part clusterPart, repositories []spec.Repository) (spec.Backup, []string) {
	b := part.Backup
	r := spec.Backup{
		From: b.From, NoHash: b.NoHash, HashMax: int64(b.HashMax), CompareMembers: b.CompareMembers, MaxStream: time.Duration(b.MaxStream), Spool: b.Spool,
		Plain: b.Plain, Labels: part.Labels, Require: spec.Require(part.Require), Grace: time.Duration(b.Grace),
	}
	if r.Require != spec.All && r.Require != spec.Any {
		i.blame(errors.New("require is all or any"), "require")
	}
	if !slices.Contains(append([]string{"leader", "follower", "any"}, part.Etcd.Endpoints...), r.From) {
		i.blame(errors.New("from is leader, follower, any, or one of the endpoints"), "backup", "from")
	}
	if r.MaxStream <= 0 || r.Grace <= 0 || b.Timeout <= 0 {
		i.blame(errors.New("maxStream, grace and timeout are above zero"), "backup")
	}
	for _, label := range []string{spec.LabelSlot, spec.LabelTrigger, spec.LabelArchive} {
		if _, ok := r.Labels[label]; ok {
			i.blame(fmt.Errorf("the label %s says why a backup was taken: use another name", label), "labels", label)
		}
	}
	for _, repository := range repositories {
		if repository.Limit > 0 && r.Spool == "" {
			i.blame(fmt.Errorf("the limit of repository %s would slow the member's own stream down, which hurts it: take that into backup.spool first",
				repository.Name), "repositories")
		}
	}
	var secrets []string
	r.To, secrets = i.recipients(part)
	if r.Plain && r.To.Seal().Encryption != "" {
		i.blame(errors.New("plain and a recipient or a passphrase: use one of them"), "backup", "plain")
	}
	return r, secrets
}

func (i in) recipients(part clusterPart) (to seal.Recipients, secrets []string) {
	texts := slices.Clone(part.Recipients)
	if part.RecipientsFile != "" {
		texts = append(texts, i.read(part.RecipientsFile, "recipientsFile"))
	}
	var err error
	if len(texts) > 0 {
		if to, err = seal.ParseRecipients(strings.NewReader(strings.Join(texts, "\n"))); err != nil {
			i.blame(err, "recipients")
		}
	}
	passphrase := i.secret(part.PassphraseFile, part.PassphraseEnv, "passphrase")
	if passphrase != "" {
		with, err := seal.PassphraseRecipient(passphrase)
		if err == nil {
			to, err = to.And(with)
		}
		if err != nil {
			i.blame(err)
		}
	}
	return to, append(texts, passphrase)
}

// schedule is what a part at a place says.
func (i in) schedule(seed string, part schedulePart, at ...string) spec.Schedule {
	if part.Cron == "" {
		return spec.Schedule{}
	}
	s, err := spec.ParseSchedule(part.Cron, i.zone(part.Zone, at...), time.Duration(part.Jitter), seed)
	if err != nil {
		i.blame(err, slices.Concat(at, []string{"cron"})...)
	}
	return s
}

// zone is a time zone by its name; what the machine's own is differs from one to the next.
func (i in) zone(name string, at ...string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "" {
		i.blame(fmt.Errorf("no time zone %q: use UTC or a name like Europe/Berlin", name), slices.Concat(at, []string{"zone"})...)
		return time.UTC
	}
	return zone
}

// minObserve: a shorter one would do nothing but look.
const minObserve = 10 * time.Second

func (i in) observe(part clusterPart) time.Duration {
	if d := time.Duration(part.Observe); d == 0 || d >= minObserve {
		return d
	}
	i.blame(fmt.Errorf("observe is at least %s, or 0 for never", minObserve), "observe")
	return 0
}

func (i in) conditions(part conditionsPart) condition.Limits {
	l := condition.Limits{
		Failures: part.Failures, Shrunk: float64(part.Shrunk), Proven: time.Duration(part.Proven), DrillLate: time.Duration(part.DrillLate),
		Lag: time.Duration(part.Lag), Headroom: time.Duration(part.Headroom), Spool: float64(part.Spool),
		Certificate: time.Duration(part.Certificate),
	}
	if part.Failures < 0 {
		i.blame(errors.New("failures is at least 1"), "conditions", "failures")
	}
	for _, name := range part.Accept {
		if !slices.Contains(condition.Names, condition.Name(name)) {
			i.blame(fmt.Errorf("no condition is called %q: docs/conditions.md names them", name), "conditions", "accept")
		}
		l.Accept = append(l.Accept, condition.Name(name))
	}
	return l
}

func (i in) triggers(part triggersPart) spec.Triggers {
	if part.Revisions < 0 || part.Every < span(time.Second) {
		i.blame(errors.New("revisions is not below zero, and every is at least 1s"), "triggers")
	}
	return spec.Triggers{
		Revisions: part.Revisions, Bytes: int64(part.Bytes), Gap: part.Gap, Every: time.Duration(part.Every),
	}
}

func (i in) retention(r retentionPart, zone string) retention.Policy {
	p := retention.Policy{
		Last: r.Last, Hourly: r.Hourly, Daily: r.Daily, Weekly: r.Weekly, Monthly: r.Monthly, Yearly: r.Yearly,
		Within: time.Duration(r.Within), Window: time.Duration(r.Window), MaxSize: int64(r.MaxSize), MinCopies: r.MinCopies,
	}
	if p == (retention.Policy{}) {
		return p
	}
	p.Zone = i.zone(cmp.Or(r.Zone, zone), "retention")
	if err := p.Validate(); err != nil {
		i.blame(err, "retention")
	}
	return p
}
