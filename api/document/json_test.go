package document_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fieldsOf returns the names of all JSON fields of a type, down to its leaves.
func fieldsOf(of reflect.Type, seen map[reflect.Type]bool) (names []string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || seen[of] || of.Implements(reflect.TypeFor[json.Marshaler]()) {
		return nil
	}
	seen[of] = true
	for i := range of.NumField() {
		field := of.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || tag == "-" {
			continue
		}
		if tag != "" {
			names = append(names, tag)
		}
		names = append(names, fieldsOf(field.Type, seen)...)
	}
	return names
}

// wrapped is a field that the page shows around its value: `{"event":…}`.
var wrapped = regexp.MustCompile("`\\{\"([a-z]+)\":…\\}`")

// Every field of a document is named on the page.
func TestFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "json.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, match := range append(name.FindAllStringSubmatch(string(page), -1), wrapped.FindAllStringSubmatch(string(page), -1)...) {
		documented = append(documented, match[1])
	}
	for file, d := range goldens() {
		for _, field := range fieldsOf(reflect.TypeOf(d), map[reflect.Type]bool{}) {
			if !slices.Contains(documented, field) {
				t.Errorf("docs/json.md does not name %q, a field of %s (%T)", field, file, d)
			}
		}
	}
}
