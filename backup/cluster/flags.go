package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Flags are etcdctl's flags for the access to a cluster, and its ETCDCTL_* variables.
type Flags struct {
	config       Config
	passwordFile string
	discovery    discovery
	set          *pflag.FlagSet
}

// AddFlags declares the flags on set.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := AddAccess(set)
	set.StringSliceVar(&f.config.Endpoints, "endpoints", []string{"127.0.0.1:2379"}, "members to ask, one is enough")
	set.StringVarP(&f.discovery.domain, "discovery-srv", "d", "", "find the members by this domain's SRV records, instead of --endpoints")
	set.StringVar(&f.discovery.name, "discovery-srv-name", "", "suffix of the records' service name")
	set.BoolVar(&f.discovery.insecure, "insecure-discovery", true,
		"trust the SRV records; if false, use only https:// endpoints and verify certificates for the domain")
	return f
}

// AddAccess declares the flags on set, apart from those that name the members: the caller knows their endpoints.
func AddAccess(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set}
	c := &f.config
	set.StringVar(&c.CACert, "cacert", "", "CA bundle that the servers' certificates are verified against")
	set.StringVar(&c.Cert, "cert", "", "client certificate")
	set.StringVar(&c.Key, "key", "", "client certificate's key")
	set.BoolVar(&c.InsecureSkipVerify, "insecure-skip-tls-verify", false, "do not verify the servers' certificates")
	set.StringVar(&c.User, "user", "", "etcd user; the password comes from --password-file, ETCDCTL_PASSWORD or a prompt")
	set.StringVar(&f.passwordFile, "password-file", "", "file with the user's password")
	set.DurationVar(&c.DialTimeout, "dial-timeout", 5*time.Second, "to connect to one member")
	set.DurationVar(&c.CommandTimeout, "command-timeout", 5*time.Second, "for one answer of one member")
	return f
}

// Config returns the configuration from the flags, from getenv (os.Getenv) for flags that are not set, and from prompt
// for a missing password. Errors match ErrConfig.
func (f *Flags) Config(getenv func(string) string, prompt func(question string) (string, error)) (Config, error) {
	named := f.set.Changed("endpoints") // the flag --endpoints wins over a domain in ETCDCTL_DISCOVERY_SRV
	if named && f.set.Changed("discovery-srv") {
		return Config{}, fmt.Errorf("%w: --endpoints and --discovery-srv both name the members: use one", ErrConfig)
	}
	c, err := f.Access(getenv, prompt)
	if err != nil {
		return Config{}, err
	}
	for i := range c.Endpoints {
		c.Endpoints[i] = strings.TrimSpace(c.Endpoints[i])
	}
	if f.discovery.domain != "" && !named {
		err := f.discovery.discover(&c)
		if err != nil {
			return Config{}, err
		}
	}
	return c, c.Validate()
}

// Access is Config for the flags of AddAccess: it returns a configuration without endpoints.
func (f *Flags) Access(getenv func(string) string, prompt func(question string) (string, error)) (Config, error) {
	if strings.Contains(f.config.User, ":") {
		return Config{}, fmt.Errorf(
			"%w: --user takes the name alone: a password in the command line can be read by every process of this machine; use --password-file",
			ErrConfig)
	}
	err := f.fromEnv(getenv)
	if err != nil || f.config.User == "" {
		return f.config, err
	}
	c := f.config
	err = f.password(&c, getenv, prompt)
	return c, err
}

// fromEnv sets each flag that is not in the command line from its variable.
func (f *Flags) fromEnv(getenv func(string) string) (err error) {
	for _, name := range []string{
		"endpoints", "discovery-srv", "discovery-srv-name", "insecure-discovery", "cacert", "cert", "key", "insecure-skip-tls-verify", "user",
		"dial-timeout", "command-timeout",
	} {
		variable := "ETCDCTL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		value := getenv(variable)
		if value == "" || f.set.Lookup(name) == nil || f.set.Changed(name) {
			continue
		}
		e := f.set.Set(name, value)
		if e != nil && err == nil {
			// Only the cause: e quotes the value, and an endpoint may contain a password.
			err = fmt.Errorf("%w: %s: %w", ErrConfig, variable, errors.Unwrap(e))
		}
	}
	return err
}

// password splits c.User, and sets c.Password from the file, the user, the variable or the prompt, in this order.
func (f *Flags) password(c *Config, getenv func(string) string, prompt func(string) (string, error)) (err error) {
	name, password, both := strings.Cut(c.User, ":") // as in etcdctl, only ETCDCTL_USER may contain both
	c.User = name
	if f.passwordFile != "" {
		content, err := os.ReadFile(f.passwordFile)
		if err != nil {
			return fmt.Errorf("%w: --password-file: %w", ErrConfig, err)
		}
		c.Password = string(bytes.TrimRight(content, "\r\n"))
		return nil
	}
	if both {
		c.Password = password
		return nil
	}
	c.Password = getenv("ETCDCTL_PASSWORD")
	if c.Password != "" {
		return nil
	}
	c.Password, err = prompt("Password of etcd user " + c.User + ": ")
	if err != nil {
		return fmt.Errorf("%w: no password for user %s: use --password-file or ETCDCTL_PASSWORD: %w", ErrConfig, c.User, err)
	}
	return nil
}
