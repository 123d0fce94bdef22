package cluster_test

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/srv"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
)

// TestDiscovery checks that DNS names the members as for etcdctl.
func TestDiscovery(t *testing.T) {
	both := []string{"https://m1.example.com:2379", "http://m2.example.com:2379"}
	for _, test := range []struct {
		name   string
		args   []string
		env    map[string]string
		dns    []string
		want   []string
		server string
		says   string
	}{
		{"by flag", []string{"-d", "example.com"}, nil, both, both, "", ""},
		{"by variable", nil, map[string]string{"ETCDCTL_DISCOVERY_SRV": "example.com"}, both, both, "", ""},
		{"secure alone", []string{"--discovery-srv", "example.com", "--insecure-discovery=false"}, nil, both, both[:1], "example.com", ""},
		{"no secure one", []string{"-d", "example.com", "--insecure-discovery=false"}, nil, both[1:], nil, "", "--endpoints"},
		{"none", []string{"-d", "example.com"}, nil, nil, nil, "", "DNS names no endpoint"},
		{"no records", []string{"-d", "else.com"}, nil, both, nil, "", "no such host: check the domain"},
		{"endpoints go before a variable", []string{"--endpoints", "http://a:1"},
			map[string]string{"ETCDCTL_DISCOVERY_SRV": "example.com"}, both, []string{"http://a:1"}, "", ""},
		{"both", []string{"--endpoints", "http://a:1", "-d", "example.com"}, nil, both, nil, "", "use one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			undo := cluster.SetLookup(func(service, domain, _ string) (*srv.SRVClients, error) {
				if service != "etcd-client" || domain != "example.com" {
					return nil, errors.New("no such host")
				}
				return &srv.SRVClients{Endpoints: slices.Clone(test.dns)}, nil
			})
			defer undo()
			c, err := parse(t, test.args, test.env, nil)
			if test.says != "" {
				if !errors.Is(err, cluster.ErrConfig) {
					t.Fatalf("error %v", err)
				}
				wantWords(t, err, test.says)
				return
			}
			if err != nil || !slices.Equal(c.Endpoints, test.want) || c.ServerName != test.server {
				t.Errorf("endpoints %v, server name %q, %v", c.Endpoints, c.ServerName, err)
			}
		})
	}
}
