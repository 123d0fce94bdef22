package credentials_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/credentials"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// secrets are in every set of the tests. No output contains them.
const (
	id     = "AKIDHunter2"
	secret = "Hunter2/secret+key"
	token  = "Hunter2-token"
	key    = "SHVudGVyMg=="
	login  = `{"type": "service_account", "private_key": "Hunter2"}`
	shared = "# of the vault\n[other]\naws_access_key_id=other\n[default]\naws_access_key_id = " + id + "\naws_secret_access_key=" + secret + "\n"
)

func bytesOf(files map[string]string) map[string][]byte {
	all := map[string][]byte{}
	for name, content := range files {
		all[name] = []byte(content)
	}
	return all
}

// TestAWS checks the names under which Secrets hold the keys of S3.
func TestAWS(t *testing.T) {
	plain := credentials.AWS{AccessKeyID: id, SecretAccessKey: secret}
	full := credentials.AWS{AccessKeyID: id, SecretAccessKey: secret, SessionToken: token, Region: "eu-1"}
	for name, test := range map[string]struct {
		files map[string]string
		want  credentials.AWS
	}{
		"AWS, Velero's plugin, Rook": {map[string]string{
			"AWS_ACCESS_KEY_ID": id + "\n", "AWS_SECRET_ACCESS_KEY": " " + secret + "\r\n", "AWS_SESSION_TOKEN": token, "AWS_REGION": "eu-1",
		}, full},
		"etcd-druid": {map[string]string{"accessKeyID": id, "secretAccessKey": secret, "region": "eu-1", "sessionToken": token}, full},
		"CloudNativePG": {map[string]string{
			"ACCESS_KEY_ID": id, "ACCESS_SECRET_KEY": secret, "ACCESS_SESSION_TOKEN": token, "REGION": "eu-1",
		}, full},
		"k3s": {map[string]string{
			"etcd-s3-access-key": id, "etcd-s3-secret-key": secret, "etcd-s3-session-token": token, "etcd-s3-region": "eu-1",
			"etcd-s3-bucket": "b", "etcd-s3-endpoint": "e",
		}, full},
		"MinIO":                {map[string]string{"MINIO_ACCESS_KEY": id, "MINIO_SECRET_KEY": secret}, plain},
		"MinIO's root":         {map[string]string{"rootUser": id, "rootPassword": secret}, plain},
		"Bitnami":              {map[string]string{"access-key": id, "secret-key": secret}, plain},
		"Bitnami's root":       {map[string]string{"root-user": id, "root-password": secret}, plain},
		"Rook's user":          {map[string]string{"AccessKey": id, "SecretKey": secret, "Endpoint": "http://rook"}, plain},
		"Alibaba":              {map[string]string{"accessKeyID": id, "accessKeySecret": secret}, plain},
		"Velero":               {map[string]string{"cloud": shared}, plain},
		"coreos":               {map[string]string{"credentials": shared, "config": "[default]\nregion = eu-1\n"}, credentials.AWS{AccessKeyID: id, SecretAccessKey: secret, Region: "eu-1"}},
		"one profile":          {map[string]string{"credentials": strings.ReplaceAll(shared, "[other]\naws_access_key_id=other\n[default]", "[prod]")}, plain},
		"two names, one value": {map[string]string{"AWS_ACCESS_KEY_ID": id, "accesskey": id, "secretkey": secret}, plain},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := credentials.Parse(bytesOf(test.files))
			got, ok := c.AWS()
			if err != nil || !ok || got != test.want {
				t.Errorf("%+v, %v, %v, want %+v", got, ok, err, test.want)
			}
			wantAgain(t, c)
		})
	}
}

// TestGCS checks the names under which Secrets hold a login of Google Cloud.
func TestGCS(t *testing.T) {
	for _, name := range []string{"credentials.json", "gcp.json", "gcsCredentials", "serviceaccount.json", "cloud", "credentials", "key.json"} {
		c, err := credentials.Parse(bytesOf(map[string]string{name: login}))
		got, ok := c.GCS()
		if err != nil || !ok || string(got.JSON) != login || got.Type != credentials.ServiceAccount || got.Token != "" {
			t.Errorf("%s: %+v, %v, %v", name, got, ok, err)
		}
		wantAgain(t, c)
	}
	c, err := credentials.Parse(bytesOf(map[string]string{"access-token": token}))
	got, ok := c.GCS()
	if err != nil || !ok || got.Token != token {
		t.Errorf("a token: %+v, %v, %v", got, ok, err)
	}
}

