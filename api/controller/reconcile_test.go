package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// world is an API server, a store and an operator, in the time of a synctest bubble.
type world struct {
	client.Client // the API server; methods that the reconciler must not use are nil
	t             *testing.T
	bucket        storage.Bucket
	op            *operator
	stop          func() // stops the operator, and waits until it has ended

	mu        sync.Mutex
	objects   map[types.NamespacedName]*v1alpha1.EtcdBackup // guarded by mu, as all below
	writes    int                                           // of status
	readOnly  bool                                          // the API server refuses writes
	conflicts bool                                          // the API server finds every write too old
	away      bool                                          // the store does not answer
	unlabeled bool                                          // backups are stored without their labels
	hidden    string                                        // a namespace whose Secrets cannot be read
	took      time.Duration                                 // of one backup
	broken    error                                         // of each backup
	revision  int64
	recorded  map[string]int  // events by their reasons
	events    []storage.Event // that the operator has reported
	spool     string          // folder
}

// bubble runs test in a bubble with a running operator.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, bucket: mem.New(), objects: map[types.NamespacedName]*v1alpha1.EtcdBackup{}, recorded: map[string]int{}, took: 5 * time.Second, revision: 10}
		w.start()
		defer func() { w.stop() }()
		test(w)
	})
}

func (w *world) start() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.op = newOperator(Options{Concurrency: 4, Lease: time.Minute, Spool: w.spool}, func(e storage.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	})
	service := w.op.scheduler
	service.Check, service.Backup, service.Archive = nil, w.backup, nil
	service.Open = func(context.Context, spec.Repository) (storage.Bucket, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.away {
			return nil, stored.ErrTest
		}
		return w.bucket, nil
	}
	w.op.reconciler.client, w.op.reconciler.uncached, w.op.reconciler.events = w, w, w
	w.op.reconciler.leads = func() bool { return true }
	var ended sync.WaitGroup
	changes := make(chan spec.Config)
	ended.Go(func() { w.op.feed(ctx, changes) })
	ended.Go(func() { service.Run(ctx, w.op.config(), changes) })
	w.stop = func() { cancel(); ended.Wait() }
}

// backup stores a backup in each store.
func (w *world) backup(ctx context.Context, asked scheduler.BackupRequest, _ storage.Report) (r backup.Result, err error) {
	started := time.Now()
	select {
	case <-ctx.Done():
		return r, context.Cause(ctx)
	case <-time.After(w.took):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return r, w.broken
	}
	w.revision++
	for _, store := range asked.To {
		m := stored.ManifestOf(stored.Content, started)
		m.Revision = w.revision
		if !w.unlabeled {
			m.Labels = asked.Spec.Backup.Labels
		}
		r.Backup, err = stored.TryCreate(w.t, store.Cluster, catalog.NewID(started, w.revision), m)
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// Get decodes from JSON, as an API server's client does.
func (w *world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	secret, ok := into.(*corev1.Secret)
	if ok && w.isHidden(key.Namespace) {
		return stored.ErrTest
	}
	if ok {
		secret.Data = storeKeys()
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b, ok := w.objects[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "etcdbackups"}, key.Name)
	}
	text, err := json.Marshal(b)
	return errors.Join(err, json.Unmarshal(text, into))
}

func (w *world) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := into.(*v1alpha1.EtcdBackupList)
	for _, b := range w.objects {
		all.Items = append(all.Items, *b.DeepCopy())
	}
	return nil
}

func (w *world) isHidden(namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return namespace == w.hidden
}

// Eventf counts the events by their reasons.
func (w *world) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorded[reason]++
}

func (w *world) Status() client.SubResourceWriter { return patcher{nil, w} }

// patcher writes the status of objects.
type patcher struct {
	client.SubResourceWriter
	w *world
}

func (p patcher) Patch(_ context.Context, changed client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.w.readOnly {
		return stored.ErrTest
	}
	p.w.writes++
	if p.w.conflicts {
		return apierrors.NewConflict(schema.GroupResource{Resource: "etcdbackups"}, changed.GetName(), stored.ErrTest)
	}
	p.w.objects[client.ObjectKeyFromObject(changed)].Status = changed.(*v1alpha1.EtcdBackup).DeepCopy().Status
	return nil
}

