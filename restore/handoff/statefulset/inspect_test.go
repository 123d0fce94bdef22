package statefulset_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

// shapes are the StatefulSets in testdata.
var shapes = []string{"parallel", "subpath", "wal", "uid1001", "bitnami", "local", "cnych", "etcdio"}

// TestShapes compares the descriptions of StatefulSets, and the Jobs of a member, with golden files. The members of one run, and the claims
// of another are not bound.
func TestShapes(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape, func(t *testing.T) {
			w := newWorld(t, shape)
			switch shape {
			case "parallel":
				w.run(map[string]string{"etcd-0": "n1", "etcd-1": "n2", "etcd-2": "n3"})
			case "cnych":
				w.own(3)
			case "local":
				for _, claim := range []string{"data-etcd-1", "data-etcd-2"} {
					change(w, claim, &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })
				}
			}
			golden.Want(t, "testdata/"+shape+".handoff.json", asJSON(t, w.inspect()))
			w.plan()
			texts, err := w.do(handoff.DoStage)
			if err != nil {
				t.Fatalf("%v, %q", err, texts)
			}
			jobs := w.jobs()
			if len(jobs) != 3 {
				t.Fatalf("%d Jobs", len(jobs))
			}
			golden.Want(t, "testdata/"+shape+".job.yaml", asYAML(t, &jobs[1]))
		})
	}
}

// etcd returns the container of set that runs etcd.
func etcd(set *appsv1.StatefulSet) *corev1.Container {
	containers := set.Spec.Template.Spec.Containers
	return &containers[len(containers)-1]
}

// command replaces the command, the arguments and the variables of etcd's container.
func command(set *appsv1.StatefulSet, words ...string) {
	etcd(set).Command, etcd(set).Args = words, nil
}

// volume replaces the claim of the data by a volume.
func volume(set *appsv1.StatefulSet, v corev1.VolumeSource) {
	set.Spec.VolumeClaimTemplates = nil
	set.Spec.Template.Spec.Volumes = append(set.Spec.Template.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: v})
}

