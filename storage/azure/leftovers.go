package azure

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Azure drops uncommitted blocks a week after the newest one arrived. The only way to remove them earlier is to commit
// an empty list, which creates an empty blob, and to delete that blob.
//
// The empty blob carries a mark. It exists for a moment, or for longer if the process dies before it deletes the blob.
// All methods treat a marked blob as missing, and a Put with IfAbsent replaces it, on the condition that its ETag is
// unchanged. So it is never visible and blocks no key.
//
// A failed Put of a new key leaves no blocks, unless another writer has blocks under that key. In three cases blocks stay
// for Azure's week, and Leftovers does not list them: under a key that has an object, because only replacing the object
// would remove them; in a container with a policy or hold of its own; and in a container whose properties the caller may
// not read. In the last two the empty blob might not be removable. An empty commit also discards the blocks of a Put that
// began after the list of blocks was read. That Put fails, and the caller may repeat it.

// mark is the value of idKey in the metadata of an abandoned blob.
const mark = "abandoned"

func abandoned(metadata map[string]*string) bool { return valueOf(metadata, idKey) == mark }

// lateTime is how long the store may take to list a block that it had received completely when the connection broke.
const lateTime = 100 * time.Millisecond

// Abort implements storage.Upload. If a request was cut off, it clears twice, because the block in flight may arrive after
// the first time.
func (u *upload) Abort(ctx context.Context) error {
	ours := func(id blockID) bool { return id.Put == u.id }
	err := u.b.clear(ctx, u.key, ours)
	if err == nil && u.cut.Load() {
		_ = storage.Sleep(ctx, lateTime) // the next request reports the end of ctx
		err = u.b.clear(ctx, u.key, ours)
	}
	return explain(err)
}

// clear removes the uncommitted blocks of a key that has no blob, if ours returns true for all of them.
func (b *Bucket) clear(ctx context.Context, key string, ours func(blockID) bool) error {
	t, err := b.loadTraits(ctx)
	if err != nil || !t.clearable {
		return err
	}
	ids, err := b.uncommitted(ctx, key)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, text := range ids {
		id, ok := parseBlockID(text)
		if !ok || !ours(id) {
			return nil
		}
	}
	value := mark
	u := upload{o: storage.PutOptions{IfAbsent: true}}
	resp, err := b.container.NewBlockBlobClient(key).CommitBlockList(ctx, nil, &blockblob.CommitBlockListOptions{
		Metadata:         map[string]*string{idKey: &value},
		AccessConditions: u.conditions(),
	})
	err = explain(err)
	if errors.Is(err, storage.ErrExist) {
		return nil // an object has appeared: another writer's, or this Put's after all
	}
	if err != nil {
		return err
	}
	return b.deleteAbandoned(ctx, key, version(resp.VersionID, nil), version(nil, resp.ETag))
}

// uncommitted returns the ids of the blocks under key, or nil if there are none.
func (b *Bucket) uncommitted(ctx context.Context, key string) ([]string, error) {
	list, err := b.container.NewBlockBlobClient(key).GetBlockList(ctx, blockblob.BlockListTypeUncommitted, nil)
	err = explain(err)
	if errors.Is(err, storage.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, block := range list.UncommittedBlocks {
		ids = append(ids, deref(block.Name))
	}
	return ids, err
}

// deleteAbandoned deletes an abandoned blob and, in an account with versioning, the version that remains. If a default
// policy has locked that version, the second deletion fails; deleteAbandoned ignores it, because the version is invisible.
func (b *Bucket) deleteAbandoned(ctx context.Context, key, versioned, current string) error {
	err := b.deleteOnly(ctx, key, current)
	if err != nil {
		return err
	}
	if strings.HasPrefix(versioned, byVersion) {
		_ = b.deleteOnly(ctx, key, versioned)
	}
	return nil
}

// Leftovers implements storage.Sweeper. One piece stands for all leftovers under one key.
func (b *Bucket) Leftovers(ctx context.Context, prefix string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		t, err := b.loadTraits(ctx)
		if err != nil || !t.clearable {
			if err != nil {
				yield(storage.Object{}, b.failed("list the leftovers of", prefix, err))
			}
			return
		}
		include := container.ListBlobsInclude{Metadata: true, UncommittedBlobs: true}
		for item, err := range b.items(ctx, storage.ListOptions{Prefix: prefix}, include) {
			var piece storage.Object
			found := false
			if err == nil {
				piece, found, err = b.piece(ctx, item)
			}
			if err != nil {
				yield(storage.Object{}, b.failed("list the leftovers of", prefix, err))
				return
			}
			if found && !yield(piece, nil) {
				return
			}
		}
	}
}

