package drill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/api/controller/drill"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/golden"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// fakeAPI is an API server with Jobs and their pods, in memory. Nothing runs there but what onCreate does.
type fakeAPI struct {
	client.Client // nil: the methods that a Runner must not use

	mu        sync.Mutex
	job       *batchv1.Job // guarded by mu, as all below
	pod       *corev1.Pod
	created   []*batchv1.Job
	deleted   int
	reads     int  // of the Job
	away      bool // no request is answered
	forbids   bool // to create Jobs
	mayCreate bool // whether the operator has the right to create Jobs
	onCreate  func(job *batchv1.Job)
}

var jobs = schema.GroupResource{Group: "batch", Resource: "jobs"}

func (a *fakeAPI) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	review, asks := o.(*authorizationv1.SelfSubjectAccessReview)
	if asks {
		r := review.Spec.ResourceAttributes
		review.Status.Allowed = a.mayCreate && r.Namespace == "payments" && r.Verb == "create" && r.Group == "batch" && r.Resource == "jobs"
		return nil
	}
	switch {
	case a.away:
		return stored.ErrTest
	case a.forbids:
		return apierrors.NewForbidden(jobs, o.GetName(), errors.New("for the reason of the API server"))
	case a.job != nil:
		return apierrors.NewAlreadyExists(jobs, o.GetName())
	}
	job := o.(*batchv1.Job)
	job.UID, job.CreationTimestamp = types.UID(fmt.Sprint("job-", len(a.created))), metav1.Time{Time: time.Now().Truncate(time.Second)}
	a.created = append(a.created, job.DeepCopy())
	a.job = job.DeepCopy()
	if a.onCreate != nil {
		go a.onCreate(job.DeepCopy())
	}
	return nil
}

func (a *fakeAPI) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	switch {
	case a.away:
		return stored.ErrTest
	case a.job == nil || client.ObjectKeyFromObject(a.job) != key:
		return apierrors.NewNotFound(jobs, key.Name)
	}
	a.job.DeepCopyInto(o.(*batchv1.Job))
	return nil
}

func (a *fakeAPI) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pod != nil {
		l.(*corev1.PodList).Items = []corev1.Pod{*a.pod}
	}
	return nil
}

func (a *fakeAPI) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.job == nil || a.job.UID != o.GetUID() {
		return apierrors.NewNotFound(jobs, o.GetName())
	}
	a.job, a.deleted = nil, a.deleted+1
	return nil
}

// end ends the Job with a condition.
func (a *fakeAPI) end(with batchv1.JobConditionType, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.job.Status.Conditions = []batchv1.JobCondition{{Type: with, Status: corev1.ConditionTrue, Message: message}}
}

// run makes the Job's pod run.
func (a *fakeAPI) run() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.job.Status.Ready = new(int32(1))
}

// world is an EtcdBackup with a repository, and a Runner on a fakeAPI.
type world struct {
	t       *testing.T
	api     *fakeAPI
	runner  *drill.Runner
	cluster *repository.Cluster
	id      catalog.ID // of the only backup
	request scheduler.DrillRequest
	freed   []time.Duration // when the drill gave its turn back, after the beginning; guarded by api.mu
}

// etcdBackup returns an EtcdBackup that uses every field which a Job depends on.
func etcdBackup() *v1alpha1.EtcdBackup {
	return &v1alpha1.EtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: "etcd", UID: "5d1f", Generation: 1},
		Spec: v1alpha1.EtcdBackupSpec{
			Repositories: []v1alpha1.Repository{{
				Name: "main", URL: "s3://backups/etcd", CredentialsSecret: &v1alpha1.SecretName{Name: "backups-s3"},
				CASecret: &v1alpha1.CASecret{Name: "minio-ca", Key: "public.crt"}, Limit: new(resource.MustParse("20Mi")),
				SignKeySecret: &v1alpha1.SignKeySecret{Name: "backups-sign"},
			}},
			Drill: &v1alpha1.Drill{
				IdentitySecret: &v1alpha1.IdentitySecret{Name: "backups-identity"}, Memory: new(resource.MustParse("2Gi")),
				Assert: []string{"key=order", "key=$(HOSTNAME)"},
			},
		},
	}
}