// TestFindings checks the facts that a person should know, and which of them refuse the restore.
func TestFindings(t *testing.T) {
	const deletes, retains = appsv1.DeletePersistentVolumeClaimRetentionPolicyType, appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	policy := func(scaled, deleted appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: scaled, WhenDeleted: deleted}
		}
	}
	service := func(edit func(*corev1.Service)) func(*world) {
		return func(w *world) { change(w, "etcd", &corev1.Service{}, edit) }
	}
	claim := func(edit func(*corev1.PersistentVolumeClaim)) func(*world) {
		return func(w *world) { change(w, "data-etcd-1", &corev1.PersistentVolumeClaim{}, edit) }
	}
	remove := func(w *world, o client.Object) {
		must(w.t, w.client.Delete(w.t.Context(), o))
	}
	running := func(w *world) { w.run(map[string]string{"etcd-0": "n1", "etcd-1": "n2", "etcd-2": "n3"}) }
	managed := func(manager string) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			entry := func(manager, field string, at time.Time) metav1.ManagedFieldsEntry {
				return metav1.ManagedFieldsEntry{
					Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apps/v1", Time: new(metav1.NewTime(at)),
					FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:` + field + `":{}}}`),
				}
			}
			now := time.Now()
			s.ManagedFields = []metav1.ManagedFieldsEntry{
				entry("earlier", "replicas", now.Add(-time.Hour)), entry(manager, "replicas", now), entry("other", "minReadySeconds", now.Add(time.Hour)),
			}
		}
	}
	owned := func(apiVersion, kind string) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "main", UID: "x", Controller: new(true)}}
		}
	}
	members := func(names ...string) func(*world) {
		return func(w *world) {
			for _, name := range names {
				w.options.Into.Members = append(w.options.Into.Members, plan.Member{Name: name, PeerURLs: []string{"http://" + name + ":2380"}})
			}
		}
	}
	for name, c := range map[string]struct {
		set     func(*appsv1.StatefulSet)
		world   func(*world)
		want    string // the beginning of a finding; "": there is none
		refuses bool
	}{
		"nothing": {},
		"an owner": {
			owned("v1", "EtcdCluster"), nil,
			"StatefulSet payments/etcd belongs to EtcdCluster main, which would undo the changes of a restore: restore through that owner", true,
		},
		"an owner without a restore of its own": {
			owned("etcd.aenix.io/v1alpha1", "EtcdCluster"), nil, "StatefulSet payments/etcd belongs to EtcdCluster main, which would undo the changes of a restore: " +
				"remove its operator, wait until the operator's pod is gone, and then delete only the owner: " +
				"kubectl -n payments delete etcdcluster.etcd.aenix.io main --cascade=orphan", true,
		},
		"Gardener's owner": {
			owned("druid.gardener.cloud/v1alpha1", "Etcd"), nil, "StatefulSet payments/etcd belongs to Etcd main, which would undo the changes of a restore: " +
				"etcd-druid restores by itself, only members without data, and only the snapshot with the highest revision in its spec.backup.store: begin with " +
				"kubectl -n payments annotate etcd.druid.gardener.cloud main druid.gardener.cloud/suspend-etcd-spec-reconcile= " +
				"druid.gardener.cloud/disable-etcd-component-protection= and store a snapshot there whose revisions are above all others: docs/managers.md has the steps", true,
		},
		"cozystack's owner": {
			owned("etcd-operator.cozystack.io/v1alpha2", "EtcdCluster"), nil, "StatefulSet payments/etcd belongs to EtcdCluster main, which would undo the changes of a " +
				"restore: store a snapshot from dr fetch in S3 or on a claim, save the EtcdCluster, delete it " +
				"(kubectl -n payments delete etcdcluster.etcd-operator.cozystack.io main), and create it again with spec.bootstrap.restore.source", true,
		},
		"Kubermatic's owner": {
			owned("kubermatic.k8c.io/v1", "Cluster"), nil, "StatefulSet payments/etcd belongs to Cluster main, which would undo the changes of a restore: " +
				"store a snapshot from dr fetch as main-dr.db in the bucket of a DESTINATION that its Seed names in spec.etcdBackupRestore, and create an EtcdRestore: " +
				`echo '{"apiVersion":"kubermatic.k8c.io/v1","kind":"EtcdRestore","metadata":{"name":"dr"},"spec":{"name":"dr","backupName":"dr.db",` +
				`"destination":"DESTINATION","cluster":{"apiVersion":"kubermatic.k8c.io/v1","kind":"Cluster","name":"main"}}}' | kubectl -n payments create -f -`, true,
		},
		"an owner that is no controller": {func(s *appsv1.StatefulSet) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Application", Name: "main", UID: "x"}}
		}, nil, "", false},
		"it is deleted": {
			func(s *appsv1.StatefulSet) { s.Finalizers = []string{"example.com/kept"} }, func(w *world) { remove(w, w.set()) },
			"StatefulSet payments/etcd is being deleted: create it again", true,
		},
		"no replicas": {func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(0)) }, nil, "StatefulSet payments/etcd has 0 replicas: pass --initial-cluster", true},
		"too many replicas": {
			func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(33)) }, nil, "StatefulSet payments/etcd has more than 32 replicas", true,
		},
		"other members":     {nil, members("etcd-0"), "--initial-cluster has 1 members, and StatefulSet payments/etcd runs 3: name 3 members, or scale it to 1", true},
		"no member for it":  {nil, members("etcd-0", "etcd-1", "m3"), "--initial-cluster has no member for pod etcd-2: name each member like its pod", true},
		"backup of another": {nil, func(w *world) { w.options.Backup = []plan.Member{{Name: "a"}} }, "the backup has 1 members, and StatefulSet payments/etcd runs 3", false},

		"emptyDir": {
			func(s *appsv1.StatefulSet) { volume(s, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}) }, nil,
			"/var/lib/etcd/data of container etcd is in the volume data, which is lost with each pod: give the members claims", true,
		},
		"no volume": {
			func(s *appsv1.StatefulSet) { etcd(s).VolumeMounts = etcd(s).VolumeMounts[1:] }, nil,
			"no volume contains /var/lib/etcd/data of container etcd, so it is lost with each pod", true,
		},
		"hostPath": {
			func(s *appsv1.StatefulSet) {
				volume(s, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}})
			}, running,
			"member etcd-1 has its data in a folder of node n2 (hostPath /srv): on another node it would start without data", false,
		},
		"hostPath of an unknown node": {
			func(s *appsv1.StatefulSet) {
				volume(s, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}})
			}, nil,
			"member etcd-0 has its data in a folder of a node (hostPath /srv), and does not run: the node is unknown", true,
		},
		"a shell": {
			func(s *appsv1.StatefulSet) {
				command(s, "/bin/sh", "-c", "exec /usr/local/bin/etcd", "etcd", "--data-dir=/x")
			}, nil,
			"the peer URLs of etcd-0 are unknown: container etcd runs /bin/sh, which is not parsed: pass --initial-cluster", true,
		},
		"a shell's data dir": {
			func(s *appsv1.StatefulSet) { command(s, "/bin/sh", "-c", "etcd --data-dir=/x") }, nil,
			"the data dir is unknown: container etcd runs /bin/sh, which is not parsed: pass --data-dir", true,
		},
		"a configuration file": {
			func(s *appsv1.StatefulSet) { command(s, "etcd", "--config-file=/etc/etcd/conf", "--data-dir=/x") }, nil,
			"the data dir is unknown: etcd in container etcd reads its settings from a file: pass --data-dir", true,
		},
		"an unknown variable": {
			func(s *appsv1.StatefulSet) {
				command(s, "etcd", "--data-dir=/var/lib/etcd/data", "--initial-advertise-peer-urls=http://$(IP):2380")
			}, nil,
			`the peer URLs of etcd-0 are unknown: the value of $(IP) in "http://$(IP):2380" is not part of the StatefulSet: pass --initial-cluster`, true,
		},
		"no peer URLs": {
			func(s *appsv1.StatefulSet) { command(s, "etcd", "--data-dir=/var/lib/etcd/data") }, nil,
			"the peer URLs of etcd-0 are unknown: etcd runs without --initial-advertise-peer-urls", true,
		},
		"a relative data dir": {
			func(s *appsv1.StatefulSet) { etcd(s).Args[2] = "data" }, nil, "the data dir is unknown: data is not an absolute path", true,
		},
		"a log inside the data": {
			func(s *appsv1.StatefulSet) { etcd(s).Args = append(etcd(s).Args, "--wal-dir=/var/lib/etcd/data/log") }, nil,
			"the WAL dir cannot be used: /var/lib/etcd/data/log is inside the data dir /var/lib/etcd/data", true,
		},
		"a subPath of an unknown variable": {
			func(s *appsv1.StatefulSet) { etcd(s).VolumeMounts[0].SubPathExpr = "$(ZONE)" }, nil,
			`the subPathExpr of /var/lib/etcd cannot be resolved: the value of $(ZONE) in "$(ZONE)" is not part of the StatefulSet`, true,
		},
		"two etcds": {
			func(s *appsv1.StatefulSet) {
				s.Spec.Template.Spec.Containers[0].Command, etcd(s).Ports = []string{"etcd"}, nil
			}, nil,
			"several containers may run etcd: pass --container with one of metrics, etcd", true,
		},
		"no such container": {
			nil, func(w *world) { w.options.Into.Container = "db" }, "no container is called db: pass --container with one of metrics, etcd", true,
		},
		"an unknown user": {func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true)}
		}, nil, "refused: the user of container etcd is not root, and unknown: set its securityContext.runAsUser", true},

		"whenScaled":  {policy(deletes, retains), nil, "StatefulSet payments/etcd deletes claims by itself", false},
		"whenDeleted": {policy(retains, deletes), nil, "StatefulSet payments/etcd deletes claims by itself", false},
		"retained":    {policy(retains, retains), nil, "", false},
		"OrderedReady": {
			func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement }, nil,
			"StatefulSet payments/etcd starts its pods one after the other", false,
		},
		"OrderedReady without a probe": {func(s *appsv1.StatefulSet) {
			s.Spec.PodManagementPolicy, etcd(s).ReadinessProbe = appsv1.OrderedReadyPodManagement, nil
		}, nil, "", false},
		"half an update": {func(s *appsv1.StatefulSet) { s.Status.CurrentRevision, s.Status.UpdateRevision = "a", "b" }, nil, "the last change of StatefulSet payments/etcd", false},
		"bitnami's own restore": {func(s *appsv1.StatefulSet) {
			etcd(s).Env = append(etcd(s).Env, corev1.EnvVar{Name: "ETCD_DISASTER_RECOVERY", Value: "yes"})
		}, nil, "the image of bitnami would restore its own snapshot over the restored data (ETCD_DISASTER_RECOVERY): the restore sets ETCD_DISASTER_RECOVERY to no. " +
			"Before you turn it on again in the chart's values, delete .disaster_recovery from", false},
		"bitnami's own restore in another container": {func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "ETCD_DISASTER_RECOVERY", Value: "yes"}}
		}, nil, "the image of bitnami would restore its own snapshot over the restored data (ETCD_DISASTER_RECOVERY): the restore sets", false},
		"bitnami's own restore in a Secret": {func(s *appsv1.StatefulSet) {
			etcd(s).Env = append(etcd(s).Env, corev1.EnvVar{Name: "ETCD_DISASTER_RECOVERY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "on"}}})
		}, nil, "the image of bitnami may restore its own snapshot over the restored data: the value of ETCD_DISASTER_RECOVERY in StatefulSet payments/etcd is not known", true},
		"an init container with the data": {func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.InitContainers = []corev1.Container{
				{Name: "sysctl"},
				{Name: "look", VolumeMounts: []corev1.VolumeMount{{Name: etcd(s).VolumeMounts[0].Name, ReadOnly: true}}},
				{Name: "restore", VolumeMounts: etcd(s).VolumeMounts[:1]},
			}
		}, nil, "init container restore can write to the members' data whenever a pod starts: remove it first", false},
		"an init container without the data": {func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.InitContainers = []corev1.Container{
				{Name: "sysctl"}, {Name: "look", VolumeMounts: []corev1.VolumeMount{{Name: etcd(s).VolumeMounts[0].Name, ReadOnly: true}}},
			}
		}, nil, "", false},
		"bitnami's own restore in a partition": {func(s *appsv1.StatefulSet) {
			etcd(s).Env = append(etcd(s).Env, corev1.EnvVar{Name: "ETCD_DISASTER_RECOVERY", Value: "true"})
			s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(1))}
		}, nil, "the image of bitnami would restore its own snapshot over the restored data (ETCD_DISASTER_RECOVERY), and the partition 1", true},
		"a command before the stop": {func(s *appsv1.StatefulSet) {
			etcd(s).Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/prestop.sh"}}}}
		}, nil, "a container runs a command before it stops (preStop), which may remove its member from the old cluster", false},

		"no Service":          {nil, func(w *world) { remove(w, get(w, "etcd", &corev1.Service{})) }, "the Service payments/etcd of StatefulSet payments/etcd does not exist, and the peer URLs need it", true},
		"no headless Service": {nil, service(func(s *corev1.Service) { s.Spec.ClusterIP = "10.0.0.1" }), "the Service payments/etcd has a cluster IP", true},
		"a Service that hides": {
			nil, service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = false }), "the Service payments/etcd hides pods that are not ready", false,
		},
		"no Service, and none needed": {
			func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "other" }, nil, "the Service payments/other of StatefulSet payments/etcd does not exist: create it, if", false,
		},

		"a claim of a pod after the members": {
			nil, func(w *world) { w.create(newClaim("data-etcd-4")) }, "claim payments/data-etcd-4 belongs to a pod after the 3 members", true,
		},
		"a missing claim": {nil, func(w *world) { remove(w, get(w, "data-etcd-1", &corev1.PersistentVolumeClaim{})) }, "claim payments/data-etcd-1 does not exist: the restore creates it", false},
		"a missing claim without a template": {
			func(s *appsv1.StatefulSet) {
				volume(s, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-shared"}})
			},
			func(w *world) { remove(w, get(w, "data-shared", &corev1.PersistentVolumeClaim{})) }, "claim payments/data-shared does not exist: create it", true,
		},
		"a claim that is not bound": {nil, claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }), "claim payments/data-etcd-1 is not bound", false},
		"a lost volume":             {nil, claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }), "the volume of claim payments/data-etcd-1 is lost", true},
		"a claim that ends": {nil, func(w *world) {
			claim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"kubernetes.io/pvc-protection"} })(w)
			remove(w, get(w, "data-etcd-1", &corev1.PersistentVolumeClaim{}))
		}, "claim payments/data-etcd-1 will be deleted, with its data, once no pod uses it", true},
		"a claim for one pod": {nil, func(w *world) {
			running(w)
			claim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
			})(w)
		}, "claim payments/data-etcd-1 is ReadWriteOncePod, so no Job can build the new data while the member's pod exists", true},
		"a claim for one pod that is gone": {nil, claim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		}), "", false},

		"Argo CD": {
			func(s *appsv1.StatefulSet) {
				s.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "db:apps/StatefulSet:payments/etcd"}
			}, nil,
			"Argo CD manages StatefulSet payments/etcd with the application db, and may scale it up again while the data is exchanged: argocd app set db --sync-policy none", false,
		},
		"Flux": {func(s *appsv1.StatefulSet) {
			s.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
		}, nil, "Flux manages StatefulSet payments/etcd with the Kustomization flux-system/apps", false},
		"Flux's Helm": {func(s *appsv1.StatefulSet) {
			s.Labels = map[string]string{"helm.toolkit.fluxcd.io/name": "db", "helm.toolkit.fluxcd.io/namespace": "flux-system"}
		}, nil, "Flux manages StatefulSet payments/etcd with the HelmRelease flux-system/db, and may scale it up again while the data is exchanged: " +
			"flux -n flux-system suspend helmrelease db", false},
		"a program": {managed("etcd-operator"), nil, "etcd-operator set spec.replicas of StatefulSet payments/etcd, and may scale it up again", false},
		"a person":  {managed("kubectl-scale"), nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var edits []func(*appsv1.StatefulSet)
			if c.set != nil {
				edits = append(edits, c.set)
			}
			w := newWorld(t, "parallel", edits...)
			if c.world != nil {
				c.world(w)
			}
			found := w.inspect().Findings
			i := slices.IndexFunc(found, func(f handoff.Finding) bool { return strings.HasPrefix(f.String(), c.want) })
			switch {
			case c.want == "" && len(found) > 0, c.want != "" && i < 0:
				t.Errorf("found %q, want %q", found, c.want)
			case c.want != "" && found[i].Refuses != c.refuses, slices.ContainsFunc(found, func(f handoff.Finding) bool { return f.Refuses }) != c.refuses:
				t.Errorf("found %+v, refuses: %t", found, c.refuses)
			}
		})
	}
}

