package backups

import (
	"cmp"
	"context"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

const (
	fewDocuments = 24 // so many may be missing in the index, and are read without it
	alwaysRead   = 8  // the newest backups of the live cluster, which are never taken from the index
)

// indexed returns the folders of which copies may be used, and how many bytes the documents have that may be copies: none if they are too
// few. The folders must be sorted newest first, like the result.
func (r *Reader) indexed(folders []Folder, o LoadOptions) (indexed []Folder, size int64) {
	if !r.Store.MayUse(o.Copies) {
		return nil, 0
	}
	live, documents := 0, 0
	for _, f := range folders {
		if !f.ID.IsImport() && live < alwaysRead {
			live++
			continue
		}
		indexed = append(indexed, f)
		for _, object := range f.Objects {
			if o.canCopy(object) {
				documents++
				size += records.Listed(object.Size)
			}
		}
	}
	if documents < fewDocuments {
		return nil, 0
	}
	return indexed, size
}

// canCopy reports whether o asks for a document like that in object, and an index contains it.
func (o LoadOptions) canCopy(object storage.Object) bool {
	return isCopied(object) && (o.Proofs || path.Base(object.Key) == catalog.ManifestName)
}

// copies returns the copies of documents of the folders in the index, by key. If the index cannot be read, it returns what comes before the
// damage. The index may have as many bytes as these documents, so that the memory for a cluster is bounded by its listing.
func (r *Reader) copies(ctx context.Context, folders []Folder, size int64, o LoadOptions) map[string][]byte {
	if len(folders) == 0 {
		return nil
	}
	copies := map[string][]byte{}
	_ = r.eachCopy(ctx, min(size, maxIndex), func(line string, size int64, content io.Reader) error {
		key, _, _ := strings.Cut(line, " ")
		object, ok := r.find(folders, key)
		if !ok || !o.canCopy(object) || listing(object) != line {
			return nil
		}
		data := make([]byte, size)
		_, err := io.ReadFull(content, data)
		if err == nil {
			copies[key] = data
		}
		return err
	})
	return copies
}

// find returns the object with a key in folders, which are sorted newest first.
func (r *Reader) find(folders []Folder, key string) (storage.Object, bool) {
	id, name, ok := catalog.SplitBackupKey(r.Store.Cluster, key)
	if !ok {
		return storage.Object{}, false
	}
	at, ok := slices.BinarySearchFunc(folders, id, func(f Folder, id catalog.ID) int { return cmp.Compare(id, f.ID) })
	if !ok {
		return storage.Object{}, false
	}
	return folders[at].object(name)
}

// read calls use with the content of an object that f lists, which must be signed if the policy trusts keys. It tries a copy in the index
// first, and reads the object if there is none, or the copy is not signed, or use returns an error for it.
func (r *Reader) read(ctx context.Context, f Folder, o storage.Object, use func(data []byte, copied bool) error) error {
	data, ok := f.copies[o.Key]
	if ok && document.Check(data, r.Store.Policy.Trust) == nil && use(data, true) == nil {
		return nil
	}
	data, err := r.Store.ReadSigned(ctx, o.Key)
	if err != nil {
		return err
	}
	err = use(data, false)
	if err == nil {
		f.collect.add(o, data)
	}
	return err
}
