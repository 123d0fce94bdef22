package document_test

import (
	"cmp"
	"encoding"
	"fmt"
	"go/doc/comment"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/comments"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

// page collects the text of docs/json.md.
type page struct {
	t        *testing.T
	comments *comments.Reader
	byType   map[reflect.Type]chapter
	text     strings.Builder
}

// row is a line of a table: fields that have one type and one meaning.
type row struct {
	names         []string
	kind, meaning string
}

// TestPage checks docs/json.md.
func TestPage(t *testing.T) {
	p := newPage(t)
	p.text.WriteString(p.read(readFile(filepath.Join("testdata", "intro.md"))))
	for _, c := range chapters {
		p.chapter(c)
	}
	golden.Want(t, filepath.Join("..", "..", "docs", "json.md"), []byte(p.text.String()))
}

// TestEveryDocumentIsOnThePage checks that each golden file's type has a place in a chapter.
func TestEveryDocumentIsOnThePage(t *testing.T) {
	described := map[reflect.Type]bool{}
	for _, t := range describedTypes() {
		described[t] = true
	}
	for file, d := range goldens() {
		if !described[reflect.TypeOf(d)] {
			t.Errorf("docs/json.md has no chapter on %T, the type of %s: add one to chapters", d, file)
		}
	}
}

// TestEveryFieldIsExplained checks that a field without a comment has a name that the introduction explains.
func TestEveryFieldIsExplained(t *testing.T) {
	p := newPage(t)
	intro := p.read(readFile(filepath.Join("testdata", "intro.md")))
	seen := map[reflect.Type]bool{}
	for _, t := range describedTypes() {
		p.explained(t, intro, seen)
	}
}

// describedTypes returns the types that have a chapter or a part of one.
func describedTypes() []reflect.Type {
	var types []reflect.Type
	for _, c := range chapters {
		types = append(types, reflect.TypeOf(c.of))
		documents, _ := c.of.(short)
		for _, d := range documents {
			types = append(types, reflect.TypeOf(d.of))
		}
	}
	return types
}

func (p *page) explained(t reflect.Type, intro string, seen map[reflect.Type]bool) {
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	fields, _ := p.fields(t)
	for _, f := range fields {
		name := comments.JSONName(f.StructField)
		if p.meaning(f) == "" && !strings.Contains(intro, "`"+name+"`") {
			p.t.Errorf("%s.%s (%q) has no comment", f.in, f.Name, name)
		}
		inner := p.inner(f.Type)
		if inner != nil {
			p.explained(inner, intro, seen)
		}
	}
}

func newPage(t *testing.T) *page {
	p := &page{t: t, comments: comments.New(filepath.Join("..", "..")), byType: map[reflect.Type]chapter{}}
	for _, c := range chapters {
		p.byType[reflect.TypeOf(c.of)] = c
	}
	return p
}

// read returns a text, or ends the test.
func (p *page) read(text string, err error) string {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

func readFile(path string) (string, error) {
	content, err := os.ReadFile(path)
	return string(content), err
}

const width = 120

func (p *page) chapter(c chapter) {
	fmt.Fprintf(&p.text, "\n%s\n\n", c.heading)
	documents, ok := c.of.(short)
	if ok {
		p.text.WriteString("| document | fields |\n|---|---|\n")
		for _, d := range documents {
			fmt.Fprintf(&p.text, "| %s | %s |\n", d.heading, p.inside(reflect.TypeOf(d.of)))
		}
		return
	}
	t := reflect.TypeOf(c.of)
	text := linked(p.read(p.comments.Type(t)))
	text = string((&comment.Printer{TextWidth: width}).Text(new(comment.Parser).Parse(text)))
	p.text.WriteString(text)
	if t.Kind() == reflect.String {
		p.text.WriteString("\n| value | meaning |\n|---|---|\n")
		for _, v := range p.valuesOf(t, t) {
			fmt.Fprintf(&p.text, "| `%s` | %s |\n", v.Text, linked(v.Doc))
		}
		return
	}
	_, embedded := p.fields(t)
	for _, e := range embedded {
		fmt.Fprintf(&p.text, "\nAll fields of %s, and:\n", p.link(e))
	}
	p.text.WriteString("\n| field | type | meaning |\n|---|---|---|\n")
	for _, r := range merged(p.rows(t, "")) {
		fmt.Fprintf(&p.text, "| `%s` | %s | %s |\n", strings.Join(r.names, "`, `"), r.kind, r.meaning)
	}
}

// valuesOf returns the constants of the string type t. Their comments name fields of in.
func (p *page) valuesOf(t, in reflect.Type) []comments.Value {
	values, err := p.comments.Values(t, in)
	if err != nil {
		p.t.Fatal(err)
	}
	return values
}

// merged returns rows with neighbors of one meaning as one.
func merged(rows []row) (all []row) {
	for _, r := range rows {
		n := len(all)
		if n == 0 || all[n-1].meaning != r.meaning {
			all = append(all, r)
			continue
		}
		last := &all[n-1]
		last.names = append(last.names, r.names...)
		if last.kind != r.kind {
			last.kind += ", " + r.kind
		}
	}
	return all
}

// fields returns the fields of t in JSON, with those of embedded structs that have no chapter. Embedded structs with a chapter are in
// embedded.
func (p *page) fields(t reflect.Type) (fields []field, embedded []reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		_, hasChapter := p.byType[f.Type]
		switch {
		case f.Anonymous && hasChapter:
			embedded = append(embedded, f.Type)
		case f.Anonymous:
			inner, more := p.fields(f.Type)
			fields, embedded = append(fields, inner...), append(embedded, more...)
		case comments.JSONName(f) != "":
			fields = append(fields, field{f, t})
		}
	}
	return fields, embedded
}

// field is a field and the struct that declares it.
type field struct {
	reflect.StructField
	in reflect.Type
}

// longest is the length of a meaning in which the fields of a struct are described. Those of a longer one have rows of their own.
const longest = 300

// rows describes the fields of t, whose names begin with prefix.
func (p *page) rows(t reflect.Type, prefix string) (rows []row) {
	fields, embedded := p.fields(t)
	for _, e := range embedded {
		if prefix != "" {
			rows = append(rows, row{[]string{prefix + "…"}, p.link(e), "all its fields"})
		}
	}
	for _, f := range fields {
		name, kind, meaning := prefix+comments.JSONName(f.StructField), p.kind(f.Type), p.meaning(f)
		if strings.Contains(f.Tag.Get("json"), ",omit") {
			kind += "?"
		}
		inner := p.inner(f.Type)
		if inner == nil {
			rows = append(rows, row{[]string{name}, kind, meaning})
			continue
		}
		inside := joined(meaning, ". Fields: ", p.inside(inner))
		if len(inside) <= longest {
			rows = append(rows, row{[]string{name}, kind, inside})
			continue
		}
		rows = append(rows, row{[]string{name}, kind, meaning})
		if f.Type.Kind() == reflect.Slice {
			name += "[]"
		}
		rows = append(rows, p.rows(inner, name+".")...)
	}
	return rows
}

// inside describes the fields of t in one cell.
func (p *page) inside(t reflect.Type) string {
	var all []string
	fields, embedded := p.fields(t)
	for _, e := range embedded {
		all = append(all, "all of "+p.link(e))
	}
	var rows []row
	for _, f := range fields {
		rows = append(rows, row{[]string{comments.JSONName(f.StructField)}, "", p.about(f)})
	}
	for _, r := range merged(rows) {
		text := "`" + strings.Join(r.names, "`, `") + "`"
		if r.meaning != "" {
			text += " (" + r.meaning + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// about describes a field of a struct that is described in one cell.
func (p *page) about(f field) string {
	inner := p.inner(f.Type)
	if inner != nil {
		return joined(p.meaning(f), ". Fields: ", p.inside(inner))
	}
	kind := p.kind(f.Type)
	if !strings.Contains(kind, "](") {
		kind = ""
	}
	return joined(kind, "; ", p.meaning(f))
}

func joined(a, between, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return strings.TrimSuffix(a, ".") + between + b
}

// meaning returns the comment on a field, and its values, as the content of a cell.
func (p *page) meaning(f field) string {
	text := linked(strings.ReplaceAll(p.read(p.comments.Field(f.in, f.StructField)), "|", "\\|"))
	return joined(text, ". Values: ", p.values(f))
}

// mostValues is how many values of a field are listed. The comment on a field with more of them links to a page.
const mostValues = 10

func (p *page) values(f field) string {
	t := f.Type
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	_, hasChapter := p.byType[t]
	if t.Kind() != reflect.String || !comments.Has(t) || hasChapter {
		return ""
	}
	values := slices.DeleteFunc(p.valuesOf(t, f.in), func(v comments.Value) bool { return v.Text == "" })
	if len(values) > mostValues {
		return ""
	}
	return linked(comments.List(values))
}

// inner returns the struct without a chapter whose fields a field of type t contains; nil if there is none.
func (p *page) inner(t reflect.Type) reflect.Type {
	_, hasChapter := p.byType[t]
	switch {
	case hasChapter || t == reflect.TypeFor[time.Time]():
		return nil
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice:
		return p.inner(t.Elem())
	case t.Kind() == reflect.Struct:
		return t
	}
	return nil
}

var kinds = map[reflect.Kind]string{
	reflect.Bool: "bool", reflect.Float64: "number", reflect.String: "string", reflect.Struct: "object", reflect.Map: "object",
	reflect.Interface: "any",
}

// kind returns the type of a field in words.
func (p *page) kind(t reflect.Type) string {
	_, hasChapter := p.byType[t]
	switch {
	case hasChapter:
		return p.link(t)
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[[]byte]():
		return "base64"
	case t.Kind() == reflect.Pointer:
		return p.kind(t.Elem())
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "string"
	case t.Kind() == reflect.Slice:
		one := p.kind(t.Elem())
		if !strings.HasPrefix(one, "[") {
			one += "s"
		}
		return "list of " + one
	}
	return cmp.Or(kinds[t.Kind()], "integer")
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// link returns a link to the chapter of t.
func (p *page) link(t reflect.Type) string {
	heading := strings.TrimLeft(p.byType[t].heading, "# ")
	anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
	return fmt.Sprintf("[%s](#%s)", cmp.Or(p.byType[t].noun, heading), anchor)
}

var docs = regexp.MustCompile(`docs/([\w/]+)\.md(#[\w-]+)?`)

// linked returns text with links to the pages of docs that it names.
func linked(text string) string { return docs.ReplaceAllString(text, "[$1]($1.md$2)") }
