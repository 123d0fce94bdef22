package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The amount of data.
const (
	written     = 3000 // orders
	batch       = 100  // orders that one transaction writes
	overwritten = 1000 // the first orders, each by a request of its own
	writers     = 8    // that overwrite at the same time
	deleted     = 300  // the last orders
	leases      = 5
	leased      = 10           // keys of each lease
	leaseTTL    = 24 * 60 * 60 // seconds
)

// Names in the key space.
const (
	orders   = "/orders/"
	sessions = "/sessions/"
	lateKey  = "/written/after-the-backup"
	newKey   = "/written/after-the-restore"
)

// Users. root may do everything, user may read and write orders.
const (
	root = "root"
	user = "alice"
)

// data describes the key space that was written.
type data struct {
	userPassword string
	middle       int64 // the revision before the overwrites, which the compaction keeps
	revision     int64 // the last revision
}

// fill writes the data into the empty cluster ms, and enables users.
func fill(ctx context.Context, ms members, rootPassword string) (d data, err error) {
	c, err := connect(ctx, ms[0], "", "")
	if err != nil {
		return data{}, err
	}
	defer c.Close()
	d.userPassword = rand.Text()
	for _, step := range []func() error{
		func() error { return writeOrders(ctx, c) },
		func() (err error) { d.middle, err = compact(ctx, c); return err },
		func() error { return overwriteOrders(ctx, c) },
		func() error { return openSessions(ctx, c) },
		func() (err error) { d.revision, err = deleteOrders(ctx, c); return err },
		func() error { return enableUsers(ctx, c, rootPassword, d.userPassword) },
	} {
		err := step()
		if err != nil {
			return data{}, err
		}
	}
	return d, nil
}

func order(i int) string { return fmt.Sprintf("%s%05d", orders, i) }

// value returns a different value on each call.
func value(i int) string { return fmt.Sprintf("order %d: %s", i, strings.Repeat(rand.Text(), 8)) }

func writeOrders(ctx context.Context, c *clientv3.Client) error {
	for first := 0; first < written; first += batch {
		var puts []clientv3.Op
		for i := first; i < first+batch; i++ {
			puts = append(puts, clientv3.OpPut(order(i), value(i)))
		}
		_, err := c.Txn(ctx).Then(puts...).Commit()
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// compact compacts the older half of the history, and returns the current revision.
func compact(ctx context.Context, c *clientv3.Client) (int64, error) {
	now, err := c.Get(ctx, order(0), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	_, err = c.Compact(ctx, now.Header.Revision/2, clientv3.WithCompactPhysical())
	if err != nil {
		return 0, fmt.Errorf("compact: %w", err)
	}
	return now.Header.Revision, nil
}

func overwriteOrders(ctx context.Context, c *clientv3.Client) error {
	group, ctx := errgroup.WithContext(ctx)
	for first := range writers {
		group.Go(func() error {
			for i := first; i < overwritten; i += writers {
				_, err := c.Put(ctx, order(i), value(i))
				if err != nil {
					return fmt.Errorf("overwrite: %w", err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func openSessions(ctx context.Context, c *clientv3.Client) error {
	for l := range leases {
		lease, err := c.Grant(ctx, leaseTTL)
		if err != nil {
			return fmt.Errorf("grant a lease: %w", err)
		}
		for k := range leased {
			_, err := c.Put(ctx, fmt.Sprintf("%s%d/%d", sessions, l, k), "open", clientv3.WithLease(lease.ID))
			if err != nil {
				return fmt.Errorf("write with a lease: %w", err)
			}
		}
	}
	return nil
}

// deleteOrders deletes the last orders, and returns the revision of this delete.
func deleteOrders(ctx context.Context, c *clientv3.Client) (int64, error) {
	answer, err := c.Delete(ctx, order(written-deleted), clientv3.WithRange(order(written)))
	if err != nil {
		return 0, fmt.Errorf("delete: %w", err)
	}
	if answer.Deleted != deleted {
		return 0, fmt.Errorf("%d keys were deleted, not %d", answer.Deleted, deleted)
	}
	return answer.Header.Revision, nil
}

func enableUsers(ctx context.Context, c *clientv3.Client, rootPassword, userPassword string) error {
	allOrders := clientv3.GetPrefixRangeEnd(orders)
	for _, step := range []func() error{
		func() error { _, err := c.UserAdd(ctx, root, rootPassword); return err },
		func() error { _, err := c.RoleAdd(ctx, root); return err },
		func() error { _, err := c.UserGrantRole(ctx, root, root); return err },
		func() error { _, err := c.RoleAdd(ctx, "clerk"); return err },
		func() error {
			_, err := c.RoleGrantPermission(ctx, "clerk", orders, allOrders, clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := c.UserAdd(ctx, user, userPassword); return err },
		func() error { _, err := c.UserGrantRole(ctx, user, "clerk"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		err := step()
		if err != nil {
			return fmt.Errorf("enable users: %w", err)
		}
	}
	return nil
}
