// Package pages reads from the pages of a database, while its snapshot streams past, what a member could tell only by walking through its
// whole index while its writes wait.
package pages

import (
	"bytes"
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// Content is what the pages of a database show, including pages that are free and still have their old content. It is an io.Writer for the
// snapshot. The zero Content is ready for use.
//
// The format is that of bbolt in etcd 3.4 to 3.7 (internal/common: page.go, meta.go), as written on little-endian machines.
type Content struct {
	Entries    int64 // entries of the key space: one for each revision of each key
	Kubernetes bool  // some keys are below /registry/
	Encrypted  bool  // some of these are Secrets that a Kubernetes API server has encrypted

	size int    // of a page, in bytes; 0: not known yet; unreadable: this is no database
	id   uint64 // of the current page
	page []byte // the part of the current page that has arrived
}

const (
	boltMagic     = 0xED0CDAED
	pageHeader    = 16
	metaHead      = pageHeader + 12 // the first page up to the size of a page
	elementHeader = 16
	bucketHeader  = 16
	bucketFlag    = 0x01
	leafPage      = 0x02
	maxPage       = 64 << 10
	unreadable    = -1
)

// Write reads the next part of the snapshot. It accepts anything, and never fails.
func (c *Content) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 && c.size != unreadable {
		goal := c.size
		if goal == 0 {
			goal = metaHead
		}
		part := p[:min(goal-len(c.page), len(p))]
		p = p[len(part):]
		if len(part) == c.size {
			c.read(part) // without a copy
			continue
		}
		c.page = append(c.page, part...)
		switch {
		case len(c.page) < goal:
		case c.size == 0:
			c.size = pageSize(c.page)
		default:
			c.read(c.page)
			c.page = c.page[:0]
		}
	}
	return written, nil
}

// pageSize returns the size of a page as the beginning of the first page tells it.
func pageSize(head []byte) int {
	size := int(binary.LittleEndian.Uint32(head[pageHeader+8:]))
	if binary.LittleEndian.Uint32(head[pageHeader:]) != boltMagic || size <= metaHead || size > maxPage {
		return unreadable
	}
	return size
}

// read reads one page. Any page may be one that continues another, with arbitrary content: only one that has its own id is read.
func (c *Content) read(page []byte) {
	if binary.LittleEndian.Uint64(page) == c.id {
		c.readLeaf(page, true)
	}
	c.id++
}

// readLeaf reads the elements of a page if it is a leaf. It reads small buckets, which are pages inside it, but none that these contain: etcd
// has none, and they would take for ever.
func (c *Content) readLeaf(page []byte, withBuckets bool) {
	if len(page) < pageHeader || binary.LittleEndian.Uint16(page[8:]) != leafPage {
		return
	}
	at := pageHeader
	for range binary.LittleEndian.Uint16(page[10:]) {
		if at+elementHeader > len(page) {
			return
		}
		c.readElement(page, at, withBuckets)
		at += elementHeader
	}
}

// The lengths of the keys of the key space: a revision, and one with the mark of a deletion (etcd, server/storage/mvcc/revision.go).
const (
	revisionKey = 17
	deletionKey = 18
)

// readElement reads the element of a leaf page whose header is at an offset.
func (c *Content) readElement(page []byte, at int, withBuckets bool) {
	flags := binary.LittleEndian.Uint32(page[at:])
	position := int(binary.LittleEndian.Uint32(page[at+4:]))
	key := int(binary.LittleEndian.Uint32(page[at+8:]))
	size := int(binary.LittleEndian.Uint32(page[at+12:]))
	begin := min(at+position+key, len(page))
	value := page[begin:min(begin+size, len(page))]
	switch {
	case flags == bucketFlag && withBuckets && len(value) > bucketHeader:
		c.readLeaf(value[bucketHeader:], false)
	case flags == 0 && (key == revisionKey || key == deletionKey):
		c.Entries++
		c.readValue(value)
	}
}

// Fields of mvccpb.KeyValue (api/mvccpb/kv.proto). etcd writes the key first.
const (
	fieldKey   = 1
	fieldValue = 5
)

// The keys of Kubernetes, and the beginning of each value that its API server has encrypted (k8s.io/apiserver, storage/value).
var (
	registry  = []byte("/registry/")
	secrets   = []byte("/registry/secrets/")
	encrypted = []byte("k8s:enc:")
)

// readValue reads the value of an element, or the part of it that is in the page.
func (c *Content) readValue(value []byte) {
	if c.Kubernetes && c.Encrypted {
		return
	}
	key, rest, ok := field(value, fieldKey)
	if !ok {
		return
	}
	c.Kubernetes = c.Kubernetes || bytes.HasPrefix(key, registry)
	if !bytes.HasPrefix(key, secrets) {
		return
	}
	stored, _, _ := field(rest, fieldValue)
	c.Encrypted = c.Encrypted || bytes.HasPrefix(stored, encrypted)
}

// field returns the first field of bytes with that number, as far as it is in the message, and what follows it.
func field(message []byte, number protowire.Number) (content, rest []byte, ok bool) {
	for len(message) > 0 {
		found, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, nil, false
		}
		message = message[n:]
		if found == number && kind == protowire.BytesType {
			size, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return nil, nil, false
			}
			end := min(uint64(len(message)), uint64(n)+min(size, maxPage))
			return message[n:end], message[end:], true
		}
		n = protowire.ConsumeFieldValue(found, kind, message)
		if n < 0 {
			return nil, nil, false
		}
		message = message[n:]
	}
	return nil, nil, false
}
