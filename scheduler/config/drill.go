package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/assertion"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

const (
	minMemory = 64 << 20 // bytes: below it a server does nothing but collect garbage
	maxNice   = 19
)

// drill is the zero one where nothing is said of it, so that nobody takes it for granted that drills are run.
func (i in) drill(name string, part clusterPart, repositories []spec.Repository) (d spec.Drill, secrets []string) {
	p := part.Drill
	if reflect.DeepEqual(p, drillPart{}) || len(repositories) == 0 {
		return d, nil
	}
	d = spec.Drill{Repository: cmp.Or(p.Repository, repositories[0].Name), Dir: p.ScratchDir}
	if !slices.ContainsFunc(repositories, func(r spec.Repository) bool { return r.Name == d.Repository }) {
		i.blame(fmt.Errorf("repository %q is none of the cluster's", d.Repository), "drill", "repository")
	}
	p.Schedule.Zone = cmp.Or(p.Schedule.Zone, part.Schedule.Zone)
	d.Schedule = i.schedule(name+"/drill", p.Schedule, "drill", "schedule")
	for _, text := range p.Assert {
		_, err := assertion.Parse(text)
		if err != nil {
			i.blame(err, "drill", "assert")
		}
	}
	d.Assertions, d.Memory, d.Nice = p.Assert, int64(p.MemoryLimit), p.Nice
	if p.MemoryLimit != 0 && p.MemoryLimit < minMemory {
		i.blame(errors.New("memoryLimit is at least 64MiB"), "drill", "memoryLimit")
	}
	if p.Nice < 0 || p.Nice > maxNice {
		i.blame(fmt.Errorf("nice is from 0 to %d", maxNice), "drill", "nice")
	}
	d.Keys, secrets = i.keys(p)
	return d, secrets
}

// keys are what opens the backups.
func (i in) keys(p drillPart) (keys seal.Keys, secrets []string) {
	for _, path := range p.IdentityFiles {
		text := i.read(path, "drill", "identityFiles")
		secrets = append(secrets, text)
		if text == "" {
			continue
		}
		more, err := seal.ParseKeys(strings.NewReader(text))
		if err != nil {
			i.blame(fmt.Errorf("%s: %w", path, err), "drill", "identityFiles")
		}
		keys = keys.And(more)
	}
	passphrase := i.secret(p.PassphraseFile, p.PassphraseEnv, "drill", "passphrase")
	if passphrase == "" {
		return keys, secrets
	}
	with, err := seal.Passphrase(passphrase)
	if err != nil {
		i.blame(err, "drill")
	}
	return keys.And(with), append(secrets, passphrase)
}
