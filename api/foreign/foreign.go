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
}

// Translation is one object of another operator in our form.
type Translation struct {
	From        string   // such as "EtcdBackup payments/etcd of etcd.database.coreos.com/v1beta2"
	Objects     []Object // none: there is nothing that replaces it
	Differences []string // sentences for people: what the objects do otherwise, and what else is to be done
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

// Translate translates all objects in manifests, a file of YAML or JSON documents, in their order. An object of no known operator has a
// Translation without Objects. The error matches ErrManifest if manifests cannot be read, an object lacks what its operator requires, or no
// object is known.
func Translate(manifests []byte, o Options) ([]Translation, error) {
	found, err := parse(manifests)
	if err != nil {
		return nil, err
	}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	f := file{options: o, backups: map[string]string{}, tlsSecrets: map[string]string{}}
	all := make([]Translation, len(found))
	known := false
	for _, restores := range []bool{false, true} { // a restore refers to a cluster and its backups
		for i, m := range found {
			if (m.Kind == "EtcdRestore") != restores {
				continue
			}
			translator := translators[kindOf(m)]
			if translator == nil {
				all[i] = Translation{From: m.String(), Differences: []string{m.unknown()}}
				continue
			}
			known = true
			all[i], err = f.translate(m, translator)
			if err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrManifest, m, err)
			}
		}
	}
	if !known {
		kinds := slices.Sorted(maps.Keys(translators))
		return nil, fmt.Errorf("%w: there is nothing to translate: pass manifests of %s", ErrManifest, strings.Join(kinds, ", "))
	}
	return all, nil
}

// file is the state of one call of Translate.
type file struct {
	options    Options
	backups    map[string]string // names of the translated EtcdBackups, by namespace and URL of their repository
	tlsSecrets map[string]string // names of the Secrets with a client's certificate, by namespace and name of the cluster
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

// kindOf returns the kind of an object as a key of translators.
func kindOf(m manifest) string {
	group, _, _ := strings.Cut(m.APIVersion, "/")
	return m.Kind + " of " + group
}

// translate translates one object.
func (f *file) translate(m manifest, translator func(*object) ([]Object, error)) (Translation, error) {
	if m.Metadata.Namespace == "" {
		m.Metadata.Namespace = f.options.Namespace
	}
	switch {
	case m.Metadata.Name == "":
		return Translation{}, errors.New("metadata.name is missing: give the object a name")
	case !isName.MatchString(m.Metadata.Name) || !isName.MatchString(m.Metadata.Namespace): // they stand in commands
		return Translation{}, errors.New("metadata.name and metadata.namespace must be names of Kubernetes: small letters, digits, - and .")
	}
	delete(m.Metadata.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	theirs := &object{manifest: m, file: f}
	ours, err := translator(theirs)
	return Translation{From: m.String(), Objects: ours, Differences: theirs.differences}, err
}

// ours returns an object of our own group with the metadata of theirs.
func (o *object) ours(kind string, spec any) []Object {
	return []Object{{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Metadata: o.Metadata, Spec: spec}}
}

// object is an object while it is translated.
type object struct {
	manifest
	file        *file
	differences []string
}

// note adds a difference.
func (o *object) note(format string, args ...any) {
	o.differences = append(o.differences, fmt.Sprintf(format, args...))
}

// read decodes the spec into to. It notes the fields that to does not have: the operator itself ignored them.
func (o *object) read(to any) error {
	if len(o.Spec) == 0 {
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

// inNamespace completes the host of an endpoint, if it is the name of a Service or of a pod of a StatefulSet, to one that resolves in every
// namespace. It returns other URLs as they are.
func (o *object) inNamespace(endpoint string) string {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	host, port, hasPort := strings.Cut(rest, ":")
	if !ok || host == "localhost" || !withoutNamespace.MatchString(host) {
		return endpoint
	}
	pod, service, isPod := strings.Cut(host, ".")
	if isPod && !ordinal.MatchString(strings.TrimPrefix(pod, service)) {
		return endpoint
	}
	full := scheme + "://" + host + "." + o.Metadata.Namespace + ".svc"
	if hasPort {
		full += ":" + port
	}
	o.note("%s becomes %s: the operator of dr may run in another namespace.", endpoint, full)
	return full
}

var (
	isName           = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	withoutNamespace = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?(\.[a-z]([-a-z0-9]*[a-z0-9])?)?$`) // SERVICE, or POD.SERVICE
	ordinal          = regexp.MustCompile(`^-[0-9]+$`)
)
