package keyindex

import (
	"iter"

	"github.com/etcd-dr/etcd-dr/restore/keyspace"
)

// change is a change of a key. It contains no pointer: there can be millions, which the garbage collector then need not read.
type change struct {
	key int // its number
	at  keyspace.BucketKey
}

// changes are changes in the order of their revisions, in blocks, so that adding one never copies the others.
type changes struct {
	blocks [][]change
	len    int
}

const blockSize = 4096 // changes

func (c *changes) add(one change) {
	last := len(c.blocks) - 1
	if last < 0 || len(c.blocks[last]) == cap(c.blocks[last]) {
		c.blocks = append(c.blocks, make([]change, 0, blockSize))
		last++
	}
	c.blocks[last] = append(c.blocks[last], one)
	c.len++
}

// upTo yields the changes up to a revision.
func (c *changes) upTo(revision int64) iter.Seq[change] {
	return func(yield func(change) bool) {
		for _, b := range c.blocks {
			for _, one := range b {
				if one.at.Main > revision || !yield(one) {
					return
				}
			}
		}
	}
}

// forget removes the changes up to a revision.
func (c *changes) forget(revision int64) {
	for len(c.blocks) > 0 {
		b := c.blocks[0]
		for len(b) > 0 && b[0].at.Main <= revision {
			b = b[1:]
			c.len--
		}
		if len(b) > 0 {
			c.blocks[0] = b
			return
		}
		c.blocks = c.blocks[1:]
	}
}
