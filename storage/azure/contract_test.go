package azure_test

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// asAzurite excludes the features of Azure that Azurite lacks.
var asAzurite = storagetest.Options{PartSizes: []int{small.Size}, NoVersions: true, NoLocks: true, NoBackslash: true}

func TestContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Bucket {
		_, b, _ := plain(t)
		return b
	}, asAzurite)
}

func TestContractBehindDecorators(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Bucket {
		_, bare, _ := plain(t)
		limiter := rate.NewLimiter(1<<30, 1<<20)
		b := storage.WithRetry(bare, storage.RetryPolicy{Attempts: 3, Base: time.Millisecond, Max: 10 * time.Millisecond})
		b = storage.WithLimit(b, storage.Limits{Up: limiter, Down: limiter})
		return storage.WithPrefix(b, "some prefix/of 100%")
	}, asAzurite)
}
