package storagetest

import (
	"context"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Faults is a Bucket that fails as a test demands, and otherwise passes calls to the one below it:
//
//	b := storagetest.Faulty(mem.New())
//	b.On(storagetest.VerbStat).Fail(err)            // the next Stat fails
//	b.On(storagetest.VerbPut).Nth(3).FailLate(err)  // the third Put from now on is done, but its answer is lost
//	b.On(storagetest.VerbOpen).Times(2).Cut(10, err) // the streams of the next two Opens end with err after ten bytes
//
// If several faults apply to a call, all take effect; the first error is returned.
type Faults struct {
	b storage.Bucket

	mu    sync.Mutex
	armed []*Fault
	calls map[Verb]int
}

// Faulty returns b with the ability to fail; no faults are armed yet.
func Faulty(b storage.Bucket) *Faults {
	return &Faults{b: b, calls: map[Verb]int{}}
}

// Fault makes some calls of one method fail. Its methods configure it and return it.
type Fault struct {
	f     *Faults
	verb  Verb
	skip  int // calls before the first affected one
	times int // affected calls; below 0 all
	do    actions
}

// actions are the effects on one call.
type actions struct {
	delay     time.Duration
	err, late error
	cut       error
	cutAfter  int
}

// On arms a fault for the next call of verb. It has no effect until Fail, FailLate, Cut or Delay sets one.
func (f *Faults) On(verb Verb) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := &Fault{f: f, verb: verb, times: 1}
	f.armed = append(f.armed, fault)
	return fault
}

// Calls returns the number of calls of verb so far.
func (f *Faults) Calls(verb Verb) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[verb]
}

func (t *Fault) set(change func()) *Fault {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	change()
	return t
}

// Nth affects the nth call from now on in place of the next, which is number 1.
func (t *Fault) Nth(n int) *Fault { return t.set(func() { t.skip = n - 1 }) }

// Times affects n consecutive calls in place of one.
func (t *Fault) Times(n int) *Fault { return t.set(func() { t.times = n }) }

// Always affects all calls from the first one on.
func (t *Fault) Always() *Fault { return t.Times(-1) }

// Delay makes the call wait first, or until its ctx ends.
func (t *Fault) Delay(d time.Duration) *Fault { return t.set(func() { t.do.delay = d }) }

// Fail makes the call fail before it takes effect.
func (t *Fault) Fail(err error) *Fault { return t.set(func() { t.do.err = err }) }

// FailLate makes the call fail after it has taken effect: List after its last object.
func (t *Fault) FailLate(err error) *Fault { return t.set(func() { t.do.late = err }) }

// Cut breaks the stream of an Open, the source of a Put or the sequence of a List after n bytes or objects. It has no
// effect on a stream that ends earlier, nor on a sequence with at most n objects.
func (t *Fault) Cut(n int, err error) *Fault {
	return t.set(func() { t.do.cutAfter, t.do.cut = n, err })
}

// call counts a call, waits, and returns its effects.
func (f *Faults) call(ctx context.Context, verb Verb) actions {
	do := f.effects(verb)
	if do.delay > 0 {
		timer := time.NewTimer(do.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done(): // the Bucket below returns the error
		}
	}
	return do
}

func (f *Faults) effects(verb Verb) actions {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[verb]++
	var do actions
	for _, fault := range f.armed {
		if fault.verb == verb && fault.hits() {
			do = do.and(fault.do)
		}
	}
	f.armed = slices.DeleteFunc(f.armed, func(t *Fault) bool { return t.times == 0 })
	return do
}

func (t *Fault) hits() bool {
	if t.skip > 0 {
		t.skip--
		return false
	}
	if t.times > 0 {
		t.times--
	}
	return true
}

func (a actions) and(b actions) actions {
	a.delay += b.delay
	if a.err == nil {
		a.err = b.err
	}
	if a.late == nil {
		a.late = b.late
	}
	if a.cut == nil {
		a.cut, a.cutAfter = b.cut, b.cutAfter
	}
	return a
}

// Unwrap returns the Bucket below.
func (f *Faults) Unwrap() storage.Bucket { return f.b }

// Put implements storage.Bucket.
func (f *Faults) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	do := f.call(ctx, VerbPut)
	if do.err != nil {
		return storage.Object{}, do.err
	}
	obj, err := f.b.Put(ctx, key, do.stream(r), o)
	if err == nil && do.late != nil {
		return storage.Object{}, do.late
	}
	return obj, err
}

// Open implements storage.Bucket.
func (f *Faults) Open(
	ctx context.Context, key string, o storage.OpenOptions,
) (io.ReadCloser, storage.Object, error) {
	do := f.call(ctx, VerbOpen)
	if do.err != nil {
		return nil, storage.Object{}, do.err
	}
	r, obj, err := f.b.Open(ctx, key, o)
	if err != nil {
		return nil, obj, err
	}
	if do.late != nil {
		r.Close()
		return nil, storage.Object{}, do.late
	}
	return readCloser{do.stream(r), r}, obj, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// Stat implements storage.Bucket.
func (f *Faults) Stat(ctx context.Context, key string) (storage.Object, error) {
	do := f.call(ctx, VerbStat)
	if do.err != nil {
		return storage.Object{}, do.err
	}
	obj, err := f.b.Stat(ctx, key)
	if err == nil && do.late != nil {
		return storage.Object{}, do.late
	}
	return obj, err
}

// List implements storage.Bucket.
func (f *Faults) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		do := f.call(ctx, VerbList)
		if do.err != nil {
			yield(storage.Object{}, do.err)
			return
		}
		for obj, err := range f.b.List(ctx, o) {
			if do.cut != nil && do.cutAfter == 0 {
				yield(storage.Object{}, do.cut)
				return
			}
			do.cutAfter--
			if !yield(obj, err) || err != nil {
				return
			}
		}
		if do.late != nil {
			yield(storage.Object{}, do.late)
		}
	}
}

// Delete implements storage.Bucket.
func (f *Faults) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	do := f.call(ctx, VerbDelete)
	if do.err != nil {
		return do.err
	}
	err := f.b.Delete(ctx, key, o)
	if err != nil {
		return err
	}
	return do.late
}

func (a actions) stream(r io.Reader) io.Reader {
	if a.cut == nil {
		return r
	}
	return &cut{r: r, left: a.cutAfter, err: a.cut}
}

// cut breaks a stream after some bytes.
type cut struct {
	r    io.Reader
	left int
	err  error
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, c.err
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}
