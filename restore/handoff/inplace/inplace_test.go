package inplace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/inplace"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/reach"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const restoreID = "0123456789abcdef"

// fakeTarget is a manager whose acts are done at once, unless a fault is set. It notes them.
type fakeTarget struct {
	records map[string]string
	acts    []string
	backup  []plan.Member   // that it was told last
	shows   handoff.Handoff // its version, quota and endpoints
	refuses string          // a finding
	fresh   bool            // the disks do not exist yet
	host    string          // of all peer URLs
	waiting string          // why Fence is not done
	fence   func()          // is called by Fence; nil: nothing is
	save    func() error    // is called after a record is stored; nil: nothing is
	takes   time.Duration   // that a task takes, unless its context ends before
}

func (f *fakeTarget) Inspect(context.Context) (handoff.Handoff, error) {
	h := f.shows
	h.Manager = "fake etcd"
	for i := range 3 {
		url := fmt.Sprintf("http://%s:%d", f.host, 2380+i)
		h.Members = append(h.Members, handoff.Member{Member: plan.Member{Name: fmt.Sprint("m", i), PeerURLs: []string{url}}, Fresh: f.fresh})
	}
	if f.refuses != "" {
		h.Findings = []handoff.Finding{{Text: f.refuses, Refuses: true}}
	}
	return h, nil
}

func (f *fakeTarget) act(name string) (handoff.Progress, error) {
	f.acts = append(f.acts, name)
	return handoff.Progress{Done: true}, nil
}

func (f *fakeTarget) Fence(context.Context, handoff.Handoff) (handoff.Progress, error) {
	if f.fence != nil {
		f.fence()
	}
	if f.waiting != "" {
		return handoff.Progress{Waiting: f.waiting}, nil
	}
	return f.act("fence")
}

func (f *fakeTarget) Do(ctx context.Context, r handoff.Record, t handoff.Task) ([]handoff.Progress, error) {
	select {
	case <-time.After(f.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	_, _ = f.act(string(t))
	return slices.Repeat([]handoff.Progress{{Done: true, Vacant: f.fresh}}, len(r.Handoff.Members)), nil
}

func (f *fakeTarget) Release(context.Context, handoff.Handoff) (handoff.Progress, error) {
	return f.act("release")
}
func (f *fakeTarget) Return(context.Context, handoff.Handoff) (handoff.Progress, error) {
	return f.act("return")
}
func (f *fakeTarget) Settled(context.Context, handoff.Handoff) (handoff.Progress, error) {
	return f.act("settled")
}
func (f *fakeTarget) Take(context.Context, handoff.Record) (handoff.Progress, error) {
	return f.act("take")
}
func (f *fakeTarget) Lift(context.Context, handoff.Record) (handoff.Progress, error) {
	return f.act("lift")
}

func (f *fakeTarget) Exists(context.Context) (bool, error) { return true, nil }

func (f *fakeTarget) Load(_ context.Context, id string) (r handoff.Record, err error) {
	text, found := f.records[id]
	if !found {
		return r, fmt.Errorf("%w: restore %s", fault.NotFound, id)
	}
	return r, json.Unmarshal([]byte(text), &r)
}

func (f *fakeTarget) Save(_ context.Context, before, after handoff.Record) error {
	if f.records[after.ID] != encode(before) && before.ID != "" || before.ID == "" && f.records[after.ID] != "" {
		return fmt.Errorf("%w: another process continues it", fault.Busy)
	}
	f.records[after.ID] = encode(after)
	if after.Step == handoff.None {
		delete(f.records, after.ID)
	}
	if f.save != nil {
		return f.save()
	}
	return nil
}

func encode(r handoff.Record) string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// world is a repository with one backup, and a target.
type world struct {
	*testing.T
	bucket   storage.Bucket
	store    *repository.Cluster
	target   *fakeTarget
	restore  inplace.Restore
	orders   handoff.Orders
	warnings []inplace.Warning
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, bucket: mem.New(), target: &fakeTarget{records: map[string]string{}, host: "127.0.0.1"}, orders: handoff.Orders{Limit: time.Minute, Keep: time.Hour}}
	w.store = stored.OpenCluster(t, w.bucket, "c")
	m := stored.ManifestOf(stored.Content, stored.IDAt(0).Started())
	m.Members = stored.ThreeMembers()
	w.create(stored.IDAt(0), m)
	w.restore = inplace.Restore{
		ID: restoreID, By: "a test", Name: "etcd", Confirmed: true, Reach: reach.Anywhere, Layout: plan.Layout{OldIsDead: true},
		Manage: func(backup []plan.Member) inplace.Target {
			w.target.backup = backup
			return w.target
		},
		Open: func(context.Context) (*repository.Cluster, error) { return w.store, nil },
		Access: func(context.Context) (cluster.Config, error) {
			return cluster.Config{}, errors.New("no member answers")
		},
		Warn:  func(kind inplace.Warning, _ string) { w.warnings = append(w.warnings, kind) },
		Watch: func(handoff.Record) {},
	}
	return w
}

// create stores a backup.
func (w *world) create(id catalog.ID, m catalog.Manifest) {
	w.Helper()
	_, err := stored.TryCreate(w, w.store, id, m)
	if err != nil {
		w.Fatal(err)
	}
}

// run runs the restore from its stored record on, as a new process does, until a step is due; None: to the end.
func (w *world) run(until handoff.Step) (handoff.Record, error) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	one := w.restore
	one.Watch = func(r handoff.Record) {
		if r.Step == until {
			cancel()
		}
	}
	before, err := w.target.Load(w.Context(), restoreID)
	if err != nil && !errors.Is(err, fault.NotFound) {
		w.Fatal(err)
	}
	return one.Run(ctx, before, w.orders)
}

