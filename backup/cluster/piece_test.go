package cluster_test

import (
	"bytes"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
)

// FuzzDecodePiece compares DecodePiece with protobuf's own decoder. That decoder refuses more messages, because DecodePiece skips some fields.
func FuzzDecodePiece(f *testing.F) {
	for _, m := range []*pb.SnapshotResponse{
		{},
		{RemainingBytes: 1 << 40, Blob: []byte("a piece")},
		{Header: &pb.ResponseHeader{ClusterId: 9, MemberId: 1, Revision: 4}, RemainingBytes: 3, Blob: make([]byte, 300), Version: "3.7"},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0x1a, 0xff}) // a blob that is longer than its message
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want pb.SnapshotResponse
		err := cluster.DecodePiece(data, &got)
		if proto.Unmarshal(data, &want) != nil {
			return
		}
		if err != nil || got.RemainingBytes != want.RemainingBytes || !bytes.Equal(got.Blob, want.Blob) {
			t.Errorf("%d remaining bytes, blob %x, %v; protobuf has %d, %x", got.RemainingBytes, got.Blob, err, want.RemainingBytes, want.Blob)
		}
	})
}
