package replay

import (
	"fmt"

	"github.com/coreos/go-semver/semver"
)

// rules are those in which a server of some version differs from the one whose code this is, and that change what a
// request leaves behind. The zero value is the newest.
type rules struct {
	// cluster is the version by which the lessor decides whether to keep checkpoints of leases: from 3.6 on.
	cluster semver.Version

	// nestedTxnUnchecked: of a transaction within a transaction no permission was asked for (until 3.4.42, 3.5.28, 3.6.9).
	nestedTxnUnchecked bool
	// txnPutKeyOnly: a put within a transaction needed the permission to write its key, but neither that to write the
	// other keys of its lease nor that to read what it asks back (until 3.4.44, 3.5.30, 3.6.11).
	txnPutKeyOnly bool
	// leaseKeysAlways: root's right to revoke a lease was asked for key by key, which fails when the users have changed
	// since the request was made (until 3.4.27, 3.5.10).
	leaseKeysAlways bool
	// emptyPermissions: a role could be given a range of keys that ends before it begins (until 3.4.25, 3.5.8).
	emptyPermissions bool
	// alarmLiftsAuth: while an alarm was raised, permissions were not asked for at all, until it was disarmed or the
	// member started again (until 3.6; Alarm in etcdserver/apply.go puts the bare applier in place of the one with auth).
	alarmLiftsAuth bool
	// nestedTxnFree: while the alarm NOSPACE was raised, a transaction whose only puts stood in a transaction within it was
	// applied all the same: what it would cost was not seen (until 3.5.33, 3.6.14, 3.7.1; all of 3.4; etcd #22134).
	nestedTxnFree bool
	// hashesPasswords: passwords stand in the log as they are, empty ones among them (until 3.5).
	hashesPasswords bool
	// dropsTombstones: a compaction also deleted the tombstones of its own revision (until 3.4.34, 3.5.16).
	dropsTombstones bool
}

// newest are the rules of the code itself.
var newest = rules{cluster: semver.Version{Major: 3, Minor: 7}}

// Version is the cluster's for the lessor.
func (r *rules) Version() *semver.Version { return &r.cluster }

// rulesOf a server's version, such as 3.5.35.
func rulesOf(version string) (rules, error) {
	v, err := semver.NewVersion(version)
	if err != nil {
		return rules{}, fmt.Errorf("%w: version %q: %w", ErrRequest, version, err)
	}
	if v.Major != 3 || v.Minor < 4 {
		return rules{}, fmt.Errorf("%w: version %s: only etcd from 3.4 on is served", ErrRequest, version)
	}
	// before takes the first patch releases of 3.4, 3.5 and so on that have today's rule.
	before := func(fixed ...int64) bool {
		minor := v.Minor - 4
		return minor < int64(len(fixed)) && v.Patch < fixed[minor]
	}
	const all = 1 << 30
	return rules{
		cluster:            semver.Version{Major: v.Major, Minor: v.Minor},
		nestedTxnUnchecked: before(42, 28, 9),
		txnPutKeyOnly:      before(44, 30, 11),
		leaseKeysAlways:    before(27, 10),
		emptyPermissions:   before(25, 8),
		alarmLiftsAuth:     before(all, all),
		nestedTxnFree:      before(all, 33, 14, 1),
		hashesPasswords:    before(all),
		dropsTombstones:    before(34, 16),
	}, nil
}
