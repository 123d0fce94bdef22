package objectstores

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// echo starts a server that sends back its input.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed at the test's end
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // the other side sees every error
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// send writes data and returns how many bytes come back in the given time.
func send(t *testing.T, conn net.Conn, data []byte, patience time.Duration) (int, error) {
	t.Helper()
	err := conn.SetDeadline(time.Now().Add(patience))
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Write(data)
	if err != nil {
		return 0, err
	}
	return io.ReadFull(conn, data)
}

const (
	patient   = 20 * time.Second
	impatient = 200 * time.Millisecond
)

func TestProxyCutsAndRestores(t *testing.T) {
	p := NewProxy(t, "http://"+echo(t))
	conn := dial(t, p)
	_, err := send(t, conn, make([]byte, 1000), patient)
	if err != nil {
		t.Fatal(err)
	}
	p.Cut()
	n, err := send(t, conn, make([]byte, 1000), patient)
	if err == nil {
		t.Errorf("%d bytes came over a connection that was cut", n)
	}
	_, err = net.Dial("tcp", p.Address)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection got %v, want a refusal", err)
	}
	p.Restore()
	_, err = send(t, dial(t, p), make([]byte, 1000), patient)
	if err != nil {
		t.Error(err)
	}
}

func TestProxyCutsAfterBytes(t *testing.T) {
	for _, direction := range []Direction{ToServer, ToClient} {
		p := NewProxy(t, echo(t))
		open := dial(t, p)
		_, err := send(t, open, make([]byte, 3000), patient)
		if err != nil {
			t.Fatal(err)
		}
		p.CutAfter(5000, direction)
		for name, conn := range map[string]net.Conn{"open before": open, "new": dial(t, p)} {
			_, err := send(t, conn, make([]byte, 4000), patient)
			if err != nil {
				t.Errorf("%s, %s: cut before the limit: %v", direction, name, err)
			}
			// Data on its way back when the other direction is cut may be lost.
			n, err := send(t, conn, make([]byte, 4000), patient)
			if n > 1000 || err == nil {
				t.Errorf("%s, %s: got %d bytes and %v, want 1000 at most and an error", direction, name, n, err)
			}
		}
		p.Clear()
		_, err = send(t, dial(t, p), make([]byte, 8000), patient)
		if err != nil {
			t.Errorf("%s, cleared: %v", direction, err)
		}
	}
}

func TestProxySwallowsEverything(t *testing.T) {
	p := NewProxy(t, echo(t))
	p.BlackHole()
	conn := dial(t, p)
	n, err := send(t, conn, make([]byte, 1000), impatient)
	failed, ok := errors.AsType[net.Error](err)
	if n != 0 || !ok || !failed.Timeout() {
		t.Errorf("got %d bytes and %v, want silence", n, err)
	}
	p.Clear()
	_, err = send(t, dial(t, p), make([]byte, 1000), patient)
	if err != nil {
		t.Error(err)
	}
}

// TestProxyHoldsBack checks that data has not arrived yet. It asserts no duration that a busy machine could miss.
func TestProxyHoldsBack(t *testing.T) {
	for name, slow := range map[string]func(*Proxy){
		"slow":    func(p *Proxy) { p.Slow(1024) },
		"latency": func(p *Proxy) { p.Latency(time.Hour) },
	} {
		p := NewProxy(t, echo(t))
		slow(p)
		n, err := send(t, dial(t, p), make([]byte, 64<<10), impatient)
		if err == nil {
			t.Errorf("%s: all %d bytes came at once", name, n)
		}
	}
}

func TestStoresThroughAProxy(t *testing.T) {
	s3Server, gcs, azure := S3(t), GCS(t), Azure(t)
	bucket := s3Server.Bucket(t)
	err := putS3(t, s3Server.Through(NewProxy(t, s3Server.Endpoint)).Client(t), bucket)
	if err != nil {
		t.Error(err)
	}
	err = putAzure(t, azure.Through(NewProxy(t, azure.Endpoint)).Client(t), azure.Bucket(t))
	if err != nil {
		t.Error(err)
	}
	object := gcs.Through(NewProxy(t, gcs.Endpoint)).Client(t).Bucket(gcs.Bucket(t)).Object("a/key")
	err = putGCS(t, object)
	if err != nil {
		t.Fatal(err)
	}
	got, err := getGCS(t, object)
	same(t, got, err)
}

// TestGCSUploadResumesAfterCuts checks that the fake keeps the state from which a client continues after a cut within a
// chunk.
func TestGCSUploadResumesAfterCuts(t *testing.T) {
	server := GCS(t)
	bucket := server.Bucket(t)
	p := NewProxy(t, server.Endpoint)
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i >> 8)
	}
	w := server.Through(p).Client(t).Bucket(bucket).Object("key").NewWriter(t.Context())
	w.ChunkSize = 1 << 20
	p.CutAfter(700<<10, ToServer)
	time.AfterFunc(impatient, p.Clear)
	_, err := w.Write(data)
	err = errors.Join(err, w.Close())
	if err != nil {
		t.Fatal(err)
	}
	r, err := server.Client(t).Bucket(bucket).Object("key").NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != string(data) {
		t.Errorf("got %d bytes and %v, want the %d that were sent", len(got), err, len(data))
	}
}
