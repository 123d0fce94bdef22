package replay_test

import (
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/database"
)

const smallBase = 100_000

func request(t testing.TB, position, term uint64, r *pb.InternalRaftRequest) segment.Record {
	t.Helper()
	data, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return segment.Record{Kind: segment.Request, Position: position, Term: term, Data: data}
}

func put(t testing.TB, position, term uint64) segment.Record {
	t.Helper()
	return request(t, position, term, &pb.InternalRaftRequest{
		Header: &pb.RequestHeader{ID: position}, Put: &pb.PutRequest{Key: []byte("key"), Value: []byte("value")},
	})
}

func raw(position uint64, data []byte) segment.Record {
	return segment.Record{Kind: segment.Request, Position: position, Term: 1, Data: data}
}

// field returns an encoded field as a newer version might write it.
func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// Data that is not exactly one known request is an error; nothing after it is applied.
func TestUnknownRequests(t *testing.T) {
	base := makeBase(t, smallBase)
	known := put(t, 2, 1)
	compare := &pb.Compare{Key: []byte("a"), Target: 77}
	nested := &pb.TxnRequest{Compare: []*pb.Compare{compare}}
	deep, err := proto.Marshal(&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	deep = append(deep, field(2, field(4, field(9, nil)))...)
	for name, record := range map[string]segment.Record{
		"empty":                   raw(3, nil),
		"no protobuf":             raw(3, []byte("\xff\xff")),
		"cut off":                 raw(3, known.Data[:len(known.Data)-1]),
		"a header alone":          request(t, 3, 1, &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 1}}),
		"an unknown request":      raw(3, append(field(100, nil), field(1400, nil)...)),
		"beside a known one":      raw(3, append(slices.Clone(known.Data), field(1400, nil)...)),
		"two requests":            raw(3, append(slices.Clone(known.Data), field(5, field(1, []byte("x")))...)),
		"the same twice":          raw(3, append(slices.Clone(known.Data), known.Data...)),
		"a put with a new field":  raw(3, field(4, append(field(1, []byte("key")), field(99, nil)...))),
		"a new header":            raw(3, append(slices.Clone(known.Data), field(100, field(99, nil))...)),
		"a compare of a new kind": request(t, 3, 1, &pb.InternalRaftRequest{Txn: nested}),
		"a new field deep within": raw(3, field(6, deep)),
		"a request of version 2":  raw(3, field(2, field(2, []byte("PUT")))),
		"a record of a new kind":  {Kind: 99, Position: 3},
	} {
		t.Run(name, func(t *testing.T) {
			db := copyOf(t, base)
			at, err := replay.Apply(t.Context(), db, fromWAL(inSegments([]segment.Record{known, record, put(t, 4, 1)})), replay.Options{})
			if !errors.Is(err, replay.ErrRequest) {
				t.Fatalf("got %v, want ErrRequest", err)
			}
			position, _, placeErr := database.Place(db)
			if at.Position != 2 || position != 2 || placeErr != nil {
				t.Errorf("got %+v, the database at %d, %v", at, position, placeErr)
			}
			stops(t, 2, err)
			stops(t, 2, replay.Check(t.Context(), fromWAL(inSegments([]segment.Record{known, record, put(t, 4, 1)}))))
		})
	}
}