// TestEtcdOfTheMembers checks the version and the quota of the members.
func TestEtcdOfTheMembers(t *testing.T) {
	for image, want := range map[string]string{
		"etcd:3.6": "3.6", "quay.io/coreos/etcd:v3.5.21": "3.5.21", "localhost:5000/bitnami/etcd:3.6.4-debian-12-r0": "3.6.4",
		"registry.k8s.io/etcd:3.6.5-0@sha256:1a": "3.6.5", "etcd": "", "etcd:latest": "", "localhost:3.6/etcd": "", "lab/etcd:13.6": "",
	} {
		w := newWorld(t, "parallel", func(s *appsv1.StatefulSet) { etcd(s).Image = image })
		got := w.inspect().Version
		if got != want {
			t.Errorf("image %s is of etcd %q, want %q", image, got, want)
		}
	}
	for flag, want := range map[string]int64{
		"--log-level=info": 2 << 30, "--quota-backend-bytes=0": 2 << 30, "--quota-backend-bytes=8589934592": 8 << 30,
		"--quota-backend-bytes=-1": 0, "--quota-backend-bytes=$(QUOTA)": 0,
	} {
		w := newWorld(t, "parallel", func(s *appsv1.StatefulSet) { etcd(s).Args = append(etcd(s).Args, flag) })
		got := w.inspect().Quota
		if got != want {
			t.Errorf("%s is a quota of %d, want %d", flag, got, want)
		}
	}
	w := newWorld(t, "parallel", func(s *appsv1.StatefulSet) {
		etcd(s).EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
	})
	if w.inspect().Quota != 0 {
		t.Error("a Secret may set the quota")
	}
}

