package config

import (
	"errors"
	"maps"
	"math"
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

// clustersPart holds the keys that dr.yaml and included files may have.
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
	HashMax        span   `yaml:"hashMax"`
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
	AllowPlain     bool         `yaml:"allowPlain"`
	ScratchDir     string       `yaml:"scratchDir"`
	MemoryLimit    amount       `yaml:"memoryLimit"`
	Nice           int          `yaml:"nice"`
}

// defaults returns declared.Defaults.
func defaults() clusterPart {
	d := declared.Defaults()
	return clusterPart{
		Etcd:     etcdPart{DialTimeout: span(d.Etcd.DialTimeout), CommandTimeout: span(d.Etcd.CommandTimeout)},
		Require:  string(d.Require),
		Schedule: schedulePart{Zone: d.Schedule.Zone},
		Triggers: triggersPart{Every: span(d.Triggers.Every)},
		Observe:  span(d.Observe),
		Backup: backupPart{
			From: d.Backup.From, MaxStream: span(d.Backup.MaxStream), Grace: span(d.Backup.Grace), Timeout: span(d.Backup.Timeout),
		},
	}
}

// errForm is a fault that does not end the decoding. The checker describes it.
var errForm = &yaml.TypeError{Errors: []string{"wrong form"}}

// span is a duration such as "30d" or "1d12h".
type span time.Duration

func (s *span) UnmarshalYAML(n *yaml.Node) error {
	d, err := when.ParseSpan(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < 0 {
		return errForm
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
		return errForm
	}
	*p = percent(parsed / 100)
	return nil
}

// amount is a number of bytes such as "10GiB", or of bytes a second such as "20MiB/s".
type amount int64

func (a *amount) UnmarshalYAML(n *yaml.Node) error {
	bytes, err := humanize.ParseBytes(strings.TrimSuffix(n.Value, "/s"))
	if n.Kind != yaml.ScalarNode || err != nil || bytes > math.MaxInt64 {
		return errForm
	}
	*a = amount(bytes)
	return nil
}

// parse parses the content of dr.yaml; name is the file's name in errors. Keys that a cluster omits have the defaults. A fault
// within one cluster is recorded in the source, and is no error.
func parse(name string, data []byte) (file, *source, error) {
	f := file{
		Concurrency: declared.DefaultConcurrency, Lease: span(declared.DefaultLease), Heartbeat: heartbeatPart{Every: span(5 * time.Minute)},
		Defaults: defaults(),
	}
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

// parseIncluded parses a file that main, dr.yaml, includes. It may contain only clusters and templates.
func parseIncluded(name string, data []byte, main *source, defaults clusterPart) (c clustersPart, src *source, err error) {
	src = &source{name: name, main: main}
	err = src.decode(data, &c)
	if err == nil {
		err = src.clusters(&c, defaults)
	}
	return c, src, err
}

// clusters decodes each cluster, over the defaults, into c.
func (s *source) clusters(c *clustersPart, defaults clusterPart) error {
	var over struct {
		Clusters  map[string]yaml.Node `yaml:"clusters"`
		Templates map[string]struct {
			Cluster yaml.Node `yaml:"cluster"`
		} `yaml:"templates"`
	}
	err := s.root.Decode(&over)
	if err != nil {
		return s.malformed(err)
	}
	c.Clusters = map[string]clusterPart{}
	for name, node := range over.Clusters {
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
		s.faults = append(s.faults, lineFault{line: node.Line, cluster: name, err: errors.New(strings.Join(decoderTexts(err), ", "))})
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

// replaceSealing drops the defaults' recipients and passphrase if node, the cluster's, sets any of the
// keys in sealing: only the cluster's own recipients may open its backups.
func (c *clusterPart) replaceSealing(node *yaml.Node) {
	var keys map[string]yaml.Node // including keys from YAML merges (<<)
	_ = node.Decode(&keys)
	for _, key := range sealing {
		_, found := keys[key]
		if found {
			c.Recipients, c.RecipientsFile, c.PassphraseFile, c.PassphraseEnv = nil, "", "", ""
		}
	}
}
