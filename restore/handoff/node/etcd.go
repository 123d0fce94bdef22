package node

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/etcd-dr/etcd-dr/restore/handoff/flags"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Process is an etcd as its service starts it.
type Process struct {
	Args []string          // without the program
	Env  map[string]string // its variables
	Dir  string            // its working directory
	// OnHost returns the path on this host of an absolute path of the process; nil: they are the same.
	OnHost func(path string) string
}

// Member returns the member that p is, with etcd's defaults. Like etcd, it takes a flag before its variable, and with --config-file nothing
// but that file (etcd's server/etcdmain/config.go).
func (p Process) Member() (Member, error) {
	file, given := p.flags()["config-file"]
	if !given {
		file = p.Env[flags.Variable("config-file")]
	}
	if file == "" {
		return p.member(p.get), nil
	}
	values, err := readConfig(p.path(file))
	if err != nil {
		return Member{}, err
	}
	return p.member(func(name string) string { return values[name] }), nil
}

// Set sets a variable, from NAME=value.
func (p Process) Set(assignment string) {
	name, value, found := strings.Cut(assignment, "=")
	if found {
		p.Env[name] = value
	}
}

// Expand replaces variables in the words of a command line as systemd does: ${NAME} in a word, and $NAME as a whole word, which becomes
// as many words as its value has (systemd.service(5), "Command lines").
func (p Process) Expand(words []string) (all []string) {
	for _, word := range words {
		name, isVariable := strings.CutPrefix(word, "$")
		if isVariable && variableName.MatchString(name) {
			all = append(all, strings.Fields(p.Env[name])...)
			continue
		}
		all = append(all, reference.ReplaceAllStringFunc(word, func(found string) string { return p.Env[found[2:len(found)-1]] }))
	}
	return all
}

// reference matches a reference to a variable in a word.
var reference = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// variableName matches the name of a variable.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// member returns the member with these settings.
func (p Process) member(get func(name string) string) Member {
	m := Member{
		Name: cmp.Or(get("name"), "default"), WALDir: p.path(get("wal-dir")),
		PeerURLs:   strings.Split(cmp.Or(get("initial-advertise-peer-urls"), "http://localhost:2380"), ","),
		ClientURLs: reachable(strings.Split(cmp.Or(get("listen-client-urls"), localClient), ","), strings.Split(cmp.Or(get("advertise-client-urls"), localClient), ",")),
		MetricsURL: strings.Split(get("listen-metrics-urls"), ",")[0],
		CA:         p.path(get("trusted-ca-file")), Cert: p.path(get("cert-file")), Key: p.path(get("key-file")),
	}
	m.DataDir = p.path(cmp.Or(get("data-dir"), m.Name+".etcd"))
	return m
}

// localClient is etcd's default of a client URL.
const localClient = "http://localhost:2379"

// get returns the value of a flag, or of its variable; "" if neither is set.
func (p Process) get(name string) string {
	value, given := p.flags()[name]
	if given {
		return value
	}
	return p.Env[flags.Variable(name)]
}

// Flag returns the value of a flag; "" if it is not given.
func (p Process) Flag(name string) string { return p.flags()[name] }

func (p Process) flags() map[string]string { return flags.Parse(p.Args) }

// path returns the absolute path on this host of a path of the process; "" for "".
func (p Process) path(path string) string {
	if path != "" && !filepath.IsAbs(path) {
		path = filepath.Join(p.Dir, path)
	}
	if path == "" || p.OnHost == nil {
		return path
	}
	return p.OnHost(path)
}

// readConfig reads the settings in etcd's own configuration file, with the names of its flags. The files of TLS have names of their own.
func readConfig(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: read the configuration file of etcd: %w: correct --config-file of the service", fault.Refused, err)
	}
	var all map[string]any
	err = yaml.Unmarshal(text, &all)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not YAML: %w: correct it", fault.Refused, path, err)
	}
	values := map[string]string{}
	for name, value := range all {
		text, isText := value.(string)
		if isText {
			values[name] = text
		}
	}
	security, _ := all["client-transport-security"].(map[string]any)
	for _, name := range []string{"trusted-ca-file", "cert-file", "key-file"} {
		values[name], _ = security[name].(string)
	}
	return values, nil
}

// reachable returns the URL through which this host connects to a member: one on loopback, else the first. A wildcard address and a socket
// are none; without another one it is the first that the member advertises.
func reachable(listens, advertises []string) []string {
	var all []string
	for _, text := range listens {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		ip := net.ParseIP(u.Hostname())
		switch {
		case ip != nil && ip.IsLoopback(), u.Hostname() == "localhost":
			return []string{text}
		case ip == nil || !ip.IsUnspecified():
			all = append(all, text)
		}
	}
	return append(all, advertises...)[:1]
}