// piece returns the leftover that item represents, and reports whether item is a leftover. Azure lists a blob without
// committed content as empty: only its blocks distinguish it from an empty blob.
func (b *Bucket) piece(ctx context.Context, item *container.BlobItem) (storage.Object, bool, error) {
	obj := object(item)
	if abandoned(item.Metadata) {
		return obj, true, nil
	}
	if obj.Size > 0 || valueOf(item.Metadata, idKey) != "" {
		return storage.Object{}, false, nil
	}
	ids, err := b.uncommitted(ctx, obj.Key)
	at, ours := lastSent(ids)
	return storage.Object{Key: obj.Key, ModTime: at}, ours, err
}

// lastSent returns when the newest block was sent. It returns false if there are no blocks, or blocks of other
// programs.
func lastSent(ids []string) (at time.Time, ours bool) {
	var last int64
	for _, text := range ids {
		id, ok := parseBlockID(text)
		if !ok {
			return time.Time{}, false
		}
		last = max(last, id.Sent)
	}
	return time.Unix(last, 0).UTC(), len(ids) > 0
}

// Sweep implements storage.Sweeper. A piece that has received blocks since it was listed stays.
func (b *Bucket) Sweep(ctx context.Context, piece storage.Object) error {
	err := b.sweep(ctx, piece)
	if err != nil {
		return b.failed("sweep", piece.Key, err)
	}
	return nil
}

func (b *Bucket) sweep(ctx context.Context, piece storage.Object) error {
	err := validKey(piece.Key)
	if err != nil {
		return err
	}
	p, err := b.container.NewBlobClient(piece.Key).GetProperties(ctx, nil)
	err = explain(err)
	if err == nil {
		if !abandoned(p.Metadata) {
			return nil // it has become an object
		}
		return b.deleteAbandoned(ctx, piece.Key, version(p.VersionID, nil), version(nil, p.ETag))
	}
	if !errors.Is(err, storage.ErrNotExist) {
		return err
	}
	return b.clear(ctx, piece.Key, func(id blockID) bool { return !time.Unix(id.Sent, 0).After(piece.ModTime) })
}

// items yields the blobs that o selects, by ascending key. It checks the order, because its callers rely on it.
func (b *Bucket) items(
	ctx context.Context, o storage.ListOptions, include container.ListBlobsInclude,
) iter.Seq2[*container.BlobItem, error] {
	return func(yield func(*container.BlobItem, error) bool) {
		options := container.ListBlobsFlatOptions{Include: include, MaxResults: b.pageSize, Prefix: &o.Prefix}
		if o.After != "" && strings.HasPrefix(o.After, o.Prefix) {
			options.StartFrom = &o.After // this only saves pages: After itself is listed too, and older services ignore StartFrom
		}
		last := ""
		for pager := b.container.NewListBlobsFlatPager(&options); pager.More(); {
			page, err := pager.NextPage(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range page.Segment.BlobItems {
				key := deref(item.Name)
				if key < last {
					yield(nil, fmt.Errorf("%w: %q is listed after %q, so the account seems to have a hierarchical namespace: "+
						"use an account without one", storage.ErrUnsupported, key, last))
					return
				}
				last = key
				if key > o.After && validKey(key) == nil && !yield(item, nil) {
					return
				}
			}
		}
	}
}
