package replay

import (
	"fmt"

	"github.com/coreos/go-semver/semver"
)

// rules are the differences between a server's version and the version whose code is linked, as far as they change the effect
// of a request. Each "until" names the first releases without the old rule. The zero value has none of the old rules.
type rules struct {
	// cluster is the version by which the lessor decides whether to store checkpoints of leases, which it does from 3.6 on.
	cluster semver.Version

	// nestedTxnUnchecked: no permissions were checked for nested transactions (until 3.4.42, 3.5.28, 3.6.9).
	nestedTxnUnchecked bool
	// txnPutKeyOnly: a put in a transaction needed the permission to write its key, but neither to write the other keys of its
	// lease nor to read the previous value that it asks for (until 3.4.44, 3.5.30, 3.6.11).
	txnPutKeyOnly bool
	// leaseKeysAlways: root's right to revoke a lease was checked for each key, which fails if the users have changed since
	// the request was made (until 3.4.27, 3.5.10).
	leaseKeysAlways bool
	// emptyPermissions: a role could get a range of keys that ends before it begins (until 3.4.25, 3.5.8).
	emptyPermissions bool
	// alarmLiftsAuth: permissions were not checked while an alarm was raised, until it was disarmed or the member restarted
	// (until 3.6; Alarm in etcdserver/apply.go replaces the applier with auth by the bare one).
	alarmLiftsAuth bool
	// nestedTxnFree: while the alarm NOSPACE was raised, a transaction was applied if its only puts were in nested
	// transactions, since their cost was not counted (until 3.5.33, 3.6.14, 3.7.1; all of 3.4; etcd #22134).
	nestedTxnFree bool
	// readsUnchecked: only the member that the client is connected to refused a transaction because it reads a revision that is
	// compacted or in the future. The others applied the rest of it (until 3.7; etcd #18667).
	readsUnchecked bool
	// hashesPasswords: the log contains passwords in plain text, including empty ones (until 3.5).
	hashesPasswords bool
	// dropsTombstones: a compaction also deleted the tombstones of its own revision (until 3.4.34, 3.5.16).
	dropsTombstones bool
}

// newest are the rules of the linked code.
var newest = rules{cluster: semver.Version{Major: 3, Minor: 7}}

// Version returns the cluster's version for the lessor.
func (r *rules) Version() *semver.Version { return &r.cluster }

// rulesOf returns the rules of a server version, such as 3.5.35.
func rulesOf(version string) (rules, error) {
	v, err := semver.NewVersion(version)
	if err != nil {
		return rules{}, fmt.Errorf("%w: version %q: %w", ErrRequest, version, err)
	}
	if v.Major != 3 || v.Minor < 4 {
		return rules{}, fmt.Errorf("%w: version %s: only etcd from 3.4 on is served", ErrRequest, version)
	}
	// before reports whether the patch release is older than the one that introduced today's rule; fixed lists these for 3.4,
	// 3.5 and so on.
	before := func(fixed ...int64) bool {
		minor := v.Minor - 4
		return minor < int64(len(fixed)) && v.Patch < fixed[minor]
	}
	const all = 1 << 30 // every patch release of the minor version
	return rules{
		cluster:            semver.Version{Major: v.Major, Minor: v.Minor},
		nestedTxnUnchecked: before(42, 28, 9),
		txnPutKeyOnly:      before(44, 30, 11),
		leaseKeysAlways:    before(27, 10),
		emptyPermissions:   before(25, 8),
		alarmLiftsAuth:     before(all, all),
		nestedTxnFree:      before(all, 33, 14, 1),
		readsUnchecked:     before(all, all, all),
		hashesPasswords:    before(all),
		dropsTombstones:    before(34, 16),
	}, nil
}
