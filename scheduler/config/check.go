package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// visit is a node that is decoded into a type, for a cluster.
type visit struct {
	node    *yaml.Node
	into    reflect.Type
	cluster string // "" outside of the clusters
}

// checker records the faults of nodes that do not fit the types into which they are decoded. Faults contain no value: it may be
// a secret in the wrong place.
type checker struct {
	src  *source
	seen map[visit]bool // prevents endless visits of aliases in a cycle, and bounds the work; without a type: nodes with a fault
}

// check records the faults of v's node and of the nodes in it.
func (c checker) check(v visit) {
	if v.node.Kind == yaml.AliasNode {
		v.node = v.node.Alias
	}
	if c.seen[v] {
		return
	}
	c.seen[v] = true
	switch kind := v.into.Kind(); {
	case v.node.Kind != yaml.ScalarNode && null(v.node): // the decoder would decode its content
		c.fault(v, errors.New("a mapping or list cannot have the tag !!null: remove the tag"))
	case v.node.Kind == yaml.MappingNode && (kind == reflect.Struct || kind == reflect.Map):
		c.mapping(v)
	case v.node.Kind == yaml.SequenceNode && kind == reflect.Slice:
		c.sequence(v)
	case v.node.Decode(reflect.New(v.into).Interface()) != nil:
		c.mistyped(v)
	}
}

// null reports whether the decoder takes the node for null. It drops null keys and null items of lists silently.
func null(n *yaml.Node) bool { return n.ShortTag() == "!!null" }

func (c checker) sequence(v visit) {
	for _, node := range v.node.Content {
		item := visit{node, v.into.Elem(), v.cluster}
		if null(node) {
			c.fault(item, errors.New("an item of a list is null: remove it, or quote it if it is a name"))
			continue
		}
		c.check(item)
	}
}

func (c checker) mapping(v visit) {
	lines := map[string]int{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, value := visit{v.node.Content[i], reflect.TypeFor[string](), v.cluster}, visit{v.node.Content[i+1], nil, v.cluster}
		if null(key.node) {
			c.fault(key, errors.New("a key is null: quote it if it is a name"))
			continue
		}
		var name string
		err := key.node.Decode(&name)
		if err != nil {
			c.mistyped(key)
			continue
		}
		value.into = v.below(key.node, value.node, name)
		if value.into == reflect.TypeFor[clusterPart]() && v.into.Kind() == reflect.Map {
			value.cluster = name
		}
		first, twice := lines[name]
		lines[name] = key.node.Line
		switch {
		case twice:
			if v.into == reflect.TypeFor[clusterPart]() {
				// The key is there twice, and either place may be the mistake: if the line with a cluster's name is lost, its keys
				// belong to the cluster before it, and the backups of neither may end.
				key.cluster = ""
			}
			c.fault(key, fmt.Errorf("mapping key %q already defined at line %d", name, first))
		case value.into == nil:
			c.fault(key, fmt.Errorf("unknown key %q%s", name, cure(name)))
		default:
			c.check(value)
		}
	}
}

// below returns the type of a key's value, nil if the key is unknown.
func (v visit) below(key, value *yaml.Node, name string) reflect.Type {
	switch merge := isMerge(key); {
	case merge && value.Kind == yaml.SequenceNode:
		return reflect.SliceOf(v.into)
	case merge:
		return v.into
	case v.into.Kind() == reflect.Map:
		return v.into.Elem()
	}
	for _, field := range reflect.VisibleFields(v.into) {
		if field.Tag.Get("yaml") == name && !field.Anonymous {
			return field.Type
		}
	}
	return nil
}

// isMerge reports whether the decoder merges the key's value into the mapping.
func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && (key.Tag == "" || key.Tag == "!" || key.ShortTag() == "!!merge")
}

func (c checker) mistyped(v visit) {
	form, ok := forms[v.into]
	if ok {
		c.fault(v, fmt.Errorf("use a form like %s", form))
		return
	}
	tag := v.node.ShortTag()
	c.fault(v, fmt.Errorf("expected %s, got %s", cmp.Or(expected[v.into.Kind()], "a mapping"), cmp.Or(kinds[tag], "a value of type "+tag)))
}

// fault records the first fault of v's node for v's cluster. Aliases can lead to the node again.
func (c checker) fault(v visit, err error) {
	node := visit{v.node, nil, v.cluster}
	if c.seen[node] {
		return
	}
	c.seen[node] = true
	c.src.faults = append(c.src.faults, lineFault{line: v.node.Line, cluster: v.cluster, err: err})
}

var forms = map[reflect.Type]string{
	reflect.TypeFor[span](): "90s, 12h, 30d or 1d12h", reflect.TypeFor[percent](): "80%", reflect.TypeFor[amount](): "20MiB or 10GiB",
}

var expected = map[reflect.Kind]string{
	reflect.Slice: "a list", reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Bool: "true or false", reflect.String: "a string",
}

var kinds = map[string]string{
	"!!str": "a string", "!!int": "a number", "!!float": "a number", "!!bool": "true or false", "!!seq": "a list", "!!map": "a mapping",
	"!!null": "nothing", "!!timestamp": "a time", "!!binary": "binary data",
}
