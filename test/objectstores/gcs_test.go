package objectstores

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
)

func gcsStatus(err error) int {
	failed, ok := errors.AsType[*googleapi.Error](err)
	if !ok {
		return 0
	}
	return failed.Code
}

func TestGCSGenerations(t *testing.T) {
	server := GCS(t)
	object := server.Client(t).Bucket(server.Bucket(t)).Object("a/key")
	err := putGCS(t, object)
	if err != nil {
		t.Fatal(err)
	}
	attributes, err := object.Attrs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	right := object.If(storage.Conditions{GenerationMatch: attributes.Generation})
	wrong := object.If(storage.Conditions{GenerationMatch: attributes.Generation + 1})
	_, readErr := getGCS(t, wrong)
	_, attrsErr := wrong.Attrs(t.Context())
	_, updateErr := wrong.Update(t.Context(), storage.ObjectAttrsToUpdate{ContentType: "x/y"})
	for what, err := range map[string]error{
		"read":      readErr,
		"attrs":     attrsErr,
		"update":    updateErr,
		"delete":    wrong.Delete(t.Context()),
		"overwrite": putGCS(t, wrong),
		"create":    putGCS(t, object.If(storage.Conditions{DoesNotExist: true})),
	} {
		if gcsStatus(err) != http.StatusPreconditionFailed {
			t.Errorf("%s: got %v, want 412", what, err)
		}
	}
	got, err := getGCS(t, right)
	same(t, got, err)
	err = right.Delete(t.Context())
	if err != nil {
		t.Error(err)
	}
}

