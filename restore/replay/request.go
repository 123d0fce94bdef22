package replay

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// decode decodes a request. It refuses a request with any unknown part: such a request of a newer server would silently be
// applied only in part, or not at all.
func decode(data []byte) (*pb.InternalRaftRequest, error) {
	err := onlyOne(data)
	if err != nil {
		return nil, err
	}
	r := &pb.InternalRaftRequest{}
	err = proto.Unmarshal(data, r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if r.Put != nil { // a shortcut for most requests: a put contains no other messages
		return r, errFirst(nothingUnknown(r.Put.ProtoReflect()), nothingUnknown(r.Header.ProtoReflect()))
	}
	return r, allKnown(r.ProtoReflect())
}

func errFirst(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// The fields of an InternalRaftRequest that do not carry a request.
const (
	fieldID     = protowire.Number(1)
	fieldHeader = protowire.Number(100)
)

var requestFields = (&pb.InternalRaftRequest{}).ProtoReflect().Descriptor().Fields()

// onlyOne checks that exactly one of the outermost fields carries a request, and that none is unknown.
func onlyOne(data []byte) error {
	requests := 0
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrRequest, protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(number, kind, data[n:])
		if m < 0 {
			return fmt.Errorf("%w: %w", ErrRequest, protowire.ParseError(m))
		}
		data = data[n+m:]
		if number == fieldID || number == fieldHeader {
			continue
		}
		if requestFields.ByNumber(number) == nil {
			return fmt.Errorf("%w: it has a field %d: a newer etcd-dr may know it", ErrRequest, number)
		}
		requests++
	}
	if requests != 1 {
		return fmt.Errorf("%w: it asks for %d things, not one", ErrRequest, requests)
	}
	return nil
}

// nothingUnknown returns an error if m itself contains an unknown field. It does not look into the messages in m.
func nothingUnknown(m protoreflect.Message) error {
	unknown := m.GetUnknown()
	if len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		return fmt.Errorf("%w: its %s has a field %d: a newer etcd-dr may know it", ErrRequest, m.Descriptor().Name(), number)
	}
	return nil
}

// allKnown returns an error if m contains an unknown field or an unknown value of an enumeration, at any depth.
func allKnown(m protoreflect.Message) error {
	err := nothingUnknown(m)
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if err == nil {
			err = fieldKnown(field, value)
		}
		return err == nil
	})
	return err
}

func fieldKnown(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	if field.Kind() == protoreflect.EnumKind {
		if !field.IsList() && field.Enum().Values().ByNumber(value.Enum()) == nil {
			return fmt.Errorf("%w: its %s is %d: a newer etcd-dr may know it", ErrRequest, field.FullName(), value.Enum())
		}
		return nil
	}
	if field.Kind() != protoreflect.MessageKind {
		return nil
	}
	if !field.IsList() {
		return allKnown(value.Message())
	}
	for i := range value.List().Len() {
		err := allKnown(value.List().Get(i).Message())
		if err != nil {
			return err
		}
	}
	return nil
}