// runTo is run for a restore that must get to that step.
func (w *world) runTo(until handoff.Step) handoff.Record {
	w.Helper()
	r, err := w.run(until)
	if r.Step != until || !errors.Is(err, context.Canceled) {
		w.Fatalf("it is at %q, want %q: %v", r.Step, until, err)
	}
	return r
}

// holds returns what the restore holds in the repository.
func (w *world) holds() (all []string) {
	w.Helper()
	pins, err := w.store.Pins(w.Context(), stored.IDAt(0))
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range pins {
		all = append(all, "pin by "+p.By)
	}
	s, err := w.store.Services().Read(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	if s.Suspended {
		all = append(all, "suspension by "+s.By)
	}
	return all
}

// The restore is killed before each of its steps, and another process continues it. It goes back to the old data, which is kept until an
// order removes it.
func TestRunContinuesAfterKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.restore.Settings = "settings"
		for _, step := range []handoff.Step{
			handoff.Take, handoff.Plan, handoff.Pin, handoff.Stage, handoff.Suspend, handoff.Fence, handoff.Seal, handoff.Place, handoff.Release, handoff.Verify,
		} {
			r := w.runTo(step)
			if r.Settings != "settings" {
				t.Errorf("at %s the settings are %q", step, r.Settings)
			}
		}
		if !slices.Equal(w.holds(), []string{"pin by a test", "suspension by a test"}) || len(w.target.backup) != 0 {
			t.Errorf("it holds %q", w.holds())
		}
		w.orders.Back = true
		r, err := w.run(handoff.None)
		if err != nil || r.Step != handoff.Keep || r.End != handoff.Failed || inplace.Err(r, w.orders) != nil {
			t.Errorf("it went back to %+v, %v, %v", r, err, inplace.Err(r, w.orders))
		}
		if w.holds() != nil {
			t.Errorf("at its end it holds %q", w.holds())
		}
		acts := len(w.target.acts)
		r, err = w.run(handoff.None)
		if err != nil || r.Step != handoff.Keep || len(w.target.acts) != acts {
			t.Errorf("after its end it did %q: %v", w.target.acts[acts:], err)
		}
		w.orders = handoff.Orders{Clean: true}
		r, err = w.run(handoff.None)
		if err != nil || r.Step != handoff.None || w.target.acts[acts] != string(handoff.DoClean) || len(w.target.records) != 0 {
			t.Errorf("cleaning did %q, and left %q: %v", w.target.acts[acts:], w.target.records, err)
		}
	})
}

