package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v3"

	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/scheduler/declared"
)

// file is the content of dr.yaml, with the defaults applied.
type file struct {
	Concurrency  int                       `yaml:"concurrency"`
	Lease        span                      `yaml:"lease"`
	Webhook      targetPart                `yaml:"webhook"`
	Heartbeat    heartbeatPart             `yaml:"heartbeat"`
	Repositories map[string]repositoryPart `yaml:"repositories"`
	Defaults     clusterPart               `yaml:"defaults"`
	Include      []string                  `yaml:"include"`
	clustersPart `yaml:",inline"`
}

// clustersPart holds the keys that included files may have too.
type clustersPart struct {
	Clusters  map[string]clusterPart  `yaml:"clusters"`
	Templates map[string]templatePart `yaml:"templates"`
}

// templatePart declares a cluster for each name.
type templatePart struct {
	Names   []string    `yaml:"names"`
	Cluster clusterPart `yaml:"cluster"`
}

// targetPart is a URL and its headers. The URL may be a secret; header values always are.
type targetPart struct {
	URL         string            `yaml:"url"`
	URLFile     string            `yaml:"urlFile"`
	URLEnv      string            `yaml:"urlEnv"`
	HeaderFiles map[string]string `yaml:"headerFiles"`
}

type heartbeatPart struct {
	targetPart `yaml:",inline"`
	Every      span   `yaml:"every"`
	Fail       string `yaml:"fail"`
}

// repositoryPart declares a repository.
type repositoryPart struct {
	URL            string   `yaml:"url"`
	CredentialsDir string   `yaml:"credentialsDir"`
	Lock           lockPart `yaml:"lock"`
	SignKeyFile    string   `yaml:"signKeyFile"`
	Trust          []string `yaml:"trust"`
	Parallel       int      `yaml:"parallel"`
	Limit          amount   `yaml:"limit"`

	Retention retentionPart `yaml:"retention"`
}

type lockPart struct {
	For  span   `yaml:"for"`
	Mode string `yaml:"mode"`
}

// clusterPart declares a cluster, or the defaults of all. It has no pointers, so that a cluster can be decoded over a copy of
// the defaults.
type clusterPart struct {
	Etcd           etcdPart          `yaml:"etcd"`
	Repositories   []string          `yaml:"repositories"`
	Require        string            `yaml:"require"`
	Recipients     []string          `yaml:"recipients"`
	RecipientsFile string            `yaml:"recipientsFile"`
	PassphraseFile string            `yaml:"passphraseFile"`
	PassphraseEnv  string            `yaml:"passphraseEnv"`
	Schedule       schedulePart      `yaml:"schedule"`
	Triggers       triggersPart      `yaml:"triggers"`
	Retention      retentionPart     `yaml:"retention"`
	Backup         backupPart        `yaml:"backup"`
	Archive        archivePart       `yaml:"archive"`
	Drill          drillPart         `yaml:"drill"`
	Labels         map[string]string `yaml:"labels"`
	Observe        span              `yaml:"observe"`
	Conditions     conditionsPart    `yaml:"conditions"`
	Suspend        bool              `yaml:"suspend"`
}

type etcdPart struct {
	Endpoints             []string `yaml:"endpoints"`
	CACert                string   `yaml:"cacert"`
	Cert                  string   `yaml:"cert"`
	Key                   string   `yaml:"key"`
	InsecureSkipTLSVerify bool     `yaml:"insecureSkipTLSVerify"`
	User                  string   `yaml:"user"`
	PasswordFile          string   `yaml:"passwordFile"`
	PasswordEnv           string   `yaml:"passwordEnv"`
	DialTimeout           span     `yaml:"dialTimeout"`
	CommandTimeout        span     `yaml:"commandTimeout"`
}

type schedulePart struct {
	Cron   string `yaml:"cron"`
	Zone   string `yaml:"zone"`
	Jitter span   `yaml:"jitter"`
}

type triggersPart struct {
	Revisions int64  `yaml:"revisions"`
	Bytes     amount `yaml:"bytes"`
	Gap       bool   `yaml:"gap"`
	Every     span   `yaml:"every"`
}

