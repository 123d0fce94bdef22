package objectstores

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/etcd-dr/etcd-dr/test/tools"
)

// AzureServer is a running Azurite and the credentials of one user. Azurite does not support versioning, and it accepts
// immutability policies without applying them.
type AzureServer struct {
	Endpoint string // URL of the service. Its path is the account; in the real service the account is part of the host
	CAFile   string // PEM of the authority to trust; empty over plain http
	Account  string
	Key      string // base64; empty for a user with fewer rights
	SAS      string // shared access signature, as the query of a URL; empty if Key or identity is used

	identity string // URL of a fake of the managed identity's endpoint; empty if Key or SAS is used
}

const azureAccount = "etcddr"

var azuriteTLS, azuritePlain once[*AzureServer]

// Azure returns an Azurite that serves TLS, without which the SDK sends no token.
func Azure(t testing.TB) *AzureServer {
	t.Helper()
	needServers(t)
	modules := tools.Path(t, "stores", "azurite", "node_modules")
	return copyOf(azuriteTLS.get(t, func() (*AzureServer, error) { return startAzure(modules, true) }))
}

// AzurePlain returns an Azurite that serves plain http and accepts no tokens.
func AzurePlain(t testing.TB) *AzureServer {
	t.Helper()
	needServers(t)
	modules := tools.Path(t, "stores", "azurite", "node_modules")
	return copyOf(azuritePlain.get(t, func() (*AzureServer, error) { return startAzure(modules, false) }))
}

func startAzure(modules string, tls bool) (*AzureServer, error) {
	c, err := valid()
	if err != nil {
		return nil, err
	}
	key := make([]byte, 64)
	rand.Read(key)
	s := &AzureServer{Account: azureAccount, Key: base64.StdEncoding.EncodeToString(key)}
	endpoint, err := launch{
		name: "azurite",
		command: func(dir string, port int) *exec.Cmd {
			cmd := azurite(modules, dir, port)
			if tls {
				cmd.Args = append(cmd.Args, "--cert", c.file, "--key", c.key, "--oauth", "basic")
			}
			cmd.Env = []string{"AZURITE_ACCOUNTS=" + s.Account + ":" + s.Key}
			return cmd
		},
		ready: answering("/", http.StatusBadRequest), // Azurite serves once it rejects this request
		tls:   tls,
	}.start()
	if err != nil {
		return nil, err
	}
	s.Endpoint = endpoint + "/" + s.Account
	if tls {
		s.CAFile = c.file
	}
	return s, nil
}

// azurite returns the command to run Azurite on the Node that was installed with it. The flags make it accept the SDK's
// newer version of the API, send no telemetry, and find the account in the path instead of the host.
func azurite(modules, dir string, port int) *exec.Cmd {
	return exec.Command(modules+"/.bin/node", modules+"/azurite/dist/src/blob/main.js",
		"--blobHost", "127.0.0.1", "--blobPort", strconv.Itoa(port), "--location", dir, "--silent",
		"--skipApiVersionCheck", "--disableTelemetry", "--disableProductStyleUrl")
}

// Bucket creates an empty container and returns its name, which is random.
func (s *AzureServer) Bucket(t testing.TB) string {
	t.Helper()
	name := randomName()
	_, err := s.Client(t).CreateContainer(t.Context(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// As returns s with a shared access signature in place of the key. The signature grants rights in container and nowhere else.
func (s *AzureServer) As(t testing.TB, container string, rights Rights) *AzureServer {
	t.Helper()
	key, err := azblob.NewSharedKeyCredential(s.Account, s.Key)
	if err != nil {
		t.Fatal(err)
	}
	query, err := sas.BlobSignatureValues{
		ContainerName: container,
		ExpiryTime:    time.Now().Add(24 * time.Hour),
		Permissions:   permissions(rights),
	}.SignWithSharedKey(key)
	if err != nil {
		t.Fatal(err)
	}
	user := *s
	user.Key, user.SAS = "", query.Encode()
	return &user
}

func permissions(rights Rights) string {
	p := sas.ContainerPermissions{Read: true, List: true}
	switch rights {
	case NoDelete:
		p.Create, p.Write = true, true
	case Nothing:
		p = sas.ContainerPermissions{Tag: true} // a signature must grant at least one permission
	}
	return p.String()
}

// Through returns the same server behind a proxy.
func (s *AzureServer) Through(p *Proxy) *AzureServer {
	through := *s
	through.Endpoint = replaceHost(s.Endpoint, p.Address)
	return &through
}

// URL returns the repository's URL at prefix in a container.
func (s *AzureServer) URL(container, prefix string) string {
	query := url.Values{"account": {s.Account}, "endpoint": {s.Endpoint}}
	if s.CAFile != "" {
		query.Set("ca", s.CAFile)
	}
	return repositoryURL("azblob", container, prefix, query)
}

// Env returns environment variables with the credentials in s, in the form that Azure's own tools read. It sets all others
// of Azure's variables to "", so that the machine's own have no effect.
func (s *AzureServer) Env() []string {
	env := map[string]string{
		"AZURE_STORAGE_ACCOUNT": s.Account, "AZURE_STORAGE_KEY": s.Key, "AZURE_STORAGE_SAS_TOKEN": s.SAS,
	}
	if s.identity != "" {
		env["IDENTITY_ENDPOINT"], env["IDENTITY_HEADER"] = s.identity, identitySecret
	}
	var entries []string
	for _, name := range []string{
		"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING",
		"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE",
		"AZURE_TOKEN_CREDENTIALS",
		"IDENTITY_ENDPOINT", "IDENTITY_HEADER",
	} {
		entries = append(entries, name+"="+env[name])
	}
	return entries
}

// Client returns a client of the SDK, with which a test inspects the store.
func (s *AzureServer) Client(t testing.TB) *azblob.Client {
	t.Helper()
	options := &azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: clientFor(t)}}
	if s.Key == "" {
		client, err := azblob.NewClientWithNoCredential(s.Endpoint+"?"+s.SAS, options)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	key, err := azblob.NewSharedKeyCredential(s.Account, s.Key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := azblob.NewClientWithSharedKeyCredential(s.Endpoint, key, options)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