// bubble runs test in the time of a synctest bubble.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := stored.OpenCluster(t, mem.New(), "payments.etcd")
		b := etcdBackup()
		w := &world{t: t, api: &fakeAPI{}, cluster: c, id: catalog.NewID(time.Now(), 10)}
		_, err := stored.TryCreate(t, c, w.id, stored.ManifestOf(stored.Content, time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		w.runner = &drill.Runner{Client: w.api, Image: "etcd-dr:v1", EtcdBackup: func(spec.Spec) *v1alpha1.EtcdBackup { return b }}
		w.request = scheduler.DrillRequest{
			Spec: spec.Spec{
				Cluster: "payments.etcd", Timeout: time.Hour, Repositories: []spec.Repository{{Name: "main", URL: "s3://backups/etcd"}},
				Drill: spec.Drill{Repository: "main", Assertions: b.Spec.Drill.Assert, Memory: 3 << 29},
			},
			In: backup.Store{Repository: "main", Cluster: c}, Seed: 0x2a,
		}
		begin := time.Now()
		w.request.Free = func() {
			w.api.mu.Lock()
			defer w.api.mu.Unlock()
			w.freed = append(w.freed, time.Since(begin))
		}
		test(w)
	})
}

// prove stores the proof of a drill by a host.
func (w *world) prove(host string, v catalog.Verdict) {
	w.t.Helper()
	stored.AppendProof(w.t, w.cluster, catalog.Proof{
		Format: catalog.Proofs.Format, Backup: w.id, Level: catalog.Booted, Verdict: v, Finding: string(v), Time: time.Now().UTC(),
		By: host + ", dr v1", Drill: &catalog.Drill{Target: "the newest backup"},
	})
}

// drill runs the drill, and returns the verdicts of its proofs.
func (w *world) drill(ctx context.Context) (verdicts string, err error) {
	proofs, err := w.runner.Drill(ctx, w.request, func(storage.Event) {})
	for _, p := range proofs {
		verdicts += string(p.Verdict) + " "
	}
	return strings.TrimSpace(verdicts), err
}

func (w *world) want(verdicts, message string) {
	w.t.Helper()
	got, err := w.drill(w.t.Context())
	if got != verdicts || message == "" && err != nil || !strings.Contains(fmt.Sprint(err), message) {
		w.t.Errorf("the drill: %q, %v; want %q, %q", got, err, verdicts, message)
	}
}

// TestJob compares the Jobs with golden files: one with every field, and one with the fields that are required.
func TestJob(t *testing.T) {
	for file, edit := range map[string]func(w *world){
		"all":   func(*world) {},
		"plain": func(w *world) { w.onlyRequired() },
	} {
		bubble(t, func(w *world) {
			edit(w)
			w.api.onCreate = func(job *batchv1.Job) {
				w.prove(job.Spec.Template.Spec.Hostname, catalog.Passed)
				w.api.end(batchv1.JobComplete, "")
			}
			w.want("passed", "")
			job := w.api.created[0]
			job.UID, job.CreationTimestamp = "", metav1.Time{}
			text, err := yaml.Marshal(job)
			if err != nil {
				w.t.Fatal(err)
			}
			golden.Want(t, "testdata/"+file+".yaml", text)
		})
	}
}

// onlyRequired removes the fields that an unencrypted EtcdBackup does not need, and gives it a long name.
func (w *world) onlyRequired() {
	b := w.runner.EtcdBackup(spec.Spec{})
	b.Name = strings.Repeat("long.", 20) + "name"
	b.Spec.Unencrypted, b.Spec.Drill = true, &v1alpha1.Drill{}
	r := &b.Spec.Repositories[0]
	r.CASecret, r.Limit, r.SignKeySecret = nil, nil, nil
	w.request.Spec.Drill.Assertions = nil
}

