package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// source is a parsed file with its faults. It finds the line of a path of keys.
type source struct {
	name       string
	root       yaml.Node
	faults     []lineFault
	templateOf map[string]string // by cluster, if it was made from a template
	main       *source           // dr.yaml, whose defaults apply; nil: this source is dr.yaml
}

// lineFault is a fault in a line. Its cluster is "" if it affects the whole file.
type lineFault struct {
	file    string // "": the source's own
	line    int
	cluster string
	err     error
}

// decode parses data and decodes all but the clusters into v, strictly. Faults within one cluster are recorded; others are
// returned.
func (s *source) decode(data []byte, v any) error {
	input := yaml.NewDecoder(bytes.NewReader(data))
	err := input.Decode(&s.root)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the file is empty", s.name)
	}
	if err != nil {
		return s.malformed(err)
	}
	err = input.Decode(&yaml.Node{})
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: more than one YAML document", s.name)
	}
	checker{s, map[visit]bool{}}.check(visit{s.root.Content[0], reflect.TypeOf(v).Elem(), ""})
	err = s.err()
	if err != nil {
		return err
	}
	err = s.withoutClusters().Decode(v) // the recorded faults are all within clusters: the checker missed any error
	if err != nil {
		return s.malformed(err)
	}
	return nil
}

// withoutClusters returns the file's content without its clusters. They are decoded one by one, so that a fault of one does not
// hide those of others.
func (s *source) withoutClusters() *yaml.Node {
	rest := *s.root.Content[0]
	if rest.Kind != yaml.MappingNode {
		return &rest
	}
	rest.Content = nil
	for pair := range slices.Chunk(s.root.Content[0].Content, 2) {
		if pair[0].Kind != yaml.ScalarNode || pair[0].Value != "clusters" { // the value of an alias is its anchor's name
			rest.Content = append(rest.Content, pair...)
		}
	}
	return &rest
}

// malformed returns an error of the parser or decoder with the file's name, in one line and without values.
func (s *source) malformed(err error) error {
	texts := decoderTexts(err)
	for i, text := range texts {
		line, ok := strings.CutPrefix(text, "line ")
		if ok {
			texts[i] = s.name + ":" + line
			continue
		}
		texts[i] = s.name + ": " + text
	}
	return errors.New(strings.Join(texts, "; "))
}

// quotedValue matches a value in an error of the decoder.
var quotedValue = regexp.MustCompile("(?s) `.*`")

// decoderTexts returns the texts of an error of the parser or decoder, without values. Such errors contain a line only as text.
func decoderTexts(err error) []string {
	texts := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	several, ok := errors.AsType[*yaml.TypeError](err)
	if ok {
		texts = slices.Clone(several.Errors)
	}
	for i, text := range texts {
		texts[i] = quotedValue.ReplaceAllString(text, "")
	}
	return texts
}

// recordTemplate records that a cluster was made from a template.
func (s *source) recordTemplate(cluster, template string) {
	if s.templateOf == nil {
		s.templateOf = map[string]string{}
	}
	s.templateOf[cluster] = template
}

// blame records a fault at the line of path, or of its longest existing prefix. If a cluster or its template omits a key, the line
// is that of the defaults.
func (s *source) blame(err error, path ...string) {
	if len(path) < 2 || path[0] != "clusters" {
		line, _ := s.find(path)
		s.faults = append(s.faults, lineFault{line: line, err: err})
		return
	}
	cluster, below := path[1], path[2:]
	template, ok := s.templateOf[cluster]
	if ok {
		path = slices.Concat([]string{"templates", template, "cluster"}, below)
	}
	fault := lineFault{cluster: cluster, err: err}
	line, depth := s.find(path)
	fault.line = line
	if len(below) > 0 && depth < len(path) {
		main := cmp.Or(s.main, s)
		line, depth = main.find(append([]string{"defaults"}, below...))
		if depth == len(below)+1 {
			fault.file, fault.line = main.name, line
		}
	}
	s.faults = append(s.faults, fault)
}

// find returns the line of the longest existing prefix of path, and the prefix's length.
func (s *source) find(path []string) (line, depth int) {
	node := &s.root
	if len(node.Content) > 0 {
		node = node.Content[0]
	}
	line = node.Line
	for depth = range path {
		key, value := entry(node, path[depth])
		if key == nil {
			return line, depth
		}
		line, node = key.Line, value
	}
	return line, len(path)
}

func entry(node *yaml.Node, name string) (key, value *yaml.Node) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i], node.Content[i+1]
		}
	}
	return nil, nil
}

// err returns all faults, in the file's order, if at least one affects the whole file; nil if none does.
func (s *source) err() error {
	if s.faultsOf("") == nil {
		return nil
	}
	return s.listed(func(lineFault) bool { return true })
}

// faultsOf returns the faults of a cluster, or for "" those that affect the whole file; nil if there are none.
func (s *source) faultsOf(cluster string) error {
	return s.listed(func(f lineFault) bool { return f.cluster == cluster })
}

// listed returns the matching faults as one error, in the file's order and in one line.
func (s *source) listed(match func(lineFault) bool) error {
	slices.SortStableFunc(s.faults, func(a, b lineFault) int { return a.line - b.line })
	var all error
	for _, f := range s.faults {
		switch next := fmt.Errorf("%s:%d: %w", cmp.Or(f.file, s.name), f.line, f.err); {
		case !match(f):
		case all == nil:
			all = next
		default:
			all = fmt.Errorf("%w; %w", all, next)
		}
	}
	return all
}

// cure returns the remedy for keys that people try first.
func cure(key string) string {
	switch strings.ToLower(key) {
	case "password":
		return ": secrets are not allowed in this file: use passwordFile or passwordEnv"
	case "passphrase":
		return ": secrets are not allowed in this file: use passphraseFile or passphraseEnv"
	case "identity", "identities":
		return ": secrets are not allowed in this file: use identityFiles"
	case "credentials", "accesskey", "secretkey", "accesskeyid", "secretaccesskey":
		return ": secrets are not allowed in this file: use credentialsDir"
	case "signkey":
		return ": secrets are not allowed in this file: use signKeyFile"
	}
	return ""
}
