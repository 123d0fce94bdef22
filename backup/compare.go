package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

const (
	compareRounds = 5                      // a compaction between two members' hashes spoils a round
	comparePause  = time.Second            // between rounds: compactions take that long to reach all
	catchUp       = 10 * time.Second       // for a member to reach the revision
	catchUpPause  = 100 * time.Millisecond // between asking it
)

// compareMembers hashes the key space on every answering member, one at a time, and says how they differ; "" if they
// do not. Members that could not be compared are warned of. Only the end of ctx is an error: the snapshot is here and
// whole by now, and must not be lost because a member went away.
func (r *run) compareMembers(ctx context.Context) (string, error) {
	for range compareRounds {
		hashes, errs, err := r.hashAll(ctx)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if err != nil {
			r.warn("the members could not be compared: %v", err)
			return "", nil
		}
		if comparable(hashes, errs) {
			for _, err := range errs {
				r.warn("not compared: %v", err)
			}
			return difference(r.cluster.Servers, hashes), nil
		}
		if err := pause(ctx, comparePause); err != nil {
			return "", err
		}
	}
	r.warn("the members could not be compared: compactions keep coming in between")
	return "", nil
}

// hashAll returns one hash a server, all at one revision; the zero value for one that gave none, and why in errs.
func (r *run) hashAll(ctx context.Context) (hashes []repository.HashKV, errs []error, err error) {
	status, err := r.member.Now(ctx)
	if err != nil {
		return nil, nil, err
	}
	hashes = make([]repository.HashKV, len(r.cluster.Servers))
	for i, s := range r.cluster.Servers {
		r.report.Say(storage.Event{Stage: "compare", Object: s.Endpoint, Message: "hashing the key space"})
		if hashes[i], err = hashAt(ctx, s, status.Header.Revision); err != nil {
			errs = append(errs, err)
		}
	}
	return hashes, errs, nil
}

// hashAt waits for a member that is a little behind.
func hashAt(ctx context.Context, s *cluster.Server, revision int64) (repository.HashKV, error) {
	for end := time.Now().Add(catchUp); ; {
		hash, err := s.HashKV(ctx, revision)
		if err == nil || !errors.Is(err, cluster.ErrFuture) || time.Now().After(end) {
			return hash, err
		}
		if err := pause(ctx, catchUpPause); err != nil {
			return repository.HashKV{}, err
		}
	}
}

// comparable reports whether no compaction came in between, neither up to an older revision nor past the hashed one.
func comparable(hashes []repository.HashKV, errs []error) bool {
	if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, cluster.ErrCompacted) }) {
		return false
	}
	var first repository.HashKV
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

func difference(servers []*cluster.Server, hashes []repository.HashKV) string {
	var parts []string
	seen := map[uint32]bool{}
	for i, h := range hashes {
		if h.Revision != 0 {
			seen[h.Hash] = true
			parts = append(parts, fmt.Sprintf("%s has %08x", servers[i].ID(), h.Hash))
		}
	}
	if len(seen) < 2 {
		return ""
	}
	return fmt.Sprintf("HashKV at revision %d: %s", firstRevision(hashes), strings.Join(parts, ", "))
}

func firstRevision(hashes []repository.HashKV) int64 {
	for _, h := range hashes {
		if h.Revision != 0 {
			return h.Revision
		}
	}
	return 0
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
