package salvage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// tree reads a bbolt file page by page and checks each offset. bbolt itself would lock and map the file, and end the process
// on an invalid page; salvage must leave no trace and report damage as an error.
//
// The format is that of bbolt in etcd 3.4 to 3.7 (internal/common: page.go, meta.go, bucket.go), as written on little-endian
// machines.
type tree struct {
	r        io.ReaderAt
	size     int64
	pageSize int64
	root     uint64 // page of the root bucket, which contains the others
	left     int64  // bytes that may still be read: a damaged file may contain cycles
}

const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeader    = 16
	elementHeader = 16
	bucketHeader  = 16
	metaSize      = 64

	branchPage = 0x01
	leafPage   = 0x02
	bucketFlag = 0x01

	minPage  = 512
	maxPage  = 64 << 10
	maxRead  = 256 << 20 // bytes of one page with its overflow pages; etcd's largest values are far smaller
	mostRead = 1 << 30   // bytes that are read from one file
)

var errPages = errors.New("invalid page")

// openTree reads the newer of the two meta pages.
func openTree(r io.ReaderAt, size int64) (*tree, error) {
	t := &tree{r: r, size: size, left: mostRead}
	var newest uint64
	found := false
	for at := int64(0); at <= maxPage; at = max(minPage, 2*at) { // the second meta page follows the first, whose size is not known yet
		m, ok := readMeta(r, at)
		if ok && (!found || m.txid > newest) {
			found, newest, t.pageSize, t.root = true, m.txid, m.pageSize, m.root
		}
	}
	if !found {
		return nil, errors.New("no valid meta page")
	}
	return t, nil
}

// meta has the fields of a meta page that a reader needs.
type meta struct {
	pageSize   int64
	root, txid uint64
}

// readMeta reads the meta page at an offset; ok reports whether it is valid.
func readMeta(r io.ReaderAt, at int64) (m meta, ok bool) {
	b := make([]byte, metaSize)
	_, err := r.ReadAt(b, at+pageHeader)
	if err != nil {
		return m, false
	}
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	sum := fnv.New64a()
	sum.Write(b[:56])
	m = meta{pageSize: int64(u32(b[8:])), root: u64(b[16:]), txid: u64(b[48:])}
	valid := u32(b) == boltMagic && u32(b[4:]) == boltVersion && u64(b[56:]) == sum.Sum64()
	return m, valid && m.pageSize >= minPage && m.pageSize <= maxPage && (at == 0 || at == m.pageSize)
}

// page is one page with its overflow pages, or the page of a small bucket that lies inside its parent's page.
type page struct {
	data  []byte
	flags uint16
	count int
}

func parsePage(data []byte) (p page, err error) {
	if len(data) < pageHeader {
		return p, errPages
	}
	p = page{data: data, flags: binary.LittleEndian.Uint16(data[8:]), count: int(binary.LittleEndian.Uint16(data[10:]))}
	if p.flags != branchPage && p.flags != leafPage || pageHeader+p.count*elementHeader > len(data) {
		return p, errPages
	}
	return p, nil
}

// page reads the page with that id, with its overflow pages.
func (t *tree) page(id uint64) (page, error) {
	if id > uint64(t.size/t.pageSize) {
		return page{}, errPages
	}
	at := int64(id) * t.pageSize
	head := make([]byte, pageHeader)
	_, err := t.r.ReadAt(head, at)
	if err != nil {
		return page{}, err
	}
	length := t.pageSize * (1 + int64(binary.LittleEndian.Uint32(head[12:])))
	if binary.LittleEndian.Uint64(head) != id || length > min(maxRead, t.left, t.size-at) {
		return page{}, errPages
	}
	t.left -= length
	data := make([]byte, length)
	_, err = t.r.ReadAt(data, at)
	if err != nil {
		return page{}, err
	}
	return parsePage(data)
}

