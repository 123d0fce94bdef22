package file_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

// TestSameAsMem checks that a directory and mem return the same results for random calls.
func TestSameAsMem(t *testing.T) {
	scratch := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(scratch, "")
		if err != nil {
			rt.Fatal(err)
		}
		m := pair{ctx: t.Context(), file: open(t, dir), mem: mem.New()}
		rt.Repeat(map[string]func(*rapid.T){
			"put":    m.put,
			"open":   m.open,
			"stat":   m.stat,
			"list":   m.list,
			"delete": m.delete,
		})
	})
}

type pair struct {
	ctx       context.Context
	file, mem storage.Bucket
}

// modelKeys has no key that is a directory of another one, which only mem can store.
var modelKeys = rapid.SampledFrom([]string{
	"a-b", "a.b", "a/b", "a/c/d", "a/c/e", "a0", "b", "c/d", "c d", "cluster1/x", "cluster10/x", "ü", "a//b", "",
})

// answer returns a method's result as text: the object without the fields that differ between stores, or the kind of
// error.
func answer(obj storage.Object, content []byte, err error) string {
	for _, kind := range []error{storage.ErrNotExist, storage.ErrExist, storage.ErrRange, storage.ErrKey, errBroken} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return fmt.Sprintf("%q %d %q %v", obj.Key, obj.Size, content, err)
}

func (m pair) both(t *rapid.T, f func(b storage.Bucket) string) {
	fromFile, fromMem := f(m.file), f(m.mem)
	if fromFile != fromMem {
		t.Fatalf("file says %s\n mem says %s", fromFile, fromMem)
	}
}

func (m pair) put(t *rapid.T) {
	key, content := modelKeys.Draw(t, "key"), rapid.StringN(0, 20, 20).Draw(t, "content")
	o := storage.PutOptions{IfAbsent: rapid.Bool().Draw(t, "if absent")}
	breaks := rapid.Bool().Draw(t, "breaks")
	m.both(t, func(b storage.Bucket) string {
		var r io.Reader = strings.NewReader(content)
		if breaks {
			r = io.MultiReader(r, broken{})
		}
		obj, err := b.Put(m.ctx, key, r, o)
		return answer(obj, nil, err)
	})
}

func (m pair) open(t *rapid.T) {
	key := modelKeys.Draw(t, "key")
	o := storage.OpenOptions{
		Offset: rapid.Int64Range(-1, 22).Draw(t, "offset"),
		Length: rapid.Int64Range(-1, 22).Draw(t, "length"),
	}
	m.both(t, func(b storage.Bucket) string {
		r, obj, err := b.Open(m.ctx, key, o)
		if err != nil {
			return answer(obj, nil, err)
		}
		p, err := io.ReadAll(r)
		return answer(obj, p, errors.Join(err, r.Close()))
	})
}

func (m pair) stat(t *rapid.T) {
	key := modelKeys.Draw(t, "key")
	m.both(t, func(b storage.Bucket) string {
		obj, err := b.Stat(m.ctx, key)
		return answer(obj, nil, err)
	})
}

func (m pair) list(t *rapid.T) {
	parts := rapid.SampledFrom([]string{"", "a", "a/", "a/c/", "a/c/d", "a0", "b", "c", "cluster1", "cluster1/", "~"})
	o := storage.ListOptions{Prefix: parts.Draw(t, "prefix"), After: parts.Draw(t, "after")}
	stop := rapid.IntRange(1, 20).Draw(t, "stop")
	m.both(t, func(b storage.Bucket) string {
		var all []string
		for obj, err := range b.List(m.ctx, o) {
			all = append(all, answer(obj, nil, err))
			if len(all) == stop {
				break
			}
		}
		return strings.Join(all, "\n")
	})
}

func (m pair) delete(t *rapid.T) {
	key := modelKeys.Draw(t, "key")
	m.both(t, func(b storage.Bucket) string {
		return answer(storage.Object{}, nil, b.Delete(m.ctx, key, storage.DeleteOptions{}))
	})
}
