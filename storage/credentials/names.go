package credentials

import (
	"fmt"
	"strings"

	"github.com/etcd-dr/etcd-dr/storage/address"
)

// field is one value of a set, under the name that Secrets gives it.
type field string

const (
	awsID      field = "AWS_ACCESS_KEY_ID"
	awsSecret  field = "AWS_SECRET_ACCESS_KEY"
	awsSession field = "AWS_SESSION_TOKEN"
	awsRegion  field = "AWS_REGION"

	gcsJSON  field = "credentials.json"
	gcsToken field = "access-token"

	azureAccount    field = "AZURE_STORAGE_ACCOUNT"
	azureKey        field = "AZURE_STORAGE_KEY"
	azureSAS        field = "AZURE_STORAGE_SAS_TOKEN"
	azureConnection field = "AZURE_STORAGE_CONNECTION_STRING"
	azureCloud      field = "AZURE_CLOUD_NAME"
	azureTenant     field = "AZURE_TENANT_ID"
	azureClient     field = "AZURE_CLIENT_ID"
	azureSecret     field = "AZURE_CLIENT_SECRET"

	// Files with several values, which Parse replaces by the fields above.
	awsShared      field = "credentials" // as ~/.aws/credentials
	awsConfig      field = "config"      // as ~/.aws/config
	azureVariables field = "variables"   // lines of NAME=value
	anyCloud       field = "cloud"       // decided by its content
)

// fields maps the fields of a set to the scheme of the store.
var fields = map[field]string{
	awsID: address.S3, awsSecret: address.S3, awsSession: address.S3, awsRegion: address.S3,
	gcsJSON: address.GCS, gcsToken: address.GCS,
	azureAccount: address.Azure, azureKey: address.Azure, azureSAS: address.Azure, azureConnection: address.Azure,
	azureCloud: address.Azure, azureTenant: address.Azure, azureClient: address.Azure, azureSecret: address.Azure,
}

// secret contains the fields that determine the store of a set. The others, such as a region, may also be next to the
// secrets of another store.
var secret = map[field]bool{
	awsID: true, awsSecret: true, gcsJSON: true, gcsToken: true, azureKey: true, azureSAS: true, azureConnection: true,
	azureSecret: true,
}

// multiline contains the fields that may have several lines.
var multiline = map[field]bool{gcsJSON: true, awsShared: true, awsConfig: true, azureVariables: true}

// names maps the known names, as plain returns them, to fields. The comments list the programs that use these names.
var names = map[string]field{
	"awsaccesskeyid": awsID, "awssecretaccesskey": awsSecret, "awssessiontoken": awsSession, // AWS, Velero, Rook, operators
	"awsregion": awsRegion, "awsdefaultregion": awsRegion, "region": awsRegion,
	"accesskeyid": awsID, "secretaccesskey": awsSecret, "sessiontoken": awsSession, // etcd-druid
	"accesskey": awsID, "secretkey": awsSecret, // MinIO's older charts, Bitnami, Rook's users
	"accesssecretkey": awsSecret, "accesssessiontoken": awsSession, // CloudNativePG
	"accesskeysecret": awsSecret,                          // Alibaba OSS
	"minioaccesskey":  awsID, "miniosecretkey": awsSecret, // MinIO
	"miniorootuser": awsID, "miniorootpassword": awsSecret, "rootuser": awsID, "rootpassword": awsSecret,
	"etcds3accesskey": awsID, "etcds3secretkey": awsSecret, "etcds3sessiontoken": awsSession, "etcds3region": awsRegion, // k3s, RKE2
	"credentials": awsShared, "config": awsConfig, // coreos/etcd-operator
	"cloud": anyCloud, // Velero: a file with everything; coreos/etcd-operator: the name of Azure's cloud

	"credentialsjson": gcsJSON, "accesstoken": gcsToken, // coreos/etcd-operator
	"gcpjson": gcsJSON, "gcscredentials": gcsJSON, "applicationcredentials": gcsJSON, "googlecredentials": gcsJSON,
	"serviceaccountjson": gcsJSON, "keyjson": gcsJSON, // etcd-druid; Google's documents

	"azurestorageaccount": azureAccount, "azurestoragekey": azureKey, // Azure
	"azurestoragesastoken": azureSAS, "azurestorageconnectionstring": azureConnection,
	"storageaccount": azureAccount, "storagekey": azureKey, // coreos/etcd-operator, etcd-druid
	"azurestorageaccountname": azureAccount, "azurestorageaccountkey": azureKey, // the CSI driver
	"azurestorageaccountaccesskey": azureKey, "azureaccountname": azureAccount, "azureaccountkey": azureKey, // Velero
	"storagesastoken": azureSAS, "sastoken": azureSAS, "connectionstring": azureConnection,
	"azurecloudname": azureCloud, "azuretenantid": azureTenant, "azureclientid": azureClient, "azureclientsecret": azureSecret,
}

// separators are the characters between the words of a name.
var separators = strings.NewReplacer("-", "", "_", "", ".", "")

// plain returns name in lower case, without separators.
func plain(name string) string { return separators.Replace(strings.ToLower(name)) }

// fieldOf returns the field for a file's name, and whether the name is known.
func fieldOf(name string) (field, bool) {
	f, ok := names[plain(name)]
	return f, ok
}

// byContent returns the field for a file whose name means f and whose content is text: the names of awsShared and
// anyCloud have several meanings.
func (f field) byContent(text string) field {
	switch {
	case f != awsShared && f != anyCloud:
		return f
	case strings.HasPrefix(text, "{"):
		return gcsJSON
	case f == awsShared || strings.Contains("\n"+text, "\n["): // it contains a section
		return awsShared
	case strings.Contains(text, "="):
		return azureVariables
	}
	return azureCloud
}

// profileFields maps the keys of a profile to fields. It omits the keys that name programs or other profiles.
var profileFields = map[string]field{
	"aws_access_key_id": awsID, "aws_secret_access_key": awsSecret, "aws_session_token": awsSession, "region": awsRegion,
}

// profileOf returns the profile "default" of a file in the form of ~/.aws/credentials, or else its only one.
func profileOf(v value) (map[string]string, error) {
	profiles, name := map[string]map[string]string{}, ""
	for line := range strings.Lines(v.text) {
		line = strings.TrimSpace(line)
		key, text, isPair := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";"):
		case strings.HasPrefix(line, "["):
			name = strings.TrimSpace(strings.TrimPrefix(strings.Trim(line, "[] "), "profile "))
			if profiles[name] == nil {
				profiles[name] = map[string]string{}
			}
		case isPair && profiles[name] != nil:
			profiles[name][strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(text)
		}
	}
	if profiles["default"] != nil {
		return profiles["default"], nil
	}
	if len(profiles) != 1 {
		return nil, fmt.Errorf("%w: %s must contain the profile [default], or a single one", ErrCredentials, v.file)
	}
	for _, only := range profiles {
		return only, nil
	}
	return nil, nil
}
