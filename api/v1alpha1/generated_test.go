package v1alpha1_test

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/test/controllergen"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

const (
	definitions = "../../deploy/kubernetes/crds"
	inChart     = "../../deploy/kubernetes/chart/files" // a second file: a release contains no links
	inDropIn    = "../controller/dropin/definitions"
	page        = "../../docs/crs.md"
)

// TestGenerated runs controller-gen: its files, and the page on the custom resources, are those of the types.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a tool")
	}
	generated := controllergen.Definitions(t, "crd")
	text := "# Custom resources\n\nThis page is generated from [api/v1alpha1](../api/v1alpha1): `make generate`.\n" +
		"[kubernetes.md](kubernetes.md) shows them in use.\n"
	for _, file := range slices.Sorted(maps.Keys(generated)) {
		for _, folder := range []string{definitions, inChart, inDropIn} {
			golden.Want(t, filepath.Join(folder, file), generated[file])
		}
		text += chapter(t, generated[file])
	}
	golden.Want(t, page, []byte(text))
}

// definition is the part of a custom resource definition that the page shows.
type definition struct {
	Spec struct {
		Names    struct{ Kind, Plural string }
		Versions []struct {
			Name   string
			Schema struct{ OpenAPIV3Schema schema }
		}
	}
}

// schema is a field and the fields below it.
type schema struct {
	Type, Description string
	Required          []string
	Properties        map[string]schema
	Items             *schema
	Enum              []any
	Validations       []struct{ Message string } `json:"x-kubernetes-validations"`
}

// chapter returns the page's text on one definition.
func chapter(t *testing.T, data []byte) string {
	t.Helper()
	var d definition
	err := yaml.Unmarshal(data, &d)
	if err != nil {
		t.Fatal(err)
	}
	version := d.Spec.Versions[0]
	root := version.Schema.OpenAPIV3Schema
	text := fmt.Sprintf("\n## %s\n\n%s\n", d.Spec.Names.Kind, oneLine(root.Description))
	for _, part := range []string{"spec", "status"} {
		fields := root.Properties[part]
		text += fmt.Sprintf("\n### %s of %s\n\n%s\n\n| field | type | meaning |\n|---|---|---|\n", part, d.Spec.Names.Kind, oneLine(fields.Description))
		text += rows(fields, part)
		for _, v := range fields.Validations {
			text += "\nRefused: " + v.Message + ".\n"
		}
	}
	return text
}

// rows returns the rows of a table on the fields below s, whose path is given.
func rows(s schema, path string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		at, below := path+"."+name, field
		if field.Items != nil {
			at, below = at+"[]", *field.Items
		}
		meaning := meaningOf(name, field.Description)
		if slices.Contains(s.Required, name) {
			meaning = "Required. " + meaning
		}
		text += fmt.Sprintf("| `%s` | %s | %s |\n", at, typeOf(below), meaning)
		if path != "status.conditions[]" {
			text += rows(below, at)
		}
	}
	return text
}

// meaningOf returns a description without the name with which it begins.
func meaningOf(name, description string) string {
	text := oneLine(strings.TrimPrefix(description, name+" "))
	for _, verb := range []string{"is ", "are "} {
		text = strings.TrimPrefix(text, verb)
	}
	return text
}

func typeOf(s schema) string {
	if len(s.Enum) == 0 {
		return cmp.Or(s.Type, "quantity")
	}
	var values []string
	for _, v := range s.Enum {
		values = append(values, fmt.Sprintf("`%v`", v))
	}
	return strings.Join(values, ", ")
}

// oneLine returns text for a table's cell.
func oneLine(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}