// through returns a client of the server with a transport.
func through(t *testing.T, server *GCSServer, transport http.RoundTripper) *storage.Client {
	t.Helper()
	token := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: server.Token})
	client, err := storage.NewClient(t.Context(), option.WithEndpoint(server.Endpoint+"/storage/v1/"),
		option.WithHTTPClient(&http.Client{Transport: &oauth2.Transport{Source: token, Base: transport}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func putChunks(t *testing.T, object *storage.ObjectHandle, data []byte) error {
	t.Helper()
	w := object.NewWriter(t.Context())
	w.ChunkSize = 256 << 10
	_, err := w.Write(data)
	return errors.Join(err, w.Close())
}

// TestGCSTakesAChunkOnce checks that the fake accepts a chunk again whose answer was lost, including the last one.
func TestGCSTakesAChunkOnce(t *testing.T) {
	server := GCS(t)
	bucket := server.Bucket(t)
	data := bytes.Repeat(content, 30_000)
	for nth := int64(1); nth <= 3; nth++ {
		failing := &FailingTransport{
			Base:        clientFor(t).Transport,
			Match:       func(r *http.Request) bool { return r.URL.Query().Has("upload_id") },
			Nth:         nth,
			AfterAnswer: true,
		}
		name := fmt.Sprint(nth)
		err := putChunks(t, through(t, server, failing).Bucket(bucket).Object(name), data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := getGCS(t, server.Client(t).Bucket(bucket).Object(name))
		if failing.Failed() != 1 || err != nil || !bytes.Equal(got, data) {
			t.Errorf("answer %d lost: got %d bytes and %v, want the %d that were sent", nth, len(got), err, len(data))
		}
	}
}

// corrupting changes a byte of every chunk.
type corrupting struct{ base http.RoundTripper }

func (c corrupting) RoundTrip(r *http.Request) (*http.Response, error) {
	if !r.URL.Query().Has("upload_id") || r.ContentLength == 0 {
		return c.base.RoundTrip(r)
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	data[0]++
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(data))
	return c.base.RoundTrip(r)
}

func TestGCSRefusesContentThatChangedOnTheWay(t *testing.T) {
	server := GCS(t)
	bucket := server.Bucket(t)
	client := through(t, server, corrupting{clientFor(t).Transport})
	err := putChunks(t, client.Bucket(bucket).Object("key"), bytes.Repeat(content, 30_000))
	if gcsStatus(err) != http.StatusBadRequest {
		t.Errorf("got %v, want 400", err)
	}
	_, err = server.Client(t).Bucket(bucket).Object("key").Attrs(t.Context())
	if !errors.Is(err, storage.ErrObjectNotExist) {
		t.Errorf("got %v, want no object", err)
	}
}

// TestGCSRetention checks that retention may be set at creation, in one request and in several.
func TestGCSRetention(t *testing.T) {
	server := GCS(t)
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, chunk := range map[string]int{"at once": 0, "resumable": 256 << 10} {
		object := server.Client(t).Bucket(server.Bucket(t, Locks)).Object("key")
		w := object.NewWriter(t.Context())
		w.ChunkSize = chunk
		w.Retention = &storage.ObjectRetention{Mode: "Locked", RetainUntil: until}
		_, err := w.Write(make([]byte, 600<<10))
		err = errors.Join(err, w.Close())
		if err != nil {
			t.Fatal(err)
		}
		attributes, err := object.Attrs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := attributes.Retention
		if r == nil || r.Mode != "Locked" || !r.RetainUntil.Equal(until) {
			t.Errorf("%s: retention %v, want until %v", name, r, until)
		}
		sooner := storage.ObjectAttrsToUpdate{
			Retention: &storage.ObjectRetention{Mode: "Locked", RetainUntil: until.Add(-time.Minute)},
		}
		_, shortened := object.OverrideUnlockedRetention(true).Update(t.Context(), sooner)
		for what, err := range map[string]error{
			"delete": object.Delete(t.Context()), "overwrite": putGCS(t, object), "shorten": shortened,
		} {
			if gcsStatus(err) != http.StatusForbidden {
				t.Errorf("%s, %s: got %v, want 403", name, what, err)
			}
		}
	}
	object := server.Client(t).Bucket(server.Bucket(t)).Object("key")
	w := object.NewWriter(t.Context())
	w.Retention = &storage.ObjectRetention{Mode: "Locked", RetainUntil: until}
	err := w.Close()
	if gcsStatus(err) != http.StatusBadRequest {
		t.Errorf("retention in a bucket without locks: got %v, want 400", err)
	}
}

func TestGCSHoldsAndBucketRetention(t *testing.T) {
	server := GCS(t)
	bucket := server.Client(t).Bucket(server.Bucket(t))
	object := bucket.Object("key")
	err := putGCS(t, object)
	if err != nil {
		t.Fatal(err)
	}
	for what, lock := range map[string]func(on bool) error{
		"hold": func(on bool) error {
			_, err := object.Update(t.Context(), storage.ObjectAttrsToUpdate{TemporaryHold: on})
			return err
		},
		"bucket": func(on bool) error {
			policy := &storage.RetentionPolicy{}
			if on {
				policy.RetentionPeriod = time.Hour
			}
			_, err := bucket.Update(t.Context(), storage.BucketAttrsToUpdate{RetentionPolicy: policy})
			return err
		},
	} {
		err := lock(true)
		if err != nil {
			t.Fatal(err)
		}
		err = object.Delete(t.Context())
		if gcsStatus(err) != http.StatusForbidden {
			t.Errorf("%s: got %v, want 403", what, err)
		}
		err = lock(false)
		if err != nil {
			t.Fatal(err)
		}
	}
	err = object.Delete(t.Context())
	if err != nil {
		t.Error(err)
	}
}

func TestGCSVersionsKeepTheirLocks(t *testing.T) {
	server := GCS(t)
	object := server.Client(t).Bucket(server.Bucket(t, Versioned, Locks)).Object("key")
	w := object.NewWriter(t.Context())
	w.Retention = &storage.ObjectRetention{Mode: "Unlocked", RetainUntil: time.Now().Add(time.Hour)}
	err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	generation := w.Attrs().Generation
	err = object.Delete(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = object.Generation(generation).Delete(t.Context())
	if gcsStatus(err) != http.StatusForbidden {
		t.Errorf("a noncurrent version that is locked: got %v, want 403", err)
	}
	_, err = object.Generation(generation).Attrs(t.Context())
	if err != nil {
		t.Error(err)
	}
}

func TestGCSRefusesWrongChecksum(t *testing.T) {
	server := GCS(t)
	for name, chunk := range map[string]int{"at once": 0, "resumable": 256 << 10} {
		object := server.Client(t).Bucket(server.Bucket(t)).Object("key")
		data := make([]byte, 600<<10)
		w := object.NewWriter(t.Context())
		w.ChunkSize = chunk
		w.SendCRC32C = true
		w.CRC32C = crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) + 1
		_, err := w.Write(data)
		err = errors.Join(err, w.Close())
		if gcsStatus(err) != http.StatusBadRequest {
			t.Errorf("%s: got %v, want 400", name, err)
		}
		_, err = object.Attrs(t.Context())
		if !errors.Is(err, storage.ErrObjectNotExist) {
			t.Errorf("%s: got %v, want no object", name, err)
		}
	}
}
