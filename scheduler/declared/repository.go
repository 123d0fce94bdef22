package declared

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// The limits of a Repository's fields.
const (
	maxParallel     = 64
	defaultParallel = 4
	minLimit        = 64 << 10 // bytes a second: with less, a large object takes too long
)

// Repositories are declared repositories, which clusters refer to by name.
type Repositories struct {
	declared map[string]Repository
	built    map[string]spec.Repository
	places   map[address.Address]string // repository names by address
	refused  map[string]error           // faults of credentials, by repository; no cluster can use it
}

// Refuse makes Build return err, a fault of the repository's credentials, for each cluster that uses the repository.
func (r Repositories) Refuse(name string, err error) { r.refused[name] = err }

// BuildRepositories returns the repositories and their faults. The first element of a fault's path is the repository's name.
// Unusable credentials are not among the faults: they change while a service runs, so Build returns them for the clusters that
// use the repository, and all others continue.
func BuildRepositories(declared map[string]Repository) (Repositories, []Fault) {
	all := Repositories{declared, map[string]spec.Repository{}, map[address.Address]string{}, map[string]error{}}
	var faults []Fault
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		b := builder{path: []string{name}}
		r := b.repository(name, declared[name])
		place, err := placeOf(declared[name].URL, noCluster)
		if err == nil {
			r.Credentials = all.credentials(name, place.Scheme)
		}
		all.built[name] = r
		other, taken := all.places[place]
		switch {
		case err != nil:
			b.fault(err, "url")
		case taken:
			b.fault(fmt.Errorf("the URL is that of repository %s", other), "url")
		}
		all.places[place] = name
		faults = append(faults, b.faults...)
	}
	return all, faults
}

// BuildRepository returns one repository of a cluster, and the faults of its declaration. Their paths begin with its fields.
func BuildRepository(name, cluster string, d Repository) (spec.Repository, []Fault) {
	all, faults := BuildRepositories(map[string]Repository{name: d})
	for i := range faults {
		faults[i].Path = faults[i].Path[1:]
	}
	b := &builder{}
	used := b.repositories(cluster, []string{name}, all)
	for _, f := range b.faults {
		faults = append(faults, Fault{f.Path[min(2, len(f.Path)):], f.Err})
	}
	return used[0], faults
}

// credentials returns the credentials of a repository whose URL has the scheme. It refuses the repository if its credentials
// are not usable.
func (r Repositories) credentials(name, scheme string) credentials.Credentials {
	files := r.declared[name].Credentials
	if files == nil {
		return credentials.Credentials{}
	}
	c, err := credentials.Parse(files)
	if err == nil {
		err = c.Check(scheme)
	}
	if err != nil {
		r.Refuse(name, err)
	}
	return c
}

// builder collects the faults of one declaration.
type builder struct {
	path   []string
	faults []Fault
}

func (b *builder) fault(err error, below ...string) {
	b.faults = append(b.faults, Fault{slices.Concat(b.path, below), err})
}

func (b *builder) repository(name string, d Repository) spec.Repository {
	if d.Parallel == 0 {
		d.Parallel = defaultParallel
	}
	if d.Parallel < 1 || d.Parallel > maxParallel {
		b.fault(fmt.Errorf("parallel must be from 1 to %d", maxParallel), "parallel")
	}
	if d.Limit != 0 && d.Limit < minLimit {
		b.fault(errors.New("limit must be at least 64KiB/s"), "limit")
	}
	modes := []string{"", "governance", "compliance"}
	if !slices.Contains(modes, d.Lock.Mode) || d.Lock.Mode != "" && d.Lock.For == 0 {
		b.fault(errors.New("a lock needs a time (for: 30d); its mode is governance or compliance"), "lock")
	}
	r := spec.Repository{Name: name, URL: d.URL, CredentialsDir: d.CredentialsDir, CA: d.CA, Parallel: d.Parallel, Limit: d.Limit}
	r.Retention = b.retention(d.Retention, "UTC")
	r.Policy = b.keys(d)
	r.Policy.Lock = records.Lock{For: d.Lock.For, Compliance: d.Lock.Mode == "compliance"}
	return r
}

// keys returns the policy with the keys that sign and that are trusted.
func (b *builder) keys(d Repository) (p records.Policy) {
	var err error
	if d.SignKey != "" {
		p.Key, err = sign.ParseKey([]byte(d.SignKey))
		if err != nil {
			b.fault(err, "signKey")
		}
	}
	p.Trust, err = sign.ParseTrust(d.Trust...)
	if err != nil {
		b.fault(err, "trust")
	}
	signer := p.Key.Trust().Keys()
	if !p.Trust.None() && (len(signer) == 0 || !slices.Contains(p.Trust.Keys(), signer[0])) {
		b.fault(errors.New("trust must include the public key of the signing key: nothing that is written would be trusted"), "trust")
	}
	return p
}

// noCluster replaces the cluster's name in a URL that is checked for no cluster. It is longer than any valid name, so it is no
// cluster's; and it may be a part of a bucket's name.
var noCluster = strings.Repeat("x", 101)

// placeOf returns the address of url with the name of a cluster filled in.
func placeOf(url, cluster string) (address.Address, error) {
	filled := strings.ReplaceAll(url, Placeholder, cluster)
	if strings.Contains(filled, "{{") {
		return address.Address{}, fmt.Errorf("unknown placeholder: only %s is known", Placeholder)
	}
	place, err := address.Parse(filled)
	place.Create = "" // does not change the place
	return place, err
}

// repositories returns the repositories of a cluster, with its name filled into their URLs.
func (b *builder) repositories(cluster string, names []string, all Repositories) (used []spec.Repository) {
	if len(names) == 0 {
		b.fault(errors.New("no repositories: name at least one"), "repositories")
	}
	clusterPlaces := map[address.Address]string{}
	for n, name := range names {
		r, ok := all.built[name]
		switch {
		case !ok:
			b.fault(fmt.Errorf("repository %q is not among the repositories", name), "repositories")
			continue
		case slices.Contains(names[:n], name):
			b.fault(fmt.Errorf("repository %q is listed twice", name), "repositories")
			continue
		case strings.Contains(r.URL, Placeholder):
			r = b.filled(r, cluster, all.places, clusterPlaces)
		}
		if all.refused[name] != nil {
			b.fault(fmt.Errorf("repository %s: %w", name, all.refused[name]), "repositories", name, "credentials")
		}
		used = append(used, r)
	}
	return used
}

// filled returns r with the cluster's name in its URL, and adds its address to clusterPlaces. It adds a fault if another
// repository has that address. all has the addresses of all repositories by their declared URLs, clusterPlaces those that the
// cluster uses.
func (b *builder) filled(r spec.Repository, cluster string, all, clusterPlaces map[address.Address]string) spec.Repository {
	place, err := placeOf(r.URL, cluster)
	if err != nil {
		b.fault(fmt.Errorf("repository %s, with the cluster's name in its URL: %w", r.Name, err), "repositories")
		return r
	}
	for _, places := range []map[address.Address]string{all, clusterPlaces} {
		other, taken := places[place]
		if taken && other != r.Name {
			b.fault(fmt.Errorf("repository %s has the same URL for this cluster as repository %s", r.Name, other), "repositories")
		}
	}
	clusterPlaces[place] = r.Name
	r.Pattern, r.URL = r.URL, strings.ReplaceAll(r.URL, Placeholder, cluster)
	return r
}
