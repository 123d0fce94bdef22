// Package comments reads the doc comments on the Go types of this module, for the documents that are generated from them. Its texts
// are for readers of JSON: fields have their JSON names, and a zero value that is omitted is called absent.
package comments

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

const module = "github.com/etcd-dr/etcd-dr/"

// Reader reads comments from the module's source, and keeps those of each type that it has parsed.
type Reader struct {
	root  string // folder of the module
	types map[string]*source
}

// source contains the raw comments on one type.
type source struct {
	doc    string
	fields map[string]string // by Go name
	values []Value
}

// Value is a constant of a string type.
type Value struct {
	Text string
	Doc  string // "" if it has no comment
}

// New returns a Reader of the module whose folder is root.
func New(root string) *Reader { return &Reader{root: root, types: map[string]*source{}} }

// Has reports whether t is a type of the module, so that Reader has comments on it.
func Has(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), module) && !strings.Contains(t.Name(), "[")
}

// Type returns the comment on t without the type's name: "List is dr list." becomes "Dr list."
func (r *Reader) Type(t reflect.Type) (string, error) {
	s, err := r.source(t)
	if err != nil {
		return "", err
	}
	text, ok := strings.CutPrefix(s.doc, t.Name()+" is ")
	if ok {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return jsonNames(text, t), nil
}

// Field returns the comment on a field that t declares itself, without the field's name, "" if there is none. A comment that begins with
// several names ("From and To are …") is the comment on each of them. It is one line.
func (r *Reader) Field(t reflect.Type, f reflect.StructField) (string, error) {
	s, err := r.source(t)
	if err != nil {
		return "", err
	}
	text := s.fields[f.Name]
	if strings.Contains(f.Tag.Get("json"), ",omit") {
		text = zero.ReplaceAllString(text, "${1}absent$2")
		text = zeroFirst.ReplaceAllString(text, "${1}Absent$2")
	}
	return jsonNames(phrase(text), t), nil
}

// phrase returns text on one line. A single sentence loses its full stop.
func phrase(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	cut := strings.TrimSuffix(text, ".")
	if strings.Contains(cut, ". ") {
		return text
	}
	return cut
}

// Values returns the constants of the string type t in the order of their declaration. Their comments name fields of the type in.
func (r *Reader) Values(t, in reflect.Type) ([]Value, error) {
	s, err := r.source(t)
	if err != nil {
		return nil, err
	}
	var all []Value
	for _, v := range s.values {
		all = append(all, Value{v.Text, jsonNames(phrase(v.Doc), in)})
	}
	return all, nil
}

// List returns the values in one line, with their comments.
func List(values []Value) string {
	var all []string
	for _, v := range values {
		text := "`" + v.Text + "`"
		if v.Doc != "" {
			text += " (" + v.Doc + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

var (
	zero      = regexp.MustCompile(`(^|[;:,] |[a-z] )(?:nil|zero|0|"")(:| if| unless| without| for)`)
	zeroFirst = regexp.MustCompile(`(\. )(?:Nil|Zero|0|"")(:| if| unless| without| for)`)
	goNames   = regexp.MustCompile(`(^|[\s(])([A-Z]\w*(?:\.[A-Z]\w*)*)`)
	literals  = regexp.MustCompile(`"([\w ]+)"`)
	flags     = regexp.MustCompile(`(^|[\s(])(--[a-z][a-z-]*)`)
)

// proper are words in comments that name products, although fields have these names too.
var proper = map[string]bool{"Kubernetes": true, "Go": true}

// jsonNames returns text with the Go names of t's fields replaced by their JSON names, and with flags and quoted words as code.
func jsonNames(text string, t reflect.Type) string {
	text = goNames.ReplaceAllStringFunc(text, func(match string) string {
		parts := goNames.FindStringSubmatch(match)
		path, ok := jsonPath(strings.Split(parts[2], "."), t)
		if !ok || proper[parts[2]] {
			return match
		}
		return parts[1] + "`" + path + "`"
	})
	return flags.ReplaceAllString(literals.ReplaceAllString(text, "`$1`"), "$1`$2`")
}

// jsonPath returns the JSON names of a path of Go fields that begins at t.
func jsonPath(names []string, t reflect.Type) (string, bool) {
	var path []string
	for _, name := range names {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return "", false
		}
		f, ok := t.FieldByName(name)
		if !ok || JSONName(f) == "" {
			return "", false
		}
		path, t = append(path, JSONName(f)), f.Type
	}
	return strings.Join(path, "."), true
}

// JSONName returns the name of f in JSON, "" if it is omitted or embedded.
func JSONName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

func (r *Reader) source(t reflect.Type) (*source, error) {
	key := t.PkgPath() + "." + t.Name()
	if r.types[key] == nil {
		err := r.parse(t.PkgPath())
		if err != nil {
			return nil, err
		}
	}
	if r.types[key] == nil {
		return nil, fmt.Errorf("%s: no such type in the source", key)
	}
	return r.types[key], nil
}

// parse reads the comments of all types of a package.
func (r *Reader) parse(path string) error {
	dir := filepath.Join(r.root, strings.TrimPrefix(path, module))
	files, err := fs.Glob(os.DirFS(dir), "*.go")
	if err != nil {
		return err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if ok {
				r.declared(path, group)
			}
		}
	}
	return nil
}

// of returns the source of a type, which may be declared later than its constants.
func (r *Reader) of(path, name string) *source {
	key := path + "." + name
	if r.types[key] == nil {
		r.types[key] = &source{fields: map[string]string{}}
	}
	return r.types[key]
}

func (r *Reader) declared(path string, group *ast.GenDecl) {
	for _, spec := range group.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s := r.of(path, spec.Name.Name)
			s.doc = line(group.Doc, spec.Doc)
			fields, ok := spec.Type.(*ast.StructType)
			if ok {
				s.read(fields)
			}
		case *ast.ValueSpec:
			of, ok := spec.Type.(*ast.Ident)
			if group.Tok != token.CONST || !ok || len(spec.Values) == 0 {
				continue
			}
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err == nil {
				s := r.of(path, of.Name)
				s.values = append(s.values, Value{text, withoutName(line(spec.Doc, spec.Comment), spec.Names[0].Name)})
			}
		}
	}
}