// element is an element of a leaf (key, value) or of a branch (first key, child).
type element struct {
	key, value []byte
	isBucket   bool   // the value is a bucket
	child      uint64 // page id; 0 in a leaf
}

// element returns the element with index i.
func (p page) element(i int) (e element, err error) {
	at := pageHeader + i*elementHeader
	u32 := func(offset int) int { return int(binary.LittleEndian.Uint32(p.data[at+offset:])) }
	var pos, keySize, valueSize int
	if p.flags == branchPage {
		pos, keySize = u32(0), u32(4)
		e.child = binary.LittleEndian.Uint64(p.data[at+8:])
	} else {
		e.isBucket = u32(0)&bucketFlag != 0
		pos, keySize, valueSize = u32(4), u32(8), u32(12)
	}
	begin, middle, end := at+pos, at+pos+keySize, at+pos+keySize+valueSize
	if end > len(p.data) {
		return e, errPages
	}
	e.key, e.value = p.data[begin:middle], p.data[middle:end]
	return e, nil
}

// bucket is a tree of keys. Its first page is root, or inline in a small bucket (root is then 0).
type bucket struct {
	*tree
	root   uint64
	inline []byte
}

// bucket returns the bucket with a name; ok is false if there is none.
func (t *tree) bucket(name []byte) (b bucket, ok bool, err error) {
	e, ok, err := bucket{tree: t, root: t.root}.get(name)
	if err != nil || !ok {
		return b, false, wrapPages(name, err)
	}
	if !e.isBucket || len(e.value) < bucketHeader {
		return b, false, wrapPages(name, errPages)
	}
	return bucket{t, binary.LittleEndian.Uint64(e.value), e.value[bucketHeader:]}, true, nil
}

func wrapPages(name []byte, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("bucket %q: %w", name, err)
}

// first returns the first page of the bucket.
func (b bucket) first() (page, error) {
	if b.root == 0 {
		return parsePage(b.inline)
	}
	return b.page(b.root)
}

// get returns the element of a key; ok is false if there is none.
func (b bucket) get(key []byte) (e element, ok bool, err error) {
	p, err := b.first()
	for err == nil {
		var at int
		at, err = p.search(key)
		if err != nil || at < 0 {
			return e, false, err
		}
		e, err = p.element(at)
		if err != nil || p.flags == leafPage {
			return e, err == nil && bytes.Equal(e.key, key), err
		}
		p, err = b.page(e.child)
	}
	return e, false, err
}

// search returns the index of the last element whose key is at or before key; -1 if all come after it.
func (p page) search(key []byte) (int, error) {
	for i := range p.count {
		e, err := p.element(i)
		if err != nil {
			return 0, err
		}
		if bytes.Compare(e.key, key) > 0 {
			return i - 1, nil
		}
	}
	return p.count - 1, nil
}

// last returns the last key; nil if there is none.
func (b bucket) last() ([]byte, error) {
	p, err := b.first()
	for err == nil {
		if p.count == 0 {
			return nil, nil
		}
		var e element
		e, err = p.element(p.count - 1)
		if err != nil || p.flags == leafPage {
			return e.key, err
		}
		p, err = b.page(e.child)
	}
	return nil, err
}

// each calls do for every key.
func (b bucket) each(do func(key, value []byte) error) error {
	p, err := b.first()
	if err != nil {
		return err
	}
	return b.walk(p, do)
}

// walkPage calls do for every key in the page with that id and those below it.
func (b bucket) walkPage(id uint64, do func(key, value []byte) error) error {
	p, err := b.page(id)
	if err != nil {
		return err
	}
	return b.walk(p, do)
}

// walk calls do for every key in p and in the pages below it.
func (b bucket) walk(p page, do func(key, value []byte) error) error {
	for i := range p.count {
		e, err := p.element(i)
		if err != nil {
			return err
		}
		if p.flags == leafPage {
			err = do(e.key, e.value)
		} else {
			err = b.walkPage(e.child, do)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
