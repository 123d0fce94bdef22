package objectstores

import (
	"os"
	"path/filepath"
	"testing"
)

// Secret returns the credentials as a Secret holds them.
func (s *S3Server) Secret() map[string]string {
	secret := map[string]string{"AWS_ACCESS_KEY_ID": s.AccessKey, "AWS_SECRET_ACCESS_KEY": s.SecretKey}
	if s.SessionToken != "" {
		secret["AWS_SESSION_TOKEN"] = s.SessionToken
	}
	return secret
}

// Secret returns the credentials as a Secret holds them.
func (s *GCSServer) Secret() map[string]string { return map[string]string{"access-token": s.Token} }

// Secret returns the credentials as a Secret holds them.
func (s *AzureServer) Secret() map[string]string {
	if s.Key == "" {
		return map[string]string{"AZURE_STORAGE_SAS_TOKEN": s.SAS}
	}
	return map[string]string{"storage-account": s.Account, "storage-key": s.Key}
}

// Mount returns a folder with the files of secret, in the form in which kubelet mounts a Secret. Remount replaces them.
func Mount(t testing.TB, secret map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	Remount(t, dir, secret)
	for name := range secret {
		err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Remount replaces the content of the files that Mount has made, all at once.
func Remount(t testing.TB, dir string, secret map[string]string) {
	t.Helper()
	version, err := os.MkdirTemp(dir, "..version-")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range secret {
		err := os.WriteFile(filepath.Join(version, name), []byte(content), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "..data")
	err = os.Symlink(filepath.Base(version), link+".new")
	if err != nil {
		t.Fatal(err)
	}
	err = os.Rename(link+".new", link)
	if err != nil {
		t.Fatal(err)
	}
}

// WrongEnv returns variables with which no store's own tools would find usable credentials.
func WrongEnv() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=wrong", "AWS_SECRET_ACCESS_KEY=wrong-secret", "AWS_SESSION_TOKEN=wrong", "AWS_REGION=wrong", "AWS_PROFILE=wrong",
		"AWS_CA_BUNDLE=/wrong", "AWS_CONFIG_FILE=/wrong", "AWS_SHARED_CREDENTIALS_FILE=/wrong", "AWS_ENDPOINT_URL=http://127.0.0.1:1",
		"AWS_ROLE_ARN=wrong", "AWS_WEB_IDENTITY_TOKEN_FILE=/wrong", "AWS_EC2_METADATA_DISABLED=true",
		"GOOGLE_APPLICATION_CREDENTIALS=/wrong",
		"AZURE_STORAGE_ACCOUNT=wrong", "AZURE_STORAGE_KEY=d3Jvbmc=", "AZURE_STORAGE_SAS_TOKEN=sig=wrong",
		"AZURE_STORAGE_CONNECTION_STRING=AccountName=wrong;AccountKey=d3Jvbmc=", "AZURE_TENANT_ID=wrong", "AZURE_CLIENT_ID=wrong",
		"AZURE_CLIENT_SECRET=wrong", "IDENTITY_ENDPOINT=http://127.0.0.1:1", "IDENTITY_HEADER=wrong",
	}
}
