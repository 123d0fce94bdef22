package main

import (
	"cmp"
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

// progress returns the receiver of a verb's events, and a function to call after the last one. With -o json it prints JSON lines
// to stdout, on a terminal a bar and plain lines, and otherwise log lines to stderr.
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

// lines logs the beginning of each stage, and every note and warning.
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
	if e.Cluster != "" {
		attrs = append(attrs, slog.String("cluster", e.Cluster))
	}
	if e.Object != "" {
		attrs = append(attrs, slog.String("object", e.Object))
	}
	l.log.LogAttrs(context.Background(), level, cmp.Or(e.Message, e.Stage), attrs...)
}

// bars shows one line for the current stage, a bar if its number of bytes is known, and prints notes and warnings above it.
type bars struct {
	mu        sync.Mutex
	container *mpb.Progress
	line      *mpb.Bar
	shown     shown
}

// shown is the content of the line.
type shown struct {
	stage, message string
	total          int64
}

func (b *bars) report(e storage.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Level != storage.Progress {
		of := strings.TrimPrefix(e.Cluster+": ", ": ")
		fmt.Fprintf(b.container, "%s: %s%s\n", strings.ToUpper(string(e.Level[:1]))+string(e.Level[1:]), visible(of), visible(e.Message))
		return
	}
	show := shown{e.Stage, visible(e.Message), e.Total}
	if e.Total > 0 {
		show.message = "" // the bar shows it
	}
	if b.line == nil || show != b.shown {
		b.finish()
		b.line, b.shown = b.add(show), show
	}
	b.line.SetCurrent(e.Done)
}

func (b *bars) add(s shown) *mpb.Bar {
	if s.total <= 0 {
		return b.container.New(1, mpb.NopStyle(), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(s.stage+"  "+s.message+" "), decor.Elapsed(decor.ET_STYLE_MMSS)))
	}
	return b.container.AddBar(s.total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(s.stage+" ")),
		mpb.AppendDecorators(decor.CountersKibiByte("% .0f / % .0f"), decor.Name(" "), decor.AverageSpeed(decor.SizeB1024(0), "% .0f")))
}

func (b *bars) finish() {
	if b.line != nil {
		b.line.Abort(true)
		b.line = nil
	}
}

func (b *bars) end() {
	b.mu.Lock()
	b.finish()
	b.mu.Unlock()
	b.container.Wait()
}
