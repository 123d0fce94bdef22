// Package credentials holds the credentials of one repository, as a folder or a Kubernetes Secret contains them.
//
// Parse recognises the names that operators, charts and command lines give to the same few values. A repository with
// Credentials uses nothing else: no variable, no file of the user, no identity of the machine.
//
// Credentials reveal nothing when they are printed, logged or encoded. Secrets returns their content, for a pipe.
package credentials

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/address"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrCredentials means that a folder or a Secret contains no usable credentials. Errors that match it name files, and
// contain nothing of their content.
var ErrCredentials = fault.New(fault.Usage, "bad credentials")

// Credentials give access to one store. The zero Credentials mean those of the environment.
type Credentials struct {
	set func() set // hidden: fmt prints unexported fields and follows pointers, but it cannot print the result of a func
}

// set contains the values of Credentials. It is immutable.
type set struct {
	scheme string           // of the repositories that it opens
	values map[field]string // only fields of that scheme
}

// AWS holds credentials for S3.
type AWS struct {
	AccessKeyID, SecretAccessKey string
	SessionToken                 string // "": the key is permanent
	Region                       string // "": unknown
}

// GCS holds credentials for Google Cloud Storage: either JSON, with its Type, or Token.
type GCS struct {
	JSON  []byte // key of a service account, or login of a user
	Type  string // of JSON: ServiceAccount or AuthorizedUser
	Token string // access token
}

// The types of GCS.JSON. Other types name files, programs and URLs, which a Secret must not choose.
const (
	ServiceAccount = "service_account"
	AuthorizedUser = "authorized_user"
)

// Azure holds credentials for a storage account. Exactly one of Key, SAS, Connection and Secret is set.
type Azure struct {
	Account    string // "": the repository's URL names it
	Key        string // base64
	SAS        string // shared access signature, the query of a URL
	Connection string // connection string
	Suffix     string // of the cloud's host names; "": the public cloud

	Tenant, Client, Secret string // service principal
}

// suffixes are the ends of host names, by the names of Azure's clouds in lower case.
var suffixes = map[string]string{
	"azurepubliccloud": "core.windows.net", "azurecloud": "core.windows.net",
	"azureusgovernmentcloud": "core.usgovcloudapi.net", "azureusgovernment": "core.usgovcloudapi.net",
	"azurechinacloud": "core.chinacloudapi.cn",
}

// None reports whether c is the zero Credentials.
func (c Credentials) None() bool { return c.set == nil }

// AWS returns the credentials for S3, and whether c contains any.
func (c Credentials) AWS() (AWS, bool) {
	v, ok := c.valuesFor(address.S3)
	return AWS{v[awsID], v[awsSecret], v[awsSession], v[awsRegion]}, ok
}

// GCS returns the credentials for Google Cloud Storage, and whether c contains any.
func (c Credentials) GCS() (GCS, bool) {
	v, ok := c.valuesFor(address.GCS)
	return GCS{[]byte(v[gcsJSON]), typeOf(v[gcsJSON]), v[gcsToken]}, ok
}

// Azure returns the credentials for Azure, and whether c contains any.
func (c Credentials) Azure() (Azure, bool) {
	v, ok := c.valuesFor(address.Azure)
	return Azure{
		Account: v[azureAccount], Key: v[azureKey], SAS: v[azureSAS], Connection: v[azureConnection],
		Suffix: suffixes[strings.ToLower(v[azureCloud])],
		Tenant: v[azureTenant], Client: v[azureClient], Secret: v[azureSecret],
	}, ok
}

func (c Credentials) valuesFor(scheme string) (map[field]string, bool) {
	if c.set == nil || c.set().scheme != scheme {
		return nil, false
	}
	return c.set().values, true
}

// Check returns an error if c does not fit repositories with that scheme. Directories need no credentials.
func (c Credentials) Check(scheme string) error {
	if c.set == nil || c.set().scheme == scheme {
		return nil
	}
	if scheme == address.File {
		return fmt.Errorf("%w: a directory needs none: leave them out", ErrCredentials)
	}
	return fmt.Errorf("%w: these are for %s:// and the repository is %s://: use those of its store",
		ErrCredentials, c.set().scheme, scheme)
}

// Secrets returns the content of c, which Parse parses to c again. It is nil for the zero Credentials.
func (c Credentials) Secrets() map[string][]byte {
	if c.set == nil {
		return nil
	}
	files := map[string][]byte{}
	for f, value := range c.set().values {
		files[string(f)] = []byte(value)
	}
	return files
}

// Digest returns a text that is equal for equal Credentials only; "" for the zero Credentials.
func (c Credentials) Digest() string {
	if c.set == nil {
		return ""
	}
	written, err := json.Marshal(c.set().values) // sorted by name
	if err != nil {
		panic(err) // cannot happen: strings can always be encoded
	}
	sum := sha256.Sum256(append([]byte(c.set().scheme), written...))
	return hex.EncodeToString(sum[:])
}

// Equal reports whether both are equal.
func (c Credentials) Equal(other Credentials) bool { return c.Digest() == other.Digest() }

// String returns the kind of c, without any value.
func (c Credentials) String() string {
	if c.set == nil {
		return "credentials of the environment"
	}
	return "credentials for " + c.set().scheme + "://"
}

// MarshalText returns String, for encoders and loggers.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
