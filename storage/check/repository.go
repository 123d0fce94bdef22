package check

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

const (
	newestBackup = "newest backup"
	readable     = "objects can be read"
	encryption   = "encryption"
	signature    = "signature"
)

// repository checks the newest backup of each cluster.
func (p *probe) repository(ctx context.Context) []Line {
	if ctx.Err() != nil {
		return nil
	}
	names := p.o.Clusters
	if names == nil {
		var err error
		names, err = repository.Clusters(ctx, p.root)
		if err != nil {
			return []Line{failed(err).named(newestBackup)}
		}
	}
	var lines []Line
	for _, name := range names {
		for _, l := range p.cluster(ctx, name) {
			l.Of = name
			lines = append(lines, l)
		}
	}
	return lines
}

func (p *probe) cluster(ctx context.Context, name string) []Line {
	c, err := repository.OpenWith(p.root, name, records.Policy{Trust: p.o.Trust})
	if err != nil {
		return []Line{failed(err).named(newestBackup)}
	}
	cat, err := c.Load(ctx, backups.LoadOptions{Newest: 1})
	if err != nil {
		return []Line{failed(err).named(newestBackup)}
	}
	unreadable, found := p.unreadable(ctx, c)
	if found {
		return []Line{unreadable}
	}
	if len(cat.Untrusted) > 0 {
		return []Line{wanting("find out how it got there, or add the key that signed it with --trust",
			"%s", oneLine(cat.Untrusted[0].Err)).named(signature)}
	}
	b, err := cat.Latest()
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return []Line{note("take one with dr backup", "there is none").named(newestBackup)}
	case err != nil:
		return []Line{wanting("take another one with dr backup, and check this one with dr verify",
			"%s", oneLine(err)).named(newestBackup)}
	}
	age := time.Since(b.Started).Truncate(time.Second)
	return []Line{
		ok("%s, taken %v ago, at revision %d, %d bytes", b.ID, age, b.Revision, b.Stored.Size).named(newestBackup),
		encrypted(b).named(encryption),
		p.signed(ctx, b).named(signature),
	}
}

// surveyed is the number of newest backups that are checked for unreadable objects.
const surveyed = 32

// unreadable returns a Line and true if an object of the cluster cannot be read. Then the other checks are pointless.
func (p *probe) unreadable(ctx context.Context, c *repository.Cluster) (Line, bool) {
	s, err := c.Survey(ctx, repository.SurveyOptions{Newest: surveyed})
	if err != nil {
		return failed(err).named(readable), true
	}
	var found []error
	for _, d := range slices.Concat(s.Damaged, s.Untrusted, s.Ignored) {
		found = append(found, d.Err)
	}
	for _, l := range s.Lineages {
		for _, f := range l.Faults {
			found = append(found, f.Err)
		}
	}
	found = slices.DeleteFunc(found, func(err error) bool { return !storage.Unreadable(err) })
	if len(found) == 0 {
		return Line{}, false
	}
	return wanting("give these credentials the right to read it; in a directory, give everything to its owner: chown -R --reference=DIRECTORY DIRECTORY",
		"%d objects cannot be read, the first: %s", len(found), oneLine(found[0])).named(readable), true
}

func encrypted(b catalog.Backup) Line {
	if b.Seal.Encryption == "" {
		return note("take backups with --recipient",
			"OFF: the newest backup is not encrypted: anyone who can read the store can read every secret in etcd")
	}
	return ok("on: the newest backup is encrypted for %d recipients", len(b.Seal.Recipients))
}

// signed checks whether b is signed. Without trusted keys it reads the manifest again, because the catalog does not keep
// the signature.
func (p *probe) signed(ctx context.Context, b catalog.Backup) Line {
	if !p.o.Trust.None() {
		return ok("the newest backup is signed by a trusted key")
	}
	r, _, err := p.root.Open(ctx, b.Cluster+"/backups/"+string(b.ID)+"/manifest.json",
		storage.OpenOptions{Length: document.MaxSize})
	if err != nil {
		return failed(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	switch {
	case err != nil:
		return failed(err)
	case document.Signature(data) == "":
		return note("sign with --sign-key, and read with --trust",
			"the newest backup is unsigned: anyone who can write to the store can forge one")
	}
	return ok("the newest backup is signed; --trust checks by which key")
}
