package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage"
)

func (p *probe) read(ctx context.Context, key string, o storage.OpenOptions) ([]byte, error) {
	r, _, err := p.bucket.Open(ctx, key, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// same returns an error unless the content of key is want.
func (p *probe) same(ctx context.Context, key string, o storage.OpenOptions, want []byte) error {
	got, err := p.read(ctx, key, o)
	if err != nil {
		return err
	}
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%q was read as %d bytes that differ from the %d that were stored, from byte %d on",
		key, len(got), len(want), at)
}

func keys(ctx context.Context, b storage.Bucket, o storage.ListOptions) ([]string, error) {
	var all []string
	for obj, err := range b.List(ctx, o) {
		if err != nil {
			return nil, err
		}
		all = append(all, obj.Key)
	}
	return all, nil
}

func (p *probe) checksum(ctx context.Context) Line {
	for key, size := range map[string]int{"small": small, "large": p.o.Large} {
		obj, err := p.put(ctx, key, bytes.NewReader(p.content(6, size)), createOnly)
		if err != nil {
			return failed(err)
		}
		err = p.same(ctx, key, storage.OpenOptions{}, p.content(6, size))
		if err != nil {
			return wanting(anotherStore, "%s", oneLine(err))
		}
		if key == "large" {
			p.large = obj
		}
	}
	return ok("objects of %d and %d bytes were read as they were stored", small, p.o.Large)
}

// readsRanges reads ranges of a small object and, if a large one was stored, a range across its parts.
func (p *probe) readsRanges(ctx context.Context) Line {
	const key = "ranges"
	content := p.content(0, small)
	_, err := p.put(ctx, key, bytes.NewReader(content), createOnly)
	if err != nil {
		return failed(err)
	}
	for _, o := range []storage.OpenOptions{
		{Length: 10}, {Offset: 10, Length: 20}, {Offset: 500}, {Offset: small - 10, Length: 100}, {Offset: small - 1},
		{Offset: small},
	} {
		err := p.same(ctx, key, o, cut(content, o))
		if err != nil {
			return wanting(anotherStore, "reading offset %d, length %d of %d bytes: %s", o.Offset, o.Length, small, oneLine(err))
		}
	}
	_, err = p.read(ctx, key, storage.OpenOptions{Offset: small + 1})
	if !errors.Is(err, storage.ErrRange) {
		return wanting(anotherStore, "a range that begins past the end is not refused as such (error: %v)", err)
	}
	if p.large.Size == 0 {
		return ok("offset, length and past the end; not tested on an object that is stored in parts")
	}
	o := storage.OpenOptions{Offset: int64(p.o.Large) / 2, Length: int64(p.o.Large) / 2}
	err = p.same(ctx, p.large.Key, o, cut(p.content(6, p.o.Large), o))
	if err != nil {
		return wanting(anotherStore, "reading the second half of %d bytes: %s", p.o.Large, oneLine(err))
	}
	return ok("offset, length and past the end, also on an object that is stored in parts")
}

// cut returns the range of content that o selects.
func cut(content []byte, o storage.OpenOptions) []byte {
	content = content[o.Offset:]
	if o.Length > 0 {
		content = content[:min(o.Length, int64(len(content)))]
	}
	return content
}

func (p *probe) pinnedReads(ctx context.Context) Line {
	const key = "pinned"
	first, err := p.put(ctx, key, bytes.NewReader(p.content(7, small)), storage.PutOptions{})
	if err != nil {
		return failed(err)
	}
	second, err := p.put(ctx, key, bytes.NewReader(p.content(8, small)), storage.PutOptions{})
	if err != nil {
		return failed(err)
	}
	if first.Version == second.Version {
		return wanting(anotherStore, "two contents under one key have the same version")
	}
	err = p.same(ctx, key, storage.OpenOptions{Version: second.Version}, p.content(8, small))
	if err != nil {
		return wanting(anotherStore, "reading the newest version by its name: %s", oneLine(err))
	}
	err = p.same(ctx, key, storage.OpenOptions{Version: first.Version}, p.content(7, small))
	switch {
	case err == nil:
		return ok("a replaced version can still be read by its name")
	case errors.Is(err, storage.ErrNotExist):
		return ok("reading a replaced version is refused, and does not return the new one")
	}
	return wanting(anotherStore, "reading a replaced version by its name: %s", oneLine(err))
}

// lists puts keys out of order, and expects each in the listing at once.
func (p *probe) lists(ctx context.Context) Line {
	names := []string{"list/2", "list/10", "list/1", "list/a b", "list/B", "list/-", "list/%41"}
	for _, key := range names {
		_, err := p.put(ctx, key, bytes.NewReader(p.content(9, 10)), createOnly)
		if err != nil {
			return failed(err)
		}
		got, err := keys(ctx, p.bucket, storage.ListOptions{Prefix: "list/"})
		if err != nil {
			return failed(err)
		}
		if !slices.Contains(got, key) {
			return wanting(anotherStore, "%q is not listed right after it was stored", key)
		}
	}
	slices.Sort(names)
	for _, o := range []storage.ListOptions{{Prefix: "list/"}, {Prefix: "list/", After: "list/10"}, {Prefix: "list/1"}} {
		got, err := keys(ctx, p.bucket, o)
		if err != nil {
			return failed(err)
		}
		want := selectNames(names, o)
		if !slices.Equal(got, want) {
			return wanting(anotherStore, "with prefix %q and after %q the store lists %q, not %q", o.Prefix, o.After, got, want)
		}
	}
	return ok("in byte order, and at once")
}

// selectNames returns those of the sorted names that o selects.
func selectNames(names []string, o storage.ListOptions) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !bytes.HasPrefix([]byte(name), []byte(o.Prefix)) || name <= o.After
	})
}
