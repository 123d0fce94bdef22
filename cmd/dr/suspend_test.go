package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
)

func TestSuspend(t *testing.T) {
	env, _ := filled(t, 1, sign.Key{})
	said := wantDone(t, dr(t, env, "suspend", "--reason", "the disks are replaced", "-o", "json"))
	var got document.Suspension
	err := json.Unmarshal([]byte(said), &got)
	if err != nil || !got.Suspended || got.Cluster != "prod" || got.Reason != "the disks are replaced" ||
		!strings.Contains(got.By, "dr ") || got.Time.IsZero() {
		t.Errorf("%v: %s", err, said)
	}
	said = wantDone(t, dr(t, env, "status"))
	if !strings.Contains(said, "suspended") {
		t.Errorf("dr status said\n%s", said)
	}
	said = wantDone(t, dr(t, env, "suspend"))
	if !strings.Contains(said, "until dr resume") {
		t.Errorf("dr suspend said %s", said)
	}
	said = wantDone(t, dr(t, env, "resume"))
	if said != "cluster prod is not suspended\n" {
		t.Errorf("dr resume said %s", said)
	}
	said = wantDone(t, dr(t, env, "status"))
	if strings.Contains(said, "suspended") {
		t.Errorf("dr status said\n%s", said)
	}
	out := dr(t, env, "suspend", "--cluster", "pord")
	if out.code != 3 || !strings.Contains(out.stderr, "--cluster") {
		t.Errorf("of a cluster that is not there: exit code %d, %s", out.code, out.stderr)
	}
	out = dr(t, env, "suspend", "prod")
	if out.code != 2 {
		t.Errorf("with an argument: exit code %d, %s", out.code, out.stderr)
	}
}

// TestSuspendSigned checks that with --trust unsigned suspensions are ignored, and writing one is refused.
func TestSuspendSigned(t *testing.T) {
	secret, public, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	env, _ := filled(t, 1, key)
	file := filepath.Join(t.TempDir(), "sign.key")
	err = os.WriteFile(file, secret, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	out := dr(t, env, "suspend")
	if out.code != exitRefused || !strings.Contains(out.stderr, "--sign-key") {
		t.Errorf("unsigned, where backups are signed: exit code %d, %s", out.code, out.stderr)
	}
	out = dr(t, env, "suspend", "--trust", public)
	if out.code != 2 || !strings.Contains(out.stderr, "readers would ignore") {
		t.Errorf("without a key: exit code %d, %s", out.code, out.stderr)
	}
	wantDone(t, dr(t, env, "suspend", "--trust", public, "--sign-key", file))
	said := wantDone(t, dr(t, env, "status", "--trust", public))
	if !strings.Contains(said, "suspended") {
		t.Errorf("dr status said\n%s", said)
	}
}

// TestStatusSuspendedInOneRepository checks that dr status uses the latest suspension of several repositories, as services do: with an older one a late
// backup would not be reported.
func TestStatusSuspendedInOneRepository(t *testing.T) {
	now := time.Now()
	l := statusSource{spec: spec.Spec{Cluster: "prod"}}
	for i, suspended := range []bool{true, false} {
		c, err := repository.Open(mem.New(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		word := suspension.Suspension{Suspended: suspended, Time: now.Add(time.Duration(i) * time.Minute)}
		_, err = c.Services().Write(t.Context(), word)
		if err != nil {
			t.Fatal(err)
		}
		l.places = append(l.places, place{"", func(context.Context) (*repository.Cluster, error) { return c, nil }})
	}
	d := l.read(t.Context(), statusReader{now: now})
	if d.Suspended {
		t.Error("it was resumed, and is said to be suspended")
	}
	l.places = l.places[:1]
	d = l.read(t.Context(), statusReader{now: now})
	if !d.Suspended {
		t.Error("it is suspended, and is not said to be")
	}
}
