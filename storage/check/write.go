package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

const (
	anotherStore = "do not keep backups in this store, or look for a newer version of it"
	honourIfNone = "use a store that honours create-only (If-None-Match: *): without it two agents overwrite each other"
)

// put stores an object and records it for the clean-up.
func (p *probe) put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := p.bucket.Put(ctx, key, r, o)
	if err == nil {
		p.mu.Lock()
		p.made = append(p.made, obj)
		p.mu.Unlock()
	}
	return obj, err
}

func (p *probe) reachable(ctx context.Context) Line {
	var took []time.Duration
	for range 3 { // the first one has to connect and to authenticate
		start := time.Now()
		_, err := keys(ctx, p.bucket, storage.ListOptions{})
		if err != nil {
			return failed(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return ok("a request takes %v", took[1].Round(100*time.Microsecond))
}

var createOnly = storage.PutOptions{IfAbsent: true}

func (p *probe) canCreate(ctx context.Context) Line {
	content := p.content(0, small)
	obj, err := p.put(ctx, "created", bytes.NewReader(content), createOnly)
	if err != nil {
		return failed(err)
	}
	stored, err := p.bucket.Stat(ctx, "created")
	switch {
	case err != nil:
		return failed(err)
	case stored.Size != small || stored.Version != obj.Version:
		return wanting(anotherStore, "%d bytes were stored, but the store reports %d of another version", small, stored.Size)
	}
	return ok("an object of %d bytes was created", small)
}

func (p *probe) cannotOverwrite(ctx context.Context) Line {
	_, err := p.put(ctx, "created", bytes.NewReader(p.content(1, small)), createOnly)
	err = refusal(err, "an existing object")
	if err != nil {
		return wanting(honourIfNone, "%v", err)
	}
	err = p.overtaken(ctx, "overtaken", small)
	if err != nil {
		return wanting(honourIfNone, "%v", err)
	}
	err = p.overtaken(ctx, "overtaken-large", p.o.Large)
	if err != nil {
		return wanting(honourIfNone, "%v", err)
	}
	err = p.race(ctx)
	if err != nil {
		return wanting(honourIfNone, "%v", err)
	}
	return ok("refused over an existing object, for all but one of %d concurrent uploads, and for an object in parts", racers)
}

// refusal returns an error unless err is the refusal of a create-only Put over target.
func refusal(err error, target string) error {
	switch {
	case err == nil:
		return fmt.Errorf("a create-only upload has replaced %s", target)
	case errors.Is(err, storage.ErrExist):
		return nil
	}
	return fmt.Errorf("a create-only upload over %s failed with another error than \"exists\": %s", target, oneLine(err))
}

// overtaken starts to create an object of some size and lets another Put create the same key in the meantime. Some
// stores check the key only before the upload; overtaken tests the condition at its end.
func (p *probe) overtaken(ctx context.Context, key string, size int) error {
	first := p.content(2, small)
	overtake := func() error {
		_, err := p.put(ctx, key, bytes.NewReader(first), createOnly)
		return err
	}
	_, err := p.put(ctx, key, &hooked{r: bytes.NewReader(p.content(3, size)), hook: overtake}, createOnly)
	err = refusal(err, fmt.Sprintf("an object that was created while %d bytes were uploaded", size))
	if err != nil {
		return err
	}
	return p.same(ctx, key, storage.OpenOptions{}, first)
}

// hooked calls hook before the first byte.
type hooked struct {
	r    io.Reader
	hook func() error
}

func (h *hooked) Read(b []byte) (int, error) {
	if h.hook != nil {
		err := h.hook()
		if err != nil {
			return 0, err
		}
		h.hook = nil
	}
	return h.r.Read(b)
}

const racers = 8

// race creates one key several times at once.
func (p *probe) race(ctx context.Context) error {
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { _, errs[i] = p.put(ctx, "raced", bytes.NewReader(p.content(10+i, small)), createOnly) })
	}
	wg.Wait()
	var winners []int
	for i, err := range errs {
		switch {
		case err == nil:
			winners = append(winners, i)
		case !errors.Is(err, storage.ErrExist):
			return fmt.Errorf("one of %d concurrent create-only uploads failed with another error than \"exists\": %s", racers, oneLine(err))
		}
	}
	if len(winners) != 1 {
		return fmt.Errorf("of %d concurrent create-only uploads of one key %d succeeded, not 1", racers, len(winners))
	}
	return p.same(ctx, "raced", storage.OpenOptions{}, p.content(10+winners[0], small))
}

// replacesVersion checks that a Put can replace exactly the version that was read. Only leases need it.
func (p *probe) replacesVersion(ctx context.Context) Line {
	const key = "versioned"
	first, err := p.put(ctx, key, bytes.NewReader(p.content(20, small)), storage.PutOptions{})
	if err != nil {
		return failed(err)
	}
	_, err = p.putOver(ctx, key, first.Version, p.content(21, small))
	switch {
	case errors.Is(err, storage.ErrUnsupported):
		return approximate("the store refuses the condition of a write: %s", oneLine(err))
	case errors.Is(err, storage.ErrChanged):
		return approximate("the store reports as changed an object that has not changed")
	case err != nil:
		return failed(err)
	}
	_, err = p.putOver(ctx, key, first.Version, p.content(22, small))
	switch {
	case err == nil:
		return approximate("the store ignores the condition of a write: it accepted a second write over one version")
	case !errors.Is(err, storage.ErrChanged):
		return failed(err)
	}
	return p.raceVersion(ctx, key)
}

func (p *probe) putOver(ctx context.Context, key, version string, content []byte) (storage.Object, error) {
	return p.put(ctx, key, bytes.NewReader(content), storage.PutOptions{IfVersion: version})
}

// raceVersion replaces one version of key several times at once.
func (p *probe) raceVersion(ctx context.Context, key string) Line {
	now, err := p.bucket.Stat(ctx, key)
	if err != nil {
		return failed(err)
	}
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { _, errs[i] = p.putOver(ctx, key, now.Version, p.content(30+i, small)) })
	}
	wg.Wait()
	winners := 0
	for _, err := range errs {
		switch {
		case err == nil:
			winners++
		case !errors.Is(err, storage.ErrChanged):
			return failed(err)
		}
	}
	if winners != 1 {
		return approximate("of %d concurrent writes over one version %d have succeeded, not 1", racers, winners)
	}
	return ok("a replaced version is refused, and of %d concurrent writes over one version one has succeeded", racers)
}

