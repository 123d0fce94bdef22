package wal

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
)

// ChangesNothing reports whether r leaves the database as it is: reads, logins (their tokens exist only in a member's memory),
// and changes of the membership, which a restore replaces.
func ChangesNothing(r *pb.InternalRaftRequest) bool {
	return r.Range != nil || r.AuthStatus != nil || r.AuthUserGet != nil || r.AuthUserList != nil ||
		r.AuthRoleGet != nil || r.AuthRoleList != nil || r.Authenticate != nil ||
		r.ClusterVersionSet != nil || r.ClusterMemberAttrSet != nil || r.DowngradeInfoSet != nil ||
		r.DowngradeVersionTest != nil
}

// The fields of an InternalRaftRequest that are not requests, and those with special rules.
const (
	fieldID       = 1
	fieldV2       = 2 // etcd before 3.6
	fieldHeader   = 100
	fieldUserAdd  = 1100
	fieldPassword = 1103 // AuthUserChangePassword
)

var raftRequest = (&pb.InternalRaftRequest{}).ProtoReflect().Descriptor()

// leftOut returns the names of all kinds of requests, with whether each changes nothing, so that it is left out of segments.
var leftOut = sync.OnceValue(func() map[protoreflect.Name]bool {
	out := map[protoreflect.Name]bool{}
	for i := range raftRequest.Fields().Len() {
		field := raftRequest.Fields().Get(i)
		if field.Message() == nil {
			continue
		}
		r := &pb.InternalRaftRequest{}
		r.ProtoReflect().Mutable(field)
		out[field.Name()] = ChangesNothing(r)
	}
	return out
})

// classify reports whether a committed entry is a request that changes the database. It returns an error unless this
// version knows every field of the entry: a newer server's request must not be lost silently.
//
// unusable is why a replay refuses a request that changes the database, although all its fields are known; nil: it does not.
// Clients can send such values: etcd ignores an unknown number of an enumeration, and before 3.7 it accepted strings of any bytes.
func classify(it item) (request bool, unusable, err error) {
	var c checker
	switch it.kind {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		return false, nil, nil
	case raftpb.EntryNormal:
		request, err = c.changesDatabase(it.data)
	default:
		err = fmt.Errorf("unknown type of raft entry: %d", it.kind)
	}
	if err != nil {
		return false, nil, fmt.Errorf("%w at position %d: %w; a newer version of dr may know it", ErrEntry, it.index, err)
	}
	if !request {
		return false, nil, nil
	}
	return true, c.unusable, nil
}

// checker checks the fields of one entry.
type checker struct{ unusable error } // the first value that a replay refuses; nil: there is none

// changesDatabase reports whether data is a request that changes the database. It returns an error unless data is
// exactly one known request.
func (c *checker) changesDatabase(data []byte) (bool, error) {
	if len(data) == 0 { // each leader begins its term with an empty entry
		return false, nil
	}
	r, ok := parseV2(data)
	if ok {
		return false, r.check()
	}
	var name protoreflect.Name
	var body []byte
	err := eachField(data, func(number protowire.Number, kind protowire.Type, value []byte) error {
		if number == fieldID || number == fieldHeader {
			return c.field(raftRequest, number, kind, value)
		}
		if name != "" {
			return fmt.Errorf("field %d is a second request next to %s", number, name)
		}
		if number == fieldV2 {
			name = "v2"
			return checkWrappedV2(kind, value)
		}
		err := c.field(raftRequest, number, kind, value)
		if err != nil {
			return err
		}
		name, body = raftRequest.Fields().ByNumber(number).Name(), value
		return nil
	})
	switch {
	case err != nil:
		return false, err
	case name == "":
		return false, errors.New("it contains no request")
	case name == "alarm":
		var alarm pb.AlarmRequest
		err := proto.Unmarshal(body, &alarm)
		return alarm.GetAction() != pb.AlarmRequest_GET, err
	}
	return name != "v2" && !leftOut()[name], nil
}

// field returns an error if a field, at any depth, is not in the message's descriptor.
func (c *checker) field(in protoreflect.MessageDescriptor, number protowire.Number, kind protowire.Type, value []byte) error {
	field := in.Fields().ByNumber(number)
	if field == nil {
		return fmt.Errorf("%s has no field %d", in.Name(), number)
	}
	want := wireType(field.Kind())
	packed := field.IsList() && kind == protowire.BytesType && want != protowire.BytesType
	if kind != want && !packed {
		return fmt.Errorf("field %d of %s has wire type %d", number, in.Name(), kind)
	}
	if c.unusable == nil {
		c.unusable = refusedValue(field, value)
	}
	if field.Message() == nil {
		return nil
	}
	return eachField(value, func(number protowire.Number, kind protowire.Type, value []byte) error {
		return c.field(field.Message(), number, kind, value)
	})
}

