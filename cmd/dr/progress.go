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

// progress returns the receiver of a verb's events, and a function to call after the last event. With -o json the receiver prints
// JSON lines to stdout. In all other cases it prints to stderr: a bar and plain lines on a terminal, log lines elsewhere.
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
	l := &stageLog{log: slog.New(slog.NewJSONHandler(jsonWriter{a.stderr}, nil))}
	return l.report, func() {}
}

// stageLog logs the beginning of each stage, and every note and warning.
type stageLog struct {
	mu    sync.Mutex
	log   *slog.Logger
	stage string
}

func (l *stageLog) report(e storage.Event) {
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
	line      *mpb.Bar // nil: none is shown
	content   lineContent
}

// lineContent is the content of bars.line, without the number of bytes that are done.
type lineContent struct {
	stage, message string
	total          int64 // in bytes; 0: unknown
}

func (b *bars) report(e storage.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Level != storage.Progress {
		prefix := strings.TrimPrefix(e.Cluster+": ", ": ") // "" for an event without a cluster
		fmt.Fprintf(b.container, "%s: %s%s\n", strings.ToUpper(string(e.Level[:1]))+string(e.Level[1:]), visible(prefix), visible(e.Message))
		return
	}
	content := lineContent{stage: e.Stage, message: visible(e.Message), total: e.Total}
	if e.Total > 0 {
		content.message = "" // the bar takes its place
	}
	if b.line == nil || content != b.content {
		b.removeLine()
		b.line, b.content = b.add(content), content
	}
	b.line.SetCurrent(e.Done)
}

func (b *bars) add(s lineContent) *mpb.Bar {
	if s.total <= 0 {
		return b.container.New(1, mpb.NopStyle(), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(s.stage+"  "+s.message+" "), decor.Elapsed(decor.ET_STYLE_MMSS)))
	}
	return b.container.AddBar(s.total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(s.stage+" ")),
		mpb.AppendDecorators(decor.CountersKibiByte("% .0f / % .0f"), decor.Name(" "), decor.AverageSpeed(decor.SizeB1024(0), "% .0f")))
}

func (b *bars) removeLine() {
	if b.line != nil {
		b.line.Abort(true)
		b.line = nil
	}
}

func (b *bars) end() {
	b.mu.Lock()
	b.removeLine()
	b.mu.Unlock()
	b.container.Wait()
}
