package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
)

// Without Config.Credentials, the credentials come from the usual places of a server on Azure. Only this file reads the
// environment. The first source that exists is used:
//
//   - AZURE_STORAGE_KEY, the account's key,
//   - AZURE_STORAGE_CONNECTION_STRING, with a key or a SAS in it,
//   - AZURE_STORAGE_SAS_TOKEN,
//   - a service principal: AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH,
//   - workload identity, as AKS injects it,
//   - the managed identity of the machine, the one that AZURE_CLIENT_ID names if it has several.
//
// AZURE_STORAGE_ACCOUNT names the account if the Config does not. azidentity's DefaultAzureCredential would also try
// the logins of developer tools, but a backup must not depend on the last person who logged in.
const whereCredentials = "--credentials or credentialsDir, AZURE_STORAGE_KEY, AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_SAS_TOKEN, " +
	"a service principal in AZURE_*, workload identity or managed identity"

// accountCredentials holds credentials of the storage account itself.
type accountCredentials struct {
	account, endpoint string
	key, sas          string
}

// given returns the account's credentials in c. If they name no account, they are for the account called name.
func given(c credentials.Azure, name string) (accountCredentials, error) {
	if c.Connection != "" {
		return parseConnection(c.Connection)
	}
	s := accountCredentials{account: c.Account, key: c.Key, sas: strings.TrimPrefix(c.SAS, "?")}
	if c.Suffix != "" && cmp.Or(c.Account, name) != "" {
		s.endpoint = "https://" + cmp.Or(c.Account, name) + ".blob." + c.Suffix
	}
	return s, nil
}

func fromEnvironment() (accountCredentials, error) {
	s := accountCredentials{account: os.Getenv("AZURE_STORAGE_ACCOUNT"), key: os.Getenv("AZURE_STORAGE_KEY")}
	if s.key != "" {
		return s, nil
	}
	text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING")
	if text != "" {
		return parseConnection(text)
	}
	s.sas = strings.TrimPrefix(os.Getenv("AZURE_STORAGE_SAS_TOKEN"), "?")
	return s, nil
}

// parseConnection parses "Name=value;Name=value". Its errors name fields, never values.
func parseConnection(text string) (accountCredentials, error) {
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(field, "=")
		fields[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	s := accountCredentials{
		account:  fields["AccountName"],
		endpoint: fields["BlobEndpoint"],
		key:      fields["AccountKey"],
		sas:      strings.TrimPrefix(fields["SharedAccessSignature"], "?"),
	}
	if s.key == "" && s.sas == "" {
		return accountCredentials{}, errors.New("AZURE_STORAGE_CONNECTION_STRING has neither AccountKey nor SharedAccessSignature")
	}
	if s.endpoint == "" && fields["EndpointSuffix"] != "" && s.account != "" {
		s.endpoint = "https://" + s.account + ".blob." + fields["EndpointSuffix"]
	}
	return s, nil
}

var errUnknownAccount = errors.New("the storage account is unknown: name it, or set AZURE_STORAGE_ACCOUNT")

// find returns the credentials of the account. If they contain neither a key nor a SAS, the caller must use credentials
// that Azure issues.
func (c Config) find() (accountCredentials, error) {
	configured, ok := c.Credentials.Azure()
	if !ok {
		found, err := fromEnvironment()
		if err == nil && c.Account != "" && found.endpoint != "" && found.account != "" && found.account != c.Account {
			err = fmt.Errorf("AZURE_STORAGE_CONNECTION_STRING is for the account %s, not for %s", found.account, c.Account)
		}
		return found, err
	}
	found, err := given(configured, c.Account)
	if err == nil && c.Account != "" && found.account != "" && found.account != c.Account {
		err = fmt.Errorf("%w: they are for the account %s, and the URL names %s: use those of that account",
			credentials.ErrCredentials, found.account, c.Account)
	}
	return found, err
}

// connect returns a client with the first credentials that find or identity returns.
func connect(c Config) (*container.Client, error) {
	found, err := c.find()
	if err != nil {
		return nil, err
	}
	if c.Account == "" {
		c.Account = found.account
	}
	if c.Endpoint == "" {
		c.Endpoint = found.endpoint
	}
	at, err := containerURL(c)
	if err != nil {
		return nil, err
	}
	options := &container.ClientOptions{ClientOptions: clientOptions(c.Transport)}
	switch {
	case found.key != "" && c.Account == "":
		return nil, errUnknownAccount // a signature with a key contains the account's name
	case found.key != "":
		key, err := blob.NewSharedKeyCredential(c.Account, found.key)
		if err != nil { // err would show a part of the key
			return nil, errors.New("the account's key is not base64: copy it again from the portal, Access keys")
		}
		return container.NewClientWithSharedKeyCredential(at, key, options)
	case found.sas != "":
		return container.NewClientWithNoCredential(at+"?"+found.sas, options)
	}
	identity, err := c.identity(options.ClientOptions)
	if err != nil {
		return nil, err
	}
	return container.NewClient(at, identity, options)
}

// identity returns the credentials that Azure issues.
func (c Config) identity(o azcore.ClientOptions) (azcore.TokenCredential, error) {
	configured, ok := c.Credentials.Azure()
	if !ok {
		o.Transport = clientOptions(c.Identity).Transport
		return identities(o)
	}
	o.Cloud = cloudOf(configured) // else the environment would choose the authority
	principal, err := azidentity.NewClientSecretCredential(configured.Tenant, configured.Client, configured.Secret,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: o})
	if err != nil {
		return nil, fmt.Errorf("%w: the service principal is not usable: check its tenant", credentials.ErrCredentials)
	}
	return identity{principal}, nil
}

