package cluster

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// pieceCodec decodes the messages of one snapshot stream. The Blob of a message is valid only until the next message is received, because it
// is in the codec's buffer. Header and Version are not decoded. gRPC's own codec copies the content of each message twice and clears a buffer
// of 1 MiB for it, which is a third of the work of receiving a snapshot.
type pieceCodec struct {
	encoding.CodecV2
	lent mem.Buffer // of the message before; nil: there was none
}

func newPieceCodec() *pieceCodec { return &pieceCodec{CodecV2: encoding.GetCodecV2(proto.Name)} }

// Name implements encoding.CodecV2. It is empty, so that the request has the usual content type: gRPC would add "proto" to it, which a proxy
// may not know.
func (*pieceCodec) Name() string { return "" }

// pieceBuffer is the size of a buffer for one message: a Blob of 32 KiB (etcd, v3rpc/maintenance.go, snapshotSendBufferSize), and the rest.
const pieceBuffer = 33 << 10

var pieceBuffers = mem.NewTieredBufferPool(pieceBuffer)

// Unmarshal implements encoding.CodecV2. It must not be called concurrently; gRPC does not do so for one stream.
func (c *pieceCodec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*pb.SnapshotResponse)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if c.lent != nil {
		c.lent.Free()
	}
	c.lent = data.MaterializeToBuffer(pieceBuffers)
	return decodePiece(c.lent.ReadOnlyData(), message)
}

// Fields of a SnapshotResponse (etcd, rpc.proto).
const (
	fieldRemaining = 2
	fieldBlob      = 3
)

// decodePiece sets RemainingBytes and Blob. Blob is a part of data.
func decodePiece(data []byte, message *pb.SnapshotResponse) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("malformed message of a snapshot: %w", protowire.ParseError(n))
		}
		data = data[n:]
		switch {
		case field == fieldRemaining && kind == protowire.VarintType:
			message.RemainingBytes, n = protowire.ConsumeVarint(data)
		case field == fieldBlob && kind == protowire.BytesType:
			message.Blob, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 {
			return fmt.Errorf("malformed message of a snapshot: %w", protowire.ParseError(n))
		}
		data = data[n:]
	}
	return nil
}
