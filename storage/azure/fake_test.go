package azure_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
)

// Azurite has neither versions nor locks. These answers are written by hand after the REST reference of Blob Storage.

// fakeAnswers answers each request by the longest matching entry, "METHOD query", and records the requests.
type fakeAnswers struct {
	answers map[string]fakeAnswer
	mu      sync.Mutex
	asked   []string
}

type fakeAnswer struct {
	status int
	header map[string]string
	body   string
}

func (f *fakeAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what := strings.TrimSpace(r.Method + " " + r.URL.RawQuery)
	f.asked = append(f.asked, what)
	a, longest := fakeAnswer{status: http.StatusNotImplemented}, 0
	for entry, answer := range f.answers {
		if len(entry) > longest && strings.HasPrefix(what, entry) {
			a, longest = answer, len(entry)
		}
	}
	header := http.Header{"Date": {"Sat, 21 Nov 2026 12:00:00 GMT"}, "Content-Length": {strconv.Itoa(len(a.body))}}
	for k, v := range a.header {
		header.Set(k, v)
	}
	return &http.Response{
		StatusCode: a.status, Status: http.StatusText(a.status), Header: header, Request: r,
		ContentLength: int64(len(a.body)), Body: io.NopCloser(strings.NewReader(a.body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func (f *fakeAnswers) wasAsked(what string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.asked, func(asked string) bool { return strings.HasPrefix(asked, what) })
}

// openFake returns a Bucket that gets hand-written answers.
func openFake(t *testing.T, answers map[string]fakeAnswer) (*fakeAnswers, *azure.Bucket) {
	t.Helper()
	clearEnvironment(t)
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	f := &fakeAnswers{answers: answers}
	return f, open(t, azure.Config{Account: "acct", Container: "c", Transport: f})
}

func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING",
		"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_ENDPOINT",
		"IDENTITY_HEADER",
	} {
		t.Setenv(name, "")
	}
}

// present returns the answer to a HEAD of a blob, with additional headers.
func present(more map[string]string) fakeAnswer {
	header := map[string]string{"ETag": `"0x1"`, "Last-Modified": "Sat, 21 Nov 2026 11:00:00 GMT", "Content-Length": "0"}
	for k, v := range more {
		header[k] = v
	}
	return fakeAnswer{status: http.StatusOK, header: header}
}

func failure(status int, code string) fakeAnswer {
	return fakeAnswer{status: status, header: map[string]string{"x-ms-error-code": code}}
}

var lockEnd = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

func TestFakeLockIsShownAndKept(t *testing.T) {
	f, b := openFake(t, map[string]fakeAnswer{
		"HEAD":   present(map[string]string{"x-ms-immutability-policy-until-date": "Tue, 01 Dec 2026 00:00:00 GMT"}),
		"DELETE": {status: http.StatusAccepted},
	})
	obj, err := b.Stat(t.Context(), "key")
	if err != nil || !obj.RetainUntil.Equal(lockEnd) {
		t.Errorf("Stat = %+v, %v", obj, err)
	}
	err = b.Delete(t.Context(), "key", storage.DeleteOptions{})
	if !errors.Is(err, storage.ErrLocked) || !strings.Contains(err.Error(), "2026-12-01") {
		t.Errorf("Delete: %v", err)
	}
	if f.wasAsked("DELETE") {
		t.Error("the store was asked to delete what is locked: where it keeps versions, it hides it")
	}
}

// TestFakeLockHasEnded checks that the store's clock decides, not this machine's.
func TestFakeLockHasEnded(t *testing.T) {
	f, b := openFake(t, map[string]fakeAnswer{
		"HEAD": present(map[string]string{
			"x-ms-immutability-policy-until-date": "Mon, 01 Jan 2135 00:00:00 GMT", "Date": "Mon, 01 Jan 2135 00:00:01 GMT",
		}),
		"DELETE": {status: http.StatusAccepted},
	})
	err := b.Delete(t.Context(), "key", storage.DeleteOptions{})
	if err != nil || !f.wasAsked("DELETE") {
		t.Errorf("Delete: %v", err)
	}
}

func TestFakeLegalHold(t *testing.T) {
	_, b := openFake(t, map[string]fakeAnswer{"HEAD": present(map[string]string{"x-ms-legal-hold": "true"})})
	err := b.Delete(t.Context(), "key", storage.DeleteOptions{})
	if !errors.Is(err, storage.ErrLocked) || !strings.Contains(err.Error(), "legal hold") {
		t.Errorf("Delete: %v", err)
	}
}

func TestFakeContainerPolicy(t *testing.T) {
	_, b := openFake(t, map[string]fakeAnswer{
		"HEAD":   present(nil),
		"DELETE": failure(http.StatusConflict, "BlobImmutableDueToPolicy"),
		"PUT":    failure(http.StatusConflict, "BlobImmutableDueToPolicy"),
	})
	err := b.Delete(t.Context(), "key", storage.DeleteOptions{})
	if !errors.Is(err, storage.ErrLocked) {
		t.Errorf("Delete: %v", err)
	}
	_, err = b.Put(t.Context(), "key", strings.NewReader("new"), storage.PutOptions{})
	if !errors.Is(err, storage.ErrLocked) {
		t.Errorf("Put: %v", err)
	}
}

// TestFakePolicyForbidsClearing checks that no empty blob is created in a container with a policy of its own, which
// might forbid deleting the blob.
func TestFakePolicyForbidsClearing(t *testing.T) {
	for name, policy := range map[string]string{"policy": "x-ms-has-immutability-policy", "hold": "x-ms-has-legal-hold"} {
		t.Run(name, func(t *testing.T) {
			f, b := openFake(t, map[string]fakeAnswer{
				"GET restype=container": {status: http.StatusOK, header: map[string]string{policy: "true"}},
				"HEAD":                  failure(http.StatusNotFound, "BlobNotFound"),
				"PUT":                   {status: http.StatusCreated},
			})
			src := io.MultiReader(strings.NewReader(strings.Repeat("x", 20<<20)), &waiting{func() bool { return true }})
			_, err := b.Put(t.Context(), "key", src, storage.PutOptions{})
			if !errors.Is(err, errBroken) {
				t.Errorf("Put: %v", err)
			}
			if f.wasAsked("PUT comp=blocklist") {
				t.Error("an empty blob was made")
			}
			for piece, err := range b.Leftovers(t.Context(), "") {
				t.Errorf("Leftovers: %+v, %v", piece, err)
			}
		})
	}
}

const (
	older   = "2026-11-20T10:00:00.0000001Z"
	current = "2026-11-21T11:00:00.0000002Z"
)

const fakeVersions = `<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>
<Blob><Name>a</Name><VersionId>` + older + `</VersionId><Properties>
<Last-Modified>Fri, 20 Nov 2026 10:00:00 GMT</Last-Modified>
<Etag>0x1</Etag><Content-Length>5</Content-Length></Properties></Blob>
<Blob><Name>a</Name><VersionId>` + current + `</VersionId><IsCurrentVersion>true</IsCurrentVersion><Properties>
<Last-Modified>Sat, 21 Nov 2026 11:00:00 GMT</Last-Modified><Etag>0x2</Etag>
<Content-Length>7</Content-Length></Properties></Blob>
<Blob><Name>b</Name><VersionId>` + older + `</VersionId><Properties>
<Last-Modified>Fri, 20 Nov 2026 10:00:00 GMT</Last-Modified>
<Etag>0x3</Etag><Content-Length>0</Content-Length></Properties><Metadata><drput>abandoned</drput></Metadata></Blob>
</Blobs><NextMarker/></EnumerationResults>`

func TestFakeVersions(t *testing.T) {
	f, b := openFake(t, map[string]fakeAnswer{
		"GET comp=list&include=metadata%2Cversions": {status: http.StatusOK, body: fakeVersions},
		"GET versionid=" + url.QueryEscape(older): {
			status: http.StatusOK, body: "older", header: map[string]string{"x-ms-version-id": older, "ETag": `"0x1"`},
		},
	})
	var got []storage.ObjectVersion
	for kept, err := range b.Versions(t.Context(), storage.ListOptions{}) {
		if err != nil {
			t.Fatalf("%v, asked were %q", err, f.asked)
		}
		got = append(got, kept)
	}
	if len(got) != 2 || got[0].Version != "version:"+older || got[1].Size != 7 || !got[0].Until.IsZero() {
		t.Fatalf("Versions = %+v", got)
	}
	then, err := storage.AsOf(b, time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	p, err := read(t, then, "a", storage.OpenOptions{})
	if err != nil || string(p) != "older" {
		t.Errorf("as of the day before: %q, %v", p, err)
	}
}

// TestFakeDeleteOfTheCurrentVersion plays Azure's refusal to delete the newest version by its id.
func TestFakeDeleteOfTheCurrentVersion(t *testing.T) {
	byID := "DELETE versionid=" + url.QueryEscape(current)
	f, b := openFake(t, map[string]fakeAnswer{
		"HEAD": present(map[string]string{"x-ms-version-id": current}),
		byID:   failure(http.StatusBadRequest, "OperationNotAllowedOnRootBlob"),
		// With Azure the second DELETE would find an older version. The fake is stateless, so its refusal is the
		// result.
		"DELETE": {status: http.StatusAccepted},
	})
	err := b.Delete(t.Context(), "key", storage.DeleteOptions{Version: "version:" + current})
	if err == nil || !slices.Equal(f.asked[1:], []string{byID, "DELETE", byID}) {
		t.Errorf("error %v, asked were %q", err, f.asked)
	}
}

func TestFakeOddKeysKeepTheirNamesWithAVersion(t *testing.T) {
	for _, key := range []string{"a b", "100%", "%2F", "a+b", "a&b=c?d#e", "a:b/ü"} {
		clearEnvironment(t)
		t.Setenv("AZURE_STORAGE_KEY", "a2V5")
		seen := ""
		b := open(t, azure.Config{Account: "acct", Container: "c", Transport: roundTrip(func(r *http.Request) {
			seen = r.URL.Path
		})})
		_, err := read(t, b, key, storage.OpenOptions{Version: "version:" + older})
		if !errors.Is(err, storage.ErrDenied) {
			t.Error(err)
		}
		if seen != "/c/"+key {
			t.Errorf("%q becomes the path %q", key, seen)
		}
	}
}

// roundTrip calls a function with each request and then fails the request.
type roundTrip func(*http.Request)

func (look roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	look(r)
	return nil, storage.ErrDenied
}

const fakeDisorder = `<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>
<Blob><Name>a/b</Name><Properties><Etag>0x1</Etag><Content-Length>5</Content-Length></Properties></Blob>
<Blob><Name>a-b</Name><Properties><Etag>0x1</Etag><Content-Length>5</Content-Length></Properties></Blob>
</Blobs><NextMarker/></EnumerationResults>`

// TestFakeHierarchicalNamespace checks that List refuses such an account, which lists directory by directory: a catalog
// needs the order of keys.
func TestFakeHierarchicalNamespace(t *testing.T) {
	_, b := openFake(t, map[string]fakeAnswer{"GET": {status: http.StatusOK, body: fakeDisorder}})
	var last error
	for _, err := range b.List(t.Context(), storage.ListOptions{}) {
		last = err
	}
	if !errors.Is(last, storage.ErrUnsupported) || !strings.Contains(last.Error(), "hierarchical") {
		t.Errorf("error %v", last)
	}
}

// TestFakeRedirect checks that a redirect does not receive the credentials.
func TestFakeRedirect(t *testing.T) {
	f, b := openFake(t, map[string]fakeAnswer{
		"GET": {status: http.StatusTemporaryRedirect, header: map[string]string{"Location": "https://elsewhere.example/"}},
	})
	_, err := read(t, b, "key", storage.OpenOptions{})
	if err == nil || len(f.asked) != 1 {
		t.Errorf("error %v after %q", err, f.asked)
	}
}

// TestFakeShortStream checks that an answer which a proxy has shortened, with a matching length, is an error.
func TestFakeShortStream(t *testing.T) {
	_, b := openFake(t, map[string]fakeAnswer{"GET": {
		status: http.StatusPartialContent, body: "abc",
		header: map[string]string{"ETag": `"0x1"`, "Content-Length": "5", "Content-Range": "bytes 1-5/6"},
	}})
	p, err := read(t, b, "key", storage.OpenOptions{Offset: 1})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", p, err)
	}
	_, err = read(t, b, "key", storage.OpenOptions{Offset: 2})
	if err == nil {
		t.Error("another range than the one asked for is taken")
	}
}

// TestFakeRightThatComesLater checks that a container which refused to return its properties is asked again.
func TestFakeRightThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, b := openFake(t, map[string]fakeAnswer{
			"GET restype=container": failure(http.StatusForbidden, "AuthorizationPermissionMismatch"),
			"HEAD":                  failure(http.StatusNotFound, "BlobNotFound"),
			"PUT":                   {status: http.StatusCreated, header: map[string]string{"ETag": `"0x1"`, "Last-Modified": "Sat, 21 Nov 2026 11:00:00 GMT"}},
		})
		locked := func() error {
			_, err := b.Put(t.Context(), "key", strings.NewReader("x"), storage.PutOptions{RetainUntil: time.Now().Add(time.Hour)})
			return err
		}
		err := locked()
		if !errors.Is(err, storage.ErrUnsupported) {
			t.Errorf("while nothing is known: %v", err)
		}
		f.mu.Lock()
		f.answers["GET restype=container"] = fakeAnswer{
			status: http.StatusOK, header: map[string]string{"x-ms-immutable-storage-with-versioning-enabled": "true"},
		}
		f.mu.Unlock()
		err = locked()
		if !errors.Is(err, storage.ErrUnsupported) {
			t.Errorf("it is asked at each Put: %v", err)
		}
		time.Sleep(2 * time.Minute)
		err = locked()
		if errors.Is(err, storage.ErrUnsupported) {
			t.Errorf("after the right has come: %v", err)
		}
	})
}

// TestSmallObjectIsOneRequest checks that Put sends a create-only object in its only request, without asking for the
// key first.
func TestSmallObjectIsOneRequest(t *testing.T) {
	f, b := openFake(t, map[string]fakeAnswer{"PUT": {status: http.StatusCreated, header: map[string]string{"Etag": `"1"`}}})
	_, err := b.Put(t.Context(), "key", strings.NewReader("segment"), storage.PutOptions{IfAbsent: true, SizeHint: 7})
	if err != nil || len(f.asked) != 1 {
		t.Errorf("requests %q, want one; error %v", f.asked, err)
	}
}