type retentionPart struct {
	Last      int    `yaml:"last"`
	Hourly    int    `yaml:"hourly"`
	Daily     int    `yaml:"daily"`
	Weekly    int    `yaml:"weekly"`
	Monthly   int    `yaml:"monthly"`
	Yearly    int    `yaml:"yearly"`
	Within    span   `yaml:"within"`
	Window    span   `yaml:"window"`
	MaxSize   amount `yaml:"maxSize"`
	MinCopies int    `yaml:"minCopies"`
	Zone      string `yaml:"zone"`
}

type backupPart struct {
	From           string `yaml:"from"`
	NoHash         bool   `yaml:"noHash"`
	HashMax        amount `yaml:"hashMax"`
	CompareMembers bool   `yaml:"compareMembers"`
	MaxStream      span   `yaml:"maxStream"`
	Spool          string `yaml:"spool"`
	Grace          span   `yaml:"grace"`
	Timeout        span   `yaml:"timeout"`
	Plain          bool   `yaml:"plain"`
}

// conditionsPart declares condition.Limits; zero fields mean the defaults.
type conditionsPart struct {
	Failures    int      `yaml:"failures"`
	Shrunk      percent  `yaml:"shrunk"`
	Proven      span     `yaml:"proven"`
	DrillLate   span     `yaml:"drillLate"`
	Lag         span     `yaml:"lag"`
	Spool       percent  `yaml:"spool"`
	Certificate span     `yaml:"certificate"`
	Accept      []string `yaml:"accept"`
}

type archivePart struct {
	Flush    span   `yaml:"flush"`
	Spool    string `yaml:"spool"`
	SpoolMax amount `yaml:"spoolMax"`
}

type drillPart struct {
	Schedule       schedulePart `yaml:"schedule"`
	Repository     string       `yaml:"repository"`
	Assert         []string     `yaml:"assert"`
	IdentityFiles  []string     `yaml:"identityFiles"`
	PassphraseFile string       `yaml:"passphraseFile"`
	PassphraseEnv  string       `yaml:"passphraseEnv"`
	ScratchDir     string       `yaml:"scratchDir"`
	MemoryLimit    amount       `yaml:"memoryLimit"`
	Nice           int          `yaml:"nice"`
}

// defaults returns the defaults of dr backup's flags, and of keys without a flag.
func defaults() clusterPart {
	return clusterPart{
		Etcd:     etcdPart{DialTimeout: span(2 * time.Second), CommandTimeout: span(5 * time.Second)},
		Require:  "any",
		Schedule: schedulePart{Zone: "UTC"},
		Triggers: triggersPart{Every: span(5 * time.Minute)},
		Observe:  span(10 * time.Minute),
		Backup:   backupPart{From: "leader", MaxStream: span(5 * time.Minute), Grace: span(24 * time.Hour), Timeout: span(6 * time.Hour)},
	}
}

// span is a duration such as "30d" or "1d12h".
type span time.Duration

func (s *span) UnmarshalYAML(n *yaml.Node) error {
	d, err := when.ParseSpan(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < 0 {
		return wrong(n, "use a form like 90s, 12h, 30d or 1d12h")
	}
	*s = span(d)
	return nil
}

// percent is a fraction from 0 to 1, written as "80%".
type percent float64

func (p *percent) UnmarshalYAML(n *yaml.Node) error {
	number, ok := strings.CutSuffix(n.Value, "%")
	parsed, err := strconv.ParseFloat(number, 64)
	if n.Kind != yaml.ScalarNode || !ok || err != nil || !(parsed > 0 && parsed <= 100) {
		return wrong(n, "use a form like 80%")
	}
	*p = percent(parsed / 100)
	return nil
}

// amount is a number of bytes such as "10GiB", or of bytes a second such as "20MiB/s".
type amount int64

func (a *amount) UnmarshalYAML(n *yaml.Node) error {
	bytes, err := humanize.ParseBytes(strings.TrimSuffix(n.Value, "/s"))
	if n.Kind != yaml.ScalarNode || err != nil || bytes > math.MaxInt64 {
		return wrong(n, "use a form like 20MiB or 10GiB")
	}
	*a = amount(bytes)
	return nil
}

// wrong returns a fault that the decoder collects with its own.
func wrong(n *yaml.Node, message string) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, message)}}
}

