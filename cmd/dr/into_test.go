package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage"
)

// TestIntoBadInput checks that what cannot be used is refused before anything is asked.
func TestIntoBadInput(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"another kind":        {[]string{"--into", "deployment/etcd"}, "use statefulset/NAME"},
		"no name":             {[]string{"--into", "statefulset/"}, "use statefulset/NAME"},
		"another name":        {[]string{"--into", "statefulset/etcd", "--confirm", "ectd"}, "--confirm ectd is not the name of the target, which is etcd"},
		"two targets":         {[]string{"--into", "statefulset/etcd", "latest", "--to-revision", "7"}, "use only one"},
		"no image":            {[]string{"--into", "statefulset/etcd", "--repo", "s3://b"}, "--job-image"},
		"no repository":       {[]string{"--into", "statefulset/etcd", "--dry-run"}, "use --repo"},
		"a directory":         {[]string{"--into", "statefulset/etcd", "--dry-run", "--repo", "file:///srv"}, "use a bucket"},
		"a local CA":          {[]string{"--into", "statefulset/etcd", "--dry-run", "--repo", "s3://backups?ca=/ca.crt"}, "--ca-secret"},
		"a local identity":    {[]string{"--into", "statefulset/etcd", "--identity", "key.txt"}, "--identity-secret"},
		"a key of no Secret":  {[]string{"--into", "statefulset/etcd", "--dry-run", "--repo", "s3://backups", "--identity-secret", "/key.txt"}, "use NAME or NAME/KEY"},
		"a Secret of no key":  {[]string{"--into", "statefulset/etcd", "--dry-run", "--repo", "s3://backups", "--ca-secret", "store/"}, "use NAME or NAME/KEY"},
		"a plan":              {[]string{"--into", "statefulset/etcd", "--plan", "p.json"}, "--plan: omit it: it cannot be combined with --into statefulset/etcd"},
		"malformed members":   {[]string{"--into", "statefulset/etcd", "--dry-run", "--repo", "s3://b", "--initial-cluster", "x"}, "name=url"},
		"no access":           {[]string{"--into", "statefulset/etcd", "--undo", "x", "--kubeconfig", "/none"}, "name a file with --kubeconfig"},
		"a target of an undo": {[]string{"--into", "statefulset/etcd", "--undo", "x", "--to-revision", "7", "latest"}, "--to-revision, latest: omit it"},
		"an undo without it":  {[]string{"--undo", "x", "-n", "payments"}, "--namespace: omit it, or restore in place with --into"},

		"a StatefulSet's flag":  {[]string{"--into", "systemd", "--job-image", "x"}, "--job-image: omit it: it cannot be combined with --into systemd"},
		"a host's flag":         {[]string{"--into", "statefulset/etcd", "--state-dir", "/x"}, "--state-dir: omit it"},
		"what the unit knows":   {[]string{"--into", "systemd/etcd", "--data-dir", "/x"}, "--data-dir: omit it"},
		"another unit":          {[]string{"--into", "systemd", "--confirm", "etcd2"}, "the name of the target, which is etcd"},
		"no commands":           {[]string{"--into", "command", "--name", "m1", "--data-dir", "/x"}, "--stop-command and --start-command"},
		"two ways":              {[]string{"--into", "kubeadm/none", "--fence-only", "--unfence", "--state-dir", t.TempDir()}, "use only one"},
		"a command with a name": {[]string{"--into", "command/m1", "--name", "m1"}, "use statefulset/NAME, systemd"},
	} {
		out := dr(t, nil, append([]string{"restore"}, test.args...)...)
		if out.code != exitUsage || !strings.Contains(out.stderr, test.says) || out.stdout != "" {
			t.Errorf("%s: exit code %d, want %q in %s%s", name, out.code, test.says, out.stdout, out.stderr)
		}
	}
}

// TestIntoRefusesFlagsOfOtherWays checks every flag that one way of dr restore has and the other does not.
func TestIntoRefusesFlagsOfOtherWays(t *testing.T) {
	a := &app{world: world{getenv: os.Getenv}}
	cmd, _, err := a.root().Find([]string{"restore"})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := "7"
		switch f.Value.Type() {
		case "bool":
			value = "true"
		case "duration":
			value = "7s"
		}
		into := strings.HasPrefix(f.Usage, "with --into") || f.Name == "sign-key"
		not := slices.Contains(slices.Concat(notInto, notIntoSet), f.Name)
		args := []string{"restore", "--" + f.Name + "=" + value}
		if not {
			args = append(args, "--into", "statefulset/etcd")
		}
		out := dr(t, nil, args...)
		refused := out.code == exitUsage && strings.Contains(out.stderr, "--"+f.Name+": omit it")
		if refused != (into || not) {
			t.Errorf("dr %s: exit code %d, %s", strings.Join(args, " "), out.code, out.stderr)
		}
	})
}

// TestIntoSaysWhyItWasUndone checks that a restore that was ordered back names old data that is lost, and that one that left all members
// stopped is an error.
func TestIntoSaysWhyItWasUndone(t *testing.T) {
	for lost, want := range map[string]string{
		"m1":    "the old data is in place",
		"m1 m2": "no member was started",
	} {
		var out bytes.Buffer
		r := &inPlace{app: &app{world: world{stdout: &checkedWriter{Writer: &out}}, output: "text"}, flags: &restoreFlags{}, orders: handoff.Orders{Back: true}}
		err := r.printEnd(handoff.Record{
			End: handoff.Failed, Step: handoff.Keep, Reason: "ordered to go back; the old data of m1 is lost", Lost: strings.Fields(lost),
			Handoff: handoff.Handoff{Members: make([]handoff.Member, 3)},
		})
		if err != nil {
			out.WriteString(err.Error())
		}
		if (err != nil) != (lost != "m1") || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "the old data of m1 is lost") {
			t.Errorf("%s lost: %v: %s", lost, err, &out)
		}
	}
}

// TestIntoReportsWhatItWaitsFor checks that each phase is reported once, a changed reason as progress and, now and then, as a note, which
// logs contain too.
func TestIntoReportsWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		r := &inPlace{app: &app{}, report: func(e storage.Event) { got = append(got, string(e.Level)+" "+e.Message) }}
		watch := r.watch()
		for _, waiting := range []string{"", "", "a", "a", "b"} {
			watch(handoff.Record{Phase: handoff.Sealing, Waiting: waiting})
			time.Sleep(12 * time.Second)
		}
		watch(handoff.Record{Phase: handoff.Placing})
		words, next := phaseWords[handoff.Sealing], phaseWords[handoff.Placing]
		want := []string{" " + words, " " + words + ": a", "note " + words + ": a", " " + words + ": b", " " + next}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestFenceNeedsAConfirmation checks that --fence-only, which stops a member, needs --confirm.
func TestFenceNeedsAConfirmation(t *testing.T) {
	out := dr(t, nil, "restore", "--into", "kubeadm/none", "--fence-only", "--state-dir", t.TempDir())
	if out.code == 0 || !strings.Contains(out.stderr, "to confirm that, pass --confirm kubeadm") {
		t.Errorf("exit code %d: %s", out.code, out.stderr)
	}
}
