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

// Azure drops blocks that nobody has committed a week after the last one came. The one way to be rid of them earlier
// is to commit an empty list, which makes an empty blob, and to delete that.
//
// The blob that stands there for a moment, or for longer if the process dies between the two, carries a mark. All
// verbs take a marked blob for none, and a Put with IfAbsent replaces it by its ETag. So it is never seen, and it
// holds no key against anybody.
//
// What is promised: a failed Put of a key that did not exist leaves no blocks, where no other writer has blocks
// there too. Blocks stay for Azure's week, unseen by Leftovers as well, under a key that has an object (only its
// replacement would remove them), and in a container that has a policy or hold of its own, or that does not let us
// look: there the empty blob might not be removable. An empty commit also takes the blocks of a Put that has begun
// since the list of blocks was read. That Put fails and may be repeated.

// mark is what the id in the metadata of an abandoned blob says.
const mark = "abandoned"

func abandoned(metadata map[string]*string) bool { return valueOf(metadata, idKey) == mark }

// lateTime is how long the store may need for a block that has reached it whole before its connection was broken off.
const lateTime = 100 * time.Millisecond

// Abort implements storage.Upload. A block that was on its way may come in after the first look.
func (u *upload) Abort(ctx context.Context) error {
	ours := func(id blockID) bool { return id.Put == u.id }
	err := u.b.clear(ctx, u.key, ours)
	if err == nil && u.cut.Load() {
		select {
		case <-ctx.Done():
		case <-time.After(lateTime):
		}
		err = u.b.clear(ctx, u.key, ours)
	}
	return explain(err)
}

// clear removes the uncommitted blocks of a key that has no blob, if all of them are ours.
func (b *Bucket) clear(ctx context.Context, key string, ours func(blockID) bool) error {
	if t, err := b.ask(ctx); err != nil || !t.clearable {
		return err
	}
	ids, err := b.uncommitted(ctx, key)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, text := range ids {
		if id, ok := parseBlockID(text); !ok || !ours(id) {
			return nil
		}
	}
	abandoned := mark
	u := upload{o: storage.PutOptions{IfAbsent: true}}
	resp, err := b.container.NewBlockBlobClient(key).CommitBlockList(ctx, nil, &blockblob.CommitBlockListOptions{
		Metadata:         map[string]*string{idKey: &abandoned},
		AccessConditions: u.conditions(),
	})
	if err = explain(err); errors.Is(err, storage.ErrExist) {
		return nil // an object, of somebody else or late
	}
	if err != nil {
		return err
	}
	return b.bury(ctx, key, version(resp.VersionID, nil), version(nil, resp.ETag))
}

// uncommitted lists the ids of the blocks under key, none where there is nothing.
func (b *Bucket) uncommitted(ctx context.Context, key string) ([]string, error) {
	list, err := b.container.NewBlockBlobClient(key).GetBlockList(ctx, blockblob.BlockListTypeUncommitted, nil)
	if err = explain(err); errors.Is(err, storage.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, block := range list.UncommittedBlocks {
		ids = append(ids, deref(block.Name))
	}
	return ids, err
}

// bury deletes an abandoned blob, and the version that it leaves in an account that keeps them. That one may be
// locked by a default policy; it is as invisible as before, so an error of the second step is none.
func (b *Bucket) bury(ctx context.Context, key, versioned, current string) error {
	if err := b.deleteOnly(ctx, key, current); err != nil {
		return err
	}
	if strings.HasPrefix(versioned, byVersion) {
		_ = b.deleteOnly(ctx, key, versioned)
	}
	return nil
}

// Leftovers implements storage.Sweeper. A piece is all that lies under one key.
func (b *Bucket) Leftovers(ctx context.Context, prefix string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		if t, err := b.ask(ctx); err != nil || !t.clearable {
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

// piece tells whether what was listed is a leftover. Blobs without committed content are listed as empty ones: only
// their blocks tell them from those that are empty.
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

// lastSent is when the newest of some blocks was sent; false if there are none, or others than ours.
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

// Sweep implements storage.Sweeper. A piece to which blocks have come since it was listed is another one by now, and
// stays.
func (b *Bucket) Sweep(ctx context.Context, piece storage.Object) error {
	if err := b.sweep(ctx, piece); err != nil {
		return b.failed("sweep", piece.Key, err)
	}
	return nil
}

func (b *Bucket) sweep(ctx context.Context, piece storage.Object) error {
	if err := validKey(piece.Key); err != nil {
		return err
	}
	p, err := b.container.NewBlobClient(piece.Key).GetProperties(ctx, nil)
	if err = explain(err); err == nil {
		if !abandoned(p.Metadata) {
			return nil // it has become an object
		}
		return b.bury(ctx, piece.Key, version(p.VersionID, nil), version(nil, p.ETag))
	}
	if !errors.Is(err, storage.ErrNotExist) {
		return err
	}
	return b.clear(ctx, piece.Key, func(id blockID) bool { return !time.Unix(id.Sent, 0).After(piece.ModTime) })
}

// items goes through the pages of a listing. Its order is checked, as everything above relies on it.
func (b *Bucket) items(
	ctx context.Context, o storage.ListOptions, include container.ListBlobsInclude,
) iter.Seq2[*container.BlobItem, error] {
	return func(yield func(*container.BlobItem, error) bool) {
		options := container.ListBlobsFlatOptions{Include: include, MaxResults: b.pageSize, Prefix: &o.Prefix}
		if o.After != "" && strings.HasPrefix(o.After, o.Prefix) {
			options.StartFrom = &o.After // only spares pages: After itself comes, and older services do not know it
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
					yield(nil, fmt.Errorf("%w: %q is listed behind %q, as accounts with a hierarchical namespace do: use an account "+
						"without one", storage.ErrUnsupported, key, last))
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