// On a host the manager itself builds the data and moves it, which may take hours. While the check waits, etcd is started again in case it
// has ended. Without the repository a way back cannot end the suspension, and warns.
func TestOnAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.target.takes = 3 * time.Hour
		w.orders.Limit = 100 * time.Hour
		one := w.restore
		_, p, err := one.Preview(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.restore.Given = &p
		r := w.runTo(handoff.Verify)
		if r.Plan.ID != p.ID {
			t.Errorf("the plan is %s, want %s", r.Plan.ID, p.ID)
		}
		started := len(w.target.acts)
		r.Built = handoff.Built{ClusterID: "1"}
		inplace.Act(t.Context(), w.restore.Steps(), r, w.orders)
		if !slices.Equal(w.target.acts[started:], []string{"release"}) {
			t.Errorf("while the check waits it did %q", w.target.acts[started:])
		}
		w.orders.Back, w.restore.Open = true, nil
		r, err = w.run(handoff.None)
		if err != nil || r.End != handoff.Failed || !slices.Equal(w.warnings, []inplace.Warning{inplace.NotLifted}) {
			t.Errorf("it went back to %q: %v, warnings %q", r.End, err, w.warnings)
		}
	})
}

// A backup that a person suspended or pinned stays so.
func TestSuspensionsOfOthersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, err := w.store.Pin(t.Context(), catalog.Pin{Backup: stored.IDAt(0), Reason: "keep it", Time: time.Now(), By: "a person"})
		if err != nil {
			t.Fatal(err)
		}
		w.runTo(handoff.Suspend)
		w.orders.Back = true
		r, err := w.run(handoff.None)
		if err != nil || r.End != handoff.Refused || !slices.Equal(w.holds(), []string{"pin by a person"}) {
			t.Errorf("it ended in %s and holds %q: %v", r.End, w.holds(), err)
		}
	})
}

// A suspension of an earlier restore of the same target ends with the next one: that restore has lost its claim, and ends nothing any more.
func TestSuspensionOfAnEarlierRestoreEnds(t *testing.T) {
	earlier := func(target string) string {
		return inplace.Author("EtcdRestore payments/nightly", "fedcba9876543210", target)
	}
	for by, stays := range map[string]bool{
		earlier("StatefulSet payments/etcd"):   false,
		earlier("StatefulSet payments/etcd-2"): true,
		"a person, restore 0123456789abcdef":   true,
		"a person":                             true,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.restore.By = inplace.Author("dr restore --into", restoreID, "StatefulSet payments/etcd")
			_, err := w.store.Services().Write(t.Context(), suspension.Suspension{Suspended: true, Time: time.Now(), By: by, Reason: "it is being restored"})
			if err != nil {
				t.Fatal(err)
			}
			w.runTo(handoff.Fence)
			held := w.holds()
			w.orders.Back = true
			_, err = w.run(handoff.None)
			if err != nil || len(held) != 2 || (len(w.holds()) > 0) != stays {
				t.Errorf("%s: during the restore it held %q, and then %q: %v", by, held, w.holds(), err)
			}
		})
	}
}

// Without a confirmation the restore ends before it stops a member, unless no disk has data.
func TestConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.restore.Confirmed = false
		h, _, err := (&w.restore).Preview(t.Context())
		want := "the disks of fake etcd may hold data, which the restore replaces: to confirm that, pass --confirm etcd"
		if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), want) {
			t.Errorf("without a confirmation: %v", err)
		}
		if fault.KindOf(w.restore.RefuseUnconfirmed(h)) != fault.Refused {
			t.Error("it is not refused")
		}
		r, err := w.run(handoff.None)
		if err != nil || r.End != handoff.Refused || slices.Contains(w.target.acts, "fence") || fault.KindOf(inplace.Err(r, w.orders)) != fault.Refused {
			t.Errorf("it ended in %s after %q: %v", r.End, w.target.acts, err)
		}
		w.target.fresh = true
		w.runTo(handoff.Verify)
	})
}

// A confirmation may be missing although the inspection found no disk: the Jobs find the data.
func TestConfirmationOfDataThatJobsFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.target.fresh = true
		w.runTo(handoff.Stage)
		w.restore.Confirmed, w.target.fresh = false, false
		r, err := w.run(handoff.None)
		if err != nil || r.End != handoff.Refused || slices.Contains(w.target.acts, "fence") {
			t.Errorf("it ended in %s after %q: %v", r.End, w.target.acts, err)
		}
	})
}

