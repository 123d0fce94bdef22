package objectstores

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

var content = []byte("what goes in comes out")

func putS3(t *testing.T, client *s3.Client, bucket string) error {
	t.Helper()
	_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &bucket, Key: aws.String("a/key"), Body: bytes.NewReader(content),
	})
	return err
}

func deleteS3(t *testing.T, client *s3.Client, bucket string) error {
	t.Helper()
	_, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: aws.String("a/key")})
	return err
}

func getS3(t *testing.T, client *s3.Client, bucket string) ([]byte, error) {
	t.Helper()
	out, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: aws.String("a/key")})
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(out.Body)
}

func same(t *testing.T, got []byte, err error) {
	t.Helper()
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %q and %v, want %q", got, err, content)
	}
}

func TestS3KeepsObjectsAndRights(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *S3Server{"versitygw": S3, "plain": S3Plain, "minio": Minio} {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			bucket := server.Bucket(t, Versioned)
			err := putS3(t, server.Client(t), bucket)
			if err != nil {
				t.Fatal(err)
			}
			got, err := getS3(t, server.Client(t), bucket)
			same(t, got, err)
			for _, rights := range []Rights{NoDelete, ReadOnly, Nothing} {
				client := server.As(t, bucket, rights).Client(t)
				got, err := getS3(t, client, bucket)
				allowed(t, rights, "read", rights != Nothing, s3Denied(err))
				if rights != Nothing {
					same(t, got, err)
				}
				allowed(t, rights, "write", rights == NoDelete, s3Denied(putS3(t, client, bucket)))
				allowed(t, rights, "delete", false, s3Denied(deleteS3(t, client, bucket)))
			}
		})
	}
}

// allowed fails unless a request succeeded or was denied as want demands.
func allowed(t *testing.T, rights Rights, what string, want bool, denied bool) {
	t.Helper()
	if denied == want {
		t.Errorf("%s: %s was denied: %v", rights, what, denied)
	}
}

func s3Denied(err error) bool {
	failed, ok := errors.AsType[smithy.APIError](err)
	return ok && failed.ErrorCode() == "AccessDenied"
}

func TestS3BucketsWithLocks(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *S3Server{"versitygw": S3, "minio": Minio} {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			bucket := server.Bucket(t, Locks)
			out, err := server.Client(t).PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: &bucket, Key: aws.String("key"), Body: bytes.NewReader(content),
				ObjectLockMode: "COMPLIANCE", ObjectLockRetainUntilDate: aws.Time(time.Now().Add(time.Hour)),
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = server.Client(t).DeleteObject(t.Context(), &s3.DeleteObjectInput{
				Bucket: &bucket, Key: aws.String("key"), VersionId: out.VersionId,
			})
			if err == nil {
				t.Error("a locked version was deleted")
			}
		})
	}
}

// TestS3ByTheEnvironment checks that the variables alone lead the default chain to the credentials.
func TestS3ByTheEnvironment(t *testing.T) {
	server := S3(t)
	bucket := server.Bucket(t)
	Setenv(t, server.Env())
	loaded, err := config.LoadDefaultConfig(t.Context(),
		config.WithHTTPClient(clientFor(t)), config.WithRegion(server.Region))
	if err != nil {
		t.Fatal(err)
	}
	client := s3.NewFromConfig(loaded, func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = &server.Endpoint, true })
	err = putS3(t, client, bucket)
	if err != nil {
		t.Error(err)
	}
}

func putGCS(t *testing.T, object *storage.ObjectHandle) error {
	t.Helper()
	w := object.NewWriter(t.Context())
	_, err := w.Write(content)
	return errors.Join(err, w.Close())
}

