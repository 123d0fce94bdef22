package plan

import (
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Plain is the treatment of backups and segments that are not encrypted. They are suspect if a key is given: anyone who may write to the
// repository can store them.
type Plain int

// The treatments.
const (
	PlainTaken   Plain = iota // used like encrypted ones
	PlainRefused              // New refuses a plan that needs one
	PlainSkipped              // treated as missing from the catalog
)

// Encrypted returns c without the backups and segments that are not encrypted.
func Encrypted(c catalog.Catalog) catalog.Catalog {
	c.Backups = slices.DeleteFunc(slices.Clone(c.Backups), func(b catalog.Backup) bool { return b.Seal.Encryption == "" })
	c.Imported = slices.DeleteFunc(slices.Clone(c.Imported), func(b catalog.Backup) bool { return b.Seal.Encryption == "" })
	c.Lineages = slices.Clone(c.Lineages)
	for i, l := range c.Lineages {
		c.Lineages[i] = l.Encrypted()
	}
	return c
}

// refusePlain returns an error if r contains anything that is not encrypted.
func (r route) refusePlain() error {
	switch {
	case r.base.ID != "" && r.base.Seal.Encryption == "":
		return RefusePlain("backup " + string(r.base.ID))
	case r.log != nil && r.log.Plain > 0:
		return RefusePlain(fmt.Sprintf("the log: %d of %d segments of lineage %s", r.log.Plain, r.log.Segments, r.log.Lineage))
	}
	return nil
}

// RefusePlain returns an error if p restores anything that is not encrypted.
func (p Plan) RefusePlain() error {
	r := route{log: p.Log}
	if p.Backup != nil {
		r.base = *p.Backup
	}
	return r.refusePlain()
}

// RefusePlain returns the error for an object that is not encrypted although a key was given. It matches fault.Refused.
func RefusePlain(object string) error {
	return fmt.Errorf("%w: %s: not encrypted, though a key was given: anyone who can write to the repository could have stored it: "+
		"--skip-plain leaves out unencrypted objects, --allow-plain uses them", fault.Refused, object)
}
