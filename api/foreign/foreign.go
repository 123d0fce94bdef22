// Package foreign translates the manifests of other etcd operators into EtcdBackups, EtcdRestores and StatefulSets, and lists what differs.
//
// It knows etcd.database.coreos.com/v1beta2 (coreos/etcd-operator, pkg/apis/etcd/v1beta2) and etcd.ydzs.io/v1alpha1
// (cnych/etcd-operator, api/v1alpha1, and its forks with an EtcdRestore).
package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrManifest means that manifests cannot be translated as they are written.
var ErrManifest = fault.New(fault.Usage, "bad manifest")

// Options are the options of Translate.
type Options struct {
	Namespace  string   // of objects that name none; "": default, as with kubectl
	Recipients []string // age public keys that can open the backups; none: the backups are not encrypted, as theirs were not
	// ByPath derives the name of the cluster of a backup from its namespace and repository, and not from its object. So an EtcdRestore finds the
	// backups of its path even if no EtcdBackup is left, and one whose path is that of a plain snapshot restores the backup of that.
	ByPath bool
	// Gone means that nothing is left of the EtcdClusters, and that no operator makes them again: those of cnych become StatefulSets too.
	Gone bool
}

// Translation is one object of another operator in our form.
type Translation struct {
	From        string   // such as "EtcdBackup payments/etcd of etcd.database.coreos.com/v1beta2"
	Objects     []Object // none: there is nothing that replaces it
	Key         string   // of an EtcdBackup: the key of its snapshot in the bucket or, with an interval, the beginning of its keys
	Old         Old      // of an EtcdBackup or EtcdRestore
	Differences []string // sentences for people: how the objects behave differently, and what is still to be done
	Err         error    // why it cannot be translated, with the remedy; it matches ErrManifest
}

// Old are the snapshots of an object's operator.
type Old struct {
	File   string // the URL of the snapshot, as in catalog.Origin; if the object has an interval, the URLs begin with it
	Import string // the command that stores them as backups, on one line
}

// Object is an object of Kubernetes without a status.
type Object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       any      `json:"spec"` // a v1alpha1.EtcdBackupSpec or v1alpha1.EtcdRestoreSpec, else fields
}

// fields are the fields of an object whose type stands in Kubernetes' own packages.
type fields = map[string]any

// Metadata is the part of an object's metadata that a person writes.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Translate returns a Translation for each object in the files, in their order. If an object cannot be translated, its Translation has an Err.
// If its kind is not known, it has neither Objects nor an Err. The error matches ErrManifest if a file cannot be read, or no object is of a
// known operator.
func Translate(files []File, o Options) ([]Translation, error) {
	var found []manifest
	for _, f := range files {
		all, err := f.parse()
		if err != nil {
			return nil, err
		}
		found = append(found, all...)
	}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	b := batch{options: o, clusters: map[string]clusterFacts{}}
	all := make([]Translation, len(found))
	known := false
	for _, restores := range []bool{false, true} { // a restore refers to a cluster and its backups
		for i, m := range found {
			if (m.Kind == "EtcdRestore") != restores {
				continue
			}
			translator := translators[translatorKey(m)]
			known = known || translator != nil
			all[i] = b.translate(m, translator)
		}
	}
	if !known {
		kinds := slices.Sorted(maps.Keys(translators))
		return nil, fmt.Errorf("%w: there is nothing to translate: pass manifests of %s", ErrManifest, strings.Join(kinds, ", "))
	}
	return all, nil
}

// batch is the state of one call of Translate.
type batch struct {
	options  Options
	backups  []stored
	clusters map[string]clusterFacts // by namespace and name
}

// stored is where a translated EtcdBackup's operator stored its snapshots.
type stored struct {
	namespace, name string
	at              place
	scheduled       bool
}

// clusterFacts are what a restore needs of its EtcdCluster.
type clusterFacts struct {
	members   []v1alpha1.RestoreMember
	tlsSecret string // with a client's certificate; "": none
}