// TestAzure checks the names under which Secrets hold the keys of a storage account.
func TestAzure(t *testing.T) {
	withKey := credentials.Azure{Account: "acc", Key: key}
	for name, test := range map[string]struct {
		files map[string]string
		want  credentials.Azure
	}{
		"Azure":          {map[string]string{"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": key}, withKey},
		"coreos":         {map[string]string{"storage-account": "acc", "storage-key": key}, withKey},
		"etcd-druid":     {map[string]string{"storageAccount": "acc", "storageKey": key}, withKey},
		"the CSI driver": {map[string]string{"azurestorageaccountname": "acc", "azurestorageaccountkey": key}, withKey},
		"coreos in a cloud": {map[string]string{"storage-account": "acc", "storage-key": key, "cloud": "AzureChinaCloud"},
			credentials.Azure{Account: "acc", Key: key, Suffix: "core.chinacloudapi.cn"}},
		"Velero": {map[string]string{"cloud": "AZURE_STORAGE_ACCOUNT_ACCESS_KEY=" + key + "\nAZURE_CLOUD_NAME=AzurePublicCloud\n"},
			credentials.Azure{Key: key, Suffix: "core.windows.net"}},
		"a signature": {map[string]string{"AZURE_STORAGE_SAS_TOKEN": token}, credentials.Azure{SAS: token}},
		"Velero's service principal": {
			map[string]string{"cloud": "AZURE_TENANT_ID=t\nAZURE_CLIENT_ID=c\nAZURE_CLIENT_SECRET=" + secret + "\nAZURE_RESOURCE_GROUP=g\n"},
			credentials.Azure{Tenant: "t", Client: "c", Secret: secret},
		},
		"a connection string": {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=" + key},
			credentials.Azure{Connection: "AccountName=a;AccountKey=" + key}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := credentials.Parse(bytesOf(test.files))
			got, ok := c.Azure()
			if err != nil || !ok || got != test.want {
				t.Errorf("%+v, %v, %v, want %+v", got, ok, err, test.want)
			}
			wantAgain(t, c)
		})
	}
}

// wantAgain checks that a child reads from a pipe what its parent has.
func wantAgain(t *testing.T, c credentials.Credentials) {
	t.Helper()
	sent, err := json.Marshal(c.Secrets())
	if err != nil {
		t.Fatal(err)
	}
	var received map[string][]byte
	err = json.Unmarshal(sent, &received)
	if err != nil {
		t.Fatal(err)
	}
	again, err := credentials.Parse(received)
	if err != nil || !again.Equal(c) || again.Digest() == "" {
		t.Errorf("%v, %v after a pipe", again, err)
	}
}

