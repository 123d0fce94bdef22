package segment_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// values has functions that return texts of 256 bytes.
var values = map[string]func(rng *rand.Rand) []byte{
	// base64 has six bits a byte that cannot be compressed.
	"base64": func(rng *rand.Rand) []byte {
		noise := make([]byte, 192)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		return []byte(base64.StdEncoding.EncodeToString(noise))
	},
	"json": func(rng *rand.Rand) []byte {
		text := fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"node-%d",`+
			`"uid":"%08x-%04x-4%03x","resourceVersion":"%d"},"spec":{"holderIdentity":"node-%d",`+
			`"leaseDurationSeconds":40,"renewTime":"2026-11-21T12:%02d:%02d.%06dZ"}}`,
			rng.IntN(500), rng.Uint32(), rng.IntN(1<<16), rng.IntN(1<<12), rng.IntN(1<<30), rng.IntN(500),
			rng.IntN(60), rng.IntN(60), rng.IntN(1_000_000))
		return append([]byte(text), bytes.Repeat([]byte(" "), 256)...)[:256]
	},
}

// puts returns n requests as etcd marshals them (rpc.proto and raft_internal.proto). Half of their values repeat one of
// the last thousand.
func puts(n int, value func(*rand.Rand) []byte) []segment.Record {
	rng := rand.New(rand.NewPCG(1, 2))
	var known [1000][]byte
	requests := make([]segment.Record, n)
	for i := range requests {
		v := known[rng.IntN(len(known))]
		if v == nil || rng.IntN(2) == 0 {
			v = value(rng)
			known[i%len(known)] = v
		}
		put := field(field(nil, 1, fmt.Appendf(nil, "/registry/leases/kube-node-lease/node-%d", rng.IntN(5000))), 2, v)
		header := binary.AppendUvarint([]byte{0x08}, 0x7f3a_0193_5a00_0000+uint64(i))
		data := field(field(nil, 4, put), 100, header)
		requests[i] = segment.Record{Kind: segment.Request, Position: 100 + uint64(i), Term: 7, Data: data}
	}
	return requests
}

// field appends a field of bytes in protobuf's format.
func field(p []byte, number uint64, content []byte) []byte {
	p = binary.AppendUvarint(p, number<<3|2)
	p = binary.AppendUvarint(p, uint64(len(content)))
	return append(p, content...)
}

// eachKind runs a benchmark on segments with few and with many requests, with both kinds of text, encrypted.
func eachKind(b *testing.B, run func(b *testing.B, h segment.Header, requests []segment.Record, key pair)) {
	key := newPair(b)
	for _, kind := range []string{"base64", "json"} {
		for _, n := range []int{100, 6_000, 50_000} {
			requests := puts(n, values[kind])
			h := headerOf(requests)
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) { run(b, h, requests, key) })
		}
	}
}

func perRecord(b *testing.B, n int, size int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/record")
	b.ReportMetric(float64(size)/float64(n), "bytes/record")
}

func BenchmarkEncode(b *testing.B) {
	eachKind(b, func(b *testing.B, h segment.Header, requests []segment.Record, key pair) {
		size := 0
		for b.Loop() {
			e, err := segment.Encode(h, requests, key.to)
			if err != nil {
				b.Fatal(err)
			}
			size = len(e.Bytes)
		}
		perRecord(b, len(requests), size)
	})
}

func BenchmarkDecode(b *testing.B) {
	eachKind(b, func(b *testing.B, h segment.Header, requests []segment.Record, key pair) {
		stored := encoded(b, h, requests, key.to).Bytes
		for b.Loop() {
			r, err := segment.Open(bytes.NewReader(stored), key.keys)
			if err != nil {
				b.Fatal(err)
			}
			for _, err := range r.Records() {
				if err != nil {
					b.Fatal(err)
				}
			}
			r.Close()
		}
		perRecord(b, len(requests), len(stored))
	})
}

// BenchmarkReadHeader measures the cost of a listing.
func BenchmarkReadHeader(b *testing.B) {
	requests := puts(10, values["json"])
	stored := encoded(b, headerOf(requests), requests, seal.Recipients{}).Bytes
	for b.Loop() {
		_, _, err := segment.ReadHeader(bytes.NewReader(stored))
		if err != nil {
			b.Fatal(err)
		}
	}
}