// apply creates or replaces an EtcdBackup. Its UID is its name.
func (w *world) apply(b *v1alpha1.EtcdBackup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(b)
	b.UID, b.CreationTimestamp = types.UID(b.Name), metav1.Now()
	before, ok := w.objects[key]
	if ok {
		b.UID, b.CreationTimestamp, b.Generation, b.Status = before.UID, before.CreationTimestamp, before.Generation+1, before.Status
	}
	w.objects[key] = b
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// reconcile reconciles one EtcdBackup, and returns when to look again.
func (w *world) reconcile(name types.NamespacedName) time.Duration {
	result, err := w.op.reconciler.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: name})
	if err != nil && !errors.Is(err, stored.ErrTest) {
		w.t.Error(err)
	}
	return result.RequeueAfter
}

// pass reconciles all EtcdBackups each second.
func (w *world) pass(d time.Duration) {
	for range int(d / time.Second) {
		time.Sleep(time.Second)
		w.mu.Lock()
		var names []types.NamespacedName
		for name := range w.objects {
			names = append(names, name)
		}
		w.mu.Unlock()
		for _, name := range names {
			w.reconcile(name)
		}
	}
}

func (w *world) status(name string) v1alpha1.EtcdBackupStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.objects[named(name)].Status
}

// taken returns the backups of a cluster in the store.
func (w *world) taken(cluster string) []catalog.Backup {
	all, err := stored.OpenCluster(w.t, w.bucket, cluster).Load(w.t.Context(), backups.LoadOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return all.Backups
}

func (w *world) wantTaken(cluster string, n int) {
	w.t.Helper()
	if len(w.taken(cluster)) != n {
		w.t.Errorf("%s has %d backups, want %d", cluster, len(w.taken(cluster)), n)
	}
}

func (w *world) wantPhase(name string, want v1alpha1.Phase, message string) {
	w.t.Helper()
	got := w.status(name)
	if got.Phase != want || !strings.Contains(got.Message, message) || message == "" && got.Message != "" {
		w.t.Errorf("%s is %s: %q, want %s: %q", name, got.Phase, got.Message, want, message)
	}
}

// taking returns an EtcdBackup that takes one backup.
func taking(name string) *v1alpha1.EtcdBackup {
	b := scheduled("payments", name)
	b.Spec.Schedule = nil
	return b
}

// like returns an EtcdBackup that takes one backup with the settings of another.
func like(name, other string) *v1alpha1.EtcdBackup {
	b := scheduled("payments", name)
	b.Spec = v1alpha1.EtcdBackupSpec{Like: other}
	return b
}

// TestOneBackupIsTakenOnce stops the operator in each phase: the operator that follows takes the backup only if the store does not contain it.
func TestOneBackupIsTakenOnce(t *testing.T) {
	for _, lived := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 30 * time.Second} {
		for _, readOnly := range []bool{false, true} { // true: from its third second on, the API server refuses the first operator's writes
			t.Run(fmt.Sprint(lived, " ", readOnly), func(t *testing.T) {
				bubble(t, func(w *world) {
					w.apply(taking("now"))
					w.pass(3 * time.Second)
					w.set(func() { w.readOnly = readOnly })
					w.pass(lived)
					w.stop()
					w.set(func() { w.readOnly = false })
					w.start()
					w.pass(5 * time.Minute)
					w.wantPhase("now", v1alpha1.PhaseCompleted, "")
					w.wantTaken("payments.now", 1)
					got, last := w.taken("payments.now")[0], w.status("now").Last
					if last == nil || last.ID != string(got.ID) || last.Revision != got.Revision {
						t.Errorf("the status names %+v, the store contains %s", last, got.ID)
					}
					if w.recorded[eventStored] != 1 {
						t.Errorf("the events are %v, want one of the backup", w.recorded)
					}
				})
			})
		}
	}
}

// TestAGracefulStopTakesNoSecondBackup stops the operator during a backup, which it finishes within its patience. The next operator requests
// the same backup before it is stored, and must not take a second one.
func TestAGracefulStopTakesNoSecondBackup(t *testing.T) {
	bubble(t, func(w *world) {
		w.op.scheduler.Patience = 10 * time.Minute
		w.apply(scheduled("payments", "daily"))
		w.pass(time.Minute) // the first scheduled one is taken
		w.set(func() { w.took = time.Minute })
		w.apply(like("now", "daily"))
		w.pass(10 * time.Second)
		w.wantPhase("now", v1alpha1.PhaseRunning, "")
		var stopping sync.WaitGroup
		stopping.Go(w.stop)
		w.start()
		w.pass(10 * time.Minute)
		stopping.Wait()
		w.wantPhase("now", v1alpha1.PhaseCompleted, "")
		w.wantTaken("payments.daily", 2)
	})
}