// parse parses the content of dr.yaml; name is the file's name in errors. Keys that a cluster omits have the defaults. A fault
// within one cluster is recorded in the source, and is no error.
func parse(name string, data []byte) (file, *source, error) {
	f := file{Concurrency: 4, Lease: span(time.Minute), Heartbeat: heartbeatPart{Every: span(5 * time.Minute)}, Defaults: defaults()}
	src := &source{name: name}
	err := src.decode(data, &f)
	if err != nil {
		return file{}, nil, err
	}
	err = src.clusters(&f.clustersPart, f.Defaults)
	if err != nil {
		return file{}, nil, err
	}
	return f, src, nil
}

// parseIncluded parses a file that dr.yaml includes. It may contain only clusters and templates.
func parseIncluded(name string, data []byte, defaults clusterPart) (c clustersPart, src *source, err error) {
	src = &source{name: name}
	err = src.decode(data, &c)
	if err == nil {
		err = src.clusters(&c, defaults)
	}
	return c, src, err
}

// decode decodes data, strictly, into v. Faults within one cluster are recorded; others are returned.
func (s *source) decode(data []byte, v any) error {
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	err := strict.Decode(v)
	_, ok := errors.AsType[*yaml.TypeError](err)
	if err != nil && !ok {
		return s.translate(err)
	}
	more := strict.Decode(&yaml.Node{})
	if err == nil && !errors.Is(more, io.EOF) {
		return fmt.Errorf("%s: more than one YAML document", s.name)
	}
	malformed := yaml.Unmarshal(data, &s.root)
	if malformed != nil {
		return s.translate(malformed)
	}
	if err != nil {
		_ = s.translate(err)
	}
	return s.err()
}

// clusters decodes each of c's clusters again, over the defaults. Unknown keys were found by the first, strict decoding.
func (s *source) clusters(c *clustersPart, defaults clusterPart) error {
	var over struct {
		Clusters  map[string]yaml.Node `yaml:"clusters"`
		Templates map[string]struct {
			Cluster yaml.Node `yaml:"cluster"`
		} `yaml:"templates"`
	}
	err := s.root.Decode(&over)
	if err != nil && s.faults == nil {
		return s.translate(err)
	}
	if c.Clusters == nil {
		c.Clusters = map[string]clusterPart{}
	}
	for name := range c.Clusters {
		node := over.Clusters[name]
		c.Clusters[name] = s.cluster(name, &node, defaults)
	}
	for _, template := range slices.Sorted(maps.Keys(c.Templates)) {
		node := over.Templates[template].Cluster
		for _, name := range c.Templates[template].Names {
			_, twice := c.Clusters[name]
			if twice {
				s.blame(errors.New("the cluster is defined twice"), "clusters", name)
				continue
			}
			s.recordTemplate(name, template)
			c.Clusters[name] = s.cluster(name, filledIn(&node, name), defaults)
		}
	}
	return s.err()
}

func (s *source) cluster(name string, node *yaml.Node, defaults clusterPart) clusterPart {
	part := defaults
	part.Labels = maps.Clone(part.Labels)
	part.replaceSealing(node)
	err := node.Decode(&part)
	if err != nil && s.faultsOf(name) == nil {
		_ = s.translate(err)
	}
	return part
}

// filledIn returns a copy of n with the cluster's name in place of declared.Placeholder.
func filledIn(n *yaml.Node, cluster string) *yaml.Node {
	filled := *n
	filled.Content = nil
	if n.Kind == yaml.ScalarNode {
		filled.Value = strings.ReplaceAll(n.Value, declared.Placeholder, cluster)
	}
	for _, below := range n.Content {
		filled.Content = append(filled.Content, filledIn(below, cluster))
	}
	return &filled
}

// sealing lists the keys that together determine who can open the backups.
var sealing = []string{"recipients", "recipientsFile", "passphraseFile", "passphraseEnv"}

// replaceSealing drops the defaults' recipients and passphrase if the cluster has its own: only those may open its backups.
func (c *clusterPart) replaceSealing(own *yaml.Node) {
	for _, key := range sealing {
		found, _ := entry(own, key)
		if found != nil {
			c.Recipients, c.RecipientsFile, c.PassphraseFile, c.PassphraseEnv = nil, "", "", ""
		}
	}
}

