package replay

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// decode reads a request and refuses what it does not know in every part: a newer server's request would otherwise be
// applied in half, or not at all, and nothing would tell.
func decode(data []byte) (*pb.InternalRaftRequest, error) {
	if err := onlyOne(data); err != nil {
		return nil, err
	}
	r := &pb.InternalRaftRequest{}
	if err := proto.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if r.Put != nil { // most are, and they have nothing within them
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

// The fields of an InternalRaftRequest that are not what it asks for.
const (
	fieldID     = protowire.Number(1)
	fieldHeader = protowire.Number(100)
)

var requestFields = (&pb.InternalRaftRequest{}).ProtoReflect().Descriptor().Fields()

// onlyOne looks at the outermost fields: there must be one that asks for something.
func onlyOne(data []byte) error {
	asks := 0
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
		asks++
	}
	if asks != 1 {
		return fmt.Errorf("%w: it asks for %d things, not one", ErrRequest, asks)
	}
	return nil
}

func nothingUnknown(m protoreflect.Message) error {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		return fmt.Errorf("%w: its %s has a field %d: a newer etcd-dr may know it", ErrRequest, m.Descriptor().Name(), number)
	}
	return nil
}

// allKnown looks for fields and values of enumerations that are not known, however deep.
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
		if err := allKnown(value.List().Get(i).Message()); err != nil {
			return err
		}
	}
	return nil
}
