package backups

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

// Collector collects the manifests and proofs that a Load reads, to make an index of them. The zero Collector is empty. It is safe for
// concurrent use.
type Collector struct {
	mu       sync.Mutex
	lines    map[string]bool // of the documents
	packed   bytes.Buffer
	encoder  *zstd.Encoder // writes to packed; nil before the first document
	unpacked int           // bytes of the index's content
	err      error         // of encoder
}

// add adds the content of a listed object, unless the index would become too large. A nil Collector ignores it.
func (c *Collector) add(o storage.Object, data []byte) {
	if c == nil || !isCopied(o) || int64(len(data)) != o.Size {
		return
	}
	line := listing(o)
	if len(line) > maxLine {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	more := len(line) + len(data)
	if c.err != nil || len(c.lines) == maxCopies || c.packed.Len()+2*records.PackWindow > maxIndex || c.unpacked+more > maxUnpacked {
		return
	}
	if c.encoder == nil {
		c.lines = map[string]bool{}
		c.encoder, c.err = records.NewPacker(&c.packed)
		c.write(indexHeader)
	}
	c.write(line)
	c.write(string(data))
	c.lines[line] = true
	c.unpacked += more
}

func (c *Collector) write(text string) {
	if c.err == nil {
		_, c.err = io.WriteString(c.encoder, text)
	}
}

// StoreIndex replaces the index in the repository by one of the documents in c, unless few of them are missing there. c must not be used
// afterwards.
func (r *Reader) StoreIndex(ctx context.Context, c *Collector) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	missing := len(c.lines)
	if missing < fewDocuments {
		return nil
	}
	key := catalog.BackupsIndexKey(r.Store.Cluster)
	_ = r.eachCopy(ctx, maxIndex, func(line string, _ int64, _ io.Reader) error { // an index that cannot be read is replaced
		if c.lines[line] {
			missing--
		}
		return nil
	})
	if missing < fewDocuments {
		return nil
	}
	err := r.Store.RefuseUnsigned(ctx)
	if err == nil {
		err = c.err
	}
	if err == nil {
		err = c.encoder.Close()
	}
	if err == nil {
		_, err = r.Store.Bucket.Put(ctx, key, bytes.NewReader(c.packed.Bytes()), storage.PutOptions{SizeHint: int64(c.packed.Len())})
	}
	if err != nil {
		return fmt.Errorf("store the index of the backups, %s: %w", key, err)
	}
	return nil
}
