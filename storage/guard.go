package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrNoAnswer means that the store gave no result in time, or has given none for so long that it gets no requests at
// the moment. Errors that match it contain the reason if the store has failed, rather than been silent.
var ErrNoAnswer = fault.New(fault.Unreachable, "the store does not answer")

// GuardOptions limit how long a store may keep its callers waiting. All are above zero.
type GuardOptions struct {
	Limit    time.Duration // for one answer: to a request, of the next piece of a body, of the next objects of a listing
	Most     int           // concurrent requests; one that ignores the end of its context counts until it returns
	Failures int           // consecutive requests without a result after which the store counts as unreachable
	Rest     time.Duration // how long an unreachable store gets no requests; after that one request tries
}

// Guard is a bucket whose calls end in time, even if the store hangs. A call that neither answers nor ends with its
// context, such as one to a file system whose server hangs, is abandoned: its goroutine ends when the call returns.
//
// A Put of a body of unknown length has no time limit of its own: only the caller's context ends it.
type Guard struct {
	open    func(ctx context.Context) (Bucket, error)
	o       GuardOptions
	turns   chan struct{}
	opening chan struct{} // full while one call opens the bucket

	mu     sync.Mutex
	opened Bucket        // nil: not yet
	silent int           // consecutive requests without a result
	since  time.Time     // start of the first of them
	last   error         // of the last try of the last of them; nil: the store was silent
	next   time.Time     // when an unreachable store gets its next request
	down   chan struct{} // closed while the store counts as unreachable
}

// NewGuard returns a Guard over the bucket that open returns. The first call opens the bucket. If that fails, the next
// call tries again.
func NewGuard(open func(ctx context.Context) (Bucket, error), o GuardOptions) *Guard {
	return &Guard{open: open, o: o, turns: make(chan struct{}, o.Most), opening: make(chan struct{}, 1), down: make(chan struct{})}
}

// Reach opens the bucket, if it is not open yet.
func (g *Guard) Reach(ctx context.Context) error {
	return g.do(ctx, func(context.Context, Bucket) error { return nil })
}

