package storage

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Upload is one object that a store receives in parts and shows only after Commit: an S3 multipart upload, the blocks
// of an Azure blob.
type Upload interface {
	// Part sends part n, counted from 1. Several goroutines call it at once, once for each n. p is valid only until
	// Part returns.
	Part(ctx context.Context, n int, p []byte) error
	// Commit creates the object from parts 1 to n, all of which have been sent. If the answer is lost, Commit must find
	// out the result: an error means that the object does not exist, as far as that can be known.
	Commit(ctx context.Context, n int) (Object, error)
	// Abort removes the parts. It is called after every failure, including Commit's, with its own ctx.
	Abort(ctx context.Context) error
}

// Uploader stores one object.
type Uploader interface {
	// Whole stores p, the whole object, in one request.
	Whole(ctx context.Context, p []byte) (Object, error)
	// Begin starts an upload in parts.
	Begin(ctx context.Context) (Upload, error)
}

// Parts configures how an object is cut into parts. An upload uses memory for Workers + 1 parts.
type Parts struct {
	Size    int // bytes of each part but the last
	Whole   int // bytes up to which an object is sent in one request, at most Size
	Workers int // concurrent requests
	Max     int // the largest number of parts
}

// For returns p with parts large enough for an object of hint bytes, plus a tenth: the hint of a live database is out
// of date when its snapshot ends.
func (p Parts) For(hint int64) Parts {
	const step = 1 << 20
	needed := (hint + hint/10) / int64(p.Max)
	if needed > int64(p.Size) {
		p.Size = int((needed + step) / step * step)
	}
	return p
}

// abortTime bounds the removal of a failed upload's parts.
const abortTime = 30 * time.Second

// graceTime is how long parts in flight may take after the reader has failed. A part that is interrupted may still
// arrive after Abort has removed the others.
const graceTime = 3 * time.Second

// PutParts stores the content of r with the promises of Bucket.Put: it commits only after r has returned io.EOF, and
// leaves nothing after any other error, at any byte. Only the calling goroutine reads r, and never again after its end.
func PutParts(ctx context.Context, r io.Reader, u Uploader, p Parts) (Object, error) {
	first, ended, err := fillGrowing(ctx, r, p)
	if err != nil {
		return Object{}, err
	}
	// A cancelled Put must not commit: its caller assumes that nothing was stored.
	err = ctx.Err()
	if err != nil {
		return Object{}, err
	}
	if ended && len(first) <= p.Whole {
		return u.Whole(ctx, first)
	}
	upload, err := u.Begin(ctx)
	if err != nil {
		return Object{}, err
	}
	pump := pump{r: r, upload: upload, parts: p, free: make(chan []byte, p.Workers+1)}
	obj, err := pump.run(ctx, first, ended)
	if err == nil {
		pump.recycle()
		return obj, nil
	}
	// ctx may have ended, but abandoned parts cost money for ever.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	aerr := upload.Abort(ctx)
	if aerr != nil {
		err = fmt.Errorf("%w (its parts are still there: %w)", err, aerr)
	}
	return Object{}, err
}

// pump moves parts from a reader to a few senders.
type pump struct {
	r      io.Reader
	upload Upload
	parts  Parts
	free   chan []byte // buffers that were sent
}

func (p *pump) run(ctx context.Context, first []byte, ended bool) (Object, error) {
	n, err := p.send(ctx, first, ended)
	if err != nil {
		return Object{}, err
	}
	err = ctx.Err()
	if err != nil {
		return Object{}, err
	}
	return p.upload.Commit(ctx, n)
}

// send sends all parts and returns their number. The first failure, of the reader or a sender, stops the others, and
// send returns that error: the other errors are only its consequence.
func (p *pump) send(ctx context.Context, first []byte, ended bool) (int, error) {
	sending, cut := context.WithCancel(ctx)
	defer cut()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var senders errgroup.Group
	senders.SetLimit(p.parts.Workers)
	n, err := p.read(ctx, first, ended, func(n int, part []byte) {
		senders.Go(func() error {
			defer func() { p.free <- part }()
			err := p.upload.Part(sending, n, part)
			if err != nil {
				stop(err)
				cut()
			}
			return err
		})
	})
	if err != nil {
		stop(err)
		defer time.AfterFunc(graceTime, cut).Stop()
	}
	serr := senders.Wait()
	if serr != nil || err != nil {
		return n, context.Cause(ctx)
	}
	return n, nil
}

// read cuts the content into parts and passes them to send, until the end. It returns the number of parts.
func (p *pump) read(ctx context.Context, part []byte, ended bool, send func(n int, part []byte)) (int, error) {
	for n := 1; ; n++ {
		if n > p.parts.Max {
			return n, fmt.Errorf("the object has more than %d parts of %d bytes: use larger parts", p.parts.Max, p.parts.Size)
		}
		err := ctx.Err()
		if err != nil {
			return n, err
		}
		send(n, part)
		if ended {
			return n, nil
		}
		part, ended, err = fill(ctx, p.r, p.buffer())
		if err != nil {
			return n, err
		}
		if len(part) == 0 {
			p.free <- part
			return n, nil
		}
	}
}

// buffer returns one of Workers + 1 buffers, which it allocates on first use: a sender returns its own before the next
// one starts.
func (p *pump) buffer() []byte {
	select {
	case b := <-p.free:
		return b[:0]
	default:
		return newBuffer(p.parts.Size)
	}
}

// spare holds buffers of successful Puts for the next ones: to get memory from the kernel costs more than to send its
// content. The pool drops buffers that stay unused.
var spare sync.Pool

// newBuffer returns a buffer for exactly one part.
func newBuffer(size int) []byte {
	b, ok := spare.Get().(*[]byte)
	if ok && cap(*b) == size {
		return (*b)[:0]
	}
	return make([]byte, 0, size)
}

// recycle moves the buffers to spare. The caller has sent all parts, so that all buffers are free.
func (p *pump) recycle() {
	close(p.free)
	for b := range p.free {
		spare.Put(&b)
	}
}

// fill reads until p is full or r returns io.EOF, and reports whether r has ended.
func fill(ctx context.Context, r io.Reader, p []byte) (filled []byte, ended bool, err error) {
	for len(p) < cap(p) {
		err := ctx.Err()
		if err != nil {
			return p, false, err
		}
		n, err := r.Read(p[len(p):cap(p)])
		p = p[:len(p)+n]
		if err == io.EOF {
			return p, true, nil
		}
		if err != nil {
			return p, false, fmt.Errorf("read the content to store: %w", err)
		}
	}
	return p, false, nil
}

// fillGrowing fills the first part. Its buffer grows until parts are certain, because most objects are far smaller than
// one part.
func fillGrowing(ctx context.Context, r io.Reader, parts Parts) (filled []byte, ended bool, err error) {
	p := make([]byte, 0, min(parts.Size, 64<<10))
	for {
		p, ended, err = fill(ctx, r, p)
		if ended || err != nil || len(p) == parts.Size {
			return p, ended, err
		}
		var grown []byte
		if len(p) > parts.Whole || 4*len(p) >= parts.Size {
			grown = newBuffer(parts.Size)
		} else {
			grown = make([]byte, 0, 4*len(p))
		}
		p = append(grown, p...)
	}
}
