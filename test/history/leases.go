package history

import (
	"context"

	"go.etcd.io/etcd/client/v3"
)

// keptLeases is the number of leases that a history keeps; others are revoked or expire.
const keptLeases = 12

func (w *Writer) leaseSteps() []step {
	return []step{
		{"grant", 12, w.grant},
		{"keep alive", 6, w.keepAlive},
		{"revoke", 5, w.revoke},
	}
}

// grant gives one lease in three a TTL so short that it may end while the history is written, together with its keys.
func (w *Writer) grant(ctx context.Context) error {
	ttl := int64(600 + w.random.IntN(600))
	if w.chance(33) {
		ttl = 2 + w.random.Int64N(2)
	}
	response, err := w.Client().Grant(ctx, ttl)
	if err != nil {
		return err
	}
	w.leases = append(w.leases, response.ID)
	if len(w.leases) > keptLeases {
		return w.revoke(ctx)
	}
	return nil
}

func (w *Writer) keepAlive(ctx context.Context) error {
	if len(w.leases) == 0 {
		return nil
	}
	_, err := w.Client().KeepAliveOnce(ctx, w.leases[w.random.IntN(len(w.leases))])
	return err
}

func (w *Writer) revoke(ctx context.Context) error {
	if len(w.leases) == 0 {
		return nil
	}
	id := w.takeLease()
	_, err := w.someone().Revoke(ctx, id)
	return err
}

func (w *Writer) takeLease() clientv3.LeaseID {
	n := w.random.IntN(len(w.leases))
	id := w.leases[n]
	w.leases = append(w.leases[:n], w.leases[n+1:]...)
	return id
}