// TestAYoungerDuplicateWaitsForTheOlderOne starts an operator that reads the younger of two EtcdBackups of one cluster first, while the
// Secrets of the older one cannot be read. Other clusters do not wait.
func TestAYoungerDuplicateWaitsForTheOlderOne(t *testing.T) {
	bubble(t, func(w *world) {
		w.stop()
		older := scheduled("bank", "ledger")
		older.Spec.Cluster = "ledger"
		w.apply(older)
		time.Sleep(time.Minute)
		younger := scheduled("payments", "daily")
		younger.Spec.Cluster = "ledger"
		w.apply(younger)
		w.apply(scheduled("payments", "other"))
		w.hidden = "bank"
		w.start()
		for range 5 {
			w.reconcile(named("daily"))
			w.pass(5 * time.Second)
		}
		var clusters []string
		for _, s := range w.op.config().Specs {
			clusters = append(clusters, s.Cluster)
		}
		accepted := w.status("daily").Conditions[0]
		if !slices.Equal(clusters, []string{"payments.other"}) || accepted.Status != "False" || accepted.Reason != reasonDuplicate {
			t.Errorf("in effect: %v; the younger one is %+v", clusters, accepted)
		}
		w.set(func() { w.hidden = "" })
		w.pass(15 * time.Second)
		owner, _ := w.op.reconciler.table.nameOf("ledger")
		if owner.Namespace != "bank" || len(w.op.config().Specs) != 2 {
			t.Errorf("%s backs up the cluster", owner)
		}
		w.set(func() { delete(w.objects, owner) })
		w.reconcile(owner)
		w.pass(time.Minute)
		owner, _ = w.op.reconciler.table.nameOf("ledger")
		if owner != named("daily") {
			t.Errorf("after the older one was deleted, %s backs up the cluster", owner)
		}
	})
}

// TestABackupThatIsNotFoundIsNotTakenAgain stores backups without the label: only the service reports that they succeeded.
func TestABackupThatIsNotFoundIsNotTakenAgain(t *testing.T) {
	bubble(t, func(w *world) {
		w.unlabeled = true
		w.apply(taking("now"))
		w.pass(10 * time.Minute)
		w.wantPhase("now", v1alpha1.PhaseCompleted, "")
		w.wantTaken("payments.now", 1)
		if w.status("now").Last == nil || w.status("now").Last.ID != string(w.taken("payments.now")[0].ID) {
			t.Errorf("the status names %+v", w.status("now").Last)
		}
	})
}

func TestOneBackupWaitsAndSaysWhy(t *testing.T) {
	bubble(t, func(w *world) {
		hourly := scheduled("payments", "hourly")
		hourly.Spec.Suspend = true
		w.apply(hourly)
		w.apply(like("upgrade", "hourly"))
		w.apply(like("wrong", "gone"))
		w.pass(time.Minute)
		w.wantPhase("upgrade", v1alpha1.PhasePending, "suspended: resume it first")
		w.wantTaken("payments.hourly", 0)
		c := w.status("wrong").Conditions[0]
		if c.Status != "False" || c.Reason != reasonMissing || w.status("wrong").Phase != "" {
			t.Errorf("an EtcdBackup like a missing one: %+v", w.status("wrong"))
		}
		resumed := hourly.DeepCopy()
		resumed.Spec.Suspend = false
		w.apply(resumed)
		w.pass(5 * time.Minute)
		w.wantPhase("upgrade", v1alpha1.PhaseCompleted, "")
		w.wantTaken("payments.hourly", 2) // the hourly one too
	})
	bubble(t, func(w *world) {
		w.away = true
		w.apply(taking("now"))
		w.pass(5 * time.Minute)
		w.wantPhase("now", v1alpha1.PhasePending, "cannot find out whether the backup was taken")
		w.set(func() { w.away = false })
		w.pass(5 * time.Minute)
		w.wantPhase("now", v1alpha1.PhaseCompleted, "")
		w.wantTaken("payments.now", 1)
	})
}