// bucket returns the open bucket. It may block.
func (g *Guard) bucket(ctx context.Context) (Bucket, error) {
	b := g.inner()
	if b != nil {
		return b, nil
	}
	select {
	case g.opening <- struct{}{}:
		defer func() { <-g.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	b = g.inner()
	if b != nil {
		return b, nil
	}
	b, err := g.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("it cannot be opened: %v", err) // %v hides the sentinel: that of a missing bucket must not look like one of a missing object
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = b
	return b, nil
}

func (g *Guard) inner() Bucket {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

// unreachable returns the error for a store that counts as unreachable. The caller holds g.mu.
func (g *Guard) unreachable() error {
	since, next := g.since.UTC().Format(time.RFC3339), g.next.UTC().Format(time.RFC3339)
	if g.last != nil {
		return &failingError{fmt.Sprintf("has failed since %s: next try at %s", since, next), g.last}
	}
	return fmt.Errorf("%w since %s: next try at %s", ErrNoAnswer, since, next)
}

// failingError is the error of a store whose tries have failed until the limit. It matches only ErrNoAnswer: each of
// these failures may pass.
type failingError struct {
	how  string
	last error
}

func (e *failingError) Error() string {
	return fmt.Sprintf("the store %s, the last try: %v", e.how, e.last)
}

func (e *failingError) Unwrap() error { return ErrNoAnswer }

// enter waits for a free slot. An unreachable store gets one request each Rest; for all others enter returns
// ErrNoAnswer.
func (g *Guard) enter(ctx context.Context) error {
	g.mu.Lock()
	down, now := g.down, time.Now()
	if g.silent >= g.o.Failures {
		if now.Before(g.next) || len(g.turns) == cap(g.turns) {
			defer g.mu.Unlock()
			return g.unreachable()
		}
		g.next, down = now.Add(g.o.Rest), nil
	}
	g.mu.Unlock()
	select {
	case g.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-down:
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.unreachable()
	}
}

// recordAnswer records that the store has answered, with a result or an error.
func (g *Guard) recordAnswer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.silent >= g.o.Failures {
		g.down = make(chan struct{})
	}
	g.silent = 0
}

// recordMiss records that a request which began at since gave no result in time, and returns the error for it. interrupted
// is the error with which the request ended at the limit; nil: it has not ended. A store that only fails counts like
// a silent one: it keeps its callers waiting as long.
func (g *Guard) recordMiss(since time.Time, interrupted error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.silent == 0 {
		g.since = since
	}
	g.next = time.Now().Add(g.o.Rest)
	g.silent++
	g.last = lastTry(interrupted)
	if g.silent == g.o.Failures {
		close(g.down)
	}
	if g.last != nil {
		return &failingError{fmt.Sprintf("has failed for %s", g.o.Limit), g.last}
	}
	return g.limitReached()
}

func (g *Guard) limitReached() error { return fmt.Errorf("%w (%s)", ErrNoAnswer, g.o.Limit) }

// cleanupTime is how long an abandoned call may clean up before guarded returns without it.
const cleanupTime = time.Second

// interruption returns the error that ended sends when an interrupted call ends, or nil after cleanupTime.
func interruption(ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-time.After(cleanupTime):
		return nil
	}
}

// endedWith returns the error for a call that the end of ctx has interrupted. interrupted may be nil.
func endedWith(ctx context.Context, interrupted error) error {
	last := lastTry(interrupted)
	if last == nil {
		return context.Cause(ctx)
	}
	return &InterruptedError{Err: context.Cause(ctx), Last: last}
}

// answer is a call's result.
type answer[T any] struct {
	value T
	err   error
}

// guardedCall is a call of a Guard's bucket.
type guardedCall[T any] struct {
	do   func(context.Context, Bucket) (T, error)
	late func(T) // receives the result of a call that was abandoned, unless do failed; nil: the result is dropped
}

// guarded runs c.do in its own goroutine and returns its result, unless limit passes (0: no limit) or ctx ends first.
// Then the context of c.do ends, and c.late receives the result that c.do returns afterwards.
func guarded[T any](ctx context.Context, g *Guard, limit time.Duration, c guardedCall[T]) (T, error) {
	var none T
	if limit > 0 {
		err := g.enter(ctx)
		if err != nil {
			return none, err
		}
	}
	began := time.Now()
	callCtx, cancel := context.WithCancelCause(ctx)
	done := make(chan answer[T], 1)
	go func() {
		if limit > 0 {
			defer func() { <-g.turns }()
		}
		var a answer[T]
		b, err := g.bucket(callCtx)
		a.err = err
		if err == nil {
			a.value, a.err = c.do(callCtx, b)
		}
		done <- a
	}()
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	select {
	case a := <-done:
		if ctx.Err() == nil {
			g.recordAnswer()
		}
		cancel(nil)
		return a.value, a.err
	case <-over:
		cancel(g.limitReached())
		return none, g.recordMiss(began, abandon(done, c.late))
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		return none, endedWith(ctx, abandon(done, c.late))
	}
}

// abandon drops the result of an interrupted call, and returns its error if it ends within cleanupTime.
func abandon[T any](done <-chan answer[T], late func(T)) error {
	ended := make(chan error, 1)
	go func() {
		a := <-done
		releaseLate(a, late)
		ended <- a.err
	}()
	return interruption(ended)
}

// do is like guarded, for a call that returns no value and has the limit of g.
func (g *Guard) do(ctx context.Context, do func(context.Context, Bucket) error) error {
	_, err := guarded(ctx, g, g.o.Limit, guardedCall[struct{}]{do: func(ctx context.Context, b Bucket) (struct{}, error) {
		return struct{}{}, do(ctx, b)
	}})
	return err
}

func releaseLate[T any](a answer[T], late func(T)) {
	if late != nil && a.err == nil {
		late(a.value)
	}
}

// withRequest adds the request to an error of the Guard. The store's errors name it themselves.
func withRequest(err error, verb, key string) error {
	if errors.Is(err, ErrNoAnswer) {
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
	return err
}

// Put stores an object. The time limit applies only to small bodies of known length, such as a bytes.Reader.
func (g *Guard) Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Object, error) {
	limit := time.Duration(0)
	sized, ok := r.(interface{ Len() int })
	if ok && sized.Len() <= smallBody {
		limit = g.o.Limit
	}
	lent := &lentReader{r, make(chan struct{})}
	defer close(lent.ended)
	put := func(ctx context.Context, b Bucket) (Object, error) { return b.Put(ctx, key, lent, o) }
	obj, err := guarded(ctx, g, limit, guardedCall[Object]{do: put})
	return obj, withRequest(err, "put", key)
}

const smallBody = 1 << 20

// lentReader refuses to begin a Read once ended is closed, because the caller owns its reader again. A Read that is
// already waiting ends when its source does.
type lentReader struct {
	r     io.Reader
	ended chan struct{}
}

func (l *lentReader) Read(p []byte) (int, error) {
	select {
	case <-l.ended:
		return 0, ErrEnded
	default:
		return l.r.Read(p)
	}
}

// Stat describes key's newest version.
func (g *Guard) Stat(ctx context.Context, key string) (Object, error) {
	stat := func(ctx context.Context, b Bucket) (Object, error) { return b.Stat(ctx, key) }
	obj, err := guarded(ctx, g, g.o.Limit, guardedCall[Object]{do: stat})
	return obj, withRequest(err, "stat", key)
}

// Delete removes key.
func (g *Guard) Delete(ctx context.Context, key string, o DeleteOptions) error {
	err := g.do(ctx, func(ctx context.Context, b Bucket) error { return b.Delete(ctx, key, o) })
	return withRequest(err, "delete", key)
}

// Open reads one version of key.
func (g *Guard) Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error) {
	type body struct {
		*guardedBody
		obj Object
	}
	call := guardedCall[body]{late: func(b body) { b.Close() }}
	call.do = func(callCtx context.Context, b Bucket) (body, error) {
		ctx, end := context.WithCancel(ctx) // the body's context, which outlives the call
		stop := context.AfterFunc(callCtx, end)
		rc, obj, err := b.Open(ctx, key, o)
		stop()
		if err != nil {
			end()
			return body{}, err
		}
		read := &guardedBody{g: g, ctx: ctx, key: key, close: end, pieces: make(chan bodyPiece), ended: make(chan error, 1)}
		go read.pump(rc, min(obj.Size+1, largestPiece))
		return body{read, obj}, nil
	}
	b, err := guarded(ctx, g, g.o.Limit, call)
	if err != nil {
		return nil, Object{}, withRequest(err, "open", key)
	}
	return b.guardedBody, b.obj, nil
}

