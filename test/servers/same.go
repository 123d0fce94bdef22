package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	compareTimeout = 5 * time.Minute
	pageKeys       = 2000
	shownAtMost    = 10
)

// HashKV returns one member's hash of its key space at a revision, 0 for its newest. It waits for a member that has not
// reached the revision, or not seen the login of a client that logged in at another member.
func HashKV(t testing.TB, client *clientv3.Client, endpoint string, revision int64) *clientv3.HashKVResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	for {
		response, err := client.HashKV(ctx, endpoint, revision)
		if err == nil {
			return response
		}
		behind := errors.Is(err, rpctypes.ErrFutureRev) || strings.Contains(err.Error(), rpctypes.ErrInvalidAuthToken.Error()) // 3.5 gives it no code
		if !behind || ctx.Err() != nil {
			t.Fatalf("hash of %s at revision %d: %v", endpoint, revision, err)
		}
		time.Sleep(pollInterval)
	}
}

// RequireSame fails the test unless both clusters have the same content: every key with its value, revisions, version and
// lease; the leases; the users, roles and permissions, and whether authentication is on. Options apply to the reading
// of the keys: clientv3.WithRev compares the key space at one revision, and all else as it is now.
func RequireSame(t testing.TB, a, b *clientv3.Client, options ...clientv3.OpOption) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), compareTimeout)
	defer cancel()
	found, err := differences(ctx, a, b, options...)
	if err != nil {
		t.Fatalf("compare two clusters: %v", err)
	}
	if len(found) > 0 {
		t.Errorf("the clusters differ:\n%s", strings.Join(found, "\n"))
	}
}

func differences(ctx context.Context, a, b *clientv3.Client, options ...clientv3.OpOption) ([]string, error) {
	found, err := keyDifferences(ctx, a, b, options)
	if err != nil {
		return nil, err
	}
	for _, describe := range []func(context.Context, *clientv3.Client) ([]string, error){describeLeases, describeAuth} {
		inA, err := describe(ctx, a)
		if err != nil {
			return nil, err
		}
		inB, err := describe(ctx, b)
		if err != nil {
			return nil, err
		}
		found = append(found, lineDifferences(inA, inB)...)
	}
	auth, err := authDifferences(ctx, a, b)
	return append(found, auth...), err
}

// keyDifferences reads both key spaces page by page and stops after the first page that differs: one missing key shifts all later pages.
func keyDifferences(ctx context.Context, a, b *clientv3.Client, options []clientv3.OpOption) ([]string, error) {
	from := "\x00"
	for {
		inA, err := page(ctx, a, from, options)
		if err != nil {
			return nil, err
		}
		inB, err := page(ctx, b, from, options)
		if err != nil {
			return nil, err
		}
		if inA.Count != inB.Count {
			count := fmt.Sprintf("from key %q on: %d keys in the first, %d in the second", from, inA.Count, inB.Count)
			return append([]string{count}, kvDifferences(inA.Kvs, inB.Kvs)...), nil
		}
		found := kvDifferences(inA.Kvs, inB.Kvs)
		if len(found) > 0 || !inA.More {
			return found, nil
		}
		from = string(inA.Kvs[len(inA.Kvs)-1].Key) + "\x00"
	}
}

func page(ctx context.Context, client *clientv3.Client, from string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	return client.Get(ctx, from, append(slices.Clone(options), clientv3.WithFromKey(), clientv3.WithLimit(pageKeys))...)
}

// kvDifferences compares two lists that are sorted by key.
func kvDifferences(a, b []*mvccpb.KeyValue) []string {
	var found []string
	for len(a) > 0 && len(b) > 0 && len(found) < shownAtMost {
		switch order := bytes.Compare(a[0].Key, b[0].Key); {
		case order < 0:
			found = append(found, "only in the first: "+describeKV(a[0]))
			a = a[1:]
		case order > 0:
			found = append(found, "only in the second: "+describeKV(b[0]))
			b = b[1:]
		default:
			if !sameKV(a[0], b[0]) {
				found = append(found, fmt.Sprintf("first %s, second %s", describeKV(a[0]), describeKV(b[0])))
			}
			a, b = a[1:], b[1:]
		}
	}
	if len(a) > 0 && len(b) == 0 {
		found = append(found, "only in the first: "+describeKV(a[0]))
	}
	if len(b) > 0 && len(a) == 0 {
		found = append(found, "only in the second: "+describeKV(b[0]))
	}
	return found
}

func sameKV(a, b *mvccpb.KeyValue) bool {
	return bytes.Equal(a.Value, b.Value) && a.CreateRevision == b.CreateRevision && a.ModRevision == b.ModRevision &&
		a.Version == b.Version && a.Lease == b.Lease
}

func describeKV(kv *mvccpb.KeyValue) string {
	return fmt.Sprintf("%q (value of %d bytes beginning %q, created %d, modified %d, version %d, lease %x)",
		kv.Key, len(kv.Value), kv.Value[:min(len(kv.Value), 16)], kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
}

// describeLeases returns one line for each lease: its id, granted TTL and keys, but not the remaining TTL, which
// changes.
func describeLeases(ctx context.Context, client *clientv3.Client) ([]string, error) {
	leases, err := client.Leases(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, lease := range leases.Leases {
		left, err := client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
		if err != nil {
			return nil, err
		}
		slices.SortFunc(left.Keys, bytes.Compare)
		lines = append(lines, fmt.Sprintf("lease %x, granted for %d s, keys %q", lease.ID, left.GrantedTTL, left.Keys))
	}
	return lines, nil
}

// authDifferences compares whether authentication is on, and its revision, unless one of the servers is a 3.4, which does not report it.
func authDifferences(ctx context.Context, a, b *clientv3.Client) ([]string, error) {
	inA, err := a.AuthStatus(ctx)
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	inB, err := b.AuthStatus(ctx)
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if inA.Enabled == inB.Enabled && inA.AuthRevision == inB.AuthRevision {
		return nil, nil
	}
	return []string{fmt.Sprintf("authentication on: %v at its revision %d in the first, %v at %d in the second",
		inA.Enabled, inA.AuthRevision, inB.Enabled, inB.AuthRevision)}, nil
}

// describeAuth returns one line for each user and one for each role.
func describeAuth(ctx context.Context, client *clientv3.Client) ([]string, error) {
	users, err := client.UserList(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, name := range users.Users {
		user, err := client.UserGet(ctx, name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("user %s with roles %q", name, user.Roles))
	}
	roles, err := client.RoleList(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range roles.Roles {
		role, err := client.RoleGet(ctx, name)
		if err != nil {
			return nil, err
		}
		line := fmt.Sprintf("role %s", name)
		for _, p := range role.Perm {
			line += fmt.Sprintf(", %v on %q to %q", p.PermType, p.Key, p.RangeEnd)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func lineDifferences(a, b []string) []string {
	var found []string
	for _, line := range a {
		if !slices.Contains(b, line) {
			found = append(found, "only in the first: "+line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			found = append(found, "only in the second: "+line)
		}
	}
	return found
}
