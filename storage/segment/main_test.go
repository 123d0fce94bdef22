package segment_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// noon is the time of all marks.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// pair is a new key and its recipient.
type pair struct {
	identity string
	keys     seal.Keys
	to       seal.Recipients
}

func newPair(tb testing.TB) pair {
	tb.Helper()
	p := stored.NewKeyPair(tb)
	return pair{p.Identity, p.Keys, p.To}
}

// lineage and digest have the right form.
const (
	lineage = "0123456789abcdef0123456789abcdef"
	digest  = lineage + lineage
)

// headerOf returns a minimal header for these requests, one or more.
func headerOf(requests []segment.Record) segment.Header {
	first, last := requests[0], requests[len(requests)-1]
	return segment.Header{
		Cluster: "prod", Lineage: lineage, Seq: 1, First: first.Position, Last: last.Position,
		End:    segment.End{Position: last.Position, Term: last.Term, Digest: digest},
		Source: segment.WAL, ClusterID: "cdf818194e3a8c32", Member: "8e9e05c52164694d", ServerVersion: "3.5.35",
		Writer: "w1", Written: noon, DRVersion: "v0.2.0",
	}
}

func request(position, term uint64, data string) segment.Record {
	return segment.Record{Kind: segment.Request, Position: position, Term: term, Data: []byte(data)}
}

func encoded(tb testing.TB, h segment.Header, requests []segment.Record, to seal.Recipients) segment.Encoded {
	tb.Helper()
	e, err := segment.Encode(h, requests, to)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// records reads a segment to its end and returns its records.
func records(stored []byte, keys seal.Keys) ([]segment.Record, error) {
	r, err := segment.Open(bytes.NewReader(stored), keys)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return drain(r)
}

func drain(r *segment.Reader) ([]segment.Record, error) {
	var all []segment.Record
	for record, err := range r.Records() {
		if err != nil {
			return all, err
		}
		record.Data = bytes.Clone(record.Data)
		all = append(all, record)
	}
	return all, nil
}