// TestSources checks from where names, peer URLs and directories come.
func TestSources(t *testing.T) {
	script := func(s *appsv1.StatefulSet) { command(s, "/start.sh") }
	backup := []plan.Member{{Name: "etcd-1", PeerURLs: []string{"http://b1:2380"}}, {Name: "m0", PeerURLs: []string{"https://etcd-0.x:2380"}}, {Name: "etcd-2", PeerURLs: []string{"http://b2:2380"}}}
	dirs := func(w *world) { w.options.Into.DataDir = "/var/lib/etcd/d/" }
	for name, c := range map[string]struct {
		set   func(*appsv1.StatefulSet)
		world func(*world)
		want  string // the first member
	}{
		"Into": {nil, func(w *world) {
			w.options.Into.Members = []plan.Member{{Name: "c", PeerURLs: []string{"http://etcd-2.z:1"}}, {Name: "b", PeerURLs: []string{"http://etcd-1:1"}}, {Name: "a", PeerURLs: []string{"http://x:1", "http://etcd-0.z:1"}}}
			w.options.Into.WALDir = "/var/lib/etcd/w"
		}, "name: a\npeerURLs: [\"http://x:1\", \"http://etcd-0.z:1\"]\ndataDir: /var/lib/etcd/data\nwalDir: /var/lib/etcd/w"},
		"a script, and the backup": {script, func(w *world) { dirs(w); w.options.Backup = backup }, "name: m0\npeerURLs: [\"https://etcd-0.x:2380\"]\ndataDir: /var/lib/etcd/d"},
		"variables of a script": {func(s *appsv1.StatefulSet) {
			script(s)
			etcd(s).Env = append(etcd(s).Env, corev1.EnvVar{Name: "ETCD_INITIAL_ADVERTISE_PEER_URLS", Value: "http://$(POD).y:1,http://$(POD).z:1"})
		}, dirs, "name: etcd-0\npeerURLs: [\"http://etcd-0.y:1\", \"http://etcd-0.z:1\"]\ndataDir: /var/lib/etcd/d"},
		"a launcher": {func(s *appsv1.StatefulSet) {
			command(s, "/tini", "--", "/usr/bin/etcd", "--data-dir", "/var/lib/etcd/$$(POD)", "--initial-advertise-peer-urls", "http://$(POD):1", "--name", "default")
		}, nil, "name: etcd-0\npeerURLs: [\"http://etcd-0:1\"]\ndataDir: /var/lib/etcd/$(POD)"},
		"flags win over variables": {func(s *appsv1.StatefulSet) {
			etcd(s).Env = append(etcd(s).Env, corev1.EnvVar{Name: "ETCD_NAME", Value: "x"}, corev1.EnvVar{Name: "ETCD_WAL_DIR", Value: "/var/lib/etcd/data/member/wal"})
		}, nil, "name: etcd-0\npeerURLs: [\"http://etcd-0.etcd.payments.svc.cluster.local:2380\"]\ndataDir: /var/lib/etcd/data"},
		"a single member without flags": {func(s *appsv1.StatefulSet) {
			s.Spec.Replicas = new(int32(1))
			command(s, "etcd", "--data-dir=/var/lib/etcd")
		}, nil, "name: etcd-0\npeerURLs: [\"http://localhost:2380\"]\ndataDir: /var/lib/etcd"},
		"scaled to 0": {func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(0)) }, func(w *world) {
			w.options.Into.Members = []plan.Member{{Name: "etcd-0", PeerURLs: []string{"http://etcd-0.z:1"}}}
		}, "name: etcd-0\npeerURLs: [\"http://etcd-0.z:1\"]\ndataDir: /var/lib/etcd/data\nfresh: true"},
		"scaled to 0, with a backup": {func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(0)) }, func(w *world) { w.options.Backup = backup },
			"name: etcd-0\npeerURLs: [\"http://etcd-0.etcd.payments.svc.cluster.local:2380\"]\ndataDir: /var/lib/etcd/data\nfresh: true"},
		"scaled to 0 by an earlier restore": {func(s *appsv1.StatefulSet) {
			s.Spec.Replicas = new(int32(0))
			s.Annotations = map[string]string{"etcd-dr.io/restore": "gone", "etcd-dr.io/saved": `{"replicas":2,"stopped":true}`}
		}, nil, "name: etcd-0\npeerURLs: [\"http://etcd-0.etcd.payments.svc.cluster.local:2380\"]\ndataDir: /var/lib/etcd/data\nfresh: true"},
	} {
		t.Run(name, func(t *testing.T) {
			var edits []func(*appsv1.StatefulSet)
			if c.set != nil {
				edits = append(edits, c.set)
			}
			w := newWorld(t, "parallel", edits...)
			if c.world != nil {
				c.world(w)
			}
			h := w.inspect()
			if len(h.Members) == 0 {
				t.Fatalf("%+v", h.Findings)
			}
			got, want := h.Members[0], handoff.Member{}
			must(t, yaml.UnmarshalStrict([]byte(c.want), &want))
			got.Disk, got.Node = "", ""
			if string(asJSON(t, got)) != string(asJSON(t, want)) {
				t.Errorf("got %s, want %s; findings %q", asJSON(t, got), asJSON(t, want), h.Findings)
			}
		})
	}
}