// cloudOf returns the cloud of the credentials.
func cloudOf(c credentials.Azure) cloud.Configuration {
	switch c.Suffix {
	case "core.usgovcloudapi.net":
		return cloud.AzureGovernment
	case "core.chinacloudapi.cn":
		return cloud.AzureChina
	}
	return cloud.AzurePublic
}

// identities returns the chain of credentials that Azure issues: service principal, workload identity, managed
// identity.
func identities(o azcore.ClientOptions) (azcore.TokenCredential, error) {
	var chain []azcore.TokenCredential
	add := func(c azcore.TokenCredential, err error) {
		if err == nil { // an error means that the environment has no such credentials
			chain = append(chain, c)
		}
	}
	environment, err := azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: o})
	add(environment, err)
	injected := &azidentity.WorkloadIdentityCredentialOptions{ClientOptions: o}
	workload, err := azidentity.NewWorkloadIdentityCredential(injected)
	add(workload, err)
	// Outside of Azure the address of managed identities does not answer, and by default azidentity waits for minutes.
	o.Retry.TryTimeout = 5 * time.Second
	o.Retry.ShouldRetry = nil
	managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: o}
	id := os.Getenv("AZURE_CLIENT_ID")
	if id != "" {
		managed.ID = azidentity.ClientID(id)
	}
	machine, err := azidentity.NewManagedIdentityCredential(managed)
	add(machine, err)
	chained, err := azidentity.NewChainedTokenCredential(chain, nil)
	if err != nil {
		return nil, fmt.Errorf("no credentials: use one of %s", whereCredentials)
	}
	return identity{chained}, nil
}

// identity is an issuer of tokens whose errors are one line with the remedy.
type identity struct{ issuer azcore.TokenCredential }

func (i identity) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := i.issuer.GetToken(ctx, o)
	if err != nil && ctx.Err() == nil {
		err = explanation(storage.ErrDenied, err, "no token (%s): use one of %s",
			oneLine(err.Error()), whereCredentials)
	}
	return token, err
}

// oneLine returns up to 300 bytes of text on one line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}
	return text
}
