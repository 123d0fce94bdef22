package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// drillOf returns the Drill of a cluster that is declared with further lines.
func drillOf(t *testing.T, text string) spec.Drill {
	t.Helper()
	c, err := load(t, text, func(name string) string { return map[string]string{"PASS": "p4ssphrase"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	return c.Specs[0].Drill
}

func TestLoadDrill(t *testing.T) {
	identity, _, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	key := write(t, t.TempDir(), "key.txt", identity)
	two := strings.Replace(strings.Replace(minimal, "[main]", "[main, offsite]", 1), "clusters:", "  offsite: {url: \"file:///srv/off\"}\nclusters:", 1)
	d := drillOf(t, strings.Replace(two, `"@daily"`, `"@daily", zone: Europe/Berlin`, 1)+`    drill:
      schedule: {cron: "0 4 * * 0"}
      repository: offsite
      assert: ["key=/a", "prefix=/b:10"]
      identityFiles: [`+key+`]
      passphraseEnv: PASS
      allowPlain: true
      scratchDir: /scratch
      memoryLimit: 2GiB
      nice: 19
`)
	identities, passphrases := d.Keys.Secrets()
	if d.Repository != "offsite" || d.Schedule.String() != "0 4 * * 0" || d.Schedule.Zone().String() != "Europe/Berlin" || d.Dir != "/scratch" ||
		d.Memory != 2<<30 || d.Nice != 19 || !d.AllowPlain || !slices.Equal(d.Assertions, []string{"key=/a", "prefix=/b:10"}) ||
		len(identities) != 1 || !slices.Equal(passphrases, []string{"p4ssphrase"}) {
		t.Errorf("%+v, %d identities", d, len(identities))
	}
	d = drillOf(t, two)
	if !d.None() {
		t.Errorf("nothing was said of drills: %+v", d)
	}
	d = drillOf(t, two+"    drill: {nice: 1}\n")
	if d.Repository != "main" || !d.Schedule.None() || !d.Keys.None() {
		t.Errorf("on demand alone: %+v", d)
	}
	alone := strings.Replace(minimal, `schedule: {cron: "@daily"}`, `drill: {schedule: {cron: "@daily"}}`, 1)
	d = drillOf(t, alone)
	if d.Schedule.None() {
		t.Errorf("drills alone: %+v", d)
	}
	defaults := strings.Replace(two, "clusters:", "defaults:\n  drill: {schedule: {cron: '@weekly', zone: UTC}, nice: 5}\nclusters:", 1)
	d = drillOf(t, defaults+"    drill: {nice: 6}\n")
	if d.Schedule.String() != "@weekly" || d.Nice != 6 {
		t.Errorf("over defaults: %+v", d)
	}
}

// A replaced identity changes the digest of the Spec: drills that could not open a backup are retried.
func TestDigestOfAnIdentity(t *testing.T) {
	dir := t.TempDir()
	digest := func() string {
		t.Helper()
		identity, _, err := seal.Generate()
		if err != nil {
			t.Fatal(err)
		}
		c, err := load(t, with("drill: {identityFiles: ["+write(t, dir, "key.txt", identity)+"]}"), nothing)
		if err != nil {
			t.Fatal(err)
		}
		return c.Specs[0].Digest
	}
	first, second := digest(), digest()
	if first == second {
		t.Error("another identity changes nothing")
	}
}
