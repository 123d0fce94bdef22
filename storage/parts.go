package storage

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Upload is one object that a store takes in parts and shows only when it is told to: an S3 multipart upload, the blocks
// of an Azure blob.
type Upload interface {
	// Part sends part n, counted from 1. It is called from several goroutines at once, for each n once; p is not valid
	// after it has returned.
	Part(ctx context.Context, n int, p []byte) error
	// Commit makes the object of parts 1 to n, all of which have been sent. An answer that is lost is for Commit to
	// settle: an error means that the object is not there, as far as can be known.
	Commit(ctx context.Context, n int) (Object, error)
	// Abort removes the parts. It is called after any failure, that of Commit included, with a ctx of its own.
	Abort(ctx context.Context) error
}

// Uploader is how a store takes one object.
type Uploader interface {
	// Whole stores p, which is all of the object, in one request.
	Whole(ctx context.Context, p []byte) (Object, error)
	// Begin opens an upload in parts.
	Begin(ctx context.Context) (Upload, error)
}

// Parts say how an object is cut. An upload holds Workers + 1 parts in memory.
type Parts struct {
	Size    int // bytes of each part but the last
	Whole   int // bytes up to which an object is sent in one request, at most Size
	Workers int // parts on their way at a time
	Max     int // the largest number of parts
}

// For grows the parts for an object of about hint bytes, with room for a tenth more, as the hint of a live database is
// old when its snapshot ends.
func (p Parts) For(hint int64) Parts {
	const step = 1 << 20
	needed := (hint + hint/10) / int64(p.Max)
	if needed > int64(p.Size) {
		p.Size = int((needed + step) / step * step)
	}
	return p
}

// abortTime is how long an upload that has failed may try to remove its parts.
const abortTime = 30 * time.Second

// graceTime is how long parts that are on their way may take when the reader has failed. A part that is broken off may
// still be taken in by the store after Abort has removed the others.
const graceTime = 3 * time.Second

// PutParts stores what r yields, as Bucket.Put promises: it commits only after r has returned io.EOF itself, and after any
// other error, at any byte, nothing is left. r is read by the calling goroutine alone, and not again once it has ended.
func PutParts(ctx context.Context, r io.Reader, u Uploader, p Parts) (Object, error) {
	first, ended, err := fillGrowing(ctx, r, p)
	if err != nil {
		return Object{}, err
	}
	// A cancelled Put must not commit: the caller has been told, or will be, that nothing is there.
	if err := ctx.Err(); err != nil {
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
		pump.keep()
		return obj, nil
	}
	// ctx may be what has ended, and parts that nobody removes are paid for, for ever.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	if aerr := upload.Abort(ctx); aerr != nil {
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
	if err := ctx.Err(); err != nil {
		return Object{}, err
	}
	return p.upload.Commit(ctx, n)
}

// send sends all parts and returns their number. What fails first, the reader or a sender, stops the others, and its
// error is the one that counts: theirs are only its echo.
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
	if serr := senders.Wait(); serr != nil || err != nil {
		return n, context.Cause(ctx)
	}
	return n, nil
}

// read cuts what comes into parts and hands them on, until the end. It returns how many there were.
func (p *pump) read(ctx context.Context, part []byte, ended bool, send func(n int, part []byte)) (int, error) {
	for n := 1; ; n++ {
		if n > p.parts.Max {
			return n, fmt.Errorf("the object has more than %d parts of %d bytes: use larger parts", p.parts.Max, p.parts.Size)
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}
		send(n, part)
		if ended {
			return n, nil
		}
		var err error
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

// buffer returns one of Workers + 1 buffers, made when first needed: a sender gives its own back before another can start.
func (p *pump) buffer() []byte {
	select {
	case b := <-p.free:
		return b[:0]
	default:
		return newBuffer(p.parts.Size)
	}
}

// spare are buffers of Puts that have succeeded, for the next ones: to get memory from the kernel costs more than to send
// what is in it. They are given back when nobody has wanted them for a while.
var spare sync.Pool

// newBuffer returns a buffer that holds exactly a part.
func newBuffer(size int) []byte {
	if b, ok := spare.Get().(*[]byte); ok && cap(*b) == size {
		return (*b)[:0]
	}
	return make([]byte, 0, size)
}

// keep is called when all parts have been sent, so that all buffers are free.
func (p *pump) keep() {
	close(p.free)
	for b := range p.free {
		spare.Put(&b)
	}
}

// fill reads until p's capacity is used, or until r has ended, which only its io.EOF says.
func fill(ctx context.Context, r io.Reader, p []byte) (filled []byte, ended bool, err error) {
	for len(p) < cap(p) {
		if err := ctx.Err(); err != nil {
			return p, false, err
		}
		n, err := r.Read(p[len(p):cap(p)])
		p = p[:len(p)+n]
		if err == io.EOF {
			return p, true, nil
		}
		if err != nil {
			return p, false, fmt.Errorf("read what to store: %w", err)
		}
	}
	return p, false, nil
}

// fillGrowing is fill for a first part, with a buffer that grows until it is known that there will be parts: most objects
// are far smaller than one.
func fillGrowing(ctx context.Context, r io.Reader, parts Parts) (filled []byte, ended bool, err error) {
	p := make([]byte, 0, min(parts.Size, 64<<10))
	for {
		if p, ended, err = fill(ctx, r, p); ended || err != nil || len(p) == parts.Size {
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