// TestRefused checks that each error names its files and a remedy, and shows nothing of their content.
func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing":             {nil, `(found: no files)`},
		"unknown":             {map[string]string{"password": secret, "user": id}, `(found: ["password" "user"])`},
		"half":                {map[string]string{"access-key": id}, "access-key needs AWS_SECRET_ACCESS_KEY too"},
		"the other half":      {map[string]string{"secret-key": secret}, "secret-key needs AWS_ACCESS_KEY_ID too"},
		"empty":               {map[string]string{"AWS_ACCESS_KEY_ID": "\n", "AWS_SECRET_ACCESS_KEY": secret}, "AWS_ACCESS_KEY_ID is empty"},
		"a byte order mark":   {map[string]string{"AWS_ACCESS_KEY_ID": "\ufeff" + id, "AWS_SECRET_ACCESS_KEY": secret}, "byte order mark"},
		"two lines":           {map[string]string{"AWS_ACCESS_KEY_ID": id + "\n" + id, "AWS_SECRET_ACCESS_KEY": secret}, "AWS_ACCESS_KEY_ID must be one line"},
		"two stores":          {map[string]string{"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret, "storage-key": key}, "azblob, s3"},
		"two values":          {map[string]string{"AWS_ACCESS_KEY_ID": id, "accessKey": "other", "secretKey": secret}, "AWS_ACCESS_KEY_ID and accessKey differ"},
		"a value and a file":  {map[string]string{"AWS_ACCESS_KEY_ID": "other", "credentials": shared}, "AWS_ACCESS_KEY_ID and credentials (aws_access_key_id) differ"},
		"no default profile":  {map[string]string{"credentials": "[a]\nx=" + secret + "\n[b]\n"}, "credentials must contain the profile [default]"},
		"a program":           {map[string]string{"credentials": "[default]\ncredential_process = " + secret}, "no set of names"},
		"key and signature":   {map[string]string{"storage-key": key, "sas-token": token}, "storage-key and sas-token exclude each other"},
		"half a principal":    {map[string]string{"AZURE_CLIENT_SECRET": secret, "AZURE_TENANT_ID": "t"}, "AZURE_TENANT_ID needs AZURE_CLIENT_ID too"},
		"key and principal":   {map[string]string{"AZURE_CLIENT_SECRET": secret, "AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "storage-key": key}, "exclude each other"},
		"unknown cloud":       {map[string]string{"storage-key": key, "cloud": "Hunter2"}, "cloud must be AzurePublicCloud"},
		"token and JSON":      {map[string]string{"access-token": token, "gcp.json": login}, "gcp.json and access-token exclude each other"},
		"JSON with a program": {map[string]string{"gcp.json": `{"type":"external_account","credential_source":{"file":"Hunter2"}}`}, "gcp.json must be JSON of the type"},
		"no JSON":             {map[string]string{"gcp.json": secret}, "gcp.json must be JSON of the type"},
		"large":               {map[string]string{"gcp.json": strings.Repeat("Hunter2", 10_000)}, "gcp.json has more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := credentials.Parse(bytesOf(test.files))
			if !c.None() || !errors.Is(err, credentials.ErrCredentials) || fault.KindOf(err) != fault.Usage {
				t.Fatalf("%v, %v", c, err)
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "Hunter2") {
				t.Errorf("error %q, want one with %q and nothing of the files' content", err, test.want)
			}
		})
	}
}

// TestNothingIsShown checks every way in which a program could print credentials by mistake.
func TestNothingIsShown(t *testing.T) {
	for _, files := range []map[string]string{
		{"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret}, {"gcp.json": login}, {"storage-account": "Hunter2", "storage-key": key},
	} {
		c, err := credentials.Parse(bytesOf(files))
		if err != nil {
			t.Fatal(err)
		}
		type holder struct {
			Exported credentials.Credentials
			hidden   credentials.Credentials
			pointer  *credentials.Credentials
		}
		var out bytes.Buffer
		for _, v := range []any{c, &c, holder{c, c, &c}, &holder{c, c, &c}, []any{c}, map[string]any{"c": c}, fmt.Errorf("x %v", c)} {
			fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d\n", v, v, v, v, v, v, v)
			for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
				slog.New(handler).Info("x", "v", v)
			}
			encoded, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(encoded)
		}
		for _, text := range []string{"Hunter2", key, fmt.Sprintf("%x", "Hunter2"), secret} {
			if strings.Contains(out.String(), text) {
				t.Errorf("%q is shown in %s", text, out.String())
			}
		}
		if !strings.Contains(out.String(), "credentials for ") {
			t.Error("the kind is not shown")
		}
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRead reads a folder as kubelet mounts a Secret: links to files in a folder that a link names.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret, "ca.crt": "ignored"}
	err := os.Mkdir(filepath.Join(dir, "..2026"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "..2026"), files)
	err = os.Symlink("..2026", filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := credentials.Read(dir)
	got, ok := c.AWS()
	if err != nil || !ok || got.AccessKeyID != id || got.SecretAccessKey != secret {
		t.Errorf("%v, %v", got, err)
	}
}

func TestReadRefuses(t *testing.T) {
	plain := map[string]string{"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret}
	for name, test := range map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"no folder": {func(t *testing.T, dir string) {
			err := os.RemoveAll(dir)
			if err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		"a pipe": {func(t *testing.T, dir string) {
			err := syscall.Mkfifo(filepath.Join(dir, "AWS_REGION"), 0o600)
			if err != nil {
				t.Fatal(err)
			}
		}, "AWS_REGION must be a file"},
		"a broken link": {func(t *testing.T, dir string) {
			err := os.Symlink("none", filepath.Join(dir, "AWS_REGION"))
			if err != nil {
				t.Fatal(err)
			}
		}, "AWS_REGION: no such file"},
		"a large file": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{"AWS_REGION": strings.Repeat("x", credentials.MaxSize+1)})
		}, "AWS_REGION has more than"},
		"many files": {func(t *testing.T, dir string) {
			for i := range 100 {
				write(t, dir, map[string]string{fmt.Sprint(i): ""})
			}
		}, "more than 100 files"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "secret")
			err := os.Mkdir(dir, 0o700)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, maps.Clone(plain))
			test.spoil(t, dir)
			c, err := credentials.Read(dir)
			if !c.None() || !errors.Is(err, credentials.ErrCredentials) || !strings.HasPrefix(err.Error(), dir+": ") ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, %v, want an error with %q", c, err, test.want)
			}
			if errors.Is(err, os.ErrNotExist) {
				t.Error("it looks like a missing object")
			}
		})
	}
}
