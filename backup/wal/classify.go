package wal

import (
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
)

// leftOut are the requests that leave the database as it is, and those about the membership, which a restore writes anew.
var leftOut = map[protoreflect.Name]bool{
	"range":          true,
	"authenticate":   true,
	"auth_status":    true,
	"auth_user_get":  true,
	"auth_user_list": true,
	"auth_role_get":  true,
	"auth_role_list": true,

	"cluster_version_set":     true,
	"cluster_member_attr_set": true,
	"downgrade_info_set":      true,
	"downgrade_version_test":  true,
}

// The fields of an InternalRaftRequest that are no requests, and those that need a closer look.
const (
	fieldID       = 1
	fieldV2       = 2 // etcd before 3.6
	fieldHeader   = 100
	fieldUserAdd  = 1100
	fieldPassword = 1103 // AuthUserChangePassword
)

var raftRequest = (&pb.InternalRaftRequest{}).ProtoReflect().Descriptor()

// classify says of a committed entry if it is a request that changes the database. An entry that this version does not
// understand to the last field is an error: what a newer server writes must not be lost silently.
func classify(it item) (request bool, err error) {
	switch it.kind {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		return false, nil
	case raftpb.EntryNormal:
		request, err = changes(it.data)
	default:
		err = fmt.Errorf("raft has no such type of entry: %d", it.kind)
	}
	if err != nil {
		err = fmt.Errorf("%w at position %d: %w; a newer version of dr may know it", ErrUnknown, it.index, err)
	}
	return request, err
}

// changes says that data is one known request, and that it changes the database.
func changes(data []byte) (bool, error) {
	if len(data) == 0 { // each leader begins its term with one
		return false, nil
	}
	if r, ok := parseV2(data); ok {
		return false, r.check()
	}
	var name protoreflect.Name
	var body []byte
	err := eachField(data, func(number protowire.Number, kind protowire.Type, value []byte) error {
		if number == fieldID || number == fieldHeader {
			return checkField(raftRequest, number, kind, value)
		}
		if name != "" {
			return fmt.Errorf("field %d is a second request beside %s", number, name)
		}
		if number == fieldV2 {
			name = "v2"
			return checkWrappedV2(kind, value)
		}
		if err := checkField(raftRequest, number, kind, value); err != nil {
			return err
		}
		name, body = raftRequest.Fields().ByNumber(number).Name(), value
		return nil
	})
	switch {
	case err != nil:
		return false, err
	case name == "":
		return false, errors.New("it holds no request")
	case name == "alarm":
		var alarm pb.AlarmRequest
		err := proto.Unmarshal(body, &alarm)
		return alarm.GetAction() != pb.AlarmRequest_GET, err
	}
	return name != "v2" && !leftOut[name], nil
}

// checkField finds fields that the message of a descriptor has not got, at any depth.
func checkField(in protoreflect.MessageDescriptor, number protowire.Number, kind protowire.Type, value []byte) error {
	field := in.Fields().ByNumber(number)
	if field == nil {
		return fmt.Errorf("%s has no field %d", in.Name(), number)
	}
	want := wireType(field.Kind())
	packed := field.IsList() && kind == protowire.BytesType && want != protowire.BytesType
	if kind != want && !packed {
		return fmt.Errorf("field %d of %s has wire type %d", number, in.Name(), kind)
	}
	if field.Message() == nil {
		return nil
	}
	return eachField(value, func(number protowire.Number, kind protowire.Type, value []byte) error {
		return checkField(field.Message(), number, kind, value)
	})
}

// wireType is how proto3 writes a field of a kind.
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

// eachField calls do for each field of a message. The value of what has a length is without it.
func eachField(message []byte, do func(number protowire.Number, kind protowire.Type, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("it is no message: %w", protowire.ParseError(n))
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(number, kind, message)
		if n < 0 {
			return fmt.Errorf("it is no message, at field %d: %w", number, protowire.ParseError(n))
		}
		value := message[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if err := do(number, kind, value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// HoldsPassword says that a request holds a user's password in plain text, as servers before 3.5 write it into their log.
// Newer ones write its hash. It is for requests that Take returned.
func HoldsPassword(data []byte) bool {
	const password = 2 // in both
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
	}) // what Take returned can be read
	return found
}

// v2Request is what is left of etcd's first interface: servers before 3.6 still tell each other their names and the
// cluster's version by it. Later libraries have no type for it (3.5: api/etcdserverpb/etcdserver.proto, Request).
type v2Request struct {
	method, path string
}

// attributesPath is where a member's name and client URLs are (3.5: etcdserver/api/membership/store.go).
var attributesPath = regexp.MustCompile(`^/0/members/[0-9a-f]+/attributes$`)

// check accepts what is about the membership. Anything else changes data of which a snapshot knows nothing.
func (r v2Request) check() error {
	if r.method == "PUT" && (r.path == "/0/version" || attributesPath.MatchString(r.path)) {
		return nil
	}
	return fmt.Errorf("v2 request %s %s: data of etcd's v2 interface cannot be archived", r.method, r.path)
}

// parseV2 tells a bare v2 request from an InternalRaftRequest: it always has the fields 2 and 3, method and path, and the
// other one never both.
func parseV2(data []byte) (r v2Request, ok bool) {
	const method, path, value, previous, last = 2, 3, 4, 6, 17
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
