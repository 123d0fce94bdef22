// Package pages counts the entries of an etcd database, and recognizes Kubernetes' keys, from the pages of a snapshot as it streams past. The
// member could provide these facts only by walking its whole index, which blocks its writes.
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
	Entries    int64 // leaf elements that look like those of the key space, one for each revision of each key, also on free pages: rather too many
	Kubernetes bool  // at least one key is or was below /registry/
	Encrypted  bool  // the newest Kubernetes Secret was encrypted by its API server

	size   int    // of a page, in bytes; 0: not known yet; unreadable: the input is not a bbolt database
	id     uint64 // of the current page
	page   []byte // the part of the current page that has arrived
	newest uint64 // revision of the newest Secret so far

	leaf    []byte // a leaf that further pages continue; empty: there is none
	missing int    // the number of these pages that have not arrived
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

// pageSize returns the page size recorded in head, the beginning of the first page; unreadable if head is not valid.
func pageSize(head []byte) int {
	size := int(binary.LittleEndian.Uint32(head[pageHeader+8:]))
	if binary.LittleEndian.Uint32(head[pageHeader:]) != boltMagic || size <= metaHead || size > maxPage {
		return unreadable
	}
	return size
}

// read reads one page. A page that begins with its own id starts a page of bbolt. Every other page continues an earlier one, or is free and
// has no header.
func (c *Content) read(page []byte) {
	own := binary.LittleEndian.Uint64(page) == c.id
	c.id++
	switch {
	case own:
		c.finishLeaf() // one that is incomplete here was freed, and its later pages have been used again
		c.beginLeaf(page)
	case c.missing > 0:
		c.leaf = append(c.leaf, page...)
		c.missing--
		if c.missing == 0 {
			c.finishLeaf()
		}
	}
}

// maxMore is the largest number of pages that continue a leaf and are read with it. Values in further ones are not read.
const maxMore = 64

// beginLeaf reads a page, or keeps it until the pages that continue it have arrived.
func (c *Content) beginLeaf(page []byte) {
	more := binary.LittleEndian.Uint32(page[12:])
	if more == 0 {
		c.readLeaf(page, true)
		return
	}
	c.leaf, c.missing = append(c.leaf[:0], page...), int(min(more, maxMore))
}

// finishLeaf reads the leaf that was kept, if there is one.
func (c *Content) finishLeaf() {
	if len(c.leaf) > 0 {
		c.readLeaf(c.leaf, true)
	}
	c.leaf, c.missing = c.leaf[:0], 0
}

// readLeaf reads the elements of a page if it is a leaf. With withBuckets it also reads inline buckets, but not the buckets inside those: etcd
// does not nest them. It stops at an element that overlaps an earlier one, which bbolt never writes, so it reads no byte twice.
func (c *Content) readLeaf(page []byte, withBuckets bool) {
	if len(page) < pageHeader || binary.LittleEndian.Uint16(page[8:]) != leafPage {
		return
	}
	count := int(binary.LittleEndian.Uint16(page[10:]))
	end := pageHeader + count*elementHeader // of the element before; the first one follows all headers
	for at := pageHeader; at+elementHeader <= min(len(page), pageHeader+count*elementHeader); at += elementHeader {
		e := elementAt(page, at)
		if e.begin < end {
			return
		}
		end = e.end
		c.readElement(e, withBuckets)
	}
}

// element is an element of a leaf page. Its key and value are cut off at the end of the page.
type element struct {
	flags      uint32
	keySize    int
	key, value []byte
	begin, end int // offsets in the page; they may lie after its end
}

// elementAt returns the element whose header is at an offset.
func elementAt(page []byte, at int) element {
	number := func(i int) int { return int(binary.LittleEndian.Uint32(page[at+i:])) }
	begin := at + number(4)
	middle := begin + number(8)
	e := element{flags: binary.LittleEndian.Uint32(page[at:]), keySize: number(8), begin: begin, end: middle + number(12)}
	part := func(from, to int) []byte { return page[min(from, len(page)):min(to, len(page))] }
	e.key, e.value = part(begin, middle), part(middle, e.end)
	return e
}

const (
	revisionKey  = 17 // the length of a key of the key space: a revision (etcd, server/storage/mvcc/revision.go)
	tombstoneKey = 18 // a revision and the mark of a tombstone
)

func (c *Content) readElement(e element, withBuckets bool) {
	switch {
	case e.flags == bucketFlag && withBuckets && len(e.value) > bucketHeader:
		c.readLeaf(e.value[bucketHeader:], false)
	case e.flags == 0 && (e.keySize == revisionKey || e.keySize == tombstoneKey):
		c.Entries++
		if len(e.key) == revisionKey { // all of it is in the page, and it is not a tombstone
			c.readValue(binary.BigEndian.Uint64(e.key), e.value)
		}
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

// readValue reads the value of a key at a revision, or the part of it that is in the page.
func (c *Content) readValue(revision uint64, value []byte) {
	number, _, n := protowire.ConsumeTag(value)
	if n < 0 || number != fieldKey {
		return
	}
	key, rest := field(value, fieldKey)
	c.Kubernetes = c.Kubernetes || bytes.HasPrefix(key, registry)
	if revision >= c.newest && bytes.HasPrefix(key, secrets) {
		stored, _ := field(rest, fieldValue)
		c.newest, c.Encrypted = revision, bytes.HasPrefix(stored, encrypted)
	}
}

// field returns the content of the first field of bytes with that number, cut off where message ends, and the bytes after it.
func field(message []byte, number protowire.Number) (content, rest []byte) {
	for len(message) > 0 {
		found, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, nil
		}
		message = message[n:]
		if found == number && kind == protowire.BytesType {
			size, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return nil, nil
			}
			end := uint64(n) + min(size, uint64(len(message)-n))
			return message[n:end], message[end:]
		}
		n = protowire.ConsumeFieldValue(found, kind, message)
		if n < 0 {
			return nil, nil
		}
		message = message[n:]
	}
	return nil, nil
}