// TestVerdictOfTheRepository checks that the proofs of the Job's own pod count, and no others.
func TestVerdictOfTheRepository(t *testing.T) {
	for verdict, with := range map[catalog.Verdict]batchv1.JobConditionType{
		catalog.Passed: batchv1.JobComplete, catalog.Failed: batchv1.JobFailed, catalog.NotRun: batchv1.JobFailed,
	} {
		bubble(t, func(w *world) {
			w.prove("another-host", catalog.Failed)
			w.api.onCreate = func(job *batchv1.Job) {
				time.Sleep(time.Minute)
				w.prove(job.Spec.Template.Spec.Hostname, verdict)
				w.api.end(with, "")
			}
			w.want(string(verdict), "")
		})
	}
}

// TestJobWithoutProof checks that a Job that has ended without a proof is a drill that was not run, with the reason.
func TestJobWithoutProof(t *testing.T) {
	bubble(t, func(w *world) {
		w.api.onCreate = func(*batchv1.Job) { w.api.end(batchv1.JobComplete, "") }
		w.want("", "it stored no proof")
	})
	bubble(t, func(w *world) {
		w.api.pod = &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: "reading\ndr: --identity: no such file\n"},
		}}}}}
		w.api.onCreate = func(*batchv1.Job) { w.api.end(batchv1.JobFailed, "Job has reached the specified backoff limit") }
		w.want("", "it failed: Job has reached the specified backoff limit: exit code 2, Error: dr: --identity: no such file")
	})
}

// TestPodThatDoesNotStart checks that the Job is removed, and the reason named.
func TestPodThatDoesNotStart(t *testing.T) {
	bubble(t, func(w *world) {
		w.api.pod = &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available",
		}}}}
		w.want("", "its pod did not start within 15m0s: Unschedulable: 0/3 nodes are available")
		if w.api.deleted != 1 {
			w.t.Errorf("%d Jobs were deleted", w.api.deleted)
		}
	})
}

// TestRunningJobIsFoundAgain ends an operator while its Job runs: the next one creates no second Job, and finds the verdict. The drill
// after that replaces the ended Job.
func TestRunningJobIsFoundAgain(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		_, err := w.drill(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || len(w.api.created) != 1 {
			w.t.Fatalf("%v, %d Jobs", err, len(w.api.created))
		}
		first := w.api.created[0].Spec.Template.Spec.Hostname
		w.request.Seed++
		time.AfterFunc(time.Hour, func() { w.prove(first, catalog.Failed); w.api.end(batchv1.JobFailed, "") })
		w.api.job.Status.Ready = new(int32(1))
		w.want("failed", "")
		w.api.onCreate = func(job *batchv1.Job) {
			w.prove(job.Spec.Template.Spec.Hostname, catalog.Passed)
			w.api.end(batchv1.JobComplete, "")
		}
		w.want("passed", "")
		if len(w.api.created) != 2 || w.api.deleted != 1 || w.api.created[0].Name != w.api.created[1].Name {
			w.t.Errorf("%d Jobs were created, %d deleted", len(w.api.created), w.api.deleted)
		}
	})
}

// TestRunningJobOfOtherSettingsEnds changes the image, or the EtcdBackup, while a Job runs that a stopped operator has created: its verdict
// would say nothing about the settings in effect.
func TestRunningJobOfOtherSettingsEnds(t *testing.T) {
	for _, change := range []func(w *world){
		func(w *world) { w.runner.Image = "etcd-dr:v2" },
		func(w *world) {
			w.runner.EtcdBackup(spec.Spec{}).Spec.Drill.IdentitySecret = &v1alpha1.IdentitySecret{Name: "another"}
		},
		func(w *world) { w.request.Spec.Drill.Assertions = []string{"key=other"} },
	} {
		bubble(t, func(w *world) {
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
			defer cancel()
			_, err := w.drill(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				w.t.Fatal(err)
			}
			change(w)
			w.request.Seed++
			w.api.onCreate = func(job *batchv1.Job) {
				w.prove(job.Spec.Template.Spec.Hostname, catalog.Passed)
				w.api.end(batchv1.JobComplete, "")
			}
			w.want("passed", "")
			if len(w.api.created) != 2 || w.api.deleted != 1 {
				w.t.Errorf("%d Jobs were created, %d deleted", len(w.api.created), w.api.deleted)
			}
		})
	}
}

