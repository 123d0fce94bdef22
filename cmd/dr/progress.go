package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage"
)

// progress returns what a verb's events go to, and what to call when no more come: JSON lines on stdout with -o json, a
// bar and plain lines on a terminal, log lines on stderr elsewhere.
func (a *app) progress() (storage.Report, func()) {
	switch {
	case a.output == "json":
		var mu sync.Mutex
		return func(e storage.Event) {
			mu.Lock()
			defer mu.Unlock()
			_ = a.json(document.Line{Event: &e})
		}, func() {}
	case isTerminal(a.stderr):
		b := &bars{container: mpb.New(mpb.WithOutput(a.stderr), mpb.WithWidth(40))}
		return b.report, b.end
	}
	l := &lines{log: slog.New(slog.NewJSONHandler(a.stderr, nil))}
	return l.report, func() {}
}

// lines logs what is new: stages as they begin, and every note and warning.
type lines struct {
	mu    sync.Mutex
	log   *slog.Logger
	stage string
}

func (l *lines) report(e storage.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Level == storage.Progress && e.Stage == l.stage {
		return
	}
	l.stage = e.Stage
	level := slog.LevelInfo
	if e.Level == storage.Warning {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("stage", e.Stage)}
	if e.Object != "" {
		attrs = append(attrs, slog.String("object", e.Object))
	}
	l.log.LogAttrs(context.Background(), level, e.Message, attrs...)
}

// bars shows one bar for the stage that moves bytes, and prints the rest above it.
type bars struct {
	mu        sync.Mutex
	container *mpb.Progress
	bar       *mpb.Bar
	stage     string
}

func (b *bars) report(e storage.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Stage != b.stage {
		b.finish()
		b.stage = e.Stage
	}
	if e.Level != storage.Progress {
		fmt.Fprintf(b.container, "%s: %s\n", strings.ToUpper(string(e.Level[:1]))+string(e.Level[1:]), e.Message)
		return
	}
	if e.Total <= 0 {
		return
	}
	if b.bar == nil {
		b.bar = b.container.AddBar(e.Total,
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(e.Stage+" ")),
			mpb.AppendDecorators(decor.CountersKibiByte("% .0f / % .0f"), decor.Name(" "), decor.AverageSpeed(decor.SizeB1024(0), "% .0f")))
	}
	b.bar.SetCurrent(e.Done)
}

func (b *bars) finish() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.bar = nil
	}
}

func (b *bars) end() {
	b.mu.Lock()
	b.finish()
	b.mu.Unlock()
	b.container.Wait()
}
