package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/etcd-dr/etcd-dr/scheduler/config"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
)

func loaded(t *testing.T, text string) config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dr.yaml")
	err := os.WriteFile(path, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A cluster's own recipients replace the default: the default's key does not open its backups.
func TestOwnRecipientsReplaceTheDefaults(t *testing.T) {
	var keys []string
	for range 2 {
		id, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, id.Recipient().String())
	}
	file := filepath.Join(t.TempDir(), "recipients")
	err := os.WriteFile(file, []byte(keys[0]), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	c := loaded(t, "defaults: {recipientsFile: "+file+"}\n"+with("recipients: ["+keys[1]+"]"))
	got := c.Specs[0].Backup.To.Seal().Recipients
	if len(got) != 1 || !strings.HasPrefix(keys[1], got[0]) {
		t.Errorf("sealed for %q", got)
	}
}

// A repository's retention replaces that of its clusters.
func TestRetentionOfARepository(t *testing.T) {
	text := strings.Replace(with("retention: {daily: 7}"), "clusters:", "  offsite: {url: file:///o, retention: {monthly: 24, minCopies: 2}}\nclusters:", 1)
	spec := loaded(t, strings.Replace(text, "[main]", "[main, offsite]", 1)).Specs[0]
	got := spec.RetentionIn("main")
	if got != (retention.Policy{Daily: 7, Zone: time.UTC}) {
		t.Errorf("main keeps %+v", got)
	}
	got = spec.RetentionIn("offsite")
	if got != (retention.Policy{Monthly: 24, MinCopies: 2, Zone: time.UTC}) {
		t.Errorf("offsite keeps %+v", got)
	}
}
