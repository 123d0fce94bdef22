package history

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/client/v3"
)

// prefixes divide the keys, so that users may have some of them and whole ranges are deleted.
var prefixes = []string{"a/", "b/", "c/"}

const keysInPrefix = 40

func (w *Writer) keySteps() []step {
	return []step{
		{"put", 200, func(ctx context.Context) error { return w.do(ctx, w.put()) }},
		{"put as it is", 20, func(ctx context.Context) error { return w.do(ctx, w.putAsItIs()) }},
		{"delete", 40, func(ctx context.Context) error { return w.do(ctx, clientv3.OpDelete(w.key(), w.previous()...)) }},
		{"delete range", 8, func(ctx context.Context) error { return w.do(ctx, w.deleteRange()) }},
		{"txn", 80, func(ctx context.Context) error { return w.do(ctx, w.txn(0)) }},
		{"put and delete at once", 10, func(ctx context.Context) error { return w.do(ctx, w.putAndDelete()) }},
		{"compact", 3, w.compact},
		{"defragment", 1, w.defragment},
	}
}

func (w *Writer) do(ctx context.Context, op clientv3.Op) error {
	return w.doAs(ctx, w.Client(), op)
}

func (w *Writer) doAs(ctx context.Context, client *clientv3.Client, op clientv3.Op) error {
	response, err := client.Do(ctx, op)
	if err != nil {
		return err
	}
	switch {
	case response.Put() != nil:
		w.revision = response.Put().Header.Revision
	case response.Del() != nil:
		w.revision = response.Del().Header.Revision
	case response.Txn() != nil:
		w.revision = response.Txn().Header.Revision
	}
	return nil
}

func (w *Writer) key() string {
	return fmt.Sprintf("%s%02d", prefixes[w.random.IntN(len(prefixes))], w.random.IntN(keysInPrefix))
}

func (w *Writer) value() string {
	value := make([]byte, w.random.IntN(300))
	for i := range value {
		value[i] = byte(w.random.Uint32())
	}
	return string(value)
}

func (w *Writer) chance(percent int) bool { return w.random.IntN(100) < percent }

func (w *Writer) previous() []clientv3.OpOption {
	if w.chance(30) {
		return []clientv3.OpOption{clientv3.WithPrevKV()}
	}
	return nil
}

func (w *Writer) put() clientv3.Op {
	options := w.previous()
	if len(w.leases) > 0 && w.chance(25) {
		options = append(options, clientv3.WithLease(w.leases[w.random.IntN(len(w.leases))]))
	}
	return clientv3.OpPut(w.key(), w.value(), options...)
}

// putAsItIs keeps the value or the lease of the key; a missing key makes it fail.
func (w *Writer) putAsItIs() clientv3.Op {
	if w.chance(50) {
		return clientv3.OpPut(w.key(), "", append(w.previous(), clientv3.WithIgnoreValue())...)
	}
	return clientv3.OpPut(w.key(), w.value(), append(w.previous(), clientv3.WithIgnoreLease())...)
}

func (w *Writer) deleteRange() clientv3.Op {
	switch w.random.IntN(5) {
	case 0:
		return clientv3.OpDelete(prefixes[w.random.IntN(len(prefixes))], append(w.previous(), clientv3.WithPrefix())...)
	case 1:
		return clientv3.OpDelete("c/2", clientv3.WithFromKey())
	default:
		from, to := w.key(), w.key()
		return clientv3.OpDelete(min(from, to), append(w.previous(), clientv3.WithRange(max(from, to)+"\x00"))...)
	}
}

// txn returns a transaction of up to three levels. etcd refuses two puts to one key, which is part of the history too.
func (w *Writer) txn(depth int) clientv3.Op {
	var compares []clientv3.Cmp
	for range w.random.IntN(3) {
		compares = append(compares, w.compare())
	}
	return clientv3.OpTxn(compares, w.ops(depth), w.ops(depth))
}

func (w *Writer) ops(depth int) []clientv3.Op {
	var ops []clientv3.Op
	for range w.random.IntN(4) {
		switch n := w.random.IntN(10); {
		case n < 5:
			ops = append(ops, w.put())
		case n < 6:
			ops = append(ops, clientv3.OpDelete(w.key(), w.previous()...))
		case n < 8:
			ops = append(ops, w.get())
		case n < 9:
			ops = append(ops, w.putAsItIs())
		case depth < 2:
			ops = append(ops, w.txn(depth+1))
		}
	}
	return ops
}

// putAndDelete changes one key twice in one revision, which is possible only with a nested transaction.
func (w *Writer) putAndDelete() clientv3.Op {
	put := w.put()
	first := []clientv3.Op{put, clientv3.OpGet(w.key())}
	then := []clientv3.Op{clientv3.OpDelete(string(put.KeyBytes()), w.previous()...)}
	return clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpTxn(nil, first, nil), clientv3.OpTxn(nil, then, nil)}, nil)
}

// get sometimes requests a revision that does not exist (any more), which makes a whole transaction fail. It does not if there are several
// members older than 3.7: only one of them would fail, and they would differ from then on (etcd #18667).
func (w *Writer) get() clientv3.Op {
	var options []clientv3.OpOption
	agree := len(w.cluster.Members) == 1 || w.cluster.Version == "3.7"
	if agree && w.chance(15) {
		options = append(options, clientv3.WithRev(1+w.random.Int64N(w.revision+3)))
	}
	return clientv3.OpGet(w.key(), options...)
}

func (w *Writer) compare() clientv3.Cmp {
	key := w.key()
	result := []string{"=", "!=", "<", ">"}[w.random.IntN(4)]
	var compare clientv3.Cmp
	switch w.random.IntN(5) {
	case 0:
		compare = clientv3.Compare(clientv3.CreateRevision(key), result, w.random.Int64N(w.revision+1))
	case 1:
		compare = clientv3.Compare(clientv3.ModRevision(key), result, w.random.Int64N(w.revision+1))
	case 2:
		compare = clientv3.Compare(clientv3.Version(key), result, w.random.IntN(3))
	case 3:
		compare = clientv3.Compare(clientv3.Value(key), result, w.value())
	default:
		compare = clientv3.Compare(clientv3.LeaseValue(key), result, 0)
	}
	if w.chance(20) {
		return compare.WithPrefix()
	}
	return compare
}

// compact uses the newest revision, an older one, a compacted one or a future one.
func (w *Writer) compact(ctx context.Context) error {
	if w.revision == 0 {
		return nil
	}
	if w.options.Compacting != nil {
		w.options.Compacting()
	}
	to := w.revision
	if w.chance(60) {
		to = max(1, to-w.random.Int64N(60)+3)
	}
	_, err := w.Client().Compact(ctx, to, clientv3.WithCompactPhysical())
	return err
}

func (w *Writer) defragment(ctx context.Context) error {
	for _, endpoint := range w.cluster.Endpoints() {
		_, err := w.Client().Defragment(ctx, endpoint)
		if err != nil {
			return err
		}
	}
	return nil
}