// TestNoStatefulSet checks the error about a StatefulSet that does not exist: it names another operator whose pods are the members.
func TestNoStatefulSet(t *testing.T) {
	const missing = "StatefulSet payments/other does not exist: create it first"
	runsEtcd := corev1.Container{Name: "a", Command: []string{"/usr/local/bin/etcd"}}
	hasPorts := corev1.Container{Name: "a", Ports: []corev1.ContainerPort{{ContainerPort: 2379}, {ContainerPort: 2380}}}
	for name, c := range map[string]struct {
		pod, label        string // the name, and a label: key=value
		apiVersion, owner string
		container         corev1.Container
		want              string
	}{
		"cozystack": {"m-x7k2p", "etcd-operator.cozystack.io/cluster=other", "etcd-operator.cozystack.io/v1alpha2", "EtcdMember", runsEtcd, "StatefulSet " +
			"payments/other does not exist, but EtcdCluster other of etcd-operator.cozystack.io runs etcd in pod m-x7k2p: store a snapshot from dr fetch in S3 or on a " +
			"claim, save the EtcdCluster, delete it (kubectl -n payments delete etcdcluster.etcd-operator.cozystack.io other), and create it again with " +
			"spec.bootstrap.restore.source, which names the snapshot: docs/managers.md has the commands; create StatefulSet payments/other only for another cluster"},
		"coreos": {"other-x7k2p", "etcd_cluster=other", "etcd.database.coreos.com/v1beta2", "EtcdCluster", runsEtcd, "but EtcdCluster main of etcd.database.coreos.com runs etcd in " +
			"pod other-x7k2p: create an EtcdRestore of etcd.database.coreos.com, which dr operator --coreos carries out"},
		"etcd-io": {"m-0", "app=other", "operator.etcd.io/v1alpha1", "EtcdMember", runsEtcd, "but EtcdMember main of operator.etcd.io runs etcd in pod m-0: " +
			"that operator cannot restore a snapshot yet: create a StatefulSet with another name and 0 replicas, restore into that one"},
		"etcd-io without EtcdMembers": {"other-0", "", "operator.etcd.io/v1alpha1", "EtcdCluster", runsEtcd, "that operator cannot restore a snapshot yet"},
		"another operator":            {"other-0", "", "example.com/v1", "Etcd", runsEtcd, "in pod other-0: restore through that owner, or set up a StatefulSet without one"},
		"improbable": {"other-0-x7k2p", "etcd.improbable.io/cluster-name=other", "apps/v1", "ReplicaSet", hasPorts, "but EtcdCluster other of etcd.improbable.io runs " +
			"etcd in pod other-0-x7k2p: store a snapshot from dr fetch in S3 or GCS, and create an EtcdRestore with its URL and a cluster with another name: " +
			`kubectl -n payments get etcdcluster.etcd.improbable.io other -o json | jq '{apiVersion,kind:"EtcdRestore",metadata:{name:"other-dr"},` +
			`spec:{source:{objectURL:"URL"},clusterTemplate:{clusterName:"other-dr",spec:(.spec|.podTemplate.resources//={})}}}' | kubectl -n payments create -f -` +
			"; its agent takes at most 4 MiB"},
		"a ReplicaSet":              {"other-0-x7k2p", "", "apps/v1", "ReplicaSet", hasPorts, "but ReplicaSet main of apps runs etcd in pod other-0-x7k2p: restore"},
		"a pod of another cluster":  {"main-0", "app=main", "operator.etcd.io/v1alpha1", "EtcdMember", runsEtcd, missing},
		"a pod of a StatefulSet":    {"other-main-0", "", "apps/v1", "StatefulSet", runsEtcd, missing},
		"a pod of another program":  {"other-1", "app=other", "postgresql.cnpg.io/v1", "Cluster", corev1.Container{Name: "a", Command: []string{"postgres"}}, missing},
		"a pod that nothing starts": {"other-1", "app=other", "", "", runsEtcd, missing},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "parallel")
			w.options.Name = "other"
			key, value, _ := strings.Cut(c.label, "=")
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.pod, Labels: map[string]string{key: value}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{c.container}},
			}
			if c.owner != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: c.apiVersion, Kind: c.owner, Name: "main", UID: "x", Controller: new(true)}}
			}
			w.create(pod)
			_, err := w.manager().Inspect(t.Context())
			if fault.KindOf(err) != fault.NotFound || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
