package config

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/notify"
)

const minEvery = 10 * time.Second // shortest interval of heartbeats

// notify returns the receivers of conditions.
func (l *loader) notify() notify.Config {
	part := l.file.Heartbeat
	c := notify.Config{
		Webhook:   l.in("webhook").target(l.file.Webhook),
		Heartbeat: notify.Heartbeat{Target: l.in("heartbeat").target(part.targetPart), Every: time.Duration(part.Every), Fail: part.Fail},
	}
	if c.Heartbeat.Every < minEvery {
		l.source.blame(errors.New("every must be at least 10s"), "heartbeat", "every")
	}
	if part.Fail != "" && !strings.HasPrefix(part.Fail, "/") {
		l.source.blame(errors.New("fail must begin with a slash, like /fail: it is appended to the path"), "heartbeat", "fail")
	}
	return c
}

func (i in) target(part targetPart) (t notify.Target) {
	text := i.secret(part.URLFile, part.URLEnv, "url")
	if part.URL != "" && (part.URLFile != "" || part.URLEnv != "") {
		i.blame(errors.New("url, urlFile and urlEnv exclude each other: use one"), "url")
	}
	if text == "" {
		text = part.URL
	}
	if text != "" {
		var err error
		t.URL, err = notify.ParseURL(text)
		if err != nil {
			i.blame(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(part.HeaderFiles)) {
		value, _, _ := strings.Cut(i.read(part.HeaderFiles[name], "headerFiles", name), "\n")
		if t.Header == nil {
			t.Header = http.Header{}
		}
		t.Header.Set(name, strings.TrimRight(value, "\r"))
	}
	return t
}
