package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// filled returns the environment of a repository with a backup of each of the last days, signed by key, and their IDs, oldest
// first.
func filled(t *testing.T, days int, key sign.Key) (env map[string]string, ids []catalog.ID) {
	t.Helper()
	return filledWith(t, days, key, "")
}

// filledWith is like filled, for backups in whose manifests Diverged is diverged.
func filledWith(t *testing.T, days int, key sign.Key, diverged string) (env map[string]string, ids []catalog.ID) {
	t.Helper()
	dir := t.TempDir()
	b, err := file.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := repository.OpenWith(b, "prod", records.Policy{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	for n := range days {
		at := time.Now().UTC().AddDate(0, 0, n-days)
		id := catalog.NewID(at, int64(n+1))
		digest := strings.Repeat("ab", 32)
		m := catalog.Manifest{
			Started: at, Finished: at.Add(time.Second), ClusterID: "cafe", EtcdVersion: "3.7.3", Revision: int64(n + 1),
			Plain: catalog.Blob{Name: "snapshot.db", Size: 100, SHA256: digest}, Compared: diverged != "", Diverged: diverged,
		}
		_, err := stored.CreateFrom(t.Context(), c, id, seal.Recipients{}.Seal(), strings.NewReader("sealed"), func() (catalog.Manifest, error) { return m, nil })
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return map[string]string{"DR_REPO": "file://" + dir, "DR_CLUSTER": "prod"}, ids
}

// lineWith returns the line of text that contains id.
func lineWith(text string, id catalog.ID) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, string(id)) {
			return line
		}
	}
	return ""
}

func wantDone(t *testing.T, out output) string {
	t.Helper()
	if out.code != 0 {
		t.Fatalf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
	}
	return out.stdout
}

// TestPrune checks that a dry run prints reasons and changes nothing, that a pin keeps a backup, and that a removed backup is no
// longer listed and its data is a leftover.
func TestPrune(t *testing.T) {
	env, ids := filled(t, 5, sign.Key{})
	wantDone(t, dr(t, env, "pin", string(ids[0]), "--reason", "before 1.34"))
	out := wantDone(t, dr(t, env, "list"))
	if !strings.Contains(lineWith(out, ids[0]), "pinned") || strings.Contains(lineWith(out, ids[1]), "pinned") {
		t.Errorf("list:\n%s", out)
	}
	out = wantDone(t, dr(t, env, "show", string(ids[0])))
	if !strings.Contains(out, "pinned") || !strings.Contains(out, "before 1.34") {
		t.Errorf("show:\n%s", out)
	}
	rules := []string{"prune", "--keep-daily", "2", "--zone", "Europe/Berlin"}
	dry := wantDone(t, dr(t, env, append(rules, "--dry-run")...))
	for i, want := range []string{"pinned: before 1.34", "no rule keeps it", "no rule keeps it", "daily 2", "daily 1, the newest"} {
		line := lineWith(dry, ids[i])
		if !strings.Contains(line, want) || strings.HasPrefix(line, "remove") != (i == 1 || i == 2) {
			t.Errorf("backup %d: %q, want %q", i, line, want)
		}
	}
	if !strings.Contains(dry, "2 backups and 0 segments would be removed") {
		t.Errorf("it says\n%s", dry)
	}
	out = wantDone(t, dr(t, env, "list"))
	if strings.Count(out, "prod") != 5 {
		t.Errorf("after a dry run:\n%s", out)
	}
	out = wantDone(t, dr(t, env, rules...))
	if !strings.Contains(out, "2 backups and 0 segments removed") {
		t.Errorf("it says\n%s", out)
	}
	out = wantDone(t, dr(t, env, "list"))
	if strings.Count(out, "prod") != 3 || lineWith(out, ids[1]) != "" {
		t.Errorf("list:\n%s", out)
	}
	out = wantDone(t, dr(t, env, "list", "--leftovers"))
	if lineWith(out, ids[1]) == "" || lineWith(out, ids[3]) != "" {
		t.Errorf("leftovers:\n%s", out)
	}
	var d struct{ Result document.Prune }
	out = wantDone(t, dr(t, env, append(rules, "-o", "json", "--grace", "1ms")...))
	err := json.Unmarshal([]byte(out), &d)
	if err != nil || d.Result.Swept != 4 || d.Result.SweptSize == 0 || len(d.Result.Backups) != 3 || d.Result.DryRun {
		t.Errorf("%v: %s", err, out)
	}
	out = wantDone(t, dr(t, env, "list", "--leftovers"))
	if !strings.Contains(out, "no leftovers") {
		t.Errorf("leftovers:\n%s", out)
	}
	out = wantDone(t, dr(t, env, "unpin", string(ids[0]), "-o", "json"))
	if !strings.Contains(out, `"reason": "before 1.34"`) {
		t.Errorf("unpin: %s", out)
	}
	out = wantDone(t, dr(t, env, "unpin", string(ids[0])))
	if !strings.Contains(out, "was not pinned") {
		t.Errorf("unpin again: %s", out)
	}
	wantDone(t, dr(t, env, rules...))
	out = wantDone(t, dr(t, env, "list"))
	if strings.Count(out, "prod") != 2 {
		t.Errorf("list:\n%s", out)
	}
}

