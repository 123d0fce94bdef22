package segment_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// framed returns a document with this body and a matching digest.
func framed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return []byte(string(body) + `  "sha256": "` + hex.EncodeToString(sum[:]) + "\",\n  \"signature\": \"\"\n}\n")
}

// FuzzReadHeader checks that any bytes, as they are and as a document with a matching digest, are damaged or equal when
// they are encoded again.
func FuzzReadHeader(f *testing.F) {
	for _, e := range []segment.Encoded{
		encoded(f, fullHeader(), fullRequests(), seal.Recipients{}),
		encoded(f, headerOf(fullRequests()), fullRequests(), seal.Recipients{}),
		encoded(f, watchHeader(), changes(), seal.Recipients{}),
	} {
		_, doc, _ := parts(e.Bytes)
		f.Add(e.Bytes)
		f.Add(doc[:bytes.LastIndex(doc, []byte("\n  \"sha256\": \""))+1])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, stored := range [][]byte{data, join(framed(data), nil)} {
			h, _, err := segment.ReadHeader(bytes.NewReader(stored))
			if err != nil {
				if !errors.Is(err, storage.ErrDamaged) {
					t.Errorf("%v is no damage", err)
				}
				continue
			}
			if len(stored) > 1<<16 { // it may become too long when it is indented
				continue
			}
			again, _, err := segment.DecodeHeader(documentOf(t, h))
			diff := cmp.Diff(h, again, cmpopts.EquateEmpty())
			if err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		}
	})
}

// FuzzOpen checks that any bytes, as a segment and as the body of one with matching digests, are damaged or equal when
// they are encoded again.
func FuzzOpen(f *testing.F) {
	e := encoded(f, fullHeader(), fullRequests(), seal.Recipients{})
	_, _, sealed := parts(e.Bytes)
	f.Add(e.Bytes, uint8(4))
	f.Add(unsealed(f, sealed), uint8(4))
	f.Add(append(block(1, 1, 1, "x"), 0, 1), uint8(1))
	watched := encoded(f, watchHeader(), changes(), seal.Recipients{})
	_, _, sealed = parts(watched.Bytes)
	f.Add(watched.Bytes, uint8(5))
	f.Add(unsealed(f, sealed), uint8(5))
	h := headerOf([]segment.Record{request(1, 1, "")})
	h.Last, h.End.Position, h.End.Term = math.MaxUint64, math.MaxUint64, math.MaxUint64
	h.Marks = []segment.Mark{{Interval: segment.Interval{NotBefore: noon, NotAfter: noon}}}
	f.Fuzz(func(t *testing.T, data []byte, requests uint8) {
		h.Requests, watched.Header.Requests = int(requests), int(requests)
		body := append(data, 0)[:max(len(data), 1)]
		for _, stored := range [][]byte{data, forged(t, h, body), forged(t, watched.Header, body)} {
			got, err := records(stored, seal.Keys{})
			if err != nil {
				if !errors.Is(err, storage.ErrDamaged) && !errors.Is(err, seal.ErrWrongKey) {
					t.Errorf("%v is no damage", err)
				}
				continue
			}
			r, _, err := segment.ReadHeader(bytes.NewReader(stored))
			if err != nil {
				t.Fatal(err)
			}
			again := encoded(t, r, got[len(got)-r.Requests:], seal.Recipients{})
			got2, err := records(again.Bytes, seal.Keys{})
			diff := cmp.Diff(got, got2, wholeData)
			if err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		}
	})
}
