package replay_test

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/etcd-dr/etcd-dr/restore/replay"
)

// A request is accepted if and only if it is one request, and protobuf knows all of it.
func FuzzRequest(f *testing.F) {
	random := newGuess(1, 4, 8, 100)
	for range 40 {
		f.Add(request(f, 1, 1, random.request()).Data)
	}
	for _, data := range [][]byte{
		field(4, append(field(1, []byte("key")), field(99, nil)...)),
		{0x0a, 0x00}, // the id with another wire type
		field(6, field(1, []byte{0x10, 0x80, 0x80, 0x80, 0x80, 0x10})), // a target of more than 32 bits
		field(6, field(2, append(field(3, []byte("put")), field(2, nil)...))),
		{0x23, 0x24}, // a group
	} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := replay.Decode(data)
		whole := &pb.InternalRaftRequest{}
		unknown := "all"
		if proto.Unmarshal(data, whole) == nil {
			unknown = unknownPart(whole)
		}
		if err == nil && (unknown != "" || !proto.Equal(r, whole)) {
			t.Errorf("accepted %q, of which %s is unknown", data, unknown)
		}
		// A repeated field can hide an unknown part from protobuf, so only a request that is encoded anew must be accepted.
		again, _ := proto.Marshal(whole)
		_, err = replay.Decode(again)
		if unknown == "" && (err == nil) != (requests(whole) == 1) {
			t.Errorf("%q holds %d requests: %v", again, requests(whole), err)
		}
	})
}

// requests returns the number of requests in r.
func requests(r *pb.InternalRaftRequest) (n int) {
	r.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if field.Message() != nil && field.Name() != "header" {
			n++
		}
		return true
	})
	return n
}

// unknownPart returns the path to an unknown field or value in m; "" if there is none.
func unknownPart(m proto.Message) (path string) {
	err := protorange.Range(m.ProtoReflect(), func(at protopath.Values) error {
		last := at.Index(-1)
		if last.Step.Kind() == protopath.UnknownAccessStep {
			path = at.Path.String()
		}
		if last.Step.Kind() == protopath.FieldAccessStep {
			field := last.Step.FieldDescriptor()
			if field.Enum() != nil && !field.IsList() && field.Enum().Values().ByNumber(last.Value.Enum()) == nil {
				path = at.Path.String()
			}
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return path
}
