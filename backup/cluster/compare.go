package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-semver/semver"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

const (
	compareRounds = 5                      // a compaction between two members' hashes makes a round useless
	comparePause  = time.Second            // between rounds: a compaction takes this long to reach all members
	catchUp       = 10 * time.Second       // maximum wait for a member that lags
	catchUpPause  = 100 * time.Millisecond // between two requests to a member that lags
)

// ErrIncomparable means that a compaction happened between the members' hashes in every round.
var ErrIncomparable = errors.New("compactions keep coming in between")

// Unlimited returns a limit that no key space exceeds.
func Unlimited() HashLimit { return HashLimit{Stall: math.MaxInt64} }

// ErrMixedVersions means that equal key spaces of the members may have different hashes.
var ErrMixedVersions = errors.New("their versions hash equal key spaces differently")

// Compare hashes the key space on every answering member, one at a time, at the current revision of from. It returns
// how the hashes differ, or "" if they do not. Each hash stalls its member's writes; limit bounds each.
// skipped has the reasons why answering members could not be compared.
//
// If some members delete the tombstones of the revision up to which they compact, as etcd did before 3.4.34 and 3.5.16, and others do not, the
// error matches ErrMixedVersions: their hashes may differ for a while (etcd, storage/mvcc/hash.go).
func (c *Cluster) Compare(
	ctx context.Context, from *Server, limit HashLimit, report storage.Report,
) (difference string, skipped []error, err error) {
	versions := c.versions()
	differs := func(version string) bool { return dropsTombstones(version) != dropsTombstones(versions[0]) }
	if slices.ContainsFunc(versions, differs) {
		return "", nil, fmt.Errorf("the members run %s: %w: finish the upgrade", strings.Join(versions, " and "), ErrMixedVersions)
	}
	for range compareRounds {
		status, err := from.Now(ctx)
		if err != nil {
			return "", nil, err
		}
		hashes, errs := c.hashAll(ctx, status.Header.Revision, limit, report)
		if ctx.Err() != nil {
			return "", nil, context.Cause(ctx)
		}
		if sameCompaction(hashes, errs) {
			return describe(c.Servers, hashes), errs, nil
		}
		err = storage.Sleep(ctx, comparePause)
		if err != nil {
			return "", nil, err
		}
	}
	return "", nil, ErrIncomparable
}

// dropsTombstones reports whether etcd of a version deletes the tombstones of the revision up to which it compacts. Package replay has the same
// rule among those of its versions.
func dropsTombstones(version string) bool {
	v, err := semver.NewVersion(version)
	switch {
	case err != nil || v.Major != 3:
		return false
	case v.Minor == 4:
		return v.Patch < 34
	}
	return v.Minor < 4 || v.Minor == 5 && v.Patch < 16
}

// hashAll returns one hash for each server. A server that returned none has the zero value, and a reason in errs.
func (c *Cluster) hashAll(
	ctx context.Context, revision int64, limit HashLimit, report storage.Report,
) (hashes []catalog.HashKV, errs []error) {
	hashes = make([]catalog.HashKV, len(c.Servers))
	for i, s := range c.Servers {
		report.Say(storage.Event{Stage: "compare", Object: s.Endpoint, Message: "hashing the key space"})
		var err error
		hashes[i], err = hashAt(ctx, s, revision, limit)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return hashes, errs
}

// hashAt returns the hash of one member. It waits for up to catchUp for the member to reach the revision.
func hashAt(ctx context.Context, s *Server, revision int64, limit HashLimit) (catalog.HashKV, error) {
	for end := time.Now().Add(catchUp); ; {
		hash, err := s.hashNow(ctx, revision, limit)
		if err == nil || !errors.Is(err, ErrFuture) || time.Now().After(end) {
			return hash, err
		}
		err = storage.Sleep(ctx, catchUpPause)
		if err != nil {
			return catalog.HashKV{}, err
		}
	}
}

// hashNow is HashKVWithin with the member's current status.
func (s *Server) hashNow(ctx context.Context, revision int64, limit HashLimit) (catalog.HashKV, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return catalog.HashKV{}, fmt.Errorf("hash the key space of %s: %w", s.Endpoint, err)
	}
	return s.HashKVWithin(ctx, revision, now, limit)
}

// sameCompaction reports whether all hashes have one compact revision, and no member had compacted the hashed revision.
func sameCompaction(hashes []catalog.HashKV, errs []error) bool {
	if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, ErrCompacted) }) {
		return false
	}
	var first catalog.HashKV
	for _, h := range hashes {
		if first.Revision == 0 {
			first = h
		}
		if h.Revision != 0 && h.CompactRevision != first.CompactRevision {
			return false
		}
	}
	return true
}

func describe(servers []*Server, hashes []catalog.HashKV) string {
	var parts []string
	var revision int64
	seen := map[uint32]bool{}
	for i, h := range hashes {
		if h.Revision != 0 {
			revision = h.Revision
			seen[h.Hash] = true
			parts = append(parts, fmt.Sprintf("%s has %08x", servers[i].ID(), h.Hash))
		}
	}
	if len(seen) < 2 {
		return ""
	}
	return fmt.Sprintf("HashKV at revision %d: %s", revision, strings.Join(parts, ", "))
}

// CompareHashes is Compare at the leader's revision. If not all could be compared, err has the reasons, and a is valid.
func (c *Cluster) CompareHashes(ctx context.Context, limit HashLimit) (a Agreement, err error) {
	leader := c.Leader()
	if leader == nil {
		return Agreement{}, errors.New("no leader answers")
	}
	difference, skipped, err := c.Compare(ctx, leader, limit, nil)
	err = errors.Join(append(skipped, err)...)
	return Agreement{Difference: difference, Equal: difference == "" && err == nil && c.complete()}, err
}