// approximate returns the line for a store without conditional writes.
func approximate(format string, args ...any) Line {
	return note("none is needed: nothing relies on leases. In this store two services or agents that start at the same "+
		"moment can both hold one, and do the same work twice; a store with conditional writes (If-Match) avoids that",
		format, args...)
}

const (
	letterSize = 32 << 10
	readPause  = time.Millisecond // without it the reader would starve the writer
)

func letters(letter byte) []byte { return bytes.Repeat([]byte{letter}, letterSize) }

// replaces replaces an object several times while another goroutine reads it.
func (p *probe) replaces(ctx context.Context) Line {
	const key = "replaced"
	_, err := p.put(ctx, key, bytes.NewReader(letters('a')), storage.PutOptions{})
	if err != nil {
		return failed(err)
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var torn error
	var reader sync.WaitGroup
	reader.Go(func() { torn = p.watch(reading, key) })
	err = p.replace(ctx, key)
	stop()
	reader.Wait()
	switch {
	case errors.Is(err, storage.ErrDenied):
		return note("dr backup needs no more; for dr archive allow it to replace <cluster>/leases/*",
			"these credentials may not replace an object: %s", oneLine(err))
	case err != nil:
		return failed(err)
	case torn != nil:
		return wanting(anotherStore, "during a replacement a reader saw: %s", oneLine(torn))
	}
	return ok("a reader saw the whole old object or the whole new one, never a part or a mixture")
}

// replace replaces the object a few times; each content must be readable at once.
func (p *probe) replace(ctx context.Context, key string) error {
	for letter := byte('b'); letter <= 'f'; letter++ {
		_, err := p.put(ctx, key, bytes.NewReader(letters(letter)), storage.PutOptions{})
		if err != nil {
			return err
		}
		err = p.same(ctx, key, storage.OpenOptions{}, letters(letter))
		if err != nil {
			return err
		}
	}
	return nil
}

// watch reads key until ctx ends. It returns an error if it reads anything but one of the contents as a whole.
func (p *probe) watch(ctx context.Context, key string) error {
	for {
		got, err := p.read(ctx, key, storage.OpenOptions{})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case len(got) != letterSize || !bytes.Equal(got, letters(got[0])):
			return fmt.Errorf("%d bytes that are none of the stored contents", len(got))
		}
		time.Sleep(readPause)
	}
}

var errBroken = errors.New("the source was broken on purpose")

// brokenUpload interrupts uploads after some parts have been sent.
func (p *probe) brokenUpload(ctx context.Context) Line {
	cutOff := io.MultiReader(bytes.NewReader(p.content(4, p.o.Large)), &hooked{hook: func() error { return errBroken }})
	l := p.broken(ctx, "broken", cutOff)
	if l.Verdict != OK {
		return l
	}
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	leave := func() error {
		cancel()
		return cancelled.Err()
	}
	left := io.MultiReader(bytes.NewReader(p.content(5, p.o.Large)), &hooked{hook: leave})
	return p.broken(cancelled, "cancelled", left)
}

// broken puts a source that fails, after which nothing may be stored. The source may cancel ctx.
func (p *probe) broken(ctx context.Context, key string, r io.Reader) Line {
	_, err := p.put(ctx, key, r, storage.PutOptions{})
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		return wanting(anotherStore, "an interrupted upload has stored an object")
	}
	_, err = p.bucket.Stat(ctx, key)
	if !errors.Is(err, storage.ErrNotExist) {
		return wanting(anotherStore, "an object may exist after an interrupted upload (error: %v)", err)
	}
	sweeper, sweeps := storage.AsSweeper(p.bucket)
	if !sweeps {
		return ok("neither a broken nor a cancelled upload has left anything")
	}
	for piece, err := range sweeper.Leftovers(ctx, key) {
		if err != nil {
			return unknown(cureOf(err), "no object was left; pieces could not be listed: %s", oneLine(err))
		}
		return wanting(expire, "an interrupted upload has left %d bytes in %s, which cost money", piece.Size, piece.Key)
	}
	return ok("neither a broken nor a cancelled upload has left an object or pieces of one")
}