func TestRecordsThatDoNotFit(t *testing.T) {
	base := makeBase(t, smallBase)
	for name, records := range map[string][]segment.Record{
		"a position twice":             {put(t, 2, 1), put(t, 2, 1)},
		"a position that goes back":    {put(t, 4, 1), put(t, 3, 1)},
		"a term that falls":            {put(t, 2, 2), put(t, 3, 1)},
		"a term before the database's": {put(t, 2, 0)},
		"another term at its place":    {put(t, 1, 2), put(t, 2, 2)},
		"a mark that comes late":       {put(t, 2, 1), put(t, 3, 1), {Kind: segment.RevisionMark, Position: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := replay.Apply(t.Context(), copyOf(t, base), fromWAL(inSegments(records)), replay.Options{})
			if !errors.Is(err, replay.ErrForeign) {
				t.Errorf("got %v, want ErrForeign", err)
			}
		})
	}
	t.Run("an error of the log", func(t *testing.T) {
		broken := errors.New("the object is gone")
		var records iter.Seq2[segment.Record, error] = func(yield func(segment.Record, error) bool) {
			_ = yield(put(t, 2, 1), nil) && yield(segment.Record{}, broken)
		}
		at, err := replay.Apply(t.Context(), copyOf(t, base), fromWAL(records), replay.Options{})
		if !errors.Is(err, broken) || at.Position != 2 {
			t.Errorf("got %+v, %v", at, err)
		}
	})
}

func TestMarks(t *testing.T) {
	base := makeBase(t, smallBase)
	start := apply(t, copyOf(t, base), inSegments(nil), replay.Stop{})
	image, hash, err := database.Newest(copyOf(t, base))
	if err != nil || image.Revision != start.Revision {
		t.Fatal(start, image.Revision, err)
	}
	revision := func(position uint64, revision int64) segment.Record {
		return segment.Record{Kind: segment.RevisionMark, Position: position, Revision: start.Revision + revision}
	}
	hashed := func(position uint64, hash uint32, compact int64) segment.Record {
		return segment.Record{Kind: segment.HashMark, Position: position, Revision: start.Revision, Hash: hash, CompactRevision: compact}
	}
	requests := []segment.Record{put(t, 2, 1), put(t, 5, 1), put(t, 9, 2)}
	for _, test := range []struct {
		name   string
		marks  []segment.Record
		stop   replay.Stop
		marked uint64
		proven int64
		bad    uint64 // the position of the mark that does not match
		last   uint64
	}{
		{name: "all hold", marks: []segment.Record{revision(1, 0), revision(4, 1), revision(7, 2), revision(12, 3)}, marked: 12},
		{name: "before the base", marks: []segment.Record{revision(0, 77), revision(2, 1)}, marked: 2},
		{name: "in no order", marks: []segment.Record{revision(7, 2), revision(4, 1), revision(5, 2)}, marked: 7},
		{name: "one does not", marks: []segment.Record{revision(4, 1), revision(7, 3)}, marked: 4, bad: 7, last: 4},
		{name: "the first does not", marks: []segment.Record{revision(1, 3)}, bad: 1},
		{name: "behind the stop", marks: []segment.Record{revision(5, 2), revision(8, 77)}, stop: replay.Stop{Position: 5}, marked: 5},
		{name: "at the stop", marks: []segment.Record{revision(5, 77)}, stop: replay.Stop{Position: 5}, bad: 5},
		{name: "at the stop's revision", marks: []segment.Record{revision(5, 77)}, stop: replay.Stop{Revision: start.Revision + 2}, bad: 5},
		{name: "a hash", marks: []segment.Record{hashed(6, hash.Hash, -1)}, proven: start.Revision},
		{name: "of another compaction", marks: []segment.Record{hashed(6, hash.Hash+1, 5)}},
		{name: "a wrong hash", marks: []segment.Record{revision(2, 1), hashed(6, hash.Hash+1, -1)}, marked: 2, bad: 6, last: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			at, err := replay.Apply(t.Context(), copyOf(t, base), fromWAL(inSegments(test.marks, requests)), replay.Options{Stop: test.stop})
			if at.Marked != test.marked || at.Proven != test.proven {
				t.Errorf("got %+v, want marked %d, proven %d", at, test.marked, test.proven)
			}
			var mismatch *replay.MismatchError
			if errors.As(err, &mismatch) != (test.bad != 0) || err != nil && mismatch == nil {
				t.Fatalf("got %v", err)
			}
			if mismatch != nil && (mismatch.Position != test.bad || mismatch.Last.Marked != test.last) {
				t.Errorf("got %v, %+v", mismatch, mismatch.Last)
			}
		})
	}
}

