package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// secret is the password in all tests: no error may ever contain it.
const secret = "pa55-w0rd"

func wantConfigError(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, cluster.ErrConfig) {
		t.Errorf("error %v, want one that is %v", err, cluster.ErrConfig)
	}
	wantWords(t, err, words...)
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("the error holds the password: %v", err)
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	err := os.WriteFile(path, []byte(content), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestValidateEndpoints(t *testing.T) {
	for _, test := range []struct {
		endpoint string
		want     string // a word of the error; "": the configuration is valid
	}{
		{"https://10.0.0.1:2379", ""},
		{"http://etcd-0.etcd:2379", ""},
		{"10.0.0.1:2379", ""},
		{"https://[fd00::1]:2379", ""},
		{"unix:///run/etcd.sock", ""},
		{"unixs://localhost:2379", ""},
		{"", "should look like"},
		{"https://", "should look like"},
		{"ftp://10.0.0.1:2379", "should start with https://"},
		{"http://a:1,http://b:1", "should look like"},
		{"http://a b:1", "should look like"},
		{"http://a:1?x", "should look like"},
		{"https://root:" + secret + "@10.0.0.1:2379", "use --user"},
		{"root:" + secret + "@10.0.0.1:2379", "use --user"},
		{"ftp://root:" + secret + "@10.0.0.1:2379", "use --user"},
		{"https://root:" + secret + "@10.0.0.1:2379?", "use --user"},
	} {
		t.Run(test.endpoint, func(t *testing.T) {
			err := at("http://127.0.0.1:2379", test.endpoint).Validate()
			if test.want != "" {
				wantConfigError(t, err, test.want)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
	wantConfigError(t, at().Validate(), "--endpoints", "ETCDCTL_ENDPOINTS")
}

func TestValidateFiles(t *testing.T) {
	files := servers.NewCertificates(t)
	absent, rubbish := filepath.Join(t.TempDir(), "absent.pem"), writeFile(t, "no PEM "+secret)
	for _, test := range []struct {
		name           string
		ca, cert, key  string
		user, password string
		skip           bool
		want           string
	}{
		{name: "nothing"},
		{name: "all", ca: files.CA, cert: files.Cert, key: files.Key, user: "root", password: secret},
		{name: "no CA", cert: files.Cert, key: files.Key},
		{name: "CA alone", ca: files.CA},
		{name: "skip", skip: true},
		{name: "cert without key", cert: files.Cert, want: "--cert and --key"},
		{name: "key without cert", key: files.Key, want: "--cert and --key"},
		{name: "absent CA", ca: absent, want: absent},
		{name: "absent cert", cert: absent, key: files.Key, want: absent},
		{name: "absent key", cert: files.Cert, key: absent, want: absent},
		{name: "CA without a certificate", ca: rubbish, want: rubbish},
		{name: "CA that is a key", ca: files.Key, want: "--cacert"},
		{name: "rubbish cert", cert: rubbish, key: files.Key, want: "--cert"},
		{name: "rubbish key", cert: files.Cert, key: rubbish, want: "--key"},
		{name: "key of another", cert: files.Cert, key: files.UserKey, want: "--key"},
		{name: "password without user", password: secret, want: "--user"},
		{name: "user without password", user: "root", want: "root"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := at("https://127.0.0.1:2379")
			cfg.CACert, cfg.Cert, cfg.Key, cfg.InsecureSkipVerify = test.ca, test.cert, test.key, test.skip
			cfg.User, cfg.Password = test.user, test.password
			err := cfg.Validate()
			if test.want != "" {
				wantConfigError(t, err, test.want)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}