// TestSeveralRequestsAreAllServed requests backups of one cluster while one runs: none joins another.
func TestSeveralRequestsAreAllServed(t *testing.T) {
	bubble(t, func(w *world) {
		w.took = time.Minute
		w.apply(scheduled("payments", "daily"))
		w.pass(10 * time.Second) // the first scheduled one runs
		w.apply(like("a", "daily"))
		w.apply(like("b", "daily"))
		w.pass(20 * time.Second)
		w.wantPhase("a", v1alpha1.PhasePending, "waits for its turn")
		running := false
		for range 240 {
			w.pass(time.Second)
			running = running || w.status("a").Phase == v1alpha1.PhaseRunning
		}
		w.pass(time.Minute)
		w.wantPhase("a", v1alpha1.PhaseCompleted, "")
		w.wantPhase("b", v1alpha1.PhaseCompleted, "")
		w.wantTaken("payments.daily", 3)
		if !running || w.status("a").Last.ID == w.status("b").Last.ID {
			t.Errorf("a was seen running: %v; a %+v, b %+v", running, w.status("a").Last, w.status("b").Last)
		}
	})
}

func TestAFailedBackupIsNotTriedAgain(t *testing.T) {
	bubble(t, func(w *world) {
		w.broken = stored.ErrTest
		w.apply(taking("now"))
		w.pass(time.Minute)
		w.wantPhase("now", v1alpha1.PhaseFailed, stored.ErrTest.Error())
		w.set(func() { w.broken = nil })
		w.pass(10 * time.Minute)
		w.wantPhase("now", v1alpha1.PhaseFailed, stored.ErrTest.Error())
		w.wantTaken("payments.now", 0)
	})
}

func TestAnUnchangedStatusIsNotWritten(t *testing.T) {
	bubble(t, func(w *world) {
		w.apply(scheduled("payments", "daily"))
		w.pass(20 * time.Minute) // taken and observed
		before := w.writes
		w.pass(20 * time.Minute)
		if w.writes != before || before == 0 || w.status("daily").Last == nil {
			t.Errorf("%d writes of the status in 20 minutes in which nothing happened, %d before; it is %+v", w.writes-before, before, w.status("daily"))
		}
		again := w.reconcile(named("daily"))
		if again != settingsAfter {
			t.Errorf("the next look is after %s, want %s", again, settingsAfter)
		}
	})
}

// TestAFaultAfterARestartIsNotProtected makes the settings invalid. The valid ones stay in effect until the operator is started again: the new one
// does not know them.
func TestAFaultAfterARestartIsNotProtected(t *testing.T) {
	bubble(t, func(w *world) {
		protected := func() *metav1.Condition {
			return meta.FindStatusCondition(w.status("daily").Conditions, v1alpha1.ConditionProtected)
		}
		w.apply(scheduled("payments", "daily"))
		w.pass(time.Minute)
		bad := scheduled("payments", "daily")
		bad.Spec.Schedule.Cron = "every day"
		w.apply(bad)
		w.pass(time.Minute)
		if protected().Status != metav1.ConditionTrue || w.status("daily").Next == nil {
			t.Errorf("with the settings before the fault the status is %+v", w.status("daily"))
		}

		w.stop()
		w.start()
		w.pass(time.Minute)
		c := protected()
		if c.Status != metav1.ConditionFalse || c.Reason != reasonRefused || w.status("daily").Next != nil || w.status("daily").Last == nil {
			t.Errorf("with no settings the status is %+v", w.status("daily"))
		}
		s, err := w.op.scheduler.StatusOf("payments.daily")
		if err != nil || len(s.Conditions) != 1 || s.Conditions[0].Name != condition.ConfigRefused || s.Conditions[0].Severity != condition.Critical {
			t.Errorf("the service shows %+v (%v)", s, err)
		}

		w.apply(scheduled("payments", "daily"))
		w.pass(2 * time.Minute)
		if protected().Status != metav1.ConditionTrue || w.status("daily").Next == nil {
			t.Errorf("with corrected settings the status is %+v", w.status("daily"))
		}
	})
}

