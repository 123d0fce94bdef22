package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Errors of Decode, to be matched with errors.Is.
var (
	// ErrNoObject means that the value is not one that an API server writes.
	ErrNoObject = errors.New("not a Kubernetes object")
	// ErrEncrypted means that decrypting the value takes a key of the API server's EncryptionConfiguration.
	ErrEncrypted = errors.New("encrypted by Kubernetes")
	// ErrVersion means that the object has a kind or an encoding that this version does not know.
	ErrVersion = errors.New("this version of dr cannot decode the Kubernetes object")
)

const (
	// magic is the prefix of an object in protobuf (apimachinery/pkg/runtime/serializer/protobuf).
	magic = "k8s\x00"
	// encrypted is the prefix of a value from an encryption provider; provider, version and key name follow
	// (apiserver/pkg/storage/value).
	encrypted = "k8s:enc:"
	// binaryJSON is the prefix of CBOR (RFC 8949 §3.4.6), in which an API server with the feature gate CBORServingAndStorage
	// stores custom resources.
	binaryJSON = "\xd9\xd9\xf7"
)

// Object is a Kubernetes object in the form of its JSON: maps, lists, strings, json.Number, bool and nil.
type Object map[string]any

// Decode decodes the value of a key: protobuf for the built-in kinds, JSON for custom resources. Errors match ErrNoObject,
// ErrEncrypted or ErrVersion.
func Decode(value []byte) (Object, error) {
	switch {
	case bytes.HasPrefix(value, []byte(magic)):
		return decodeProtobuf(value[len(magic):])
	case bytes.HasPrefix(value, []byte(encrypted)):
		return nil, fmt.Errorf("%w, %s", ErrEncrypted, provider(value[len(encrypted):]))
	case bytes.HasPrefix(value, []byte(binaryJSON)):
		return nil, fmt.Errorf("%w: it is CBOR", ErrVersion)
	}
	return decodeJSON(value)
}

// provider returns which provider and key of the API server's EncryptionConfiguration encrypted a value. rest is the value
// without the prefix encrypted.
func provider(rest []byte) string {
	const longest = 256 // bytes to search for the names; the encrypted bytes follow them
	parts := strings.SplitN(string(rest[:min(len(rest), longest)]), ":", 4)
	if len(parts) < 4 {
		return "with an unknown provider"
	}
	return fmt.Sprintf("with %s, key %q", parts[0], parts[2])
}

func decodeProtobuf(data []byte) (Object, error) {
	var envelope runtime.Unknown
	err := envelope.Unmarshal(data)
	if err != nil {
		return nil, fmt.Errorf("%w: invalid envelope: %w", ErrVersion, err)
	}
	if envelope.ContentEncoding != "" {
		return nil, fmt.Errorf("%w: it is encoded as %q", ErrVersion, envelope.ContentEncoding)
	}
	kind := schema.FromAPIVersionAndKind(envelope.APIVersion, envelope.Kind)
	typed, err := scheme().New(stable(kind))
	if err != nil {
		return nil, fmt.Errorf("%w: %s %s", ErrVersion, envelope.APIVersion, envelope.Kind)
	}
	message, ok := typed.(interface{ Unmarshal([]byte) error })
	if !ok {
		return nil, fmt.Errorf("%w: %s %s has no protobuf encoding", ErrVersion, envelope.APIVersion, envelope.Kind)
	}
	err = message.Unmarshal(envelope.Raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %s: %w", ErrVersion, envelope.APIVersion, envelope.Kind, err)
	}
	typed.GetObjectKind().SetGroupVersionKind(kind)
	text, err := json.Marshal(typed)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %s: %w", ErrVersion, envelope.APIVersion, envelope.Kind, err)
	}
	return decodeJSON(text)
}

func decodeJSON(text []byte) (Object, error) {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	if len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, ErrNoObject
	}
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber() // a float would lose digits of large integers
	var o Object
	err := numbers.Decode(&o)
	if err != nil {
		return nil, ErrNoObject
	}
	version, _ := o["apiVersion"].(string)
	kind, _ := o["kind"].(string)
	if version == "" || kind == "" {
		return nil, ErrNoObject
	}
	return o, nil
}

// setByServer lists the metadata fields that the API server sets, and ownerReferences. The server refuses to create an object with
// a resourceVersion, and server-side apply refuses one with managedFields. A uid that differs from that of an existing object with
// the same name is a conflict. ownerReferences name an owner by its uid: if the owner is missing or was created again, the garbage
// collector would delete the object right after its creation. Without them, controllers adopt the objects that their selectors
// match. The server overwrites the other fields.
var setByServer = []string{
	"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink",
	"deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences",
}

// Applicable returns a copy of o that kubectl apply accepts: without the fields that the API server sets, and in the version
// that the server serves. The copy has no references by uid, so that objects bind to each other by name. If the kind is built in,
// the copy has no status: the server ignores it, and controllers write it again. The status of a custom resource is kept, because
// it may exist nowhere else.
func (o Object) Applicable() Object {
	clean := Object{}
	for field, value := range o {
		clean[field] = withoutEmptyTimes(value)
	}
	metadata, _ := clean["metadata"].(map[string]any)
	for _, field := range setByServer {
		delete(metadata, field)
	}
	clean.removeUIDFields()
	stored := o.groupVersionKind()
	served := stable(stored)
	if served != stored {
		clean["apiVersion"] = served.GroupVersion().String()
	}
	if builtInKind(served) {
		delete(clean, "status")
	}
	spec, ok := clean["spec"].(map[string]any)
	if ok && stored.Group == definitions && stored.Version == "v1beta1" {
		stabilizeDefinition(spec)
	}
	return clean
}

func (o Object) groupVersionKind() schema.GroupVersionKind {
	version, _ := o["apiVersion"].(string)
	kind, _ := o["kind"].(string)
	return schema.FromAPIVersionAndKind(version, kind)
}

// HasName reports whether o has a name. Internal records of an API server, such as the addresses that it has allocated and its
// own address, have none, and no request can create them.
func (o Object) HasName() bool {
	metadata, _ := o["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name != ""
}

// withoutEmptyTimes returns a deep copy of value without the fields creationTimestamp that are null, as in pod templates.
func withoutEmptyTimes(value any) any {
	switch value := value.(type) {
	case map[string]any:
		clean := make(map[string]any, len(value))
		for field, within := range value {
			if field != "creationTimestamp" || within != nil {
				clean[field] = withoutEmptyTimes(within)
			}
		}
		return clean
	case []any:
		clean := make([]any, len(value))
		for i, within := range value {
			clean[i] = withoutEmptyTimes(within)
		}
		return clean
	}
	return value
}

// YAML returns o as one document, without a separator line.
func (o Object) YAML() ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(text)
}

// Deleting reports whether o is marked for deletion.
func (o Object) Deleting() bool {
	metadata, _ := o["metadata"].(map[string]any)
	return metadata["deletionTimestamp"] != nil
}
