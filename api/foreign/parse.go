package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// File is a file with manifests, in YAML or JSON.
type File struct {
	Name string // for errors
	Text []byte
}

// MaxFile bounds a file, in bytes, also after the aliases in it are expanded.
const MaxFile = 16 << 20

// manifest is an object as it is written.
type manifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   Metadata          `json:"metadata"`
	Spec       json.RawMessage   `json:"spec"`
	Status     json.RawMessage   `json:"status"`
	Items      []json.RawMessage `json:"items"` // of a list
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
	return "This object does not belong to an etcd cluster: keep it, or delete it with the operator if it is a part of that."
}

// parse returns the objects of a file, with those of lists. Empty documents are left out.
func (f File) parse() (all []manifest, err error) {
	if len(f.Text) > MaxFile {
		return nil, fmt.Errorf("%w: %s has more than %d bytes: pass its objects in several files", ErrManifest, f.Name, MaxFile)
	}
	documents, err := documentsOf(bytes.TrimPrefix(f.Text, []byte("\ufeff")))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrManifest, f.Name, err)
	}
	for i, document := range documents {
		found, err := objectsOf(document, manifest{})
		if err != nil {
			return nil, fmt.Errorf("%w: document %d of %s is not an object of Kubernetes: give it apiVersion, kind and metadata: %w", ErrManifest, i+1, f.Name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// separator begins a document of YAML, as kubectl reads it.
var separator = regexp.MustCompile(`(?m)^---([ \t].*)?\r?$`)

// documentsOf returns the documents of a file as JSON, without those that are empty.
func documentsOf(text []byte) (all []json.RawMessage, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		all, err = jsonDocuments(text)
		if err == nil {
			return all, nil
		}
	}
	for i, document := range separator.Split(string(text), -1) {
		converted, err := toJSON([]byte(document))
		if err != nil {
			return nil, fmt.Errorf("document %d cannot be read: correct it: %w", i+1, err)
		}
		if string(converted) != "null" {
			all = append(all, converted)
		}
	}
	return all, nil
}

// toJSON returns a document of YAML as JSON.
func toJSON(document []byte) ([]byte, error) {
	err := checkSize(document)
	if err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(document)
}

// jsonDocuments returns the documents of a file with one object after the other.
func jsonDocuments(text []byte) (all []json.RawMessage, err error) {
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var document json.RawMessage
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, document)
	}
}

// checkSize returns an error if a document is larger than MaxFile once its aliases are expanded.
func checkSize(document []byte) error {
	var root yamlv3.Node
	err := yamlv3.Unmarshal(document, &root)
	if err != nil {
		return err
	}
	left := MaxFile
	if !fits(&root, &left) {
		return fmt.Errorf("it has more than %d bytes once its aliases are expanded", MaxFile)
	}
	return nil
}

// fits reports whether a node has at most left bytes, and takes them from left.
func fits(n *yamlv3.Node, left *int) bool {
	*left -= len(n.Value) + 1
	if n.Alias != nil && *left > 0 && !fits(n.Alias, left) {
		return false
	}
	for _, child := range n.Content {
		if *left < 0 || !fits(child, left) {
			return false
		}
	}
	return *left >= 0
}

// objectsOf returns an object, or those of a list. The items of a typed list, such as an EtcdBackupList, may omit apiVersion and kind.
func objectsOf(document json.RawMessage, of manifest) (all []manifest, err error) {
	m := manifest{APIVersion: of.APIVersion, Kind: of.Kind}
	err = json.Unmarshal(document, &m)
	if err == nil && (m.Kind == "" || m.APIVersion == "") {
		err = errors.New("apiVersion or kind is missing")
	}
	if err != nil {
		return nil, err
	}
	kind, isList := strings.CutSuffix(m.Kind, "List")
	if !isList {
		return []manifest{m}, nil
	}
	item := manifest{}
	if kind != "" {
		item = manifest{APIVersion: m.APIVersion, Kind: kind}
	}
	for _, one := range m.Items {
		found, err := objectsOf(one, item)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// unread returns the paths of the fields in text that have no counterpart in to, sorted. to must have been decoded from text.
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

// missing returns the paths of the fields that only written has. As for encoding/json, upper and lower case are the same.
func missing(prefix string, written, read any) (paths []string) {
	from, isObject := written.(map[string]any)
	to, _ := read.(map[string]any)
	if !isObject {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		known := ""
		for candidate := range to {
			if strings.EqualFold(candidate, name) {
				known = candidate
			}
		}
		if known == "" {
			paths = append(paths, prefix+name)
			continue
		}
		paths = append(paths, missing(prefix+name+".", from[name], to[known])...)
	}
	return paths
}