func TestPreview(t *testing.T) {
	w := newWorld(t)
	w.restore.DryRun, w.restore.Confirmed = true, false
	h, p, err := (&w.restore).Preview(t.Context())
	if err != nil || p.Backup.ID != stored.IDAt(0) || len(p.Members) != 3 || len(h.Findings) != 2 || h.Findings[0].Refuses || h.Findings[1].Text != "no member of fake etcd answers" {
		t.Errorf("%+v, %+v, %v", h, p, err)
	}
	if len(w.target.backup) != 3 {
		t.Errorf("the target was told the members %v", w.target.backup)
	}
	w.target.refuses = "it belongs to an operator"
	_, _, err = (&w.restore).Preview(t.Context())
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), w.target.refuses) {
		t.Errorf("a finding that refuses: %v", err)
	}
	if len(w.target.acts) > 0 || len(w.target.records) > 0 || w.holds() != nil {
		t.Errorf("it did %q, stored %q and holds %q", w.target.acts, w.target.records, w.holds())
	}
}

// TestFit checks that a backup that the members cannot serve is found before they are stopped.
func TestFit(t *testing.T) {
	const older = "the backup was read from etcd 3.7.3, and fake etcd runs 3.6.16: from 3.6 on, etcd does not start on data of a newer version"
	noUser := func(context.Context) (cluster.Config, error) { return cluster.Config{}, nil }
	for name, c := range map[string]struct {
		shows  handoff.Handoff
		auth   bool
		access func(context.Context) (cluster.Config, error)
		want   string // the beginning of the last finding
	}{
		"an older image":     {shows: handoff.Handoff{Version: "3.6.16"}, want: older},
		"a newer patch":      {shows: handoff.Handoff{Version: "3.7.4"}},
		"a newer version":    {shows: handoff.Handoff{Version: "3.10.0"}},
		"a quota of less":    {shows: handoff.Handoff{Quota: 1}, want: "the database has 0 MiB, and the quota of fake etcd is 0 MiB: the restored members refuse to write: raise --quota"},
		"a quota of as much": {shows: handoff.Handoff{Quota: int64(len(stored.Content))}},
		"users, and no user": {auth: true, access: noUser, want: "authentication is enabled in the backup, and the restore has no user"},
		"no users, no user":  {access: noUser},
		"users, and a user":  {auth: true, access: func(context.Context) (cluster.Config, error) { return cluster.Config{User: "root"}, nil }},
		"a client of a user": {auth: true, access: func(context.Context) (cluster.Config, error) { return cluster.Config{Cert: "root.crt"}, nil }},
		"a client's PEM data": {auth: true, access: func(context.Context) (cluster.Config, error) {
			return cluster.Config{PEM: cluster.PEM{Cert: []byte("x")}}, nil
		}},
	} {
		w := newWorld(t)
		m := stored.ManifestOf(stored.Content, stored.IDAt(1).Started())
		m.Members, m.Auth = stored.ThreeMembers(), c.auth
		w.create(stored.IDAt(1), m)
		w.target.shows = c.shows
		if c.access != nil {
			w.restore.Access = c.access
		}
		h, _, err := (&w.restore).Preview(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		last := "no member of fake etcd answers"
		if c.want != "" {
			last = c.want
		}
		got := h.Findings[len(h.Findings)-1].String()
		if !strings.HasPrefix(got, last) {
			t.Errorf("%s: %q, want %q", name, got, last)
		}
	}
}

// TestFitOfServingMembers takes the version from the members that serve, if their manager does not show it.
func TestFitOfServingMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real server")
	}
	e := servers.Start(t, servers.Options{Version: "3.6"})
	w := newWorld(t)
	w.target.shows.Endpoints = e.Endpoints()
	w.restore.Access = func(context.Context) (cluster.Config, error) {
		return cluster.Config{DialTimeout: 10 * time.Second, CommandTimeout: 10 * time.Second}, nil
	}
	h, _, err := (&w.restore).Preview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := h.Findings[len(h.Findings)-1].String()
	if !strings.HasPrefix(last, "the backup was read from etcd 3.7.3, and fake etcd runs 3.6.") {
		t.Error(last)
	}
}