// TestConflictsKeepThePace lets each write of the status fail, as after an outage of the API server, when the cache is behind.
func TestConflictsKeepThePace(t *testing.T) {
	bubble(t, func(w *world) {
		w.set(func() { w.conflicts = true })
		w.apply(taking("now"))
		w.pass(10 * time.Minute)
		if w.writes == 0 || w.writes > 10*statusMinute {
			t.Errorf("%d requests to write the status in ten minutes", w.writes)
		}
		w.set(func() { w.conflicts = false })
		w.pass(time.Minute)
		if w.status("now").Phase != v1alpha1.PhaseCompleted {
			t.Errorf("the status is %+v", w.status("now"))
		}
	})
}

func TestOnlyTheLeaderWritesAndRequests(t *testing.T) {
	bubble(t, func(w *world) {
		leads := false
		w.op.reconciler.leads = func() bool { return leads }
		w.apply(scheduled("payments", "daily"))
		w.apply(taking("now"))
		w.pass(5 * time.Minute)
		w.wantTaken("payments.daily", 1) // leader or not, an operator takes the scheduled backups
		w.wantTaken("payments.now", 0)
		if w.writes != 0 {
			t.Errorf("an operator that is not the leader wrote %d times", w.writes)
		}
		leads = true
		w.pass(5 * time.Minute)
		w.wantTaken("payments.now", 1)
	})
}

// TestNothingIsKeptOfEndedEtcdBackups takes many backups, and deletes EtcdBackups: the operator forgets them.
func TestNothingIsKeptOfEndedEtcdBackups(t *testing.T) {
	bubble(t, func(w *world) {
		w.apply(scheduled("payments", "daily"))
		for i := range 2 {
			w.apply(taking(fmt.Sprint("now-", i)))
			w.apply(like(fmt.Sprint("like-", i), "daily"))
		}
		w.pass(10 * time.Minute)
		w.set(func() { delete(w.objects, named("daily")) })
		w.reconcile(named("daily"))
		r := w.op.reconciler
		if len(r.waiting)+len(r.written)+len(r.table.entries) != 0 {
			t.Errorf("kept: waiting %v, written %v, entries %v", r.waiting, r.written, r.table.names())
		}
		time.Sleep(time.Minute)
		if len(w.op.scheduler.Status()) != 0 {
			t.Errorf("the service keeps %+v", w.op.scheduler.Status())
		}
	})
}

// TestLikeStaysInItsNamespace creates an EtcdBackup anew, so that it names another tenant's cluster. Even before its settings are refused, an
// EtcdBackup like it sees nothing of that cluster.
func TestLikeStaysInItsNamespace(t *testing.T) {
	bubble(t, func(w *world) {
		w.apply(scheduled("bank", "ledger"))
		w.apply(scheduled("payments", "daily"))
		w.pass(time.Minute)
		w.set(func() { delete(w.objects, named("daily")) })
		w.reconcile(named("daily"))
		thief := scheduled("payments", "daily")
		thief.Spec.Cluster = "bank.ledger"
		w.apply(thief)
		w.apply(like("peep", "daily"))
		w.pass(time.Minute)
		w.wantTaken("bank.ledger", 1)
		if w.status("peep").Cluster != "" || w.status("daily").Cluster != "" {
			t.Errorf("the status shows another tenant's cluster: %+v, %+v", w.status("peep"), w.status("daily"))
		}
	})
	bubble(t, func(w *world) { // the same, before the operator has seen the deletion
		w.apply(scheduled("bank", "ledger"))
		w.apply(scheduled("payments", "daily"))
		w.pass(time.Minute)
		w.set(func() {
			w.objects[named("daily")].UID, w.objects[named("daily")].Spec.Cluster = "another", "bank.ledger"
			w.objects[named("peep")] = like("peep", "daily")
		})
		w.reconcile(named("peep"))
		if w.status("peep").Cluster == "bank.ledger" {
			t.Errorf("the status shows another tenant's cluster: %+v", w.status("peep"))
		}
	})
}

// TestAScheduledOneThatBecomesLikeAnother checks that a scheduled EtcdBackup drops its own settings when it becomes like another one.
func TestAScheduledOneThatBecomesLikeAnother(t *testing.T) {
	bubble(t, func(w *world) {
		w.apply(scheduled("payments", "daily"))
		w.apply(scheduled("payments", "mind"))
		w.pass(time.Minute)
		w.apply(like("mind", "daily"))
		w.reconcile(named("mind"))
		cluster, _ := w.op.reconciler.table.inEffect(named("mind"))
		if cluster != "" {
			t.Errorf("the old settings are in effect for %s", cluster)
		}
	})
}