func TestStop(t *testing.T) {
	base := makeBase(t, smallBase)
	start := apply(t, copyOf(t, base), inSegments(nil), replay.Stop{})
	requests := []segment.Record{put(t, 2, 1), request(t, 4, 1, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 1 << 40}}), put(t, 5, 1)}
	for _, test := range []struct {
		stop     replay.Stop
		position uint64
		stopped  bool
	}{
		{replay.Stop{}, 5, false},
		{replay.Stop{Position: 1}, 1, true},
		{replay.Stop{Position: 2}, 2, true},
		{replay.Stop{Position: 3}, 2, true},
		{replay.Stop{Position: 4}, 4, true},
		{replay.Stop{Position: 9}, 5, false},
		{replay.Stop{Revision: start.Revision}, 1, true},
		{replay.Stop{Revision: start.Revision + 1}, 2, true},
		{replay.Stop{Revision: start.Revision + 2}, 5, true},
		{replay.Stop{Revision: start.Revision + 3}, 5, false},
	} {
		db := copyOf(t, base)
		at := apply(t, db, inSegments(requests), test.stop)
		if at.Position != test.position || at.Stopped != test.stopped {
			t.Errorf("stop %+v: got %+v, want position %d, stopped %v", test.stop, at, test.position, test.stopped)
		}
		position, _, err := database.Place(db)
		if position != test.position || err != nil {
			t.Errorf("stop %+v: the database is at %d, %v", test.stop, position, err)
		}
	}
	for _, past := range []replay.Stop{{Revision: start.Revision - 1}, {Position: 1, Revision: 1}} {
		_, err := replay.Apply(t.Context(), copyOf(t, base), fromWAL(inSegments(requests)), replay.Options{Stop: past})
		if !errors.Is(err, replay.ErrPast) {
			t.Errorf("stop %+v: got %v, want ErrPast", past, err)
		}
	}
}

// A run that is interrupted anywhere and repeated leaves the same database as one run; a further run changes nothing.
func TestInterruptedRuns(t *testing.T) {
	const count = 20_000
	base := makeBase(t, smallBase)
	whole := copyOf(t, base)
	want := apply(t, whole, puts(t, count), replay.Stop{})
	db := copyOf(t, base)
	for cut := 1000; cut < count; cut += 4000 {
		ctx, cancel := context.WithCancel(t.Context())
		at, err := replay.Apply(ctx, db, fromWAL(func(yield func(segment.Record, error) bool) {
			n := 0
			for record := range puts(t, count) {
				n++
				if n == cut {
					cancel()
				}
				if !yield(record, nil) {
					return
				}
			}
		}), replay.Options{})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %+v, %v", at, err)
		}
		position, _, err := database.Place(db)
		if position != at.Position || err != nil {
			t.Fatalf("the database is at %d, %v; want %+v", position, err, at)
		}
	}
	at := apply(t, db, puts(t, count), replay.Stop{})
	if at.Keys == 0 || at.Keys != want.Keys {
		t.Errorf("%d keys, want %d", at.Keys, want.Keys)
	}
	if at.Revision != want.Revision || at.Position != want.Position {
		t.Errorf("got %+v, want %+v", at, want)
	}
	same(t, "after the interruptions", whole, db, database.Exempt{})
	at = apply(t, db, puts(t, count), replay.Stop{})
	if at.Requests != 0 {
		t.Errorf("a repeated run applied %d requests", at.Requests)
	}
	same(t, "after one run more", whole, db, database.Exempt{})
}

func TestProgressIsReported(t *testing.T) {
	var events []storage.Event
	_, err := replay.Apply(t.Context(), makeBase(t, smallBase), fromWAL(puts(t, 2000)), replay.Options{Report: func(e storage.Event) { events = append(events, e) }})
	if err != nil || len(events) == 0 || events[0].Stage != "replay" || events[0].Message == "" {
		t.Errorf("got %v, %v", events, err)
	}
}