// TestPlanContinuesAboveTheLiveRevision plans for a cluster whose members have revisions that no backup has. Clients have seen them, so the
// restored revisions continue above them, also if no member answers any more when the plan is made again.
func TestPlanContinuesAboveTheLiveRevision(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real server")
	}
	e := servers.Start(t, servers.Options{Version: "3.6"})
	client := e.Client(t)
	var last int64
	for last <= 1000 { // the revision of the backup
		put, err := client.Put(t.Context(), "key", "value")
		if err != nil {
			t.Fatal(err)
		}
		last = put.Header.Revision
	}
	w := newWorld(t)
	w.target.shows.Endpoints = e.Endpoints()
	w.restore.Access = func(context.Context) (cluster.Config, error) {
		return cluster.Config{DialTimeout: 10 * time.Second, CommandTimeout: 10 * time.Second}, nil
	}
	one := w.restore
	for _, kill := range []bool{true, false} {
		_, p, err := one.Preview(t.Context())
		if err != nil || p.Bump.Known < last || p.Bump.To <= last {
			t.Errorf("revision %d is known: %+v, %v", last, p.Bump, err)
		}
		if kill {
			e.Kill(t, 0)
		}
	}
	w.restore.Known = last + 1
	_, p, err := (&w.restore).Preview(t.Context())
	if err != nil || p.Bump.Known != last+1 {
		t.Errorf("an earlier plan knew %d: %+v, %v", last+1, p.Bump, err)
	}
}

// TestMembersThatServeAgain stops the restore of members that had no leader when it was planned, and have one long after: their data may be in use
// again. An order that is new, or that its owner has paused, continues.
func TestMembersThatServeAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real server")
	}
	e := servers.Start(t, servers.Options{Version: "3.6"})
	w := newWorld(t)
	w.restore.Access = func(context.Context) (cluster.Config, error) {
		return cluster.Config{DialTimeout: 10 * time.Second, CommandTimeout: 10 * time.Second}, nil
	}
	for name, c := range map[string]struct {
		begun          time.Duration // ago
		served, paused bool
		refused        bool
	}{
		"long after":        {begun: 7 * time.Hour, refused: true},
		"soon after":        {begun: time.Hour},
		"paused":            {begun: 7 * time.Hour, paused: true},
		"it served all day": {begun: 7 * time.Hour, served: true},
	} {
		one := w.restore
		r := handoff.Record{
			ID: restoreID, Step: handoff.Suspend, Begun: time.Now().Add(-c.begun), Paused: c.paused, Plan: &plan.Plan{},
			Handoff: handoff.Handoff{Endpoints: e.Endpoints(), Serves: c.served},
		}
		_, err := one.Steps().Claim.Suspend(t.Context(), r)
		if (fault.KindOf(err) == fault.Refused) != c.refused || err != nil && !strings.Contains(err.Error(), "had no leader when the restore was planned") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A member of the cluster that was backed up must not answer outside of the target, unless that is a copy.
func TestSurvivorsAreRefused(t *testing.T) {
	survivor := httptest.NewUnstartedServer(nil)
	survivor.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are not completed
	survivor.StartTLS()
	defer survivor.Close()
	w := newWorld(t)
	m := stored.ManifestOf(stored.Content, stored.IDAt(1).Started())
	m.Members = stored.ThreeMembers()
	m.Members[0].ClientURLs = []string{survivor.URL}
	w.create(stored.IDAt(1), m)
	for name, c := range map[string]struct {
		host  string
		clone bool
		want  fault.Kind
	}{
		"elsewhere": {"etcd.payments.svc", false, fault.Refused}, "a copy": {"etcd.payments.svc", true, ""}, "in the target": {"127.0.0.1", false, ""},
	} {
		one := w.restore
		w.target.host, one.Clone = c.host, c.clone
		_, _, err := one.Preview(t.Context())
		if fault.KindOf(err) != c.want || err != nil && !strings.Contains(err.Error(), survivor.URL) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestSurvivorsThatComeBackAreRefused starts the cluster that was backed up again while the new data is built: no member of the target is stopped.
func TestSurvivorsThatComeBackAreRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	survivor := httptest.NewUnstartedServer(nil)
	survivor.Listener.Close()
	survivor.Listener, survivor.Config.ErrorLog = listener, log.New(io.Discard, "", 0)
	defer survivor.Close()
	w := newWorld(t)
	w.target.host = "etcd.payments.svc"
	m := stored.ManifestOf(stored.Content, stored.IDAt(1).Started())
	m.Members = stored.ThreeMembers()
	at := "https://" + listener.Addr().String()
	m.Members[0].ClientURLs = []string{at}
	w.create(stored.IDAt(1), m)
	listener.Close()
	w.restore.Watch = func(r handoff.Record) {
		if r.Step != handoff.Stage {
			return
		}
		survivor.Listener, err = net.Listen("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		survivor.StartTLS()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := w.restore.Run(ctx, handoff.Record{}, w.orders)
	if err != nil || r.Phase != handoff.Refused || !strings.Contains(r.Reason, at) || slices.Contains(w.target.acts, "fence") {
		t.Errorf("%v, the restore is %s: %s; acts %q", err, r.Phase, r.Reason, w.target.acts)
	}
}

// A repository that trusts a key which the restore does not have is only read from. Warnings report that, once each.
func TestRepositoryIsReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		signer := stored.NewSigner(t)
		w.store = stored.OpenWith(t, w.bucket, records.Policy{Key: signer.Key})
		m := stored.ManifestOf(stored.Content, stored.IDAt(1).Started())
		m.Members = stored.ThreeMembers()
		w.create(stored.IDAt(1), m)
		w.store = stored.OpenWith(t, w.bucket, stored.Trust(t, signer.Public))
		w.runTo(handoff.Fence)
		if !slices.Equal(w.warnings, []inplace.Warning{inplace.NotPinned, inplace.NotSuspended}) {
			t.Errorf("the warnings are %q", w.warnings)
		}
		w.orders.Back = true
		r, err := w.run(handoff.None)
		if err != nil || r.End != handoff.Failed {
			t.Errorf("it ended in %s: %v", r.End, err)
		}
	})
}

// A record may be stored although the answer is lost. Another record than the own one means another process.
func TestRunWhileTheAPIServerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.runTo(handoff.Pin)
		failures := 0
		w.target.save = func() error {
			failures++
			switch failures % 3 {
			case 1:
				return errors.New("the connection was reset")
			case 2:
				return handoff.ErrForbidden // an API server that has just started forbids everything
			}
			return nil
		}
		w.runTo(handoff.Seal)
		w.target.save = nil
		w.target.fence = func() {
			w.target.records[restoreID] = strings.Replace(w.target.records[restoreID], `"Sealing"`, `"Placing"`, 1)
		}
		r, err := w.run(handoff.None)
		if !errors.Is(err, fault.Busy) {
			t.Errorf("it continued to %s: %v", r.Step, err)
		}
	})
}

