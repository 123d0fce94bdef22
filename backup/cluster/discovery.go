package cluster

import (
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/srv"
)

// discovery finds the endpoints by SRV records of DNS, like etcdctl's flags of the same names.
type discovery struct {
	domain, name string
	insecure     bool // trust the records: use their http:// endpoints too, and verify each certificate for the name in its record
}

// lookup queries DNS for the records. Tests replace it.
var lookup = srv.GetClient

// discover sets the endpoints of c from DNS. Errors match ErrConfig.
func (d discovery) discover(c *Config) error {
	found, err := lookup("etcd-client", d.domain, d.name)
	if err != nil {
		return fmt.Errorf("%w: --discovery-srv %s: %w: check the domain, or name members with --endpoints", ErrConfig, d.domain, err)
	}
	c.Endpoints = found.Endpoints
	if !d.insecure {
		c.ServerName = d.domain
		c.Endpoints = slices.DeleteFunc(c.Endpoints, func(e string) bool { return strings.HasPrefix(e, "http://") })
	}
	if len(c.Endpoints) == 0 {
		return fmt.Errorf("%w: --discovery-srv %s: DNS names no endpoint (with --insecure-discovery=false only https:// counts): "+
			"name members with --endpoints", ErrConfig, d.domain)
	}
	return nil
}
