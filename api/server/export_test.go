package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/comments"
)

// OpenAPI returns the expected content of openapi.json, made from the routes and the Go types of bodies and responses.
func OpenAPI() ([]byte, error) {
	d := openapi{map[string]*jsonschema.Schema{}, map[string]reflect.Type{}, comments.New(filepath.Join("..", ".."))}
	problem, err := d.ref(document.Problem{})
	if err != nil {
		return nil, err
	}
	paths := map[string]map[string]any{}
	for _, r := range slices.Concat(newAPI(Service{}).routes(), monitoring(Service{}, Access{})) {
		if paths[r.path] == nil {
			paths[r.path] = map[string]any{}
		}
		paths[r.path][strings.ToLower(r.method)], err = d.operation(r)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
	}
	return json.MarshalIndent(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "etcd-dr", "version": "v1", "license": map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "What dr serve answers. Fields may be added; none is renamed or removed. docs/json.md describes the documents, docs/api.md who may ask.",
		},
		"servers": []any{map[string]any{"url": "/"}},
		"paths":   paths,
		// On loopback no login is needed.
		"security": []any{map[string]any{}, map[string]any{"token": []any{}}, map[string]any{"password": []any{}}, map[string]any{"certificate": []any{}}},
		"components": map[string]any{
			"schemas":   d.schemas,
			"responses": map[string]any{"problem": jsonAnswer("Why it was not done.", problem)},
			"securitySchemes": map[string]any{
				"token":       map[string]any{"type": "http", "scheme": "bearer"},
				"password":    map[string]any{"type": "http", "scheme": "basic", "description": "the token as the password of any user"},
				"certificate": map[string]any{"type": "mutualTLS"},
			},
		},
	}, "", "  ")
}

// openapi collects the schemas that are needed.
type openapi struct {
	schemas  map[string]*jsonschema.Schema
	types    map[string]reflect.Type // by the name of their schema
	comments *comments.Reader
}

var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

func (d *openapi) operation(r route) (map[string]any, error) {
	answered := map[string]any{"description": r.summary}
	if r.plain != nil {
		answered["content"] = map[string]any{"text/plain": map[string]any{"schema": map[string]any{"type": "string"}}}
	} else {
		ref, err := d.ref(r.document)
		if err != nil {
			return nil, err
		}
		answered = jsonAnswer(r.summary, ref)
	}
	o := map[string]any{
		"operationId": operationID(r), "summary": r.summary,
		"responses": map[string]any{strconv.Itoa(r.status): answered, "default": map[string]any{"$ref": "#/components/responses/problem"}},
	}
	if isProbe(r.path) {
		o["responses"].(map[string]any)["503"] = answered
		o["security"] = []any{map[string]any{}}
	}
	var parameters []any
	for _, name := range placeholder.FindAllStringSubmatch(r.path, -1) {
		parameters = append(parameters, map[string]any{"name": name[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"}})
	}
	for _, p := range r.query {
		schema := map[string]any{"type": p.kind}
		if p.kind == "date-time" {
			schema = map[string]any{"type": "string", "format": p.kind}
		}
		parameters = append(parameters, map[string]any{"name": p.name, "in": "query", "description": p.meaning, "schema": schema})
	}
	if parameters != nil {
		o["parameters"] = parameters
	}
	if r.body != nil {
		ref, err := d.ref(r.body)
		if err != nil {
			return nil, err
		}
		o["requestBody"] = map[string]any{"content": map[string]any{"application/json": map[string]any{"schema": ref}}}
	}
	return o, nil
}

func jsonAnswer(description string, ref any) map[string]any {
	return map[string]any{"description": description, "content": map[string]any{"application/json": map[string]any{"schema": ref}}}
}

// operationID returns the name of the operation in a generated client: readClustersBackups, pinBackup.
func operationID(r route) string {
	words := strings.FieldsFunc(placeholder.ReplaceAllString(strings.TrimPrefix(r.path, root), ""), func(c rune) bool { return c == '/' || c == '.' })
	if r.method == http.MethodGet {
		words = slices.Insert(words, 0, "read")
		if strings.HasSuffix(r.path, "{cluster}") {
			words[len(words)-1] = "cluster"
		}
	} else {
		words = []string{words[len(words)-1], strings.TrimSuffix(words[len(words)-2], "s")}
	}
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}

// ref returns a reference to the schema of v's type.
func (d *openapi) ref(v any) (any, error) {
	t := reflect.TypeOf(v)
	if t == reflect.TypeFor[json.RawMessage]() {
		return map[string]any{"type": "object"}, nil
	}
	return d.refTo(t)
}

// refTo returns a reference to the schema of t, which is made if it is not there yet.
func (d *openapi) refTo(t reflect.Type) (*jsonschema.Schema, error) {
	name := schemaName(t)
	ref := &jsonschema.Schema{Ref: "#/components/schemas/" + name}
	if d.types[name] == t {
		return ref, nil
	}
	if d.types[name] != nil {
		return nil, fmt.Errorf("%s and %s have schemas of one name", d.types[name], t)
	}
	d.types[name] = t
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time](): {Type: "string", Format: "date-time"},
	}})
	if err != nil {
		return nil, err
	}
	d.schemas[name] = schema
	schema.Description, err = d.comments.Type(t)
	if err != nil {
		return nil, err
	}
	if t.Kind() == reflect.String {
		values, err := d.comments.Values(t, t)
		schema.Description += " " + comments.List(values)
		return ref, err
	}
	if t.PkgPath() != reflect.TypeFor[Service]().PkgPath() {
		schema.AdditionalProperties = nil // fields may be added to responses; bodies of requests must not contain unknown ones
	}
	for _, f := range reflect.VisibleFields(t) {
		err = d.property(schema, t, f)
		if err != nil {
			return nil, err
		}
	}
	return ref, nil
}

// schemaName returns the name of t's schema, with the package of a type that several packages may have.
func schemaName(t reflect.Type) string {
	name := capital(t.Name())
	of := path.Base(t.PkgPath())
	if of == "document" || of == "server" || capital(of) == name {
		return name
	}
	return capital(of) + name
}

func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// property describes the field f of t in schema, and refers to the schema of its type, if it has one of its own.
func (d *openapi) property(schema *jsonschema.Schema, t reflect.Type, f reflect.StructField) error {
	name := comments.JSONName(f)
	if name == "" {
		return nil
	}
	owner := t
	for _, i := range f.Index[:len(f.Index)-1] {
		owner = owner.Field(i).Type
	}
	property := schema.Properties[name]
	description, err := d.comments.Field(owner, f)
	if err != nil {
		return err
	}
	property.Description = description
	of := f.Type
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if !comments.Has(of) || of.Kind() != reflect.Struct && !d.hasValues(of) {
		return nil
	}
	ref, err := d.refTo(of)
	if f.Type.Kind() == reflect.Slice {
		property.Items = ref
		return err
	}
	*property = jsonschema.Schema{Description: description, AllOf: []*jsonschema.Schema{ref}}
	return err
}

// hasValues reports whether t is a string type with constants.
func (d *openapi) hasValues(t reflect.Type) bool {
	values, err := d.comments.Values(t, t)
	return err == nil && len(values) > 0
}
