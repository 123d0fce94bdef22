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

// tombstoneName is a name that a tombstone may have.
const TombstoneName = "tombstone-0123456789abcdef.json"

// unsigned shows manifests without their signatures.
type Unsigned struct{ storage.Bucket }

// openForger opens the cluster for somebody without a key, who writes all the same where everything is signed.
func OpenForger(tb testing.TB, b storage.Bucket) *repository.Cluster {
	tb.Helper()
	return OpenCluster(tb, Unsigned{b}, "c")
}

func AppendProof(tb testing.TB, c *repository.Cluster, p catalog.Proof) {
	tb.Helper()
	if err := c.Append(tb.Context(), p); err != nil {
		tb.Fatal(err)
	}
}

func Keyed(w *Writer, key sign.Key) *Writer {
	w.Key = key
	return w
}

func Contents(tb testing.TB, b storage.Bucket) map[string]string {
	tb.Helper()
	all := map[string]string{}
	for _, key := range Keys(tb, b) {
		all[key] = string(Get(tb, b, key))
	}
	return all
}

func MustCopy(tb testing.TB, from, to *repository.Cluster, o copying.Options) copying.Result {
	tb.Helper()
	result, err := copying.Copy(tb.Context(), from, to, o, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// Open returns the object, a manifest without its signature.
func (u Unsigned) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	r, object, err := u.Bucket.Open(ctx, key, o)
	if err != nil || !strings.HasSuffix(key, "/manifest.json") {
		return r, object, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if stripped, e := document.WithSignature(data, ""); e == nil {
		data, object.Size = stripped, int64(len(stripped))
	}
	return io.NopCloser(bytes.NewReader(data)), object, err
}
