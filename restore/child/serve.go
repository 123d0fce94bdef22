package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Verb is a function of a child: it decodes its job, runs it, and returns a result that is encoded as JSON.
type Verb func(ctx context.Context, job []byte, report storage.Report) (any, error)

// ItemVerb is a Verb that also produces items: give sends one to the parent, as JSON. It blocks until the parent has read the
// previous ones, so that memory is bounded.
type ItemVerb func(ctx context.Context, job []byte, give func(any) error, report storage.Report) (any, error)

// ErrOrphaned reports that the parent has ended, so the child ends.
var ErrOrphaned = errors.New("the parent process has ended")

// orphanPatience bounds how long a verb may take to end after its parent.
const orphanPatience = 5 * time.Second

// Serve is the main function of a child: it runs one verb and writes its result or error to stdout. It returns an error only
// if it cannot write an answer. Serve also watches stdin: its end cancels the verb's context with ErrOrphaned. If the verb
// still runs 5 s later, as code on a damaged database may, Serve returns without its result: no other process would end this
// one.
func Serve(ctx context.Context, verb Verb, stdin io.Reader, stdout io.Writer) error {
	return ServeItems(ctx, verb.WithoutItems(), stdin, stdout)
}

// WithoutItems returns the verb as an ItemVerb without items.
func (v Verb) WithoutItems() ItemVerb {
	return func(ctx context.Context, job []byte, _ func(any) error, report storage.Report) (any, error) {
		return v(ctx, job, report)
	}
}

// ServeItems is like Serve, for a verb that produces items.
func ServeItems(ctx context.Context, verb ItemVerb, stdin io.Reader, stdout io.Writer) error {
	signal.Ignore(syscall.SIGPIPE) // so that an event after the parent's end does not kill this process before it has cleaned up
	input := bufio.NewReader(stdin)
	job, err := input.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the process: a blocked read cannot be cancelled
		_, _ = io.Copy(io.Discard, input)
		cancel(ErrOrphaned)
	}()
	out := &writer{enc: json.NewEncoder(stdout)}
	answer := make(chan line, 1)
	go func() {
		result, err := verb(ctx, job, out.give, func(e storage.Event) { _ = out.write(line{Event: &e}) })
		answer <- answerOf(result, err)
	}()
	select {
	case l := <-answer:
		return out.write(l)
	case <-ctx.Done():
	}
	select {
	case l := <-answer:
		return out.write(l)
	case <-time.After(orphanPatience):
		return context.Cause(ctx)
	}
}

// answerOf returns the last line for the parent: the result, or err if it is not nil.
func answerOf(result any, err error) line {
	if err != nil {
		return failed(err)
	}
	encoded, err := json.Marshal(result)
	if err != nil {
		return failed(fmt.Errorf("encode the result: %w", err))
	}
	return line{Result: encoded}
}

func failed(err error) line {
	packed := fault.Pack(err)
	return line{Error: &packed}
}

// writer keeps lines whole when several goroutines report.
type writer struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (w *writer) give(item any) error {
	encoded, err := json.Marshal(item)
	if err != nil {
		return fmt.Errorf("encode the item: %w", err)
	}
	return w.write(line{Item: encoded})
}

func (w *writer) write(l line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enc.Encode(l)
}
