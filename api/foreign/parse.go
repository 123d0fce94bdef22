package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxManifests bounds a file with manifests, in bytes.
const maxManifests = 16 << 20

// manifest is an object as it is written.
type manifest struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   Metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
	Items      []manifest      `json:"items"` // of a List
}

func (m manifest) String() string {
	name := m.Metadata.Name
	if m.Metadata.Namespace != "" {
		name = m.Metadata.Namespace + "/" + name
	}
	return strings.TrimSpace(m.Kind+" "+name) + " of " + m.APIVersion
}

// unknown returns why an object has no translation.
func (m manifest) unknown() string {
	if strings.Contains(strings.ToLower(m.Kind), "etcd") {
		return "The fields of this operator are not known: write a new object, docs/crs.md lists its fields."
	}
	return "This is no object of an etcd operator: it stays as it is, or goes with the operator."
}

// parse returns the objects of YAML or JSON documents, with those of lists. Empty documents are left out.
func parse(manifests []byte) (all []manifest, err error) {
	if len(manifests) > maxManifests {
		return nil, fmt.Errorf("%w: the manifests have more than %d bytes: pass them in several files", ErrManifest, maxManifests)
	}
	documents := yaml.NewDecoder(bytes.NewReader(manifests))
	for n := 1; ; n++ {
		var document any
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: document %d is no YAML: correct it: %w", ErrManifest, n, err)
		}
		if document == nil {
			continue
		}
		var m manifest
		text, err := json.Marshal(document)
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil || m.Kind == "" || m.APIVersion == "" {
			return nil, fmt.Errorf("%w: document %d is no object of Kubernetes: give it apiVersion, kind and metadata", ErrManifest, n)
		}
		if m.Kind == "List" || m.Items != nil {
			all = append(all, m.Items...)
			continue
		}
		all = append(all, m)
	}
}

// unread returns the paths of the fields in text that the type of to, which has been decoded from it, does not have, sorted.
func unread(text []byte, to any) []string {
	var written, read any
	known, err := json.Marshal(to)
	if err == nil {
		err = errors.Join(json.Unmarshal(text, &written), json.Unmarshal(known, &read))
	}
	if err != nil {
		panic(err) // both have been decoded before
	}
	return missing("", written, read)
}

// missing returns the paths of the fields that only written has.
func missing(prefix string, written, read any) (paths []string) {
	from, isObject := written.(map[string]any)
	to, _ := read.(map[string]any)
	if !isObject {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		got, ok := to[name]
		if !ok {
			paths = append(paths, prefix+name)
			continue
		}
		paths = append(paths, missing(prefix+name+".", from[name], got)...)
	}
	return paths
}