// source is a parsed file with its faults. It finds the line of a path of keys.
type source struct {
	name       string
	root       yaml.Node
	faults     []lineFault
	templateOf map[string]string // by cluster, if it was made from a template
}

// lineFault is a fault in a line. Its cluster is "" if it affects the whole file.
type lineFault struct {
	line    int
	cluster string
	err     error
}

// recordTemplate records that a cluster was made from a template.
func (s *source) recordTemplate(cluster, template string) {
	if s.templateOf == nil {
		s.templateOf = map[string]string{}
	}
	s.templateOf[cluster] = template
}

// blame records a fault at the line of path, or of its longest existing prefix. If a cluster omits a key, the line is that of
// the defaults.
func (s *source) blame(err error, path ...string) {
	cluster := ""
	if len(path) > 1 && path[0] == "clusters" {
		cluster = path[1]
		template, ok := s.templateOf[cluster]
		if ok {
			path = slices.Concat([]string{"templates", template, "cluster"}, path[2:])
		}
	}
	line, depth := s.find(path)
	if len(path) > 2 && path[0] == "clusters" && depth < len(path) {
		other, found := s.find(append([]string{"defaults"}, path[2:]...))
		if found == len(path)-1 {
			line = other
		}
	}
	s.faults = append(s.faults, lineFault{line, cluster, err})
}

// owner returns the cluster whose declaration contains the line, or "".
func (s *source) owner(line int) (cluster string) {
	node := &s.root
	if len(node.Content) > 0 {
		node = node.Content[0]
	}
	inClusters := false
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Line > line {
			break
		}
		inClusters, cluster = key.Value == "clusters" && value.Kind == yaml.MappingNode, ""
		if !inClusters {
			continue
		}
		for n := 0; n+1 < len(value.Content) && value.Content[n].Line <= line; n += 2 {
			cluster = value.Content[n].Value
		}
	}
	return cluster
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

// err returns all faults, in the file's order, if at least one affects the whole file.
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
		switch next := fmt.Errorf("%s:%d: %w", s.name, f.line, f.err); {
		case !match(f):
		case all == nil:
			all = next
		default:
			all = fmt.Errorf("%w; %w", all, next)
		}
	}
	return all
}

// The forms of the decoder's faults.
var (
	lineForm     = regexp.MustCompile(`(?s)^(?:yaml: )?line ([0-9]+): (.*)$`)
	unknownForm  = regexp.MustCompile(`^field (.*) not found in type `)
	mistakenForm = regexp.MustCompile("(?s)^cannot unmarshal !!([a-z]+).* into (.*)$")
)

// translate records the decoder's faults in plainer words. They contain no value: it may be a secret in the wrong place. It
// returns err(), or an error for a fault without a line.
func (s *source) translate(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the file is empty", s.name)
	}
	texts := []string{err.Error()}
	all, ok := errors.AsType[*yaml.TypeError](err)
	if ok {
		texts = all.Errors
	}
	for _, text := range texts {
		found := lineForm.FindStringSubmatch(text)
		if found == nil {
			return fmt.Errorf("%s: %s", s.name, strings.TrimPrefix(text, "yaml: "))
		}
		line, _ := strconv.Atoi(found[1]) // digits
		cluster := s.owner(line)
		if strings.HasPrefix(found[2], "mapping key") { // the key is there twice, and either place may be the mistake
			cluster = ""
		}
		s.faults = append(s.faults, lineFault{line, cluster, errors.New(reworded(found[2]))})
	}
	return s.err()
}

func reworded(text string) string {
	found := unknownForm.FindStringSubmatch(text)
	if found != nil {
		return fmt.Sprintf("unknown key %q%s", found[1], cure(found[1]))
	}
	found = mistakenForm.FindStringSubmatch(text)
	if found != nil {
		return fmt.Sprintf("expected %s, got %s", wanted(found[2]), kinds[found[1]])
	}
	return text
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

var kinds = map[string]string{
	"str": "a string", "int": "a number", "float": "a number", "bool": "true or false", "seq": "a list", "map": "a mapping",
	"null": "nothing", "timestamp": "a time", "binary": "binary data",
}

func wanted(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "int"):
		return "a whole number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "a string"
	}
	return "a mapping"
}
