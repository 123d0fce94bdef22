package stored

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// TombstoneName is a valid name of a tombstone, without its folder.
const TombstoneName = "tombstone-0123456789abcdef.json"

// Unsigned is a Bucket whose manifests have lost their signatures when they are read.
type Unsigned struct{ storage.Bucket }

// OpenForger opens cluster c as an attacker without a key: its Cluster writes even if all backups are signed, since it finds
// no signature.
func OpenForger(tb testing.TB, b storage.Bucket) *repository.Cluster {
	tb.Helper()
	return OpenCluster(tb, Unsigned{b}, "c")
}

// AppendProof stores p.
func AppendProof(tb testing.TB, c *repository.Cluster, p catalog.Proof) {
	tb.Helper()
	err := c.Append(tb.Context(), p)
	if err != nil {
		tb.Fatal(err)
	}
}

// Keyed returns w, which signs its segments with key from now on.
func Keyed(w *Writer, key sign.Key) *Writer {
	w.Key = key
	return w
}

// Contents returns the content of each object in b, by key.
func Contents(tb testing.TB, b storage.Bucket) map[string]string {
	tb.Helper()
	all := map[string]string{}
	for _, key := range Keys(tb, b) {
		all[key] = string(Get(tb, b, key))
	}
	return all
}

// MustCopy copies from one cluster to another and returns the result.
func MustCopy(tb testing.TB, from, to *repository.Cluster, o copying.Options) copying.Result {
	tb.Helper()
	result, err := copying.Copy(tb.Context(), from, to, o)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// Open opens the object; a manifest is without its signature.
func (u Unsigned) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	r, object, err := u.Bucket.Open(ctx, key, o)
	if err != nil || !strings.HasSuffix(key, "/manifest.json") {
		return r, object, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	stripped, e := document.WithSignature(data, "")
	if e == nil {
		data, object.Size = stripped, int64(len(stripped))
	}
	return io.NopCloser(bytes.NewReader(data)), object, err
}
