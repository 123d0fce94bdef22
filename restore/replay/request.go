package replay

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The fields of an InternalRaftRequest that do not carry a request.
const (
	fieldID     = protowire.Number(1)
	fieldHeader = protowire.Number(100)
)

var requestMessage = (&pb.InternalRaftRequest{}).ProtoReflect().Descriptor()

// decode decodes a request. It refuses a request with any unknown part: such a request of a newer server would silently be
// applied only in part, or not at all.
func decode(data []byte) (*pb.InternalRaftRequest, error) {
	r := &pb.InternalRaftRequest{}
	err := proto.Unmarshal(data, r) // first: it limits the depth, so that allKnown need not
	if err == nil {
		err = allKnown(data, requestMessage)
	}
	if err == nil {
		err = onlyOne(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return r, nil
}

// onlyOne checks that exactly one of the outermost fields carries a request.
func onlyOne(data []byte) error {
	requests := 0
	for len(data) > 0 {
		number, _, n := protowire.ConsumeField(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if number != fieldID && number != fieldHeader {
			requests++
		}
	}
	if requests != 1 {
		return fmt.Errorf("it contains %d requests instead of one", requests)
	}
	return nil
}

// allKnown returns an error if data, an encoded message of the given type, contains an unknown field or an unknown value of an
// enumeration, at any depth. Reflection on the decoded message would find the same, but takes longer than decoding it.
func allKnown(data []byte, message protoreflect.MessageDescriptor) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, kind, data)
		if size < 0 {
			return protowire.ParseError(size)
		}
		field := message.Fields().ByNumber(number)
		if field == nil || kind != encodingOf(field) {
			return fmt.Errorf("field %[2]d of %[1]s is unknown, or has an unknown encoding: use a newer version of dr", message.Name(), number)
		}
		err := valueKnown(data[:size], field)
		if err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}

// encodingOf returns the wire type of a field. It covers only the kinds that occur in requests: no numbers of fixed size, no
// packed lists, no groups and no maps.
func encodingOf(field protoreflect.FieldDescriptor) protowire.Type {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.BytesKind, protoreflect.StringKind:
		return protowire.BytesType
	}
	return protowire.VarintType
}

// valueKnown returns an error if the encoded value of a field contains something unknown, as allKnown does.
func valueKnown(value []byte, field protoreflect.FieldDescriptor) error {
	switch field.Kind() {
	case protoreflect.MessageKind:
		inner, _ := protowire.ConsumeBytes(value)
		return allKnown(inner, field.Message())
	case protoreflect.EnumKind:
		number, _ := protowire.ConsumeVarint(value)
		if field.Enum().Values().ByNumber(protoreflect.EnumNumber(number)) == nil {
			return fmt.Errorf("its %s has the value %d, which this dr does not know: use a newer version of dr if the cluster runs a newer etcd, else a backup after this request", field.FullName(), protoreflect.EnumNumber(number))
		}
	}
	return nil
}
