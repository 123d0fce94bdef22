package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/etcd-dr/etcd-dr/api/document"
)

// OpenAPI returns the expected content of openapi.json, made from the routes and the Go types of bodies and responses.
func OpenAPI() ([]byte, error) {
	d := openapi{schemas: map[string]*jsonschema.Schema{}}
	problem, err := d.ref(document.Problem{})
	if err != nil {
		return nil, err
	}
	paths := map[string]map[string]any{}
	for _, r := range slices.Concat(newAPI(Service{}).routes(), probes(Service{}, Access{})) {
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
type openapi struct{ schemas map[string]*jsonschema.Schema }

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

// ref is a reference to the schema of v's type, which is made if it is not there yet.
func (d *openapi) ref(v any) (any, error) {
	t := reflect.TypeOf(v)
	if t == reflect.TypeFor[json.RawMessage]() {
		return map[string]any{"type": "object"}, nil
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time](): {Type: "string", Format: "date-time"},
	}})
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(t.PkgPath(), reflect.TypeFor[Service]().PkgPath()) {
		mayGrow(schema)
	}
	d.schemas[name] = schema
	return map[string]any{"$ref": "#/components/schemas/" + name}, nil
}

// mayGrow permits unknown fields in responses, so that fields can be added. Bodies of requests must not contain any.
func mayGrow(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Properties) > 0 {
		s.AdditionalProperties = nil
	}
	for one := range maps.Values(s.Properties) {
		mayGrow(one)
	}
	mayGrow(s.Items)
	mayGrow(s.AdditionalProperties)
}