func getGCS(t *testing.T, object *storage.ObjectHandle) ([]byte, error) {
	t.Helper()
	r, err := object.NewReader(t.Context())
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

func gcsDenied(err error) bool {
	failed, ok := errors.AsType[*googleapi.Error](err)
	return ok && failed.Code == http.StatusForbidden
}

func TestGCSKeepsObjectsAndRights(t *testing.T) {
	server := GCS(t)
	bucket := server.Bucket(t)
	object := server.Client(t).Bucket(bucket).Object("a/key")
	err := putGCS(t, object)
	if err != nil {
		t.Fatal(err)
	}
	got, err := getGCS(t, object)
	same(t, got, err)
	for _, rights := range []Rights{NoDelete, ReadOnly, Nothing} {
		handle := server.As(rights).Client(t).Bucket(bucket)
		_, err := getGCS(t, handle.Object("a/key"))
		allowed(t, rights, "read", rights != Nothing, gcsDenied(err))
		allowed(t, rights, "create", rights == NoDelete, gcsDenied(putGCS(t, handle.Object("new"))))
		allowed(t, rights, "overwrite", false, gcsDenied(putGCS(t, handle.Object("a/key"))))
		allowed(t, rights, "delete", false, gcsDenied(handle.Object("a/key").Delete(t.Context())))
	}
	server.Token = "wrong"
	_, err = getGCS(t, server.Client(t).Bucket(bucket).Object("a/key"))
	failed, ok := errors.AsType[*googleapi.Error](err)
	if !ok || failed.Code != http.StatusUnauthorized {
		t.Errorf("a wrong token got %v, want 401", err)
	}
}

func TestGCSByTheEnvironment(t *testing.T) {
	server := GCS(t)
	bucket := server.Bucket(t)
	Setenv(t, server.As(NoDelete).Env(t))
	client, err := storage.NewClient(t.Context(), option.WithEndpoint(server.Endpoint+"/storage/v1/"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	object := client.Bucket(bucket).Object("key")
	err = putGCS(t, object)
	if err != nil {
		t.Error(err)
	}
	err = object.Delete(t.Context())
	if !gcsDenied(err) {
		t.Errorf("deleting got %v, want a denial", err)
	}
}

func putAzure(t *testing.T, client *azblob.Client, container string) error {
	t.Helper()
	_, err := client.UploadBuffer(t.Context(), container, "a/key", content, nil)
	return err
}

func getAzure(t *testing.T, client *azblob.Client, container string) ([]byte, error) {
	t.Helper()
	out, err := client.DownloadStream(t.Context(), container, "a/key", nil)
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(out.Body)
}

func azureDenied(err error) bool {
	failed, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && failed.StatusCode == http.StatusForbidden
}

func TestAzureKeepsObjectsAndRights(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *AzureServer{"tls": Azure, "plain": AzurePlain} {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			container := server.Bucket(t)
			err := putAzure(t, server.Client(t), container)
			if err != nil {
				t.Fatal(err)
			}
			got, err := getAzure(t, server.Client(t), container)
			same(t, got, err)
			for _, rights := range []Rights{NoDelete, ReadOnly, Nothing} {
				client := server.As(t, container, rights).Client(t)
				_, err := getAzure(t, client, container)
				allowed(t, rights, "read", rights != Nothing, azureDenied(err))
				allowed(t, rights, "write", rights == NoDelete, azureDenied(putAzure(t, client, container)))
				_, err = client.DeleteBlob(t.Context(), container, "a/key", nil)
				allowed(t, rights, "delete", false, azureDenied(err))
			}
		})
	}
}

func TestAzureByTheEnvironment(t *testing.T) {
	server := Azure(t)
	container := server.Bucket(t)
	Setenv(t, server.AsIdentity(t).Env())
	identity, err := azidentity.NewManagedIdentityCredential(nil)
	if err != nil {
		t.Fatal(err)
	}
	options := &azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: clientFor(t)}}
	client, err := azblob.NewClient(server.Endpoint, identity, options)
	if err != nil {
		t.Fatal(err)
	}
	err = putAzure(t, client, container)
	if err != nil {
		t.Error(err)
	}
}

// TestServersDieWithTheTestBinary checks that the servers do not outlive a test binary that is killed. The test runs
// itself as the victim.
func TestServersDieWithTheTestBinary(t *testing.T) {
	needServers(t)
	const mark = "ETCD_DR_OBJECTSTORES_VICTIM"
	file := os.Getenv(mark)
	if file != "" {
		err := os.WriteFile(file, []byte(S3Plain(t).Endpoint), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		return
	}
	S3Plain(t) // skips this test too if there is no server
	dir := t.TempDir()
	file = filepath.Join(dir, "url")
	victim := exec.Command(os.Args[0], "-test.run=^TestServersDieWithTheTestBinary$")
	victim.Env = append(os.Environ(), mark+"="+file, "TMPDIR="+dir)
	err := victim.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill() }()
	var url string
	waitFor(t, func() bool {
		data, err := os.ReadFile(file)
		url = string(data)
		return err == nil && strings.HasPrefix(url, "http://")
	})
	if !answers(t, url) {
		t.Error("the victim's server does not answer")
	}
	err = victim.Process.Kill()
	if err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	waitFor(t, func() bool { return !answers(t, url) })
}

func answers(t *testing.T, url string) bool {
	t.Helper()
	response, err := clientFor(t).Get(url + "/health")
	if err != nil {
		return false
	}
	return response.Body.Close() == nil
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); time.Sleep(pollInterval) {
		if done() {
			return
		}
	}
	t.Fatal("it did not happen")
}

func TestAServerThatEndsIsReportedWithItsLastWords(t *testing.T) {
	needServers(t)
	_, err := launch{
		name:    "broken",
		command: func(string, int) *exec.Cmd { return exec.Command("sh", "-c", "echo no such flag; exit 3") },
		ready:   answering("/", http.StatusOK),
	}.start()
	if err == nil || !strings.Contains(err.Error(), "no such flag") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v, want the server's complaint", err)
	}
}

func TestAnExpiredCertificateIsSeen(t *testing.T) {
	server := S3Expired(t)
	data, err := os.ReadFile(server.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	response, err := client.Get(server.Endpoint)
	if err == nil {
		_ = response.Body.Close()
	}
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	if !ok || invalid.Reason != x509.Expired {
		t.Errorf("got %v, want that the certificate has expired", err)
	}
}

func TestFailingTransportFailsTheOneRequest(t *testing.T) {
	server := S3(t)
	for _, after := range []bool{false, true} {
		bucket := server.Bucket(t)
		failing := &FailingTransport{
			Base:        clientFor(t).Transport,
			Match:       func(r *http.Request) bool { return r.Method == http.MethodPut },
			Nth:         2,
			AfterAnswer: after,
		}
		options := server.Client(t).Options()
		options.HTTPClient = &http.Client{Transport: failing}
		client := s3.New(options)
		var failures []bool
		for _, key := range []string{"1", "2", "3"} {
			_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: &bucket, Key: &key, Body: bytes.NewReader(content),
			})
			failures = append(failures, errors.Is(err, syscall.ECONNRESET))
		}
		if failures[0] || !failures[1] || failures[2] || failing.Failed() != 1 {
			t.Errorf("failed: %v, want the second alone", failures)
		}
		_, err := server.Client(t).HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: aws.String("2")})
		stored := err == nil
		if stored != after {
			t.Errorf("failed after the answer: %v; the server has it: %v", after, stored)
		}
	}
}
