package backup

import (
	"context"
	"errors"
	"fmt"
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
// do not. Members that could not be compared are warned of.
func (r *run) compareMembers(ctx context.Context) (string, error) {
	for range compareRounds {
		hashes, err := r.hashAll(ctx)
		if err != nil {
			return "", err
		}
		if comparable(hashes) {
			return difference(r.cluster.Servers, hashes), nil
		}
		if err := pause(ctx, comparePause); err != nil {
			return "", err
		}
	}
	r.warn("the members could not be compared: compactions keep coming in between")
	return "", nil
}

// hashAll returns one hash a server, all at one revision; the zero value for one that gave none.
func (r *run) hashAll(ctx context.Context) ([]repository.HashKV, error) {
	status, err := r.member.Now(ctx)
	if err != nil {
		return nil, err
	}
	hashes := make([]repository.HashKV, len(r.cluster.Servers))
	for i, s := range r.cluster.Servers {
		r.report.Say(storage.Event{Stage: "compare", Object: s.Endpoint, Message: "hashing the key space"})
		hashes[i], err = hashAt(ctx, s, status.Header.Revision)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			r.warn("not compared: %v", err)
		}
	}
	return hashes, nil
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

func comparable(hashes []repository.HashKV) bool {
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
