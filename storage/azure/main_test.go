package azure_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/azure"
	"github.com/etcd-dr/etcd-dr/storage/transport"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

func TestMain(m *testing.M) {
	job := os.Getenv(childVariable)
	if job != "" {
		err := child(job)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(objectstores.Main(m))
}

// small parts let a test have several of them with little memory.
var small = storage.Parts{Size: 64 << 10, Whole: 16 << 10, Workers: 4}

// config returns the configuration for a container of the server, with small parts. It puts the server's credentials
// into the environment.
func config(t *testing.T, s *objectstores.AzureServer, container string) azure.Config {
	t.Helper()
	objectstores.Setenv(t, s.Env())
	return azure.Config{
		Account: s.Account, Container: container, Endpoint: s.Endpoint, Transport: newTransport(t, s.CAFile), Parts: small,
	}
}

func newTransport(t testing.TB, caFile string) http.RoundTripper {
	t.Helper()
	rt, err := transport.New(caFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.CloseIdleConnections)
	return rt
}

func open(t testing.TB, c azure.Config) *azure.Bucket {
	t.Helper()
	b, err := azure.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// plain creates a container on Azurite and returns its Bucket and an SDK client that bypasses this package.
func plain(t *testing.T) (azure.Config, *azure.Bucket, *container.Client) {
	t.Helper()
	s := objectstores.AzurePlain(t)
	name := s.Bucket(t)
	c := config(t, s, name)
	return c, open(t, c), s.Client(t).ServiceClient().NewContainerClient(name)
}

// blocksOf returns the number of uncommitted blocks under key.
func blocksOf(t *testing.T, look *container.Client, key string) int {
	t.Helper()
	list, err := look.NewBlockBlobClient(key).GetBlockList(t.Context(), blockblob.BlockListTypeUncommitted, nil)
	if err != nil {
		return 0
	}
	return len(list.UncommittedBlocks)
}

func read(t *testing.T, b storage.Bucket, key string, o storage.OpenOptions) ([]byte, error) {
	t.Helper()
	r, _, err := b.Open(t.Context(), key, o)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(r)
	return p, errors.Join(err, r.Close())
}