// TestPruneTrusted checks that --trust requires a trusted --sign-key, and that untrusted objects then have no effect and stay.
func TestPruneTrusted(t *testing.T) {
	secret, public, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"mine": secret, "other": other} {
		err := os.WriteFile(filepath.Join(dir, name), content, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	env, ids := filled(t, 4, key)
	junk, err := os.ReadFile(filepath.Join(strings.TrimPrefix(env["DR_REPO"], "file://"), "prod", "backups", string(ids[3]), "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	forged := filepath.Join(strings.TrimPrefix(env["DR_REPO"], "file://"), "prod", "backups", string(catalog.NewID(time.Now(), 99)))
	err = os.Mkdir(forged, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(filepath.Join(forged, "manifest.json"), bytes.Replace(junk, []byte(`"cafe"`), []byte(`"beef"`), 1), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	env["DR_TRUST"] = public
	for _, verb := range [][]string{{"prune", "--keep-last", "2"}, {"pin", "latest"}, {"unpin", "latest"}} {
		for _, sign := range [][]string{nil, {"--sign-key", filepath.Join(dir, "other")}} {
			out := dr(t, env, append(verb, sign...)...)
			if out.code != 2 || !strings.Contains(out.stderr, "readers would ignore") {
				t.Errorf("%v %v: exit code %d, %s", verb, sign, out.code, out.stderr)
			}
		}
	}
	env["DR_SIGN_KEY"] = filepath.Join(dir, "mine")
	out := dr(t, env, "prune", "--keep-last", "2")
	wantDone(t, out)
	if !strings.Contains(out.stdout, "NOT TRUSTED") || !strings.Contains(out.stdout, "2 backups and 0 segments removed") {
		t.Errorf("it says\n%s", out.stdout)
	}
	for i, id := range ids {
		line := lineWith(out.stdout, id)
		if strings.HasPrefix(line, "remove") != (i < 2) {
			t.Errorf("%q", line)
		}
	}
	_, err = os.Stat(filepath.Join(forged, "manifest.json"))
	if err != nil {
		t.Errorf("what is not trusted is touched: %v", err)
	}
}

// TestPinWithAnEnd checks that a pin's end is shown by every verb, and refused for a confirmation.
func TestPinWithAnEnd(t *testing.T) {
	env, ids := filled(t, 2, sign.Key{})
	year := time.Now().UTC().Year() + 1
	until := fmt.Sprintf("%d-12-31", year)
	for _, bad := range [][]string{{"--until", "2001-01-01"}, {"--until", until, "--for", "9d"}, {"--for", "soon"}, {"--for", "9d", "--confirm"}} {
		out := dr(t, env, append([]string{"pin", string(ids[0])}, bad...)...)
		if out.code != 2 {
			t.Errorf("%q: exit code %d\n%s%s", bad, out.code, out.stdout, out.stderr)
		}
	}
	said := wantDone(t, dr(t, env, "pin", string(ids[0]), "--until", until, "--reason", "audit"))
	want := fmt.Sprintf("until %d-01-01T00:00:00Z, or until dr unpin", year+1)
	if !strings.Contains(said, want) {
		t.Errorf("without %q: %s", want, said)
	}
	for verb, want := range map[string]string{"list": fmt.Sprintf("pinned until %d-01-01", year+1), "show": fmt.Sprintf(", until %d-01-01T00:00:00Z)", year+1)} {
		args := []string{verb}
		if verb == "show" {
			args = append(args, string(ids[0]))
		}
		said := wantDone(t, dr(t, env, args...))
		if !strings.Contains(said, want) {
			t.Errorf("%s without %q:\n%s", verb, want, said)
		}
	}
	said = wantDone(t, dr(t, env, "prune", "--keep-last", "1", "--dry-run"))
	if !strings.Contains(said, "pinned until") {
		t.Errorf("prune: %s", said)
	}
	said = wantDone(t, dr(t, env, "pin", string(ids[0])))
	if strings.Contains(said, ", or until") {
		t.Errorf("with another pin that has no end: %s", said)
	}
}

// TestPruneSummaryOfTheGrace checks that the grace is printed as dr.yaml writes it.
func TestPruneSummaryOfTheGrace(t *testing.T) {
	d := document.Prune{Backups: []document.PrunedBackup{{}}}
	for grace, want := range map[time.Duration]string{
		30 * time.Minute: "a prune after 30m deletes", 24 * time.Hour: "a prune after 1d deletes", 36 * time.Hour: "a prune after 1d12h deletes",
		10 * time.Hour: "a prune after 10h deletes", 90 * time.Second: "a prune after 1m30s deletes",
	} {
		got := pruneSummary(d, grace)
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q does not contain %q", grace, got, want)
		}
	}
}
