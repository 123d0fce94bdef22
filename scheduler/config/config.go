// Package config reads dr.yaml, which declares the clusters of a service. It is strict: an unknown key is an error with its
// line, like any other fault that can be found before the first backup is due.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
	"github.com/etcd-dr/etcd-dr/scheduler/notify"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrConfig reports a configuration that cannot be used.
var ErrConfig = fault.New(fault.Usage, "bad configuration")

// Config is the content of dr.yaml and of the files that it names.
type Config struct {
	spec.Config
	Notify  notify.Config     // receivers of conditions
	Refused []Refused         // clusters without a Spec, because of a fault
	files   map[string]string // by cluster: the file that declares it
	read    stamps            // the files that were read, except etcd's certificates; valid after an error too
}

// Load reads the file at path and the secrets that it names: files, and variables by getenv, such as os.Getenv. Errors match
// ErrConfig, list all faults with their lines, and contain no secret.
func Load(path string, getenv func(string) string) (Config, error) {
	l := loader{getenv: getenv, read: stamps{}}
	l.read.note(path)
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{read: l.read}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	l.file, l.source, err = parse(path, data)
	if err != nil {
		return Config{read: l.read}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	l.sources = map[string]*source{}
	for cluster := range l.file.Clusters {
		l.sources[cluster] = l.source
	}
	c := Config{read: l.read, Refused: l.include(path)}
	c.Config, c.Notify = l.config(), l.notify()
	err = l.source.err()
	if err != nil {
		return Config{read: l.read}, fmt.Errorf("%w: %w", ErrConfig, errors.Join(err, c.RefusedErr()))
	}
	return l.refuse(c)
}

// refuse moves the clusters with faults from c.Specs to c.Refused, and sets c.Faulty. It fails if no Spec is left.
func (l *loader) refuse(c Config) (Config, error) {
	good := []spec.Spec{}
	c.files = map[string]string{}
	for _, spec := range c.Specs {
		src := l.sources[spec.Cluster]
		err := src.faultsOf(spec.Cluster)
		if err != nil {
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

// loader holds the state of one Load.
type loader struct {
	file    file
	source  *source            // of dr.yaml
	sources map[string]*source // by cluster
	getenv  func(string) string
	read    stamps
}

func (l *loader) config() spec.Config {
	c := spec.Config{Concurrency: l.file.Concurrency, Lease: time.Duration(l.file.Lease)}
	for _, f := range declared.CheckService(c.Concurrency, c.Lease) {
		l.source.blame(f.Err, f.Path...)
	}
	repositories := l.repositories()
	if len(l.file.Clusters) == 0 && len(l.file.Include) == 0 {
		l.source.blame(errors.New("no clusters: name at least one"), "clusters")
	}
	for _, name := range slices.Sorted(maps.Keys(l.file.Clusters)) {
		c.Specs = append(c.Specs, l.spec(name, l.file.Clusters[name], repositories))
	}
	return c
}

func (l *loader) repositories() declared.Repositories {
	read, unreadable := map[string]declared.Repository{}, map[string]error{}
	for name, part := range l.file.Repositories {
		d := l.in("repositories", name).repository(part)
		var err error
		d.Credentials, err = l.credentials(part.CredentialsDir)
		if err != nil {
			unreadable[name] = err
		}
		read[name] = d
	}
	all, faults := declared.BuildRepositories(read)
	for name, err := range unreadable {
		all.Refuse(name, err)
	}
	l.in("repositories").blameAll(faults)
	return all
}

// credentials returns the contents of the files in dir by their names; nil if dir is "".
func (l *loader) credentials(dir string) (map[string][]byte, error) {
	if dir == "" {
		return nil, nil
	}
	l.read.note(dir)
	entries, _ := os.ReadDir(dir) // ReadFiles returns the error
	for _, e := range entries {
		l.read.note(filepath.Join(dir, e.Name()))
	}
	files, err := credentials.ReadFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("credentialsDir %s: %w", dir, err)
	}
	return files, nil
}

// spec returns the Spec of one cluster.
func (l *loader) spec(name string, part clusterPart, repositories declared.Repositories) spec.Spec {
	in := l.in("clusters", name)
	s, faults := declared.Build(name, in.cluster(part), repositories)
	in.blameAll(faults)
	if part.Schedule.Cron == "" && s.Triggers.None() && part.Drill.Schedule.Cron == "" {
		in.blame(errors.New("no schedule: set schedule, triggers, or drill.schedule for drills alone"))
	}
	if slices.ContainsFunc(faults, func(f declared.Fault) bool { return len(f.Path) > 0 && f.Path[0] == "etcd" }) {
		return s
	}
	err := scheduler.ClusterConfig(s.Etcd).Validate() // reads the certificates
	if err != nil {
		in.blame(errors.New(Keys.Replace(err.Error())), "etcd")
	}
	return s
}

// in is a place in dr.yaml or, for a cluster, in the file that declares it.
type in struct {
	l    *loader
	path []string
}

func (l *loader) in(path ...string) in { return in{l, path} }

// blame adds a fault at the path below the place.
func (i in) blame(err error, below ...string) {
	src := i.l.source
	if len(i.path) > 1 && i.path[0] == "clusters" {
		src = i.l.sources[i.path[1]]
	}
	src.blame(err, slices.Concat(i.path, below)...)
}

// keyOf maps fields of a declaration that hold secrets to the keys that name their files.
var keyOf = map[string]string{"signKey": "signKeyFile", "identities": "identityFiles"}

func (i in) blameAll(faults []declared.Fault) {
	for _, f := range faults {
		path := slices.Clone(f.Path)
		if i.path[0] == "clusters" && len(path) > 1 && path[0] == "repositories" { // in dr.yaml a cluster only names its repositories, in a list
			path = path[:1]
		}
		for n, field := range path {
			path[n] = cmp.Or(keyOf[field], field)
		}
		i.blame(f.Err, path...)
	}
}

// read returns the content of a file that the configuration names. If it cannot be read or is empty, read adds a fault and
// returns "".
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

// secret returns the first line of a file, or the value of a variable; "" if neither is named. The last element of below is
// the key without its ending File or Env.
func (i in) secret(file, variable string, below ...string) string {
	name := below[len(below)-1]
	below = below[:len(below)-1]
	switch {
	case file != "" && variable != "":
		i.blame(fmt.Errorf("%sFile and %sEnv exclude each other: use one", name, name), append(below, name+"File")...)
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