// The time limit counts from the start of the process: a restore that continues after a night does not go back at once.
func TestLimitCountsFromTheStartOfTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.runTo(handoff.Fence)
		time.Sleep(12 * time.Hour)
		w.target.waiting = "waiting for a pod"
		began := time.Now()
		var back time.Time
		w.restore.Watch = func(r handoff.Record) {
			if back.IsZero() && r.Phase == handoff.RollingBack || r.Step == handoff.Return {
				back = time.Now()
			}
		}
		before, err := w.target.Load(t.Context(), restoreID)
		if err != nil {
			t.Fatal(err)
		}
		r, err := (&w.restore).Run(t.Context(), before, w.orders)
		if err != nil || r.End != handoff.Failed || back.Sub(began) < time.Minute || back.Sub(began) > 2*time.Minute {
			t.Errorf("it ended in %s, and went back after %s: %v", r.End, back.Sub(began), err)
		}
		err = inplace.Err(r, w.orders)
		if fault.KindOf(err) != fault.Internal || !strings.Contains(err.Error(), "waiting for a pod") {
			t.Errorf("its error is %v", err)
		}
	})
}

func TestErr(t *testing.T) {
	for name, c := range map[string]struct {
		end  handoff.Phase
		back bool
		want fault.Kind
		lost []string
	}{
		"restored":                      {end: handoff.Succeeded},
		"refused":                       {end: handoff.Refused, want: fault.Refused},
		"failed":                        {end: handoff.Failed, want: fault.Internal},
		"ordered back":                  {end: handoff.Failed, back: true},
		"ordered back in time":          {end: handoff.Refused, back: true},
		"ordered back, and restored":    {end: handoff.Succeeded, back: true, want: fault.Internal},
		"ordered back, one disk lost":   {end: handoff.Failed, back: true, lost: []string{"m1"}},
		"ordered back, a majority lost": {end: handoff.Failed, back: true, lost: []string{"m1", "m2"}, want: fault.Internal},
	} {
		h := handoff.Handoff{Members: make([]handoff.Member, 3)}
		err := inplace.Err(handoff.Record{End: c.end, Reason: "refused: the disk is full", Handoff: h, Lost: c.lost}, handoff.Orders{Back: c.back})
		if fault.KindOf(err) != c.want || err != nil && strings.Count(err.Error(), "refused: ") > 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
