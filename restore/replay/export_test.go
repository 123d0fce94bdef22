package replay

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ApplyWithStore does what Apply does, but with etcd's own store from the beginning to the end.
func ApplyWithStore(ctx context.Context, db string, log Log, o Options) (At, error) {
	m, err := open(db, log.Source)
	if err != nil {
		return At{}, err
	}
	m.useStore()
	m.onlyStore = true
	return m.replay(ctx, log, o)
}

// Meet exports meet.
func (k Keys) Meet(other Keys) bool { return k.meet(other) }

// DecodeChange returns the ops of a decoded change, or reports that it is a lease's grant.
func DecodeChange(data []byte) (ops []*pb.RequestOp, grant bool, err error) {
	r, err := decodeChange(data)
	if err != nil {
		return nil, false, err
	}
	return opsOf(r), r.LeaseGrant != nil, nil
}

// Decode exports decode.
func Decode(data []byte) (*pb.InternalRaftRequest, error) { return decode(data) }

// Direct exports direct.
func Direct(r *pb.InternalRaftRequest) bool { return direct(r) }
