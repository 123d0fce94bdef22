package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// holding is the content of one member as comparable texts. It is read with etcd's own client: the comparison must not depend on
// the code that took the backup.
type holding []fact

type fact struct{ name, value string }

// The names of facts.
const (
	factRevision = "revision"
	factKeys     = "key count"
	factHash     = "HashKV"
	factValues   = "values"
	factLeases   = "leases"
	factUsers    = "users"
	factRoles    = "roles"
	factLogin    = "passwords and permissions"
)

// readContent reads the content of one member. Reads are linearizable, so the member has caught up with the cluster.
func (d *demoRun) readContent(ctx context.Context, m *member) (h holding, err error) {
	c, err := connect(ctx, m, root, d.rootPassword)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, ask := range []struct {
		name string
		read func(context.Context, *clientv3.Client) (string, error)
	}{
		{factRevision, readRevision},
		{factKeys, countKeys},
		{factHash, d.hash},
		{factValues, d.values},
		{factLeases, readLeases},
		{factUsers, readUsers},
		{factRoles, readRoles},
		{factLogin, func(ctx context.Context, _ *clientv3.Client) (string, error) { return d.logIn(ctx, m) }},
	} {
		value, err := ask.read(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("read the %s: %w", ask.name, err)
		}
		h = append(h, fact{ask.name, value})
	}
	return h, nil
}

// value returns the value of one fact.
func (h holding) value(name string) string {
	i := slices.IndexFunc(h, func(f fact) bool { return f.name == name })
	return h[i].value
}

func (h holding) names() (names []string) {
	for _, f := range h {
		names = append(names, f.name)
	}
	return names
}

// compare returns an error that names each difference.
func (h holding) compare(now holding) error {
	var differences []error
	for i, was := range h {
		if now[i] != was {
			differences = append(differences, fmt.Errorf("%s: was %s, is %s", was.name, was.value, now[i].value))
		}
	}
	return errors.Join(differences...)
}

func readRevision(ctx context.Context, c *clientv3.Client) (string, error) {
	answer, err := c.Get(ctx, orders, clientv3.WithCountOnly())
	if err != nil {
		return "", err
	}
	return count(answer.Header.Revision), nil
}

func countKeys(ctx context.Context, c *clientv3.Client) (string, error) {
	answer, err := c.Get(ctx, "", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return "", err
	}
	return count(answer.Count), nil
}

// hash returns the HashKV, which covers every key, value, revision and lease that is not compacted.
func (d *demoRun) hash(ctx context.Context, c *clientv3.Client) (string, error) {
	answer, err := c.HashKV(ctx, c.Endpoints()[0], d.revision)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%08x (compacted up to %d)", answer.Hash, answer.CompactRevision), nil
}

// values returns the results of five reads: of a key that was overwritten, of the same key before, of a key that was not overwritten,
// of one that was deleted, and of one with a lease.
func (d *demoRun) values(ctx context.Context, c *clientv3.Client) (string, error) {
	var all []string
	for _, get := range []clientv3.Op{
		clientv3.OpGet(order(0)),
		clientv3.OpGet(order(0), clientv3.WithRev(d.middle)),
		clientv3.OpGet(order(overwritten)),
		clientv3.OpGet(order(written - 1)),
		clientv3.OpGet(sessions + "0/0"),
	} {
		answer, err := c.Do(ctx, get)
		if err != nil {
			return "", err
		}
		for _, kv := range answer.Get().Kvs {
			all = append(all, fmt.Sprintf("%s=%s (version %d, created at %d, modified at %d, lease %x)",
				kv.Key, kv.Value, kv.Version, kv.CreateRevision, kv.ModRevision, kv.Lease))
		}
	}
	return strings.Join(all, ", "), nil
}

func readLeases(ctx context.Context, c *clientv3.Client) (string, error) {
	answer, err := c.Leases(ctx)
	if err != nil {
		return "", err
	}
	var all []string
	for _, l := range answer.Leases {
		lease, err := c.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			return "", err
		}
		slices.SortFunc(lease.Keys, bytes.Compare)
		all = append(all, fmt.Sprintf("%x of %d s: %s", lease.ID, lease.GrantedTTL, lease.Keys))
	}
	slices.Sort(all)
	return strings.Join(all, ", "), nil
}

func readUsers(ctx context.Context, c *clientv3.Client) (string, error) {
	answer, err := c.UserList(ctx)
	if err != nil {
		return "", err
	}
	var all []string
	for _, name := range answer.Users {
		user, err := c.UserGet(ctx, name)
		if err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%s: %s", name, user.Roles))
	}
	return strings.Join(all, ", "), nil
}

func readRoles(ctx context.Context, c *clientv3.Client) (string, error) {
	answer, err := c.RoleList(ctx)
	if err != nil {
		return "", err
	}
	var all []string
	for _, name := range answer.Roles {
		role, err := c.RoleGet(ctx, name)
		if err != nil {
			return "", err
		}
		for _, p := range role.Perm {
			all = append(all, fmt.Sprintf("%s: %s %s to %s", name, p.PermType, p.Key, p.RangeEnd))
		}
	}
	return strings.Join(all, ", "), nil
}

// logIn checks that the user can log in with her password, and can read orders but not sessions.
func (d *demoRun) logIn(ctx context.Context, m *member) (string, error) {
	c, err := connect(ctx, m, user, d.userPassword)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, err = c.Get(ctx, order(0))
	if err != nil {
		return "", err
	}
	_, err = c.Get(ctx, sessions+"0/0")
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return user + " reads orders and nothing else", nil
	}
	if err == nil {
		err = fmt.Errorf("%s may read sessions, which she should not", user)
	}
	return "", err
}
