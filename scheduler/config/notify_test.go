package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/config"
)

func TestLoadConditions(t *testing.T) {
	c, err := load(t, `defaults:
  observe: 1m
  conditions: {failures: 5, accept: [NotLocked, NotSigned]}
`+with("conditions: {shrunk: 12.5%, proven: 14d, drillLate: 1d, lag: 1m, spool: 90%, certificate: 30d}"), nothing)
	if err != nil {
		t.Fatal(err)
	}
	want := condition.Limits{
		Failures: 5, Shrunk: 0.125, Proven: 14 * 24 * time.Hour, DrillLate: 24 * time.Hour, Lag: time.Minute,
		Spool: 0.9, Certificate: 30 * 24 * time.Hour, Accept: []condition.Name{condition.NotLocked, condition.NotSigned},
	}
	diff := cmp.Diff(want, c.Specs[0].Conditions)
	if diff != "" || c.Specs[0].Observe != time.Minute {
		t.Errorf("observe %s, limits (-want +got):\n%s", c.Specs[0].Observe, diff)
	}
	c, err = load(t, minimal, nothing)
	if err != nil || c.Specs[0].Observe != 10*time.Minute || !c.Notify.Webhook.None() || !c.Notify.Heartbeat.None() {
		t.Errorf("by default: %+v, %v", c, err)
	}
}

func TestLoadNotify(t *testing.T) {
	c, err := load(t, `webhook: {urlEnv: HOOK, headerFiles: {authorization: DIR/password}}
heartbeat: {url: "https://hc-ping.com/x", every: 1m, fail: /fail}
`+minimal, func(name string) string { return map[string]string{"HOOK": "https://hook/t0ken"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	hook, beat := c.Notify.Webhook, c.Notify.Heartbeat
	if hook.URL.String() != "https://hook/t0ken" || hook.Header.Get("Authorization") != "s3cret" {
		t.Errorf("webhook %+v", hook)
	}
	if beat.URL.String() != "https://hc-ping.com/x" || beat.Every != time.Minute || beat.Fail != "/fail" {
		t.Errorf("heartbeat %+v", beat)
	}
	c, err = load(t, "heartbeat: {urlFile: DIR/url}\n"+minimal, nothing)
	if err == nil {
		t.Errorf("without its file: %+v", c.Notify)
	}
}

func TestLoadRefusesNotify(t *testing.T) {
	for text, says := range map[string]string{
		"webhook: {url: hook}\n":                                    ":1: not a URL",
		"webhook: {url: 'https://u:p4ss@h'}\n":                      ":1: the URL contains a user",
		"webhook: {url: 'https://h', urlEnv: X}\n":                  ":1: url, urlFile and urlEnv exclude each other: use one",
		"webhook: {urlEnv: X, urlFile: DIR/password}\n":             "use one",
		"webhook: {urlEnv: NONE}\n":                                 "the variable NONE is not set",
		"webhook: {urlFile: DIR/password}\n":                        ":1: not a URL",
		"webhook: {url: 'https://h', headerFiles: {a: DIR/none}}\n": "no such file",
		"webhook: {format: xml}\n":                                  `:1: unknown key "format"`,
		"heartbeat: {every: 1s}\n":                                  ":1: every must be at least 10s",
		"heartbeat: {fail: fail}\n":                                 ":1: fail must begin with a slash",
		"\n" + with("observe: 1s"):                                  ":9: observe must be at least",
		"\n" + with("conditions: {failures: -1}"):                   ":9: failures must be at least 1",
		"\n" + with("conditions: {shrunk: 50}"):                     ":9: use a form like 80%",
		"\n" + with("conditions: {spool: 101%}"):                    ":9: use a form like 80%",
		"\n" + with("conditions: {spool: NaN%}"):                    ":9: use a form like 80%",
		"\n" + with("conditions: {accept: [NotThere]}"):             `:9: unknown condition "NotThere"`,
	} {
		if !strings.Contains(text, "clusters:") {
			text += minimal
		}
		_, err := load(t, text, func(name string) string { return map[string]string{"X": "https://x"}[name] })
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s\nis %v,\nwant an error with %q", text, err, says)
		} else if strings.Contains(err.Error(), "p4ss") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error holds a secret: %v", err)
		}
	}
}