// guardedBody is a body that another goroutine reads, so that its reader never waits longer than the limit.
type guardedBody struct {
	g      *Guard
	ctx    context.Context
	key    string
	close  context.CancelFunc
	pieces chan bodyPiece
	ended  chan error // receives the error that ends the body, nil if it was closed
	piece  bodyPiece  // the unread rest of the last piece
}

type bodyPiece struct {
	data []byte
	err  error // after data
}

const largestPiece = 64 << 10 // bytes

// pump reads until the end or until the body is closed. Two buffers suffice: the reader has finished one when it
// receives the other.
func (b *guardedBody) pump(rc io.ReadCloser, size int64) {
	defer rc.Close()
	var err error
	defer func() { b.ended <- err }()
	buffers := [2][]byte{make([]byte, size), make([]byte, size)}
	for i := 0; ; i = 1 - i {
		var n int
		n, err = rc.Read(buffers[i])
		select {
		case b.pieces <- bodyPiece{buffers[i][:n], err}:
		case <-b.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (b *guardedBody) Read(p []byte) (int, error) {
	for len(b.piece.data) == 0 {
		if b.piece.err != nil {
			return 0, b.piece.err
		}
		began := time.Now()
		timer := time.NewTimer(b.g.o.Limit)
		select {
		case b.piece = <-b.pieces:
		case <-b.ctx.Done():
			b.piece.err = endedWith(b.ctx, interruption(b.ended))
		case <-timer.C:
			b.close()
			b.piece.err = withRequest(b.g.recordMiss(began, interruption(b.ended)), "read", b.key)
		}
		timer.Stop()
	}
	n := copy(p, b.piece.data)
	b.piece.data = b.piece.data[n:]
	return n, nil
}

func (b *guardedBody) Close() error {
	b.close()
	return nil
}

// List yields objects.
func (g *Guard) List(ctx context.Context, o ListOptions) iter.Seq2[Object, error] {
	return g.sequence(ctx, "list "+o.Prefix, func(ctx context.Context, b Bucket) iter.Seq2[Object, error] { return b.List(ctx, o) })
}

type listed struct {
	obj Object
	err error
}

// listedAhead is how many objects a listing may be ahead of its reader.
const listedAhead = 64

// sequence yields the objects that list yields in another goroutine.
func (g *Guard) sequence(
	ctx context.Context, what string, list func(context.Context, Bucket) iter.Seq2[Object, error],
) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		l := listing{end: cancel, all: make(chan listed, listedAhead), first: make(chan struct{}), ended: make(chan error, 1)}
		err := g.do(ctx, func(callCtx context.Context, b Bucket) error {
			stop := context.AfterFunc(callCtx, cancel)
			go l.produce(ctx, list(ctx, b))
			<-l.first
			if stop() && ctx.Err() == nil {
				return nil
			}
			return interruption(l.ended)
		})
		for err == nil {
			next, ended, missed := g.nextListed(ctx, l)
			err = missed
			if err != nil || ended {
				break
			}
			if !yield(next.obj, next.err) || next.err != nil {
				return
			}
		}
		if err != nil {
			yield(Object{}, fmt.Errorf("%s: %w", what, err))
		}
	}
}

// listing is a listing that another goroutine produces.
type listing struct {
	end   context.CancelFunc
	all   chan listed
	first chan struct{} // closed after the first result, or at the end
	ended chan error    // receives the last error at the end, nil if there was none
}

// produce sends the results of list to l.all until ctx ends.
func (l listing) produce(ctx context.Context, list iter.Seq2[Object, error]) {
	begin := sync.OnceFunc(func() { close(l.first) })
	defer begin()
	defer close(l.all)
	var last error
	defer func() { l.ended <- last }()
	for obj, err := range list {
		last = err
		select {
		case l.all <- listed{obj, err}:
			begin()
		case <-ctx.Done():
			return
		}
	}
}

func (g *Guard) nextListed(ctx context.Context, l listing) (next listed, ended bool, err error) {
	select { // a timer for each object would cost more than the object
	case next, more := <-l.all:
		return next, !more, l.cutShort(ctx, more)
	default:
	}
	began := time.Now()
	timer := time.NewTimer(g.o.Limit)
	defer timer.Stop()
	select {
	case next, more := <-l.all:
		return next, !more, l.cutShort(ctx, more)
	case <-ctx.Done():
		return next, false, endedWith(ctx, interruption(l.ended))
	case <-timer.C:
		l.end()
		return next, false, g.recordMiss(began, interruption(l.ended))
	}
}

// cutShort returns an error if a listing ended after ctx: produce then drops objects.
func (l listing) cutShort(ctx context.Context, more bool) error {
	if more || ctx.Err() == nil {
		return nil
	}
	return endedWith(ctx, interruption(l.ended))
}

// Unwrap returns the bucket below, or nil before it is open. If the bucket is a Sweeper, the result guards that too.
func (g *Guard) Unwrap() Bucket {
	b := g.inner()
	if b == nil {
		return nil
	}
	s, ok := AsSweeper(b)
	if ok {
		return &guardedSweeper{g, b, s}
	}
	return b
}

type guardedSweeper struct {
	*Guard
	below   Bucket
	sweeper Sweeper
}

func (s *guardedSweeper) Unwrap() Bucket { return s.below }

// Leftovers yields the pieces that belong to keys with prefix.
func (s *guardedSweeper) Leftovers(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return s.sequence(ctx, "list leftovers of "+prefix, func(ctx context.Context, _ Bucket) iter.Seq2[Object, error] {
		return s.sweeper.Leftovers(ctx, prefix)
	})
}

// Sweep removes one piece that Leftovers has yielded.
func (s *guardedSweeper) Sweep(ctx context.Context, piece Object) error {
	err := s.do(ctx, func(ctx context.Context, _ Bucket) error { return s.sweeper.Sweep(ctx, piece) })
	return withRequest(err, "sweep", piece.Key)
}