func (s *source) read(fields *ast.StructType) {
	for _, f := range fields.Fields.List {
		text := line(f.Doc, f.Comment)
		for _, name := range f.Names {
			if text != "" {
				s.fields[name.Name] = withoutName(text, name.Name)
			}
		}
		if len(f.Names) == 0 {
			s.fields[embedded(f.Type)] = text
		}
		for _, name := range subjects(text) {
			s.fields[name] = withoutName(text, "")
		}
	}
}

// embedded returns the name of an embedded field of the type e.
func embedded(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

var subject = regexp.MustCompile(`^([A-Z]\w*(?:, [A-Z]\w*)*,? and [A-Z]\w*|[A-Z]\w*) (is|are|describes|describe) `)

// subjects returns the names with which a comment on several fields begins.
func subjects(text string) []string {
	names := subject.FindStringSubmatch(text)
	if names == nil || !strings.Contains(names[1], " and ") {
		return nil
	}
	return strings.FieldsFunc(strings.ReplaceAll(names[1], " and ", ","), func(c rune) bool { return c == ',' || c == ' ' })
}

// withoutName returns text without its subject and verb, if the subject is name, or several names.
func withoutName(text, name string) string {
	names := subject.FindStringSubmatch(text)
	if names == nil || names[1] != name && !strings.Contains(names[1], " and ") {
		return text
	}
	return strings.TrimPrefix(text, names[0])
}

// line returns the text of the first of the comments that there are.
func line(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if c != nil {
			return strings.TrimSpace(c.Text())
		}
	}
	return ""
}
