package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// askAll calls do for all stores at once, each with askTime at most. It returns the stores for which do succeeded, in their
// order, and the joined errors of the others. n is the store's index.
func askAll(
	ctx context.Context, stores []backup.Store, do func(ctx context.Context, n int, c backup.Store) error,
) (answered []backup.Store, failed error) {
	errs := make([]error, len(stores))
	var asking sync.WaitGroup
	for n, store := range stores {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			errs[n] = do(ctx, n, store)
		})
	}
	asking.Wait()
	for n, store := range stores {
		if errs[n] != nil {
			failed = errors.Join(failed, fmt.Errorf("repository %s: %w", store.Repository, errs[n]))
			continue
		}
		answered = append(answered, store)
	}
	return answered, failed
}

// enough returns failed, unless require is Any and a store has answered.
func enough(answered []backup.Store, failed error, require spec.Require) error {
	if len(answered) > 0 && require == spec.Any {
		return nil
	}
	return failed
}
