package cluster_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
)

var errNoTerminal = errors.New("there is no terminal to ask on")

// parse parses a command line and an environment as dr does. The prompt fails unless prompt is given.
func parse(
	t *testing.T, args []string, env map[string]string, prompt func(string) (string, error),
) (cluster.Config, error) {
	t.Helper()
	set := pflag.NewFlagSet("dr", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	flags := cluster.AddFlags(set)
	err := set.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	if prompt == nil {
		prompt = func(string) (string, error) { return "", errNoTerminal }
	}
	return flags.Config(func(name string) string { return env[name] }, prompt)
}

func TestFlags(t *testing.T) {
	defaults := cluster.Config{
		Endpoints: []string{"127.0.0.1:2379"}, DialTimeout: 5 * time.Second, CommandTimeout: 5 * time.Second,
	}
	with := func(change func(*cluster.Config)) cluster.Config {
		c := defaults
		change(&c)
		return c
	}
	root := with(func(c *cluster.Config) { c.User, c.Password = "root", secret })
	file, crlf := writeFile(t, secret+"\n"), writeFile(t, secret+"\r\n")
	for _, test := range []struct {
		name string
		args []string
		env  map[string]string
		want cluster.Config
	}{
		{"defaults", nil, nil, defaults},
		{
			"endpoints with blanks", []string{"--endpoints", " http://a:1 , http://b:1"}, nil,
			with(func(c *cluster.Config) { c.Endpoints = []string{"http://a:1", "http://b:1"} }),
		},
		{
			"variables", nil,
			map[string]string{
				"ETCDCTL_ENDPOINTS": "https://a:1,https://b:1", "ETCDCTL_INSECURE_SKIP_TLS_VERIFY": "true",
				"ETCDCTL_DIAL_TIMEOUT": "3s", "ETCDCTL_COMMAND_TIMEOUT": "1m",
			},
			cluster.Config{
				Endpoints: []string{"https://a:1", "https://b:1"}, InsecureSkipVerify: true,
				DialTimeout: 3 * time.Second, CommandTimeout: time.Minute,
			},
		},
		{
			"a flag goes before its variable", []string{"--endpoints", "http://flag:1", "--dial-timeout", "1s"},
			map[string]string{"ETCDCTL_ENDPOINTS": "http://variable:1", "ETCDCTL_DIAL_TIMEOUT": "9s"},
			with(func(c *cluster.Config) { c.Endpoints, c.DialTimeout = []string{"http://flag:1"}, time.Second }),
		},
		{"name and password in a variable", nil, map[string]string{"ETCDCTL_USER": "root:" + secret}, root},
		{
			"a password with colons", nil, map[string]string{"ETCDCTL_USER": "root:a:b:"},
			with(func(c *cluster.Config) { c.User, c.Password = "root", "a:b:" }),
		},
		{"two variables", nil, map[string]string{"ETCDCTL_USER": "root", "ETCDCTL_PASSWORD": secret}, root},
		{"flag and variable", []string{"--user", "root"}, map[string]string{"ETCDCTL_PASSWORD": secret}, root},
		{"flag before the user's variable", []string{"--user", "root"},
			map[string]string{"ETCDCTL_USER": "alice:other", "ETCDCTL_PASSWORD": secret}, root},
		{"file", []string{"--user", "root", "--password-file", file}, nil, root},
		{"file with a Windows line end", []string{"--user", "root", "--password-file", crlf}, nil, root},
		{"file before variable", []string{"--user", "root", "--password-file", file},
			map[string]string{"ETCDCTL_PASSWORD": "other"}, root},
		{"file before the user's variable", []string{"--password-file", file},
			map[string]string{"ETCDCTL_USER": "root:other"}, root},
		{"a password alone logs nobody in", nil, map[string]string{"ETCDCTL_PASSWORD": secret}, defaults},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parse(t, test.args, test.env, nil)
			if err != nil {
				t.Fatal(err)
			}
			diff := cmp.Diff(test.want, got)
			if diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestFlagsRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		env   map[string]string
		words []string
	}{
		{"password in argv", []string{"--user", "root:" + secret}, nil, []string{"--user", "--password-file"}},
		{"no endpoint", []string{"--endpoints", ""}, nil, []string{"--endpoints"}},
		{"credentials in an endpoint", nil, map[string]string{"ETCDCTL_ENDPOINTS": "http://root:" + secret + "@a:1"},
			[]string{"--user"}},
		{"credentials in malformed endpoints", nil, map[string]string{"ETCDCTL_ENDPOINTS": `http://root:` + secret + `@a"`},
			[]string{"ETCDCTL_ENDPOINTS"}},
		{"malformed variable", nil, map[string]string{"ETCDCTL_DIAL_TIMEOUT": "soon"}, []string{"ETCDCTL_DIAL_TIMEOUT"}},
		{"absent password file", []string{"--user", "root", "--password-file", "/no/such"}, nil,
			[]string{"--password-file", "/no/such"}},
		{"empty password file", []string{"--user", "root", "--password-file", "/dev/null"}, nil,
			[]string{"root", "password"}},
		{"empty password", nil, map[string]string{"ETCDCTL_USER": "root:"}, []string{"root", "password"}},
		{"no terminal", []string{"--user", "root"}, nil, []string{"root", "--password-file", "ETCDCTL_PASSWORD"}},
		{"cert without key", nil, map[string]string{"ETCDCTL_CERT": "/c"}, []string{"--key"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(t, test.args, test.env, nil)
			wantConfigError(t, err, test.words...)
		})
	}
	_, err := parse(t, []string{"--user", "root"}, nil, nil)
	if !errors.Is(err, errNoTerminal) {
		t.Errorf("the prompt's own error is lost: %v", err)
	}
}

func TestFlagsPrompt(t *testing.T) {
	asked := ""
	prompt := func(question string) (string, error) { asked = question; return secret, nil }
	cfg, err := parse(t, []string{"--user", "root"}, nil, prompt)
	if err != nil || cfg.Password != secret || cfg.User != "root" {
		t.Errorf("got %+v, %v", cfg, err)
	}
	wantWords(t, errors.New(asked), "root")

	asked = ""
	_, err = parse(t, []string{"--user", "root"}, map[string]string{"ETCDCTL_PASSWORD": secret}, prompt)
	if err != nil || asked != "" {
		t.Errorf("asked %q though the password was there (%v)", asked, err)
	}
	nobody := func(string) (string, error) { return "", nil }
	_, err = parse(t, []string{"--user", "root"}, nil, nobody)
	wantConfigError(t, err, "root", "password")
}
