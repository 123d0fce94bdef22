package seal_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/seal"
)

const benchSize = 16 << 20

func BenchmarkSeal(b *testing.B) {
	key := newPair(b)
	for name, to := range map[string]seal.Recipients{"plain": {}, "age": key.to} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchSize)
			for b.Loop() {
				stream, err := seal.New(newRows(benchSize), to)
				if err != nil {
					b.Fatal(err)
				}
				_, err = io.Copy(io.Discard, stream)
				if err != nil {
					b.Fatal(err)
				}
				stream.Close()
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	key := newPair(b)
	content, err := io.ReadAll(newRows(benchSize))
	if err != nil {
		b.Fatal(err)
	}
	for name, to := range map[string]seal.Recipients{"plain": {}, "age": key.to} {
		stored := sealed(b, content, to)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchSize)
			for b.Loop() {
				opened, err := seal.Open(bytes.NewReader(stored), to.Seal(), key.keys)
				if err != nil {
					b.Fatal(err)
				}
				_, err = io.Copy(io.Discard, opened)
				if err != nil {
					b.Fatal(err)
				}
				opened.Close()
			}
		})
	}
}