// refusedValue returns an error if a replay refuses the value: an unknown number of an enumeration, or a string that is not UTF-8.
func refusedValue(field protoreflect.FieldDescriptor, value []byte) error {
	switch field.Kind() {
	case protoreflect.EnumKind:
		n, _ := protowire.ConsumeVarint(value)
		if !field.IsList() && field.Enum().Values().ByNumber(protoreflect.EnumNumber(n)) == nil {
			return fmt.Errorf("its %s is %d, which this version does not know", field.FullName(), n)
		}
	case protoreflect.StringKind:
		if !utf8.Valid(value) {
			return fmt.Errorf("its %s is not valid UTF-8", field.FullName())
		}
	}
	return nil
}

// isUnusable reports whether a replay refuses the request in an entry.
func isUnusable(it item) bool {
	_, unusable, _ := classify(it)
	return unusable != nil
}

// wireType returns the wire type of a field in proto3.
func wireType(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	default:
		return protowire.VarintType
	}
}

// eachField calls do for each field of a message. The value of a field with a length does not include the length.
func eachField(message []byte, do func(number protowire.Number, kind protowire.Type, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("it is not a protobuf message: %w", protowire.ParseError(n))
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(number, kind, message)
		if n < 0 {
			return fmt.Errorf("it is not a protobuf message, at field %d: %w", number, protowire.ParseError(n))
		}
		value := message[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		err := do(number, kind, value)
		if err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// HoldsPassword reports whether a request contains a user's password in plain text, as servers before 3.5 write it.
// Newer servers write its hash. data must be a request from Take.
func HoldsPassword(data []byte) bool {
	const password = 2 // the field's number in both requests
	found := false
	scan := func(number protowire.Number, _ protowire.Type, value []byte) error {
		if number == password {
			found = found || len(value) > 0
		}
		return nil
	}
	_ = eachField(data, func(number protowire.Number, kind protowire.Type, value []byte) error {
		if (number == fieldUserAdd || number == fieldPassword) && kind == protowire.BytesType {
			return eachField(value, scan)
		}
		return nil
	}) // requests from Take are well-formed
	return found
}

// v2Request is a request of etcd's first interface. Servers before 3.6 still publish their names and the cluster's
// version with it. Later libraries have no type for it (3.5: api/etcdserverpb/etcdserver.proto, Request).
type v2Request struct {
	method, path string
}

// attributesPath is the path of a member's name and client URLs (3.5: etcdserver/api/membership/store.go).
var attributesPath = regexp.MustCompile(`^/0/members/[0-9a-f]+/attributes$`)

// check accepts requests about the membership. All others change data that a snapshot does not contain.
func (r v2Request) check() error {
	if r.method == "PUT" && (r.path == "/0/version" || attributesPath.MatchString(r.path)) {
		return nil
	}
	return fmt.Errorf("v2 request %s %s: data of etcd's v2 interface cannot be archived", r.method, r.path)
}

// parseV2 parses a bare v2 request, and reports false for an InternalRaftRequest: a v2 request always has the fields 2
// and 3, method and path, and an InternalRaftRequest never has both.
func parseV2(data []byte) (r v2Request, ok bool) {
	const method, path, value, previous, last = 2, 3, 4, 6, 17 // field numbers
	var hasMethod, hasPath bool
	err := eachField(data, func(number protowire.Number, kind protowire.Type, content []byte) error {
		want := protowire.VarintType
		switch number {
		case method:
			r.method, hasMethod, want = string(content), true, protowire.BytesType
		case path:
			r.path, hasPath, want = string(content), true, protowire.BytesType
		case value, previous:
			want = protowire.BytesType
		}
		if kind != want || number > last {
			return errors.New("no v2 request")
		}
		return nil
	})
	return r, err == nil && hasMethod && hasPath
}

func checkWrappedV2(kind protowire.Type, value []byte) error {
	r, ok := parseV2(value)
	if kind != protowire.BytesType || !ok {
		return fmt.Errorf("field %d is no v2 request", fieldV2)
	}
	return r.check()
}