// etcd 3.4 writes its position with the first key. Until then its database is at the beginning of any log.
func TestEmptyDatabaseOf34(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	err := database.Write(path, func(backend.Backend, mvcc.KV) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	records := []segment.Record{
		request(t, 3, 2, &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 1}, LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 100}}),
		put(t, 4, 2), put(t, 6, 3),
	}
	at, err := replay.Apply(t.Context(), path, fromWAL(inSegments(records)), replay.Options{})
	if err != nil || at.Position != 6 || at.Revision != 3 || at.Requests != 3 || at.Keys != 1 {
		t.Errorf("at %+v, %v", at, err)
	}
	position, term, err := database.Place(path)
	if position != 6 || term != 3 || err != nil {
		t.Errorf("its place is %d, term %d, %v", position, term, err)
	}
}

func TestNoMembersDatabase(t *testing.T) {
	path := makeBase(t, smallBase)
	update(t, path, func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Delete([]byte("consistent_index")) })
	_, err := replay.Apply(t.Context(), path, fromWAL(puts(t, 1)), replay.Options{})
	if !errors.Is(err, replay.ErrForeign) {
		t.Errorf("a database with keys and without a place in any log: %v", err)
	}
	at := behind(t, path) // a watch counts revisions
	_, err = replay.Apply(t.Context(), path, fromWatch([]segment.Record{at.put(1, "key")}), replay.Options{})
	if err != nil {
		t.Error(err)
	}
	position, _, err := database.Place(path)
	if position != 0 || err != nil {
		t.Errorf("it has got one: %d, %v", position, err)
	}
	err = os.Remove(path)
	if err != nil {
		t.Fatal(err)
	}
}

// A member of 3.5 or later writes the hash of a user's password into the log, a field that members of 3.4 do not know: in a
// mixed cluster these gave the user the empty password. A replay sets the client's password, whichever member's log it reads, and warns
// of each user if the log is that of a member of 3.4: the log of another does not show that there were such members.
func TestAPasswordThatAMemberOf34DidNotKnow(t *testing.T) {
	base := makeBase(t, smallBase)
	for version, want := range map[string]int{"3.4.36": 3, "3.5.21": 0} {
		t.Run(version, func(t *testing.T) {
			db := copyOf(t, base)
			log := inSegments([]segment.Record{
				{Kind: segment.ServerVersion, Data: []byte(version)},
				request(t, 2, 1, &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 2}, AuthUserAdd: &pb.AuthUserAddRequest{
					Name: "alice", HashedPassword: hashed(t, "first"), Options: &authpb.UserAddOptions{},
				}}),
				request(t, 3, 1, &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 3}, AuthUserAdd: &pb.AuthUserAddRequest{
					Name: "bob", HashedPassword: hashed(t, "second"), Options: &authpb.UserAddOptions{},
				}}),
				request(t, 4, 1, &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 4}, AuthUserChangePassword: &pb.AuthUserChangePasswordRequest{
					Name: "bob", HashedPassword: hashed(t, "third"),
				}}),
			})
			var warnings []string
			report := func(e storage.Event) {
				if e.Level == storage.Warning {
					warnings = append(warnings, e.Message)
				}
			}
			_, err := replay.Apply(t.Context(), db, fromWAL(log), replay.Options{Report: report})
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) != want || want > 0 && !strings.Contains(warnings[0], "user alice") {
				t.Errorf("warnings %q, want %d", warnings, want)
			}
			users := bucket(t, db, schema.AuthUsers.Name())
			for name, password := range map[string]string{"alice": "first", "bob": "third"} {
				var user authpb.User
				err := proto.Unmarshal([]byte(users[name]), &user)
				if err != nil {
					t.Fatal(err)
				}
				if bcrypt.CompareHashAndPassword(user.Password, []byte(password)) != nil {
					t.Errorf("%s does not have the password %q", name, password)
				}
			}
		})
	}
}

func hashed(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(hash)
}