// translators translate the objects of a kind. Each group has one version.
var translators = map[string]func(*object) ([]Object, error){
	"EtcdBackup of " + coreos:  coreosBackup,
	"EtcdRestore of " + coreos: coreosRestore,
	"EtcdCluster of " + coreos: coreosCluster,
	"EtcdBackup of " + cnych:   cnychBackup,
	"EtcdRestore of " + cnych:  cnychRestore,
	"EtcdCluster of " + cnych:  cnychCluster,
}

// translatorKey returns the kind of an object as a key of translators.
func translatorKey(m manifest) string {
	group, _, _ := strings.Cut(m.APIVersion, "/")
	return m.Kind + " of " + group
}

// translate translates one object. A nil translator means that its kind is not known.
func (b *batch) translate(m manifest, translator func(*object) ([]Object, error)) Translation {
	if translator == nil {
		return Translation{From: m.String(), Differences: []string{m.unknown()}}
	}
	if m.Metadata.Namespace == "" {
		m.Metadata.Namespace = b.options.Namespace
	}
	theirs := &object{manifest: m, batch: b}
	ours, err := theirs.translate(translator)
	if err != nil {
		return Translation{From: m.String(), Err: fmt.Errorf("%w: %s: %w", ErrManifest, m, err)}
	}
	return Translation{From: m.String(), Objects: ours, Key: theirs.stores, Old: theirs.old, Differences: theirs.differences}
}

// object is an object while it is translated.
type object struct {
	manifest
	batch       *batch
	differences []string
	stores      string // Translation.Key
	old         Old    // Translation.Old
}

// translate checks the names, and translates the object.
func (o *object) translate(translator func(*object) ([]Object, error)) ([]Object, error) {
	err := checkName("metadata.name", o.Metadata.Name)
	if err == nil {
		err = checkName("metadata.namespace", o.Metadata.Namespace)
	}
	if err != nil {
		return nil, err
	}
	o.dropKeepers()
	return translator(o)
}

// key returns the key of a cluster in the object's namespace.
func (o *object) key(cluster string) string { return o.Metadata.Namespace + "/" + cluster }

// note adds a difference.
func (o *object) note(format string, args ...any) {
	o.differences = append(o.differences, fmt.Sprintf(format, args...))
}

// ours returns an object of our own group with the metadata of theirs.
func (o *object) ours(kind string, spec any) []Object {
	return []Object{{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Metadata: o.Metadata, Spec: spec}}
}

// namePattern matches a name of Kubernetes. Names stand in commands.
var namePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// checkName returns an error unless the value at a path is a name.
func checkName(path, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is missing: add it", path)
	case !namePattern.MatchString(name):
		return fmt.Errorf("%s is %q: use small letters, digits, dashes and dots", path, name)
	}
	return nil
}

// keepers begin the labels and annotations by which other programs find the objects that they keep or prune.
var keepers = []string{
	"kubectl.kubernetes.io/", "argocd.argoproj.io/", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "meta.helm.sh/", "helm.sh/",
	"helm.toolkit.fluxcd.io/", "kustomize.toolkit.fluxcd.io/",
}

// dropKeepers drops the labels and annotations of programs that would take our object for theirs.
func (o *object) dropKeepers() {
	for _, all := range []map[string]string{o.Metadata.Labels, o.Metadata.Annotations} {
		for name := range maps.Clone(all) {
			if slices.ContainsFunc(keepers, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
				delete(all, name)
			}
		}
	}
}

// read decodes the spec into to. It notes the fields that to does not have: the operator itself ignored them.
func (o *object) read(to any) error {
	if len(o.Spec) == 0 || string(o.Spec) == "null" {
		return errors.New("the spec is missing: add it")
	}
	err := json.Unmarshal(o.Spec, to)
	if err != nil {
		return fmt.Errorf("the spec cannot be read: correct it: %w", err)
	}
	for _, path := range unread(o.Spec, to) {
		o.note("spec.%s is left out: their operator does not know it.", path)
	}
	return nil
}

// isDone reports whether their operator has carried out the object, which happens once.
func (o *object) isDone() bool {
	var status struct {
		Succeeded bool   `json:"succeeded"`
		Phase     string `json:"phase"`
	}
	if len(o.Status) == 0 {
		return false
	}
	err := json.Unmarshal(o.Status, &status)
	return err == nil && (status.Succeeded || status.Phase == "Completed")
}