// TestLongJobCostsLittle checks that a Job that runs for hours is read twice a minute, and keeps its turn for an hour, while a short one is
// noticed within seconds, and keeps its turn.
func TestLongJobCostsLittle(t *testing.T) {
	for took, want := range map[time.Duration]struct {
		reads int
		late  time.Duration
		freed int
	}{
		6 * time.Second:  {4, 4 * time.Second, 0},
		59 * time.Minute: {130, 30 * time.Second, 0},
		5 * time.Hour:    {610, 30 * time.Second, 1},
	} {
		t.Run(took.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				w.api.onCreate = func(job *batchv1.Job) {
					w.api.run()
					time.Sleep(took)
					w.prove(job.Spec.Template.Spec.Hostname, catalog.Passed)
					w.api.end(batchv1.JobComplete, "")
				}
				begin := time.Now()
				w.want("passed", "")
				late := time.Since(begin) - took
				w.api.mu.Lock()
				defer w.api.mu.Unlock()
				if w.api.reads > want.reads || late > want.late {
					w.t.Errorf("a Job of %s: it is read %d times, want at most %d, and its end is noticed after %s", took, w.api.reads, want.reads, late)
				}
				if min(len(w.freed), 1) != want.freed || want.freed > 0 && (w.freed[0] < time.Hour || w.freed[0] > time.Hour+time.Minute) {
					w.t.Errorf("a Job of %s: the turn is given back after %v", took, w.freed)
				}
			})
		})
	}
}

// TestAPIServerIsAway checks that a drill that cannot be created fails at once, and one that runs is waited for.
func TestAPIServerIsAway(t *testing.T) {
	bubble(t, func(w *world) {
		w.api.away = true
		w.want("", "cannot be created")
		w.api.away = false
		w.api.onCreate = func(job *batchv1.Job) {
			set := func(away bool) { w.api.mu.Lock(); w.api.away = away; w.api.mu.Unlock() }
			set(true)
			time.Sleep(30 * time.Minute)
			w.prove(job.Spec.Template.Spec.Hostname, catalog.Passed)
			w.api.end(batchv1.JobComplete, "")
			set(false)
		}
		w.want("passed", "")
	})
}

// TestMayNotCreateJobs checks that an operator without the right to create Jobs names the administrator's remedy, and one that was refused
// for another reason, such as a quota, does not.
func TestMayNotCreateJobs(t *testing.T) {
	bubble(t, func(w *world) {
		w.api.forbids = true
		const remedy = "the operator has no right to create Jobs in namespace payments: its administrator can allow drills there"
		w.want("", remedy)
		w.want("", "for the reason of the API server")
		w.api.mayCreate = true
		_, err := w.drill(w.t.Context())
		if err == nil || strings.Contains(err.Error(), "administrator") || !strings.Contains(err.Error(), "for the reason of the API server") {
			w.t.Errorf("with the right: %v", err)
		}
	})
}

// TestNoDrill checks the reasons for which no Job is created.
func TestNoDrill(t *testing.T) {
	bubble(t, func(w *world) {
		w.runner.Image = ""
		w.want("", "start dr operator with --job-image")
		w.runner.Image = "etcd-dr:v1"
		b := w.runner.EtcdBackup(spec.Spec{})
		b.Spec.Repositories[0].CredentialsSecret = nil
		w.want("", "the repository main names no Secret, and a Job has no other identity")
		b.Spec.Repositories[0].Name = "other"
		w.want("", "the settings of EtcdBackup payments/etcd have just changed")
		w.runner.EtcdBackup = func(spec.Spec) *v1alpha1.EtcdBackup { return nil }
		w.want("", "the EtcdBackup of cluster payments.etcd has just changed, or was deleted")
		if len(w.api.created) != 0 {
			w.t.Errorf("%d Jobs were created", len(w.api.created))
		}
	})
}
